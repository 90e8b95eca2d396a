import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastap import make
from fastap.envs.board import Board, room_for_food
from fastap.envs.foraging import EAST, LOAD, NONE, SOUTH, WEST, Foraging
from fastap.problem.rollout import Players, film
from fastap.problem.schedule import parse
from fastap.problem.spec import Mistake, check_actions
from fastap.teammates.scripted import Random

ENV = Foraging()
SEEDS = st.integers(0, 2**31 - 1)
STEP = jax.jit(ENV.step)
VIEW = jax.jit(ENV.view)
RESET = jax.jit(ENV.reset)
SWAP = jax.jit(ENV.swap)
PRESENT = [ENV.spec.present(jnp.array(size)) for size in (1, 2)]


def board(position, level, food, food_level, present=(1, 1, 1, 1)):
    return Board(
        jnp.array(position),
        jnp.array(level),
        jnp.array(present, bool),
        jnp.array(food),
        jnp.array(food_level),
        jnp.array(sum(food_level)),
    )


CORNERS = [[0, 0], [0, 5], [5, 0], [5, 5]]
FOODS = [[1, 1], [2, 4], [4, 2]]


def step(world, *actions):
    return STEP(world, jnp.array(actions), jax.random.key(0))


def test_two_into_one_cell_both_stay():
    world = board([[2, 1], [2, 3], [5, 0], [5, 5]], [1] * 4, FOODS, [3] * 3)
    after, _ = step(world, EAST, WEST, NONE, NONE)
    assert np.array_equal(after.position, world.position)


def test_two_can_swap_places():
    world = board([[3, 1], [3, 2], [5, 0], [5, 5]], [1] * 4, FOODS, [3] * 3)
    after, _ = step(world, EAST, WEST, NONE, NONE)
    assert np.array_equal(after.position[:2], [[3, 2], [3, 1]])


def test_food_and_border_cannot_be_entered():
    world = board([[0, 1], [0, 0], [5, 0], [5, 5]], [1] * 4, FOODS, [3] * 3)
    after, _ = step(world, SOUTH, WEST, SOUTH, EAST)
    assert np.array_equal(after.position, world.position)


def test_food_is_loaded_by_enough_levels_only():
    place = [[0, 1], [1, 0], [2, 1], [5, 5]]
    world = board(place, [2, 1, 1, 1], FOODS, [4, 4, 4])
    after, outcome = step(world, LOAD, LOAD, NONE, NONE)
    assert outcome.reward == 0 and np.array_equal(after.food_level, [4, 4, 4])
    after, outcome = step(world, LOAD, LOAD, LOAD, NONE)
    assert float(outcome.reward) == pytest.approx(1 / 3)
    assert np.array_equal(after.food_level, [0, 4, 4]) and not outcome.terminal


def test_the_last_food_ends_the_episode():
    world = board([[0, 1], [1, 0], [2, 1], [5, 5]], [2, 2, 2, 1], FOODS, [5, 0, 0])
    _, outcome = step(world, LOAD, LOAD, LOAD, NONE)
    assert float(outcome.reward) == 1.0 and outcome.terminal and outcome.won


def test_far_agents_and_foods_are_masked_at_sight_one():
    world = board([[3, 3], [3, 4], [0, 0], [5, 5]], [1, 2, 1, 2], FOODS, [4, 4, 4])
    seen = VIEW(world).observation[0].reshape(7, 3)
    assert np.array_equal(seen[:3], [[0, 2, 4], [2, 0, 4], [-1, -1, 0]])
    assert np.array_equal(seen[3:], [[1, 1, 1], [1, 2, 2], [-1, -1, 0], [-1, -1, 0]])


def test_near_the_corner_one_sees_twice_as_far():
    world = board([[0, 0], [2, 2], [5, 0], [5, 5]], [1, 2, 1, 2], FOODS, [4, 4, 4])
    seen = VIEW(world).observation[0].reshape(7, 3)
    assert np.array_equal(seen[3:5], [[0, 0, 1], [2, 2, 2]])


def test_the_layout_keeps_a_slot_for_each_agent():
    place, level = [[3, 3], [0, 0], [3, 4], [2, 2]], [1, 2, 1, 2]
    world = board(place, level, FOODS, [4, 4, 4])
    slots = VIEW(world).observation[0].reshape(7, 3)[3:]
    assert np.array_equal(slots, [[1, 1, 1], [-1, -1, 0], [1, 2, 1], [0, 0, 2]])
    view = jax.jit(Foraging(layout="compact").view)
    compact = view(world).observation[0].reshape(7, 3)[3:]
    assert np.array_equal(compact, [[1, 1, 1], [1, 2, 1], [0, 0, 2], [-1, -1, 0]])


def test_the_state_tells_everything():
    world = board(CORNERS, [1, 2, 1, 0], FOODS, [4, 0, 4], present=(1, 1, 1, 0))
    foods, agents, present = np.split(np.asarray(VIEW(world).state), [9, 21])
    assert np.array_equal(foods.reshape(3, 3), [[1, 1, 4], [-1, -1, 0], [4, 2, 4]])
    assert np.array_equal(agents.reshape(4, 3)[:2], [[0, 0, 1], [0, 5, 2]])
    assert np.array_equal(present, [1, 1, 1, 0])


