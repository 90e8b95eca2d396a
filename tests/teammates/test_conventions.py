"""What keeping to a convention is worth, on boards laid out by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.board import Board, whole
from fastap.envs.foraging import Foraging
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import Schedule
from fastap.teammates.conventions import (
    FADE,
    FIRST,
    FLOOR,
    GATHER,
    SIDE,
    Convention,
    keeping,
    no_conventions,
    teach,
)
from fastap.teammates.scripted import Still

ENV = Foraging(horizon=2)
TOP_LEFT = Convention(jnp.array(0), jnp.array(-1))
NORTH_FREE = Convention(jnp.array(-1), jnp.array(0))
NONE = Convention(jnp.array(-1), jnp.array(-1))


def board(places, levels):
    """Agents at some places; foods at (1, 1) and (4, 4) with some levels."""
    food = jnp.array([[1, 1], [4, 4], [-1, -1]])
    return Board(
        jnp.array(places),
        jnp.ones(4, int),
        jnp.ones(4, bool),
        food,
        jnp.array([*levels, 0]),
        jnp.array(6),
    )


@pytest.fixture(scope="module")
def blank():
    fixed = jnp.zeros(2, int)
    schedule = Schedule(fixed, fixed + 2, fixed > 0)
    return play(ENV, Players(Still(), Still()), schedule, jax.random.key(0))


def lay(blank, *boards):
    state = jnp.stack([whole(one) for one in boards])
    return dataclasses.replace(blank, state=state, valid=jnp.ones(2, bool))


FAR = [[5, 5], [5, 4], [4, 5], [3, 5]]
NEAR = [[5, 4], [5, 3], [4, 4], [3, 4]]  # everybody one step to the left
SIDES = [[2, 1], [1, 0], [1, 2], [5, 5]]  # nobody north of the food at (1, 1)


def test_going_to_the_corner_pays_until_food_is_loaded(blank):
    episode = lay(blank, board(FAR, (3, 3)), board(NEAR, (3, 3)), board(FAR, (3, 3)))
    worth = np.asarray(keeping(ENV, TOP_LEFT, episode))
    assert worth == pytest.approx([GATHER / 12, -GATHER / 12], abs=1e-6)
    late = lay(blank, board(FAR, (3, 3)), board(FAR, (3, 0)), board(NEAR, (3, 0)))
    assert np.asarray(keeping(ENV, TOP_LEFT, late))[1] == 0


def test_the_first_food_should_be_the_one_in_the_corner(blank):
    right = lay(blank, board(FAR, (3, 3)), board(FAR, (0, 3)), board(FAR, (0, 3)))
    wrong = lay(blank, board(FAR, (3, 3)), board(FAR, (3, 0)), board(FAR, (0, 0)))
    assert np.asarray(keeping(ENV, TOP_LEFT, right)) == pytest.approx([FIRST, 0])
    assert np.asarray(keeping(ENV, TOP_LEFT, wrong)) == pytest.approx([0, 0])


def test_a_side_should_be_free(blank):
    free = lay(blank, board(SIDES, (3, 3)), board(SIDES, (0, 3)), board(SIDES, (0, 3)))
    north = [[0, 1], *SIDES[1:]]
    taken = lay(blank, board(north, (3, 3)), board(north, (0, 3)), board(north, (0, 3)))
    assert np.asarray(keeping(ENV, NORTH_FREE, free)) == pytest.approx([SIDE, 0])
    assert np.asarray(keeping(ENV, NORTH_FREE, taken)) == pytest.approx([0, 0])


def test_the_nudge_fades_to_its_floor_and_none_is_none(blank):
    episode = lay(blank, board(FAR, (3, 3)), board(FAR, (0, 3)), board(FAR, (0, 3)))
    extra = lambda convention, progress: np.asarray(
        teach(ENV, convention, jnp.float32(progress), episode).reward - episode.reward
    )
    assert extra(TOP_LEFT, 0.0)[0] == pytest.approx(FIRST)
    assert extra(TOP_LEFT, FADE / 2)[0] == pytest.approx(FIRST / 2, abs=1e-6)
    assert extra(TOP_LEFT, 1.0)[0] == pytest.approx(FIRST * FLOOR, abs=1e-6)
    assert np.all(extra(NONE, 0.0) == 0)
    assert np.all(np.asarray(no_conventions(3).corner) == -1)
