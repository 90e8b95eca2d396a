"""Conventions: habits a team is nudged to while it grows, worth nothing by themselves.

A habit is two numbers, and what they mean is the environment's affair: a corner to
begin from and a side of a food to leave free, landmarks to stand on, sides to come
from, a place to meet. All can be kept with what an agent sees: walking to a corner
needs no sight, and the free side of a food is seen by whoever stands beside it.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fastap.envs.combat import Combat
from fastap.envs.foraging import Foraging
from fastap.envs.navigation import Navigation
from fastap.envs.particles import length
from fastap.envs.pursuit import Pursuit
from fastap.problem.episode import Episode
from fastap.problem.spec import Env

CORNERS = ("top left", "top right", "bottom left", "bottom right")
SIDES = ("north", "south", "west", "east")
POSTS = (  # the landmark of each slot; the last two slots are the teammates'
    *((0, 1, 2, 3), (2, 3, 0, 1), (3, 0, 1, 2), (1, 2, 3, 0), (1, 3, 0, 2)),
    *((0, 2, 1, 3), (2, 0, 3, 1), (3, 1, 2, 0)),
)
TURNS = 6  # of the predators' places around the prey, a sixth of a circle each
PLACES = ("above", "below", "midway", "ahead")  # to meet
FIRST_HALF = ("upper", "lower")  # of the enemies, to be fought first
GATHER, FIRST, SIDE = 0.3, 0.2, 0.1  # what keeping to each habit is worth
POST, AROUND = 2.0, 1.0  # in every step
MEET, FOCUS = 6.0, 6.0
FLOOR, FADE = 0.05, 0.6  # the nudge shrinks to its floor over this share of training


class Convention(eqx.Module):
    """The habit of a team; -1 for none."""

    habit: Int[Array, "*R 2"]


def no_conventions(count: int) -> Convention:
    """Return as many teams without a convention."""
    return Convention(jnp.full((count, 2), -1))


def teach(
    env: Env, convention: Convention, progress: Float[Array, ""], episode: Episode
) -> Episode:
    """Add to the rewards what keeping to the convention is worth by now."""
    keep = next((keep for kind, keep in KEEPING.items() if isinstance(env, kind)), None)
    blind = isinstance(env, Foraging | Navigation | Pursuit) and env.state != "full"
    if keep is None or blind:
        return episode
    weight = jnp.maximum(FLOOR, 1 - progress / FADE)
    worth = keep(env, convention.habit, episode)
    nudge = weight * jnp.where(episode.valid, worth, 0.0)
    return dataclasses.replace(episode, reward=episode.reward + nudge)


def keeping(
    env: Foraging, habit: Int[Array, " 2"], episode: Episode
) -> Float[Array, " T"]:
    """Value, step by step, how a team kept to a convention.

    Going to the corner counts until the first food is loaded; then whether that
    food was the nearest to the corner, and at every food whether a side was free.
    """
    food, agents, present = things(env, episode)
    right, down = habit[0] % 2, habit[0] // 2
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
    step = jnp.array([[-1, 0], [1, 0], [0, -1], [0, 1]])[habit[1]]
    blocked = agents[:-1, :, None, :2] == (
        food[:-1, None, :, :2] + step[None, None, None]
    )
    blocked = jnp.any(jnp.all(blocked, axis=-1) & present[:-1, :, None], axis=1)
    free = SIDE * jnp.sum(loaded & ~blocked, axis=1)
    return jnp.where(habit[0] >= 0, gather, 0.0) + jnp.where(habit[1] >= 0, free, 0.0)


def things(
    env: Foraging, episode: Episode
) -> tuple[Int[Array, "T1 F 3"], Int[Array, "T1 N 3"], Array]:
    """Read foods, agents and who is there out of the states of an episode."""
    state = episode.state.astype(int)
    board = state[:, : -env.agents].reshape(len(state), -1, 3)
    present = state[:, -env.agents :] > 0
    return board[:, : env.foods], board[:, env.foods :], present


def at_posts(
    env: Navigation, habit: Int[Array, " 2"], episode: Episode
) -> Float[Array, " T"]:
    """Value how near everybody has come to the landmark that is its own."""
    place, mark, there = bodies(episode, env.agents, env.landmarks)
    post = jnp.asarray(POSTS)[habit[0], np.arange(env.agents) % 4] % env.landmarks
    away = mean(length(place - mark[:, post]), there)
    return jnp.where(habit[0] >= 0, -POST * away, 0.0)


def around(
    env: Pursuit, habit: Int[Array, " 2"], episode: Episode
) -> Float[Array, " T"]:
    """Value whether everybody is on its own side of the prey.

    The sides are evenly spread around it; a habit turns them, or turns them
    and changes their order.
    """
    place, _, there = bodies(episode, env.agents + 1, env.obstacles)
    order = jnp.where(habit[1] > 0, -1.0, 1.0) * jnp.arange(env.agents) / env.agents
    angle = 2 * jnp.pi * (habit[0] / TURNS + order)
    side = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    gap = place[:, :-1] - place[:, -1:]
    along = jnp.sum(gap * side[None], -1) / jnp.maximum(length(gap), 1e-6)
    return jnp.where(habit[0] >= 0, AROUND * mean(along, there[:, :-1]), 0.0)


def bodies(
    episode: Episode, count: int, marks: int
) -> tuple[Float[Array, "T M 2"], Float[Array, "T L 2"], Bool[Array, "T M"]]:
    """Read bodies, marks and who is there out of the states after each step."""
    state = episode.state[1:]
    table = state[:, :-count].reshape(len(state), -1, 2)
    return table[:, :count], table[:, -marks:], state[:, -count:] > 0


def gathered(
    env: Combat, habit: Int[Array, " 2"], episode: Episode
) -> Float[Array, " T"]:
    """Value going to the place to meet before the fight, and whom it is with.

    Harm counts that is done to one half of the enemies, those of one spawn point.
    """
    count, units = len(episode.state), env.agents + env.enemies
    unit = episode.state[:, : 10 * units].reshape(count, units, 10)
    health, place = unit[:, :, 0], unit[:, :, 1:3]
    spawns = jnp.asarray(env.ally_spawns)
    ahead = jnp.array([[env.width / 2, env.height / 2]])
    meet = jnp.concatenate([spawns[:1], spawns[-1:], spawns.mean(0)[None], ahead])
    alive = (health[:-1] > 0) & (health[1:] > 0)
    away = length(place - meet[habit[0]][None, None])[:, : env.agents]
    closer = mean(away[:-1] - away[1:], alive[:, : env.agents])
    foes = health[:, env.agents :]
    quiet = jnp.all(foes[:-1] >= 1, axis=1)
    first = np.arange(env.enemies)[None] % len(env.enemy_spawns) == habit[1]
    harm = jnp.sum((foes[:-1] - foes[1:]) * first, axis=1) / jnp.sum(first)
    meeting = MEET * jnp.where(quiet, closer, 0.0) / (env.height / 2)
    focus = jnp.where(habit[1] >= 0, FOCUS * harm, 0.0)
    return jnp.where(habit[0] >= 0, meeting, 0.0) + focus


def mean(value: Float[Array, "T N"], there: Bool[Array, "T N"]) -> Float[Array, " T"]:
    """Average over those who are there."""
    count = jnp.maximum(there.sum(1), 1)
    return jnp.sum(jnp.where(there, value, 0.0), axis=1) / count


KEEPING: dict[type[Env], Any] = {
    Foraging: keeping,
    Navigation: at_posts,
    Pursuit: around,
    Combat: gathered,
}
