"""Groups behind one interface: networks, scripts, functions, and mixes of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.foraging import LOAD, NORTH, SOUTH, Foraging
from fastap.methods.learner import begin
from fastap.methods.model import Learning
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import Schedule, parse
from fastap.teammates.crossplay import by_label, cross_play, summarise
from fastap.teammates.population import Only, Own, Population, mix, only
from fastap.teammates.scripted import Habitual, Planner, Still

ENV = Foraging(horizon=8)
SMALL = Learning(hidden=8, embed=4)
ZERO = jnp.array(0)
up = Own(decide=lambda glance, key: jnp.full(len(glance.slot), NORTH))
down = Own(decide=lambda glance, key: jnp.full(len(glance.slot), SOUTH))


@pytest.fixture(scope="module")
def learnt():
    build = lambda key: begin(ENV, 4, SMALL, key).model.agents
    agents = jax.vmap(build)(jax.random.split(jax.random.key(0), 3))
    sharp = jax.tree.map(lambda x: 5 * x, agents)  # so that groups act apart
    return Population(env=ENV, agents=sharp, groups=3)


@eqx.filter_jit
def episode(mates, group, key, memory="fresh"):
    fixed = jnp.full(8, group)
    schedule = Schedule(fixed, jnp.full(8, 2), jnp.zeros(8, bool))
    return play(ENV, Players(Still(), mates, memory), schedule, key)


def test_a_group_of_many_acts_as_it_does_alone(learnt, key):
    seen = set()
    for group in range(3):
        many = episode(learnt, jnp.array(group), key)
        alone = episode(only(learnt, jnp.array(group), np.s_[2:]), ZERO, key)
        told = episode(Only(policy=learnt, group=jnp.array(group)), ZERO, key)
        watched = episode(learnt, jnp.array(group), key, "watched")
        for other in (alone, told, watched):
            assert np.array_equal(many.action, other.action)
        seen.add(np.asarray(many.action).tobytes())
    assert len(seen) == 3


def test_groups_of_all_kinds_are_numbered_through(learnt, key):
    mixed = mix(up, learnt, down)
    assert mixed.groups == 5
    actions = [
        np.asarray(episode(mixed, jnp.array(g), key).action)[:, 2:] for g in range(5)
    ]
    assert np.all(actions[0] == NORTH) and np.all(actions[4] == SOUTH)
    for group in range(3):
        own = np.asarray(episode(learnt, jnp.array(group), key).action)[:, 2:]
        assert np.array_equal(actions[1 + group], own)


def test_a_mix_changes_in_the_middle_of_an_episode(learnt, key):
    mixed = mix(up, down, learnt)
    sizes, allowed = jnp.full(5, 2), jnp.array([True, True, False, False, False])
    team = parse("U[2,2]").draw(sizes, allowed, 8, jax.random.key(6))
    seen = play(ENV, Players(Still(), mixed), team, key)
    expected = np.where(np.asarray(team.group) == 0, NORTH, SOUTH)
    assert len(np.unique(expected)) == 2
    assert np.array_equal(seen.action[:, 2:], np.stack([expected] * 2, axis=1))


def test_planners_keep_to_their_order(key):
    env = Foraging()
    corner = lambda *way: jnp.array([way], jnp.float32)
    team = lambda way: Habitual(
        planner=Planner(env=env),
        order=way,
        noise=jnp.zeros(1),
        sight=jnp.array([6]),
        groups=1,
    )
    fixed = jnp.zeros(25, int)
    schedule = Schedule(fixed, fixed + 2, fixed > 0)
    one = lambda team, key: play(env, Players(team, team), schedule, key)
    keys = jax.random.split(key, 64)
    for way in ((1.0, 1.0), (-1.0, -1.0), (0.0, 1.0)):
        many = jax.jit(jax.vmap(lambda k, t: one(t, k), (0, None)))
        seen = many(keys, team(corner(*way)))
        assert float(seen.total.mean()) > 0.9
        food = np.asarray(seen.state)[:, :, :9].reshape(64, 26, 3, 3)
        first = 0
        for rows in food:
            gone = (rows[:-1, :, 2] > 0) & (rows[1:, :, 2] == 0)
            t, which = np.argwhere(gone)[0]
            there = rows[t, :, 2] > 0
            along = rows[t, :, :2] @ np.array(way)
            first += along[which] == along[there].min()
        assert first == 64


def test_erring_planners_err(key):
    env = Foraging()
    team = Habitual(
        planner=Planner(env=env),
        order=jnp.ones((2, 2)),
        noise=jnp.array([0.0, 1.0]),
        sight=jnp.array([6, 6]),
        groups=2,
    )
    fixed = jnp.zeros(25, int)
    keys = jax.random.split(key, 32)

    @jax.jit
    def loads(group):
        schedule = Schedule(fixed + group, fixed + 2, fixed > 0)
        run = lambda k: play(env, Players(team, team), schedule, k).total
        return jax.vmap(run)(keys).mean()

    assert float(loads(0)) > 0.9 and float(loads(1)) < 0.2


def test_cross_play_pairs_rows_with_columns(key):
    """A team that waits at a food and one that walks off: who is who matters."""
    loaders = Own(decide=lambda glance, key: jnp.full(len(glance.slot), LOAD))
    policy = mix(Planner(env=ENV), loaders)
    keys = jax.random.split(key, 16)
    matrix = jax.jit(lambda keys: cross_play(ENV, policy, jnp.array([2, 1]), keys))
    matrix = np.asarray(matrix(keys))

    def direct(i, j, size):
        team = Players(
            only(policy, jnp.array(i), np.s_[:2]), Only(policy, jnp.array(j))
        )
        fixed = jnp.zeros(8, int)
        schedule = Schedule(fixed, fixed + size, fixed > 0)
        run = jax.jit(lambda k: play(ENV, team, schedule, k).total)
        return np.mean([float(run(k)) for k in keys])

    assert matrix[0, 0] == pytest.approx(direct(0, 0, 2), abs=1e-6)
    assert matrix[1, 0] == pytest.approx(direct(1, 0, 2), abs=1e-6)
    assert matrix[0, 0] > matrix[1, 0] and matrix[0, 1] < matrix[0, 0]


def test_a_matrix_in_four_numbers():
    matrix = np.array([[1.0, 0.8, 0.1], [0.6, 0.9, 0.3], [0.2, 0.0, 0.7]])
    label = np.array([0, 0, 1])
    facts = summarise(matrix, label)
    assert facts.diagonal == pytest.approx(2.6 / 3)
    assert facts.off_diagonal == pytest.approx(2.0 / 6)
    assert facts.within == pytest.approx(0.7)
    assert facts.between == pytest.approx(0.6 / 4)
    clusters = by_label(matrix, label)
    assert np.allclose(clusters, [[3.3 / 4, 0.2], [0.1, 0.7]])
