"""jaxmarl's SMAX: how to get it, and its arithmetic for arrays of units."""

import builtins
import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fastap.problem.spec import Mistake

RADIUS, SIGHT, RANGE = 0.375, 9.0, 5.0  # a marine's; every unit is one


def push_apart(
    position: Float[Array, "U 2"], alive: Bool[Array, " U"], radius: float
) -> Float[Array, "U 2"]:
    """Move living units that overlap away from each other."""
    x = position[:, None, 0] - position[None, :, 0]
    y = position[:, None, 1] - position[None, :, 1]
    distance = jnp.sqrt(x**2 + y**2) + jnp.eye(len(alive)) + 1e-6
    overlap = jax.nn.relu(2 * radius / distance - 1)
    overlap = jnp.where(alive[:, None] & alive[None], overlap, 0.0) / 2
    shift = jnp.stack([jnp.sum(x * overlap, 1), jnp.sum(y * overlap, 1)], axis=1)
    return position + shift


def between(a: Float[Array, "M 2"], b: Float[Array, "L 2"]) -> Float[Array, "M L"]:
    """Measure the distances of two sets of points."""
    x = a[:, None, 0] - b[None, :, 0]
    y = a[:, None, 1] - b[None, :, 1]
    return jnp.sqrt(x**2 + y**2)


def import_smax() -> Any:
    """Import jaxmarl's game, if it is there."""
    try:
        with silence():
            from jaxmarl.environments.smax import smax_env
    except ImportError as missing:
        raise Mistake(
            "10m_vs_14m needs jaxmarl, which is not installed: "
            "pip install 'fastap[smax]'."
        ) from missing
    return smax_env


def lenient() -> contextlib.AbstractContextManager:
    """Allow jaxmarl its shapes where the user has JAX refuse rank promotion."""
    return jax.numpy_rank_promotion("allow")


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Swallow what jaxmarl prints when imported, and undo its reset of stdout."""
    speak, out = builtins.print, sys.stdout
    builtins.print = lambda *args, **options: None
    try:
        yield
    finally:
        builtins.print, sys.stdout = speak, out


@functools.cache
def make_game(allies: int, enemies: int, width: int, height: int, horizon: int) -> Any:
    """Build the game of marines once for each set of sizes."""
    smax = import_smax()
    with jax.ensure_compile_time_eval():  # also when first asked for inside `jit`
        marines = jnp.zeros(allies + enemies, jnp.uint8)
        scenario = smax.Scenario(marines, allies, enemies, False, False)
        return smax.SMAX(
            scenario=scenario, map_width=width, map_height=height, max_steps=horizon
        )
