"""The base learner: acting and learning see the same, and the loss is QMIX's."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from fastap.envs import ENVIRONMENTS, make
from fastap.envs.foraging import Foraging
from fastap.methods import replay
from fastap.methods.actor import Actor, explore
from fastap.methods.beliefs import Silent
from fastap.methods.learner import (
    Given,
    Rewards,
    begin,
    goals,
    loss,
    plain,
    pooled,
    update,
)
from fastap.methods.model import Learning, observe, watch
from fastap.methods.networks import Sum
from fastap.methods.table import find
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import parse
from fastap.teammates.scripted import Planner

ENV = Foraging(horizon=8)
TINY = Learning(hidden=8, embed=4, target_every=3)
DIALS = plain(jnp.float32(1e-3))
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def learner():
    return begin(ENV, 2, TINY, jax.random.key(0))


@pytest.fixture(scope="module")
def episodes(learner):
    """Episodes of learnt agents beside experts whose group keeps changing."""
    actor = Actor(env=ENV, agents=learner.model.agents, epsilon=jnp.float32(0))
    players = Players(actor, Planner(env=ENV))

    def one(key):
        k_team, k_play = jax.random.split(key)
        sizes, all_of_them = jnp.array([1, 2]), jnp.ones(2, bool)
        team = parse("U[2,3]").draw(sizes, all_of_them, 8, k_team)
        return play(ENV, players, team, k_play)

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 16))


@pytest.fixture(scope="module")
def batch(episodes):
    return replay.keep(episodes, 2)


def test_learning_sees_what_acting_saw(learner, batch, episodes):
    """Greedy actions recomputed from the stored episodes are those taken.

    Every episode begins with an empty memory, and a change of teammates inside
    an episode leaves the memory of the controlled agents alone.
    """
    assert np.asarray(episodes.swap).any()
    agents = learner.model.agents
    seen = observe(ENV, None, batch)
    values, _ = jax.jit(watch)(agents, agents, seen, seen)
    values = jnp.where(batch.available, values, -jnp.inf)[:, :-1]
    assert np.array_equal(jnp.argmax(values, axis=-1), batch.action)
    assert len(np.unique(np.asarray(batch.action))) > 1


def simple(model):
    """The same agents without a mixer."""
    return dataclasses.replace(model, mixer=Sum())


def given(batch):
    """A batch as it is, without a method's own losses."""
    return Given(batch, batch.reward, DIALS, (), KEY)


def test_the_loss_by_hand(learner, batch):
    """VDN: r + 0.99 sum_i Q_i(best) against sum_i Q_i(chosen), step by step."""
    model = simple(learner.model)
    other = simple(begin(ENV, 2, TINY, jax.random.key(9)).model)
    seen = observe(ENV, None, batch)
    q, q_target = watch(model.agents, other.agents, seen, seen)
    q, q_target = np.asarray(q), np.asarray(q_target)
    total, count = 0.0, 0
    for b in range(16):
        for t in range(8):
            if not batch.valid[b, t]:
                continue
            chosen = sum(q[b, t, i, int(batch.action[b, t, i])] for i in range(2))
            best = sum(q_target[b, t + 1, i, q[b, t + 1, i].argmax()] for i in range(2))
            goal = float(batch.reward[b, t])
            goal += 0.0 if batch.terminal[b, t] else 0.99 * best
            total, count = total + (chosen - goal) ** 2, count + 1
    ours, _ = loss(model, other, ENV, TINY, given(batch))
    assert float(ours) == pytest.approx(total / count, rel=1e-4)


def test_goals_by_hand():
    """Half of what is foreseen, half of what came; the last step has only the first."""
    half = Learning(discount=0.5, trace=0.5)
    reward, later = jnp.array([[1.0, 0.0, 2.0]] * 2), jnp.array([[10.0, 20, 30]] * 2)
    terminal = jnp.array([[False] * 3, [False, True, False]])
    found = goals(half, reward, terminal, later)
    assert found[0].tolist() == [5.8125, 9.25, 17.0]
    assert found[1, :2].tolist() == [3.5, 0.0]


@given_by(st.floats(0, 1), st.integers(1, 12), st.integers(0, 1000))
def test_goals_are_those_of_a_loop(trace, length, seed):
    luck = np.random.default_rng(seed)
    reward, later = luck.normal(size=(2, 3, length)).astype(np.float32)
    terminal = luck.random((3, length)) < 0.2
    want = np.zeros((3, length + 1))
    for t in reversed(range(length)):
        mix = 0.0 if t == length - 1 else trace
        ahead = (1 - mix) * later[:, t] + mix * want[:, t + 1]
        want[:, t] = reward[:, t] + 0.99 * np.where(terminal[:, t], 0.0, ahead)
    arrays = map(jnp.asarray, (reward, terminal, later))
    found = goals(Learning(trace=trace), *arrays)
    assert np.allclose(found, want[:, :-1], atol=1e-5)