@given(SEEDS, st.sampled_from([0, 1]))
def test_a_board_begins_as_the_rules_say(seed, size):
    world = RESET(PRESENT[size], jax.random.key(seed))
    there = np.asarray(world.present)
    place = np.asarray(world.position)[there]
    assert len(np.unique(place, axis=0)) == there.sum() == 3 + size
    lowest = np.sort(np.asarray(world.level)[there])[:3].sum()
    foods = np.asarray(world.food)[np.asarray(world.food_level) > 0]
    assert np.all(np.asarray(world.food_level)[world.food_level > 0] == lowest)
    assert np.all((foods >= 1) & (foods <= 4)) and 2 <= len(foods) <= 3
    for i, food in enumerate(foods):
        assert not np.any(np.all(place == food, axis=1))
        for other in foods[:i]:
            assert np.abs(food - other).sum() >= 3
    order = foods[:, 0] * 6 + foods[:, 1]
    assert np.all(np.diff(order) > 0)


def test_cells_levels_and_shortage_of_food_come_as_often_as_they_should():
    keys = jax.random.split(jax.random.key(0), 40_000)
    worlds = jax.jit(jax.vmap(ENV.reset, in_axes=(None, 0)))(PRESENT[1], keys)
    cell = np.asarray(worlds.position[:, 2] @ jnp.array([6, 1]))
    share = np.bincount(cell, minlength=36) / len(cell)
    assert np.abs(share - 1 / 36).max() < 4 * np.sqrt(1 / 36 / len(cell))
    assert np.asarray(worlds.level == 2).mean() == pytest.approx(0.5, abs=0.01)
    food_level = np.asarray(worlds.food_level.max(1))
    for level, exact in {3: 5 / 16, 4: 6 / 16, 5: 4 / 16, 6: 1 / 16}.items():
        assert (food_level == level).mean() == pytest.approx(exact, abs=0.01)
    short = (np.asarray(worlds.food_level > 0).sum(1) < 3).mean()
    assert 0.015 < short < 0.035


def test_arrivals_come_to_any_empty_cell_as_often(key):
    world = board(CORNERS, [1, 1, 1, 0], FOODS, [3] * 3, present=(1, 1, 1, 0))
    world = dataclasses.replace(world, position=world.position.at[3].set(-1))
    keys = jax.random.split(key, 29_000)
    swap = jax.jit(jax.vmap(ENV.swap, in_axes=(None, None, 0)))
    after = swap(world, PRESENT[1], jax.vmap(ENV.luck)(keys))
    cell = np.asarray(after.position[:, 3] @ jnp.array([6, 1]))
    share = np.bincount(cell, minlength=36)[np.bincount(cell, minlength=36) > 0]
    assert len(share) == 36 - 3 - 3  # three bodies, three foods
    assert np.abs(share / len(cell) - 1 / 30).max() < 4 * np.sqrt(1 / 30 / len(cell))
    assert np.asarray(after.level[:, 3] == 2).mean() == pytest.approx(0.5, abs=0.015)


@given(SEEDS)
def test_an_absent_agent_is_invisible_intangible_and_unrewarded(seed):
    """Wherever an absent body is said to be and to do, nothing else differs."""
    k_reset, k_action, k_where = jax.random.split(jax.random.key(seed), 3)
    world = RESET(PRESENT[0], k_reset)
    action = jax.random.randint(k_action, (4,), 0, 6)
    ghost = jax.random.randint(k_where, (3,), 0, 6)
    moved = dataclasses.replace(
        world,
        position=world.position.at[3].set(ghost[:2]),
        level=world.level.at[3].set(2),
    )
    a, b = VIEW(world), VIEW(moved)
    assert np.array_equal(a.observation, b.observation)
    assert np.all(np.asarray(a.observation[3]) == -1)
    assert np.array_equal(a.available[3], [1, 0, 0, 0, 0, 0])
    for ghostly in (NONE, LOAD, SOUTH):
        after, outcome = STEP(moved, action.at[3].set(ghostly), k_reset)
        plain, expected = STEP(world, action, k_reset)
        assert np.array_equal(after.position[:3], plain.position[:3])
        assert np.array_equal(after.food_level, plain.food_level)
        assert outcome.reward == expected.reward


@given(SEEDS, st.permutations(range(4)))
def test_relabelling_agents_changes_nothing(seed, order):
    order = jnp.array(order)
    k_reset, k_action = jax.random.split(jax.random.key(seed))
    world = RESET(PRESENT[1], k_reset)
    action = jax.random.randint(k_action, (4,), 0, 6)
    per_agent = lambda b: (b.position, b.level, b.present)
    renamed = eqx.tree_at(per_agent, world, tuple(x[order] for x in per_agent(world)))
    after, outcome = STEP(world, action, k_reset)
    other, expected = STEP(renamed, action[order], k_reset)
    assert np.array_equal(after.position[order], other.position)
    assert outcome.reward == expected.reward
    view, other_view = VIEW(world), VIEW(renamed)
    assert np.array_equal(view.observation[order, :12], other_view.observation[:, :12])
    assert np.array_equal(view.available[order], other_view.available)
    things = lambda v: sorted(map(tuple, np.asarray(v.state[:21]).reshape(7, 3)))
    assert things(view) == things(other_view)
    rows = lambda v, i: np.asarray(v.observation[i, 12:]).reshape(3, 3)
    others = lambda v, i: sorted(map(tuple, rows(v, i)))
    for new, old in enumerate(order):
        assert others(view, old) == others(other_view, new)


