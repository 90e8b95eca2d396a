"""What everybody sees, remembers and does at a change of teammates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.foraging import Foraging
from fastap.envs.navigation import Navigation
from fastap.problem.rollout import AbstractPolicy, Players, film, play
from fastap.problem.schedule import Schedule, parse
from fastap.teammates.scripted import Random

PLAY, FILM = jax.jit(play), jax.jit(film)
SIZES = jnp.array([1, 2, 2, 1])
ALL = jnp.ones(4, bool)


class Counter(AbstractPolicy):
    """Counts the steps it has lived and acts by what it has seen and counted."""

    actions: int = eqx.field(static=True)
    groups: int = eqx.field(static=True, default=4)

    def start(self, slots):
        return {"age": jnp.zeros(slots, int), "trace": jnp.zeros(slots)}

    def act(self, memory, glance, key):
        seen = jnp.sum(jnp.abs(glance.observation.astype(float)), axis=1)
        trace = 0.9 * memory["trace"] + seen + 0.1 * glance.last
        age = memory["age"] + 1
        mixed = age + glance.group + jnp.floor(trace).astype(int) + glance.slot
        action = jnp.where(glance.present, mixed % self.actions, 0)
        return {"age": age, "trace": trace}, action


class Witness(AbstractPolicy):
    """Tells its age as its action, so that tests can read memories."""

    groups: int = eqx.field(static=True, default=4)

    def start(self, slots):
        return jnp.zeros(slots, int)

    def act(self, memory, glance, key):
        return memory + 1, memory


def schedule(group, size, swap):
    return Schedule(jnp.array(group), jnp.array(size), jnp.array(swap, bool))


def ages(memory, plan, horizon=6):
    env = Navigation(horizon=horizon)
    players = Players(Witness(), Witness(), memory)
    return np.asarray(PLAY(env, players, plan, jax.random.key(0)).action)


CHANGE = schedule([0, 0, 1, 1, 0, 0], [1, 1, 2, 2, 2, 2], [0, 0, 1, 0, 1, 0])


def test_controlled_memories_live_through_every_change():
    for memory in ("fresh", "watched"):
        assert np.array_equal(ages(memory, CHANGE)[:, 0], range(6))
        assert np.array_equal(ages(memory, CHANGE)[:, 1], range(6))


def test_fresh_teammates_begin_anew_at_each_swap():
    action = ages("fresh", CHANGE)
    assert np.array_equal(action[:, 2], [0, 1, 0, 1, 0, 1])
    assert np.array_equal(action[:, 3], [0, 0, 0, 1, 0, 1])  # absent for two steps


def test_watching_teammates_know_what_their_body_has_seen():
    action = ages("watched", CHANGE)
    assert np.array_equal(action[:, 2], range(6))
    assert np.array_equal(action[:, 3], [0, 0, 0, 1, 2, 3])  # fresh on arrival


def test_a_body_that_leaves_and_returns_is_new():
    plan = schedule([0, 1, 0, 1, 1, 1], [2, 1, 2, 2, 2, 2], [0, 1, 1, 0, 0, 0])
    action = ages("watched", plan)
    assert np.array_equal(action[:, 3], [0, 0, 0, 1, 2, 3])


@pytest.mark.parametrize("env", [Foraging(), Navigation()], ids=["lbf", "cn"])
def test_swapping_a_watched_group_for_itself_changes_nothing(env, key):
    players = Players(Counter(env.spec.actions), Counter(env.spec.actions), "watched")
    draw = lambda text: parse(text).draw(SIZES, ALL, 25, key)
    swapped = PLAY(env, players, draw("U[5,8]-same"), key)
    untouched = PLAY(env, players, draw("stationary"), key)
    assert np.asarray(swapped.swap).any()
    assert np.array_equal(swapped.action, untouched.action)
    assert np.array_equal(swapped.observation, untouched.observation)
    assert np.array_equal(swapped.reward, untouched.reward)


def test_a_fresh_swap_of_a_group_for_itself_does_change_something(key):
    env = Navigation()
    players = Players(Counter(5), Counter(5))
    draw = lambda text: parse(text).draw(SIZES, ALL, 25, key)
    swapped = PLAY(env, players, draw("U[5,8]-same"), key)
    untouched = PLAY(env, players, draw("stationary"), key)
    assert not np.array_equal(swapped.action, untouched.action)


@pytest.mark.parametrize("env", [Foraging(), Navigation()], ids=["lbf", "cn"])
def test_the_swap_comes_before_acting_and_is_seen_at_once(env, key):
    """At the swap the newcomer is already in the state and in the views."""
    plan = schedule([0] * 3 + [1] * 22, [1] * 3 + [2] * 22, [0] * 3 + [1] + [0] * 21)
    episode, worlds = FILM(env, Players(Random(), Random()), plan, key)
    present = np.asarray(episode.present)
    assert np.array_equal(present.sum(1), [3] * 3 + [4] * 22)
    assert np.array_equal(worlds.present[:-1], present)
    views = jax.jit(jax.vmap(env.view))(worlds)
    assert np.array_equal(views.observation, episode.observation)
    assert np.array_equal(views.state, episode.state)
    assert np.array_equal(views.available, episode.available)


def test_bodies_that_stay_keep_their_place_and_level_through_a_swap(key):
    env = Foraging()
    present = env.spec.present
    board = env.reset(present(jnp.array(2)), key)
    after = env.swap(board, present(jnp.array(1)), key)
    assert np.array_equal(board.position[:3], after.position[:3])
    assert np.array_equal(board.level[:3], after.level[:3])
    assert np.array_equal(after.position[3], [-1, -1]) and after.level[3] == 0


def test_arrivals_do_not_depend_on_what_was_done_before(key):
    """Chance of the world and chance of the policies are apart: pairing holds."""
    env = Navigation()
    plan = parse("U[5,8]").draw(SIZES, ALL, 25, jax.random.key(5))
    paths = [
        FILM(env, Players(policy, Random()), plan, key)[1].position
        for policy in (Random(), Counter(5, 1))
    ]
    present = np.asarray(jax.vmap(env.spec.present)(plan.size))
    came = np.flatnonzero(present[1:, 3] & ~present[:-1, 3]) + 1
    assert len(came) > 0
    for t in came:
        assert np.array_equal(paths[0][t, 3], paths[1][t, 3])


def test_one_episode_equals_that_episode_of_many():
    env = Foraging()
    players = Players(Random(), Random())
    keys = jax.random.split(jax.random.key(2), 5)
    plans = jax.vmap(lambda k: parse("U[3,6]").draw(SIZES, ALL, 25, k))(keys)
    batched = jax.jit(jax.vmap(play, in_axes=(None, None, 0, 0)))
    many = batched(env, players, plans, keys)
    third = jax.tree.map(lambda x: x[3], plans)
    one = PLAY(env, players, third, keys[3])
    assert np.array_equal(one.observation, many.observation[3])
    assert np.array_equal(one.action, many.action[3])


def test_after_the_end_nothing_counts(key):
    """A board with no food ends at once; all that follows is padding."""

    class Empty(Foraging):
        def reset(self, present, key):
            board = Foraging.reset(self, present, key)
            return eqx.tree_at(
                lambda b: b.food_level, board, jnp.zeros_like(board.food_level)
            )

    plan = parse("stationary").draw(SIZES, ALL, 25, key)
    episode = PLAY(Empty(), Players(Random(), Random()), plan, key)
    assert episode.length == 1 and episode.total == 0
    assert bool(episode.terminal[0])
    assert np.array_equal(np.asarray(episode.valid), np.arange(25) == 0)


@pytest.mark.parametrize("limit", ["terminal", "truncated"])
def test_the_time_limit_is_an_end_only_if_asked(limit, key):
    env = Navigation(limit=limit)
    plan = parse("stationary").draw(SIZES, ALL, 25, key)
    episode = PLAY(env, Players(Random(), Random()), plan, key)
    assert bool(episode.terminal[-1]) == (limit == "terminal")
    assert not np.asarray(episode.terminal[:-1]).any()


def test_keys_are_used_once(key):
    env = Navigation()
    plan = parse("U[5,8]").draw(SIZES, ALL, 25, key)
    with jax.debug_key_reuse(True):
        episode = jax.jit(play)(
            env, Players(Random(), Random()), plan, jax.random.key(1)
        )
    assert episode.length == 25