def test_a_trace_changes_what_is_learnt_towards(learner, batch):
    given = Given(batch, batch.reward, DIALS, learner.memories, KEY)
    td = lambda trace: loss(
        learner.model,
        learner.model,
        ENV,
        dataclasses.replace(TINY, trace=trace),
        given,
    )[0]
    assert not np.isclose(td(0.0), td(0.9))


def test_what_follows_the_end_changes_neither_loss_nor_gradient(learner, batch):
    valid = batch.valid.at[:, 5:].set(False)
    cut = dataclasses.replace(batch, valid=valid)
    wild = dataclasses.replace(
        cut,
        reward=cut.reward.at[:, 5:].set(100.0),
        action=cut.action.at[:, 6:].set(5),
    )
    value = eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))
    arguments = lambda b: (learner.model, learner.target, ENV, TINY, given(b))
    a, b = value(*arguments(cut)), value(*arguments(wild))
    assert float(a[0][0]) == float(b[0][0])
    for x, y in zip(jax.tree.leaves(a[1]), jax.tree.leaves(b[1]), strict=True):
        assert np.allclose(x, y, atol=1e-7)


def test_an_absent_agent_learns_nothing(learner, batch):
    gone = dataclasses.replace(batch, present=batch.present.at[:, :, 1].set(False))
    gradient, _ = eqx.filter_grad(loss, has_aux=True)(
        learner.model, learner.target, ENV, TINY, given(gone)
    )
    size = lambda i: max(
        float(jnp.abs(x[i]).max()) for x in jax.tree.leaves(gradient.agents)
    )
    assert size(0) > 0 and size(1) == 0


class Twins(Foraging):
    """Foragers that share a network."""

    alike = True


TWINS = Twins(horizon=8)