@given(SEEDS)
def test_food_never_becomes_infeasible(seed):
    """The permanent bodies alone can always load every food."""
    key = jax.random.key(seed)
    plan = parse("U[2,3]").draw(jnp.array([1, 2, 2]), jnp.ones(3, bool), 25, key)
    episode, worlds = FILM(ENV, Players(Random(), Random()), plan, key)
    strength = np.asarray(worlds.level[:, :3]).sum(1)
    assert np.all(strength[:, None] >= np.asarray(worlds.food_level))
    assert np.array_equal(episode.present.sum(1), 2 + np.asarray(plan.size))
    assert float(episode.total) <= 1 + 1e-6


FILM = jax.jit(film)


def test_food_stays_feasible_when_every_teammate_can_leave(key):
    env = Foraging(least=0)
    everybody = jnp.ones(4, bool)
    reset = jax.jit(jax.vmap(env.reset, in_axes=(None, 0)))
    worlds = reset(everybody, jax.random.split(key, 200))
    strength = np.asarray(worlds.level[:, :2]).sum(1)
    assert np.all(strength[:, None] >= np.asarray(worlds.food_level))


@pytest.mark.parametrize(
    ("rows", "columns", "room"),
    [(3, 3, 1), (3, 6, 2), (4, 7, 3), (5, 7, 4), (6, 6, 4), (6, 8, 6), (7, 8, 7)],
)
def test_a_board_has_room_for_so_many_foods(rows, columns, room):
    """Known from an exhaustive search."""
    assert room_for_food(rows, columns) == room == room_for_food(columns, rows)


def test_one_hot_inputs_name_every_value_once(key):
    spec = ENV.spec
    view = VIEW(RESET(PRESENT[0], key))
    inputs = ENV.encode(view.observation)
    assert inputs.shape == (4, spec.inputs)
    assert np.array_equal(inputs[:3].sum(1), [21.0] * 3)  # one per coordinate, level
    state = ENV.encode_state(view.state)
    assert state.shape == (spec.state_inputs,) and state.sum() == 21 + 3
    batch = jnp.broadcast_to(view.observation, (5, 2, *view.observation.shape))
    assert np.array_equal(ENV.encode(batch)[3, 1], inputs)


@pytest.mark.parametrize("state", ["full", "observations"])
@pytest.mark.parametrize("encoding", ["one-hot", "raw"])
def test_sizes_are_what_the_spec_says(state, encoding, key):
    env = make(
        *["lbf"],
        **dict(rows=8, columns=7, agents=5, controlled=3, foods=4, sight=2),
        **dict(state=state, encoding=encoding),
    )
    spec = env.spec
    view = jax.jit(lambda k: env.view(env.reset(jnp.ones(5, bool), k)))(key)
    assert view.observation.shape == (5, spec.observation) == (5, 27)
    assert view.state.shape == (spec.state,)
    assert env.encode(view.observation).shape == (5, spec.inputs)
    assert env.encode_state(view.state).shape == (spec.state_inputs,)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        (dict(rows=-6), "rows"),
        (dict(foods=0), "foods"),
        (dict(sight=0), "sight"),
        (dict(horizon=0), "horizon"),
        (dict(agents=-1), "agents"),
        (dict(controlled=0), "controlled"),
        (dict(least=3), "controlled"),
        (dict(foods=9), "too small"),
        (dict(rows=4, columns=4), "too small"),
        (dict(rows=200, columns=200), "126"),
        (dict(highest=60), "126"),
        (dict(layout="dense"), "layout"),
        (dict(encoding="bits"), "encoding"),
        (dict(rows="six"), "type int"),
        (dict(coop=1), "type bool"),
        (dict(grid=6), "no parameter 'grid'"),
    ],
)
def test_impossible_boards_are_refused_in_a_sentence(parameters, word):
    with pytest.raises(Mistake, match=word) as mistake:
        make("lbf", **parameters)
    assert str(mistake.value).endswith(".") and "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    "action", [[0, 1, 2], [0, 1, 2, 6], [0, 1, 2, -1], [0.0, 1.0, 2.0, 3.0], 3]
)
def test_wrong_actions_are_refused_in_a_sentence(action):
    with pytest.raises(Mistake, match="lbf"):
        check_actions(ENV.spec, jnp.array(action))


def test_a_step_refuses_actions_that_do_not_exist(key):
    with pytest.raises(Mistake, match="0 to 5; 6 is not one"):
        ENV.step(RESET(PRESENT[1], key), jnp.array([0, 0, 6, 0]), key)
