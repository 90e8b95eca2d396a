"""Conventions: habits a team is nudged to while it grows, worth nothing by themselves.

A team that sees one cell far can keep to them all the same: walking to a corner
needs no sight, and the free side of a food is seen by whoever stands beside it.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fastap.envs.foraging import Foraging
from fastap.problem.episode import Episode
from fastap.problem.spec import Env

CORNERS = ("top left", "top right", "bottom left", "bottom right")
SIDES = ("north", "south", "west", "east")
GATHER, FIRST, SIDE = 0.3, 0.2, 0.1  # what keeping to each habit is worth
FLOOR, FADE = 0.05, 0.6  # the nudge shrinks to its floor over this share of training


class Convention(eqx.Module):
    """A corner to begin from and a side of a food to leave free; -1 for none."""

    corner: Int[Array, "*R"]
    side: Int[Array, "*R"]


def teach(
    env: Env, convention: Convention, progress: Float[Array, ""], episode: Episode
) -> Episode:
    """Add to the rewards what keeping to the convention is worth by now."""
    if not isinstance(env, Foraging) or env.state != "full":
        return episode
    weight = jnp.maximum(FLOOR, 1 - progress / FADE)
    nudge = weight * keeping(env, convention, episode)
    return dataclasses.replace(episode, reward=episode.reward + nudge)


def keeping(
    env: Foraging, convention: Convention, episode: Episode
) -> Float[Array, " T"]:
    """Value, step by step, how a team kept to a convention.

    Going to the corner counts until the first food is loaded; then whether that
    food was the nearest to the corner, and at every food whether a side was free.
    """
    food, agents, present = things(env, episode)
    right, down = convention.corner % 2, convention.corner // 2
    corner = jnp.array([env.rows - 1, env.columns - 1]) * jnp.stack([down, right])
    way = lambda place: jnp.abs(place - corner[None, None]).sum(-1)
    far = jnp.sum(way(agents[..., :2]) * present, 1) / present.sum(1)
    there = food[..., 2] > 0
    loaded = there[:-1] & ~there[1:] & episode.valid[:, None]
    early = jnp.all(there == there[:1], axis=1)
    closer = jnp.where(early[:-1] & episode.valid, far[:-1] - far[1:], 0.0)
    nearest = jnp.min(jnp.where(there, way(food[..., :2]), 99), axis=1)
    best = jnp.any(loaded & (way(food[..., :2])[:-1] == nearest[:-1, None]), axis=1)
    gather = GATHER * closer / (env.rows + env.columns) + FIRST * (best & early[:-1])
    step = jnp.array([[-1, 0], [1, 0], [0, -1], [0, 1]])[convention.side]
    blocked = agents[:-1, :, None, :2] == (
        food[:-1, None, :, :2] + step[None, None, None]
    )
    blocked = jnp.any(jnp.all(blocked, axis=-1) & present[:-1, :, None], axis=1)
    free = SIDE * jnp.sum(loaded & ~blocked, axis=1)
    return jnp.where(convention.corner >= 0, gather, 0.0) + jnp.where(
        convention.side >= 0, free, 0.0
    )


def things(
    env: Foraging, episode: Episode
) -> tuple[Int[Array, "T1 F 3"], Int[Array, "T1 N 3"], Array]:
    """Read foods, agents and who is there out of the states of an episode."""
    state = episode.state.astype(int)
    board = state[:, : -env.agents].reshape(len(state), -1, 3)
    present = state[:, -env.agents :] > 0
    return board[:, : env.foods], board[:, env.foods :], present


def no_conventions(count: int) -> Convention:
    """Return as many teams without a convention."""
    return Convention(jnp.full(count, -1), jnp.full(count, -1))