def own(agents):
    """Split what each agent has of its own from what all share."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(agents)
    name = jax.tree_util.keystr
    mine = {name(path): x for path, x in leaves if name(path) == ".enter.bias"}
    return mine, {name(path): x for path, x in leaves if name(path) not in mine}


def test_agents_that_are_alike_stay_so_but_for_one_bias(batch):
    twins = begin(TWINS, 2, TINY, KEY)
    after, _ = eqx.filter_jit(update)(TWINS, TINY, twins, batch, DIALS, KEY)
    for agents in (twins.model.agents, after.model.agents):
        mine, shared = own(agents)
        assert all(np.array_equal(x[0], x[1]) for x in shared.values())
        assert len(mine) == 1
        assert not any(np.array_equal(x[0], x[1]) for x in mine.values())
    moved = lambda x, y: not np.array_equal(x, y)
    same = jax.tree.map(moved, twins.model.agents, after.model.agents)
    assert all(jax.tree.leaves(same))


@pytest.mark.parametrize("name", ["fastap", "pearl", "liam", "qmix"])
def test_beliefs_are_shared_too(name):
    """When they begin, and when gradients are pooled; each keeps a bias of its own."""
    learning = dataclasses.replace(TINY, method=find(name))
    model = begin(TWINS, 2, learning, KEY).model
    slope = jax.tree.map(lambda x: jax.random.normal(KEY, x.shape), model)
    for part in (model.agents, model.local, pooled(slope).agents, pooled(slope).local):
        mine, shared = own(part)
        assert all(np.array_equal(x[0], x[1]) for x in shared.values())
        assert not any(np.array_equal(x[0], x[1]) for x in mine.values())
        assert len(mine) == (not isinstance(part, Silent))


def test_marines_are_alike_and_others_are_not():
    assert {name for name in ENVIRONMENTS if make(name).alike} == {"10m_vs_14m"}


def test_a_shared_network_has_the_gradient_of_one(batch):
    """All copies move by the sum of what each would, which is the chain rule."""
    twins = begin(TWINS, 2, TINY, KEY)
    model = twins.model
    alone = jax.tree.map(lambda x: x[0], model.agents)
    bias = model.agents.enter.bias

    def of_one(alone):
        both = jax.tree.map(lambda x: jnp.stack([x, x]), alone)
        both = eqx.tree_at(lambda nets: nets.enter.bias, both, bias)
        told = eqx.tree_at(lambda m: m.agents, model, both)
        return loss(told, twins.target, TWINS, TINY, given(batch))[0]

    slopes = eqx.filter_grad(loss, has_aux=True)
    every, _ = slopes(model, twins.target, TWINS, TINY, given(batch))
    joined, one = own(pooled(every).agents)[1], own(jax.grad(of_one)(alone))[1]
    for name, slope in one.items():
        for copy in joined[name]:
            assert np.allclose(copy * 2**0.5, slope, atol=1e-6)
    length = sum(float(jnp.square(x).sum()) for x in joined.values())
    assert length == pytest.approx(
        sum(float(jnp.square(x).sum()) for x in one.values()), rel=1e-4
    )


def test_the_target_follows_every_third_update(learner, batch):
    step = jax.jit(lambda one: update(ENV, TINY, one, batch, DIALS, KEY)[0])
    same = lambda a, b: all(
        np.array_equal(x, y)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
    now = learner
    for count in range(1, 7):
        before, now = now, step(now)
        assert int(now.updates) == count
        assert not same(now.model, before.model)
        if count % 3 == 0:
            assert same(now.target, now.model)
        else:
            assert same(now.target, before.target)


def test_updates_bring_the_loss_down(learner, batch):
    learning = dataclasses.replace(TINY, target_every=10_000, standardise=False)
    step = jax.jit(lambda one: update(ENV, learning, one, batch, DIALS, KEY))
    now, first = step(learner)
    for _ in range(150):
        now, last = step(now)
    assert float(last["td"]) < 0.5 * float(first["td"])


def test_rewards_are_counted_like_one_long_list():
    draws = np.random.default_rng(0).normal(2, 3, (5, 4, 6)).astype(np.float32)
    seen = Rewards(jnp.float32(1e-4), jnp.zeros(()), jnp.ones(()))
    for draw in draws:
        seen = seen.see(jnp.asarray(draw))
    assert float(seen.mean) == pytest.approx(draws.mean(), rel=1e-3)
    assert float(seen.variance) == pytest.approx(draws.var(), rel=1e-3)
    scaled = np.asarray(seen.scale(jnp.asarray(draws.reshape(20, 6))))
    assert scaled.mean() == pytest.approx(0, abs=1e-2)
    assert scaled.std() == pytest.approx(1, abs=1e-2)


def test_rewards_that_never_come_stay_finite():
    seen = Rewards(jnp.float32(1e-4), jnp.zeros(()), jnp.ones(()))
    for _ in range(200):
        seen = seen.see(jnp.zeros((4, 6)))
    assert np.allclose(seen.scale(jnp.zeros((4, 6))), 0)


def test_exploring_takes_only_what_is_available(key):
    values = jnp.array([[3.0, 2.0, 1.0]] * 4000)
    available = jnp.array([[False, True, True]] * 4000)
    dice = jax.random.uniform(key, (4000, 4))
    greedy = explore(values, available, jnp.float32(0), dice)
    assert np.all(np.asarray(greedy) == 1)
    half = np.asarray(explore(values, available, jnp.float32(0.5), dice))
    assert set(half) == {1, 2} and (half == 2).mean() == pytest.approx(0.25, abs=0.03)


def test_replay_keeps_the_newest_and_draws_all_of_them(batch, key):
    one = jax.tree.map(lambda x: x[0], batch)
    four = lambda value: jax.tree.map(
        lambda x: jnp.full((4, *x.shape), value).astype(x.dtype), one
    )
    memory = replay.empty(one, 8)
    for i in range(3):
        memory = replay.add(memory, four(i + 1), jnp.array(4 * i))
    assert np.array_equal(memory.group[:, 0], [3, 3, 3, 3, 2, 2, 2, 2])
    none = jnp.zeros(1, int)
    draw = lambda written: replay.sample(
        memory, replay.shelve(memory, jnp.array(written), none), 400, key
    )
    drawn = draw(12)
    assert set(np.unique(np.asarray(drawn.group))) == {2, 3}
    early = draw(4)
    assert set(np.unique(np.asarray(early.group))) == {3}


def test_the_last_action_is_the_one_before(batch):
    last = np.asarray(batch.last)
    assert np.all(last[:, 0] == -1)
    assert np.array_equal(last[:, 1:], batch.action)


def test_many_runs_at_once_are_the_same_as_one(batch):
    keys = jax.random.split(jax.random.key(5), 3)

    def train(key):
        now = begin(ENV, 2, TINY, key)
        step = lambda now, _: update(ENV, TINY, now, batch, DIALS, KEY)
        return jax.lax.scan(step, now, length=4)[1]["td"]

    many, one = jax.jit(jax.vmap(train))(keys), jax.jit(train)(keys[1])
    assert np.allclose(many[1], one, rtol=1e-4)
    assert not np.allclose(many[0], many[1], rtol=1e-4)
