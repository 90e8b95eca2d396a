"""What keeping to a convention is worth, on boards laid out by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs import make
from fastap.envs.board import Board, whole
from fastap.envs.combat import Combat
from fastap.envs.foraging import Foraging
from fastap.envs.navigation import Navigation
from fastap.envs.particles import Arena, everything
from fastap.envs.pursuit import Pursuit
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import Schedule
from fastap.teammates.conventions import (
    AROUND,
    FADE,
    FIRST,
    FLOOR,
    FOCUS,
    GATHER,
    MEET,
    POST,
    POSTS,
    SIDE,
    Convention,
    around,
    at_posts,
    gathered,
    keeping,
    no_conventions,
    teach,
)
from fastap.teammates.plan import PLANS, plan
from fastap.teammates.scripted import Still
from fastap.teammates.zoo import POOLS

ENV = Foraging(horizon=2)
TOP_LEFT, NORTH_FREE, NONE = jnp.array([[0, -1], [-1, 0], [-1, -1]])


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
    extra = lambda habit, progress: np.asarray(
        teach(ENV, Convention(habit), jnp.float32(progress), episode).reward
        - episode.reward
    )
    assert extra(TOP_LEFT, 0.0)[0] == pytest.approx(FIRST)
    assert extra(TOP_LEFT, FADE / 2)[0] == pytest.approx(FIRST / 2, abs=1e-6)
    assert extra(TOP_LEFT, 1.0)[0] == pytest.approx(FIRST * FLOOR, abs=1e-6)
    assert np.all(extra(NONE, 0.0) == 0)
    assert np.all(np.asarray(no_conventions(3).habit) == -1)


def saw(blank, states):
    return dataclasses.replace(blank, state=jnp.stack(states), valid=jnp.ones(2, bool))


def arena(place, mark, present):
    place = jnp.array(place, float)
    return everything(Arena(place, 0 * place, jnp.array(present), jnp.array(mark)))


def test_everybody_should_stand_on_a_landmark_of_its_own(blank):
    """Slots 0 and 1 are half a length off; slot 3 is not there and does not count."""
    env, marks = Navigation(horizon=2), [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    place = [[0.5, 0.0], [1.0, 0.5], [0.0, 1.0], [-1.0, -1.0]]
    three = arena(place, marks, [True, True, True, False])
    episode = saw(blank, [three] * 3)
    worth = lambda row: np.asarray(at_posts(env, jnp.array([row, 0]), episode))
    assert worth(0) == pytest.approx([-POST * 1.0 / 3] * 2)  # posts 0, 1 and 2
    swapped = 1.25**0.5 + 0.5 + 1.0  # posts 2, 3 and 0
    assert worth(1) == pytest.approx([-POST * swapped / 3] * 2, rel=1e-5)
    assert np.all(worth(-1) == 0)
    used = np.array(POSTS)
    assert len({tuple(row) for row in POSTS}) == 8 and np.all(np.sort(used) == range(4))


def test_predators_should_come_from_sides_of_their_own(blank):
    """East, and a third of a circle on each: left about, or mirrored."""
    env, turn = Pursuit(horizon=2), 2 * np.pi / 3
    spot = lambda angle, far: [0.2 + far * np.cos(angle), far * np.sin(angle)]
    place = [spot(0, 0.3), spot(turn, 0.6), spot(-turn, 0.9), [0.2, 0.0]]
    state = arena(place, [[0.0, 0.0], [1.0, 1.0]], [True] * 4)
    worth = lambda *habit: np.asarray(
        around(env, jnp.array(habit), saw(blank, [state] * 3))
    )
    assert worth(0, 0) == pytest.approx([AROUND] * 2, rel=1e-5)
    mirrored = (1 + 2 * np.cos(2 * turn)) / 3
    assert worth(0, 1) == pytest.approx([AROUND * mirrored] * 2, abs=1e-5)
    assert worth(3, 0) == pytest.approx([-AROUND] * 2, rel=1e-5)
    assert np.all(worth(-1, -1) == 0)


def army(x, y, upper, lower):
    """All allies in one place; enemies of both halves with so much health."""
    units = np.zeros((24, 10), np.float32)
    units[:, 0] = [1.0] * 10 + [upper, lower] * 7
    units[:10, 1:3] = x, y
    units[9] = 0  # one is dead
    return jnp.concatenate([jnp.asarray(units).reshape(-1), jnp.zeros(48)])


def test_marines_should_meet_and_then_fight_one_half(blank):
    env = Combat(horizon=2)
    states = [army(6, 20, 1, 1), army(6, 22, 0.5, 1), army(6, 24, 0.5, 0.25)]
    worth = lambda *habit: np.asarray(
        gathered(env, jnp.array(habit), saw(blank, states))
    )
    assert worth(0, -1) == pytest.approx([MEET * 2 / 16, 0])  # then there is a fight
    assert worth(1, -1) == pytest.approx([-MEET * 2 / 16, 0])
    assert worth(-1, 0) == pytest.approx([FOCUS * 0.5, 0])
    assert worth(-1, 1) == pytest.approx([0, FOCUS * 0.75])
    assert np.all(worth(-1, -1) == 0)


@pytest.mark.parametrize("name", PLANS)
def test_every_environment_has_a_plan(name):
    """Six types are met in training, and two others only at last."""
    trunks, spec = plan(name), make(name).spec
    types = lambda *pools: {t.type for t in trunks if t.pool in pools}
    count = lambda pool: sum(len(t.members) for t in trunks if t.pool == pool)
    assert [count(pool) for pool in POOLS] == [16, 8, 8]
    assert len(types("train")) == 6 and types("validation") < types("train")
    assert len(types("held-out") - types("train")) == 2
    assert len({trunk.seed for trunk in trunks}) == len(trunks)
    habits = {trunk.type: trunk.habit for trunk in trunks}
    assert len(set(habits.values())) == len(habits) == 8
    sizes = {member.size for trunk in trunks for member in trunk.members}
    assert sizes == set(range(spec.least, spec.mates + 1))
