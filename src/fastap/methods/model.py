"""All that a method learns: agents, beliefs, a mixer, and the heads of its losses."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray

from fastap.methods.beliefs import AbstractBelief, Silent
from fastap.methods.losses import AbstractLoss, Sizes
from fastap.methods.networks import (
    AbstractMixer,
    Monotone,
    Pair,
    Sum,
    Values,
    unroll,
)
from fastap.methods.replay import Experience
from fastap.methods.table import QMIX, Method
from fastap.problem.spec import Env

Stack = TypeVar("Stack")
Known = Float[Array, "*R K C"] | None  # what is told of each group, if anything


Part = Literal["all", "values", "beliefs"]  # values: agents and their mixer


@dataclasses.dataclass(frozen=True)
class Learning:
    """The learner's settings; the defaults are EPyMARL's, as in the paper."""

    method: Method = QMIX
    local: int = 4  # the width of an agent's context, where the method has one
    team: int = 6
    labels: int = 1  # how many there are
    mixer: Literal["qmix", "vdn"] = "qmix"
    update: Literal["joint", "literal"] = "joint"  # literal: Algorithm 2, by label
    moves: Part = "all"  # what a gradient step moves
    hidden: int = 64  # of the agents' networks
    embed: int = 32  # of the mixer
    discount: float = 0.99
    trace: float = 0.0  # lambda: how far goals trust what came over what is foreseen
    clip: float = 10.0  # the largest norm of a part's gradient
    target_every: int = 200  # gradient steps between copies to the target
    standardise: bool = True  # rewards, by their running mean and variance


class Model(eqx.Module):
    """All that is learnt; the agents' parts have parameters of their own, stacked."""

    agents: Values
    local: AbstractBelief
    team: AbstractBelief  # stacked too, one of it
    mixer: AbstractMixer
    losses: tuple[AbstractLoss, ...]
    known: Known = None  # given, not learnt

    def acting(self) -> "Model":
        """Keep what acts; team belief, mixer and losses are for learning."""
        return Model(self.agents, self.local, Silent(), Sum(), (), self.known)


def build(
    env: Env,
    agents: int,
    learning: Learning,
    key: PRNGKeyArray,
    known: Known,
) -> Model:
    """Initialise all networks of a method."""
    spec, method, hidden = env.spec, learning.method, learning.hidden
    k_agents, k_local, k_team, k_mixer, k_losses = jax.random.split(key, 5)
    inputs = spec.inputs + spec.actions + (0 if known is None else known.shape[1])
    stack = lambda build, count, key: jax.vmap(build)(jax.random.split(key, count))
    believe = lambda k: method.local(inputs, hidden, learning.local, k)
    local = stack(believe, agents, k_local)
    survey = spec.state_inputs + spec.slots * spec.actions
    team = stack(lambda k: method.team(survey, hidden, learning.team, k), 1, k_team)
    value = lambda k: Values(inputs + local.width, hidden, spec.actions, k)
    mixer = Sum()
    if learning.mixer == "qmix":
        state = spec.state_inputs + team.width
        mixer = Monotone(agents, state, learning.embed, k_mixer)
    sizes = Sizes(
        agents=agents,
        inputs=inputs,
        local=local.width,
        team=team.width,
        hidden=hidden,
        mates=spec.slots - agents,
        seen=spec.inputs,
        actions=spec.actions,
        labels=learning.labels,
    )
    keys = jax.random.split(k_losses, max(1, len(method.losses)))
    losses = tuple(
        term.build(sizes, k) for term, k in zip(method.losses, keys, strict=False)
    )
    values = stack(value, agents, k_agents)
    if env.alike:
        first = lambda x: jnp.broadcast_to(x[:1], x.shape)
        values, local = share(values, first), share(local, first)
    return Model(values, local, team, mixer, losses, known)


def share(stacked: Stack, join: Callable[[Array], Array]) -> Stack:
    """Join all parameters of some agents' networks but the biases that enter them.

    One network that is told who it is would have just these of each agent's own:
    an identity, one-hot, picks a row of weights, and that is a bias.
    """
    joined = jax.tree.map(join, stacked)
    if isinstance(stacked, Silent):
        return joined
    door: Callable[[Any], Array] = lambda networks: networks.enter.bias
    return eqx.tree_at(door, joined, door(stacked))


def observe(env: Env, known: Known, batch: Experience) -> Float[Array, "T1 n B I"]:
    """Make network inputs of whole episodes, as each agent had them."""
    seen = jnp.transpose(batch.observation, (1, 2, 0, 3))
    last = jnp.transpose(batch.last, (1, 2, 0))
    group = jnp.concatenate([batch.group, batch.group[:, -1:]], axis=1).astype(int)
    return inputs(env, known, seen, last, group.T[:, None])


def inputs(
    env: Env,
    known: Known,
    observation: Num[Array, "*n O"],
    last: Int[Array, "*n"],
    group: Int[Array, "*_"],
) -> Float[Array, "*n I"]:
    """Join what an agent sees, what it did before, and what it is told."""
    parts = [env.encode(observation), jax.nn.one_hot(last, env.spec.actions)]
    if known is not None:
        told = jax.lax.stop_gradient(known)[group]
        parts.append(jnp.broadcast_to(told, (*last.shape, known.shape[1])))
    return jnp.concatenate(parts, axis=-1)


def survey(env: Env, batch: Experience) -> Float[Array, "T1 1 B J"]:
    """Make the team's inputs: the state, and what everybody did before."""
    last = jnp.concatenate([batch.last, batch.mate_last], axis=-1)
    done = jax.nn.one_hot(last, env.spec.actions)
    done = done.reshape(*last.shape[:-1], -1)
    joined = jnp.concatenate([env.encode_state(batch.state), done], axis=-1)
    return joined.swapaxes(0, 1)[:, None]


def watch(
    agents: Values,
    frozen: Values,
    xs: Float[Array, "T1 n B I"],
    ys: Float[Array, "T1 n B I"],
) -> tuple[Float[Array, "B T1 n A"], Float[Array, "B T1 n A"]]:
    """Unroll every agent over xs, and its frozen double over ys."""
    ((ours, theirs),) = unroll([Pair(agents, frozen, xs, ys)])
    value = jax.vmap(lambda net, memory: net.leave(memory), (0, 1), 1)
    back = lambda x: jnp.transpose(x, (2, 0, 1, 3))
    frozen = jax.lax.stop_gradient(frozen)
    return back(value(agents, ours)), back(value(frozen, theirs))


def pick(values: Float[Array, "*n A"], action: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Take the value of one action from each row."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]
