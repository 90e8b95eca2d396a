"""What everybody sees, remembers and does at a change of teammates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.foraging import Foraging
from fastap.envs.navigation import Navigation
from fastap.envs.pursuit import Pursuit
from fastap.problem.rollout import AbstractPolicy, Players, film, play, record
from fastap.problem.schedule import Schedule, parse
from fastap.problem.spec import Mistake, Outcome
from fastap.teammates.scripted import Random

PLAY, FILM = jax.jit(play), jax.jit(film)
SIZES = jnp.array([1, 2, 2, 1])
ALL = jnp.ones(4, bool)
KEY = jax.random.key(0)


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
    after = env.swap(board, present(jnp.array(1)), env.luck(key))
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
            none = (jnp.zeros_like(board.food_level), jnp.zeros_like(board.spawned))
            return eqx.tree_at(lambda b: (b.food_level, b.spawned), board, none)

    plan = parse("stationary").draw(SIZES, ALL, 25, key)
    episode = PLAY(Empty(), Players(Random(), Random()), plan, key)
    assert episode.length == 1 and episode.total == 0
    assert bool(episode.terminal[0])
    assert np.array_equal(np.asarray(episode.valid), np.arange(25) == 0)
    assert not bool(episode.success)  # there was nothing to win


def test_rewards_after_the_end_are_dropped():
    ended = jnp.array([False, True, False, True, False, False])
    env = Navigation(horizon=6)
    view = jax.jit(lambda k: env.view(env.reset(jnp.ones(4, bool), k)))(KEY)
    views = jax.tree.map(lambda x: jnp.stack([x] * 7), view)
    plan = schedule([0] * 6, [2] * 6, [0] * 6)
    present = jnp.ones((6, 4), bool)
    actions = jnp.zeros((6, 4), int)
    outcome = jax.vmap(Outcome)(jnp.ones(6), ended, ended)
    episode = record(env.spec, plan, present, (views, actions, outcome))
    assert np.array_equal(episode.reward, [1, 1, 0, 0, 0, 0])
    assert int(episode.length) == 2 and bool(episode.success)


@pytest.mark.parametrize("limit", ["terminal", "truncated"])
def test_the_time_limit_is_an_end_only_if_asked(limit, key):
    env = Navigation(limit=limit)
    plan = parse("stationary").draw(SIZES, ALL, 25, key)
    episode = PLAY(env, Players(Random(), Random()), plan, key)
    assert bool(episode.terminal[-1]) == (limit == "terminal")
    assert not np.asarray(episode.terminal[:-1]).any()


class Badge(AbstractPolicy):
    """Tells its group as its action, or one more than its last action."""

    tell: str = eqx.field(static=True)
    groups: int = eqx.field(static=True, default=4)

    def start(self, slots):
        return jnp.zeros(slots, int)

    def act(self, memory, glance, key):
        group = jnp.full(len(glance.slot), glance.group)
        return memory, group if self.tell == "group" else glance.last + 1


@pytest.mark.parametrize("memory", ["fresh", "watched"])
def test_the_new_group_acts_at_the_very_step_of_its_swap(memory, key):
    plan = schedule([0, 0, 3, 3, 1, 1], [2] * 6, [0, 0, 1, 0, 1, 0])
    players = Players(Badge("group"), Badge("group"), memory)
    episode = PLAY(Navigation(horizon=6), players, plan, key)
    for slot in range(4):
        assert np.array_equal(episode.action[:, slot], plan.group)


def test_fresh_teammates_do_not_know_the_last_action_of_their_body(key):
    plan = schedule([0] * 6, [2] * 6, [0, 0, 1, 0, 1, 0])
    run = lambda memory: np.asarray(
        PLAY(
            Navigation(horizon=6),
            Players(Badge("last"), Badge("last"), memory),
            plan,
            key,
        ).action
    )
    assert np.array_equal(run("fresh")[:, 2], [0, 1, 0, 1, 0, 1])
    assert np.array_equal(run("fresh")[:, 0], range(6))
    assert np.array_equal(run("watched")[:, 2], range(6))


def test_a_newcomer_is_fresh_even_without_a_swap(key):
    plan = schedule([0] * 6, [1, 1, 2, 2, 2, 2], [0] * 6)
    for memory in ("fresh", "watched"):
        assert np.array_equal(ages(memory, plan)[:, 3], [0, 0, 0, 1, 2, 3])


@pytest.mark.parametrize(
    ("group", "size", "swap", "word"),
    [
        ([0] * 5, [1] * 5, [0] * 5, "schedule of 6 steps"),
        ([0] * 6, [0] * 6, [0] * 6, "1 to 2 teammates"),
        ([0] * 6, [1, 1, 1, 1, 1, 3], [0] * 6, "1 to 2 teammates"),
        ([0, 0, 0, 0, 0, 4], [1] * 6, [0] * 6, "groups 0 to 3"),
        ([-1] * 6, [1] * 6, [0] * 6, "groups 0 to 3"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(group, size, swap, word, key):
    plan = schedule(group, size, swap)
    with pytest.raises(Mistake, match=word):
        play(Navigation(horizon=6), Players(Witness(), Witness()), plan, key)


def test_traced_sizes_out_of_range_are_kept_legal(key):
    plan = schedule([0] * 6, [0, 5, 5, 5, 0, 0], [0, 1, 0, 0, 1, 0])
    episode = PLAY(Navigation(horizon=6), Players(Random(), Random()), plan, key)
    assert np.array_equal(episode.present.sum(1), [3, 4, 4, 4, 3, 3])


@pytest.mark.parametrize("env", [Foraging(), Navigation(), Pursuit(least=0)], ids=str)
def test_keys_are_used_once(env, key):
    sizes = jnp.arange(env.spec.least, env.spec.mates + 1)
    plan = parse("U[5,8]").draw(sizes, jnp.ones(len(sizes), bool), 25, key)
    players = Players(Random(), Random())
    with jax.debug_key_reuse(True):
        episode = jax.jit(play)(env, players, plan, jax.random.key(1))
    assert episode.valid.any()


def test_foragers_arrive_in_the_same_cell_unless_it_is_taken():
    """What others did before moves an arrival only if they stand in its place."""
    env = Foraging()
    keys = jax.random.split(KEY, 300)
    draw = jax.vmap(lambda k: parse("U[5,8]").draw(SIZES, ALL, 25, k))
    plans = draw(keys)
    run = lambda policy: jax.jit(
        jax.vmap(lambda s, k: film(env, Players(policy, Random()), s, k)[1].position)
    )(plans, keys)
    one, other = np.asarray(run(Random())), np.asarray(run(Counter(6, 1)))
    present = np.asarray(jax.vmap(jax.vmap(env.spec.present))(plans.size))
    came = np.argwhere(present[:, 1:, 3] & ~present[:, :-1, 3])
    after = lambda x, b, t: x[b, t + 1, 3]
    same = [np.array_equal(after(one, b, t), after(other, b, t)) for b, t in came]
    assert len(same) > 200 and np.mean(same) > 0.85
