"""Prey: policies that run from the predators, a scripted one and a trained one."""

import abc
import dataclasses
import functools
import itertools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

from fastap.envs.particles import length
from fastap.problem.spec import Mistake

OBSTACLE = 0.2  # its radius
SHIPPED = Path(__file__).parent / "prey.safetensors"
Weights = Float[Array | np.ndarray, "..."]


class AbstractPrey(eqx.Module):
    """A prey's policy: from what it sees to one of the five moves."""

    @abc.abstractmethod
    def __call__(
        self, observation: Float[Array, " O"], obstacles: int
    ) -> Int[Array, ""]:
        """Choose from [velocity, position, obstacles, predators], mpe2's order.

        An absent predator is seen as zeros.
        """

    @abc.abstractmethod
    def learnt(self) -> PyTree:
        """Return what it has learnt, to tell it from others of its kind."""


class Fleeing(AbstractPrey):
    """Runs from predators, the nearer the harder, and back from the border."""

    def learnt(self) -> PyTree:
        """Return nothing."""
        return ()

    def __call__(
        self, observation: Float[Array, " O"], obstacles: int
    ) -> Int[Array, ""]:
        """Weigh every danger by its inverse square and take the best axis."""
        pairs = observation.reshape(-1, 2)
        marks, hunters = pairs[2 : 2 + obstacles], pairs[2 + obstacles :]
        soon = pairs[1] + 0.4 * pairs[0]  # it cannot stop at once
        wall = -jnp.sign(soon) * jnp.square(jnp.maximum(jnp.abs(soon) - 0.6, 0.0))
        flight = away(hunters, 0.0) + 0.3 * away(marks, OBSTACLE) + 40.0 * wall
        signed = jnp.stack([-flight[0], flight[0], -flight[1], flight[1]])
        return 1 + jnp.argmax(signed)


def away(gaps: Float[Array, "n 2"], radius: float) -> Float[Array, " 2"]:
    """Sum the directions away from things, by their inverse squared distance."""
    distance = length(gaps)
    there = distance > 0
    depth = jnp.maximum(distance - radius, 0.05)
    weight = jnp.where(there, 1 / (depth**2 * jnp.maximum(distance, 1e-6)), 0.0)
    return -jnp.sum(gaps * weight[:, None], axis=0)


class Nerves(eqx.Module):
    """A small network that values the moves."""

    layers: tuple[tuple[Weights, Weights], ...]  # weight and bias of each

    def values(self, observation: Float[Array, " O"]) -> Float[Array, " 5"]:
        """Value every action."""
        x = observation
        for weight, bias in self.layers[:-1]:
            x = jax.nn.relu(jnp.sum(x[:, None] * weight, axis=0) + bias)
        weight, bias = self.layers[-1]
        return jnp.sum(x[:, None] * weight, axis=0) + bias

    @property
    def inputs(self) -> int:
        """How many numbers it sees."""
        return self.layers[0][0].shape[-2]


@dataclasses.dataclass(frozen=True, eq=False)
class Settled:
    """Nerves that learn no more; equal only to itself, so that it has a hash."""

    nerves: Nerves


class Trained(AbstractPrey):
    """The best action by a small network, for one number of things to be seen."""

    mind: Settled = eqx.field(static=True)  # an environment must stay hashable

    def __init__(self, nerves: Nerves):
        self.mind = Settled(nerves)

    @property
    def nerves(self) -> Nerves:
        """The network."""
        return self.mind.nerves

    def learnt(self) -> Nerves:
        """Return the network."""
        return self.nerves

    def __call__(
        self, observation: Float[Array, " O"], obstacles: int
    ) -> Int[Array, ""]:
        """Take the best action."""
        del obstacles
        return jnp.argmax(self.nerves.values(observation))


def save_prey(prey: Nerves, path: Path) -> None:
    """Write a trained prey to a file."""
    arrays = {}
    for i, (weight, bias) in enumerate(prey.layers):
        arrays |= {f"{i}.weight": np.asarray(weight), f"{i}.bias": np.asarray(bias)}
    try:
        path.write_bytes(write_tensors(arrays))
    except OSError as error:
        raise Mistake(f"Could not write {path}: {error.strerror}.") from error


def load_prey(path: Path) -> Nerves:
    """Read a trained prey; its arrays stay on the host until they are used."""
    try:
        arrays = read_tensors(path.read_bytes())
        layers = [
            (arrays[f"{i}.weight"], arrays[f"{i}.bias"])
            for i in range(len(arrays) // 2)
        ]
    except (OSError, SafetensorError, KeyError) as error:
        raise Mistake(f"{path} cannot be read as a trained prey: {error}.") from error
    sizes = [weight.shape for weight, _ in layers]
    joined = all(a[-1] == b[0] for a, b in itertools.pairwise(sizes))
    if not layers or not joined or sizes[-1][-1] != 5:
        raise Mistake(f"{path} holds no prey: its layers do not lead to five moves.")
    return Nerves(tuple(layers))


@functools.cache
def shipped() -> Trained:
    """Return the trained prey that comes with the package."""
    return Trained(load_prey(SHIPPED))
