"""Algorithm 1 in the tiny: codes, likelihoods, and a stream that finds its types."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.foraging import NORTH, SOUTH, Foraging
from fastap.teammates.clustering import RESTAURANTS, Clusterer, Settings
from fastap.teammates.crp import Restaurant
from fastap.teammates.population import Own, mix
from fastap.teammates.trajectories import Behaviour, collect

ENV = Foraging(horizon=6, foods=1)
TINY = Settings(first=200, later=100, groups=4, each=4, piece=50, rate=3e-3)
up = Own(decide=lambda glance, key: jnp.full(len(glance.slot), NORTH))
down = Own(decide=lambda glance, key: jnp.full(len(glance.slot), SOUTH))


@pytest.fixture(scope="module")
def groups():
    """Two that walk up, two that walk down."""
    policy = mix(up, down, up, down)
    watch = jax.jit(lambda g, keys: collect(ENV, policy, g, jnp.array(2), keys))
    key = lambda g: jax.random.split(jax.random.key(g), 8)
    return [watch(jnp.array(g), key(g)) for g in range(4)]


@pytest.fixture(scope="module")
def clustered(groups):
    clusterer = Clusterer(ENV, groups[0], 4, TINY)
    for group in groups:
        clusterer.add(group)
    return clusterer


def test_disjoint_actions_separate_and_twins_meet(clustered):
    for alpha in (0.5, 2.5):
        labels = clustered.labels(Restaurant(alpha, "calibrated"))
        assert labels.tolist() == [0, 1, 0, 1], alpha


def test_every_assignment_is_logged_whole(clustered):
    for restaurant in RESTAURANTS:
        past = clustered.choices[restaurant]
        assert [choice.group for choice in past] == [0, 1, 2, 3]
        assert past[0].cluster == 0 and past[0].posterior == [1.0]
        for choice in past:
            assert np.isfinite(choice.scores).all() and choice.null >= 0.05
            assert len(choice.gaps) == len(choice.scores) - 1
    labels = clustered.labels(Restaurant(2.5, "literal"))
    assert labels.tolist() == [0, 1, 2, 3]


def test_a_stream_goes_on_after_a_save(groups, clustered, tmp_path):
    first = Clusterer(ENV, groups[0], 4, TINY)
    for group in groups[:3]:
        first.add(group)
    first.save(tmp_path)
    second = Clusterer(ENV, groups[0], 4, TINY, seed=9)
    second.restore(tmp_path)
    second.add(groups[3])
    assert np.array_equal(second.codes(), clustered.codes())
    assert second.choices == clustered.choices


def test_a_cluster_is_the_mean_of_its_members():
    """The running mean of the paper is the plain mean."""
    rows, mean = np.random.default_rng(0).normal(size=(5, 3)), np.zeros(3)
    for n, row in enumerate(rows):
        mean = (n * mean + row) / (n + 1)
    assert np.allclose(mean, rows.mean(0))


@pytest.fixture(scope="module", params=["categorical", "gaussian"])
def model(request):
    return Behaviour(ENV, request.param, 16, jax.random.key(3))


def test_no_action_is_likelier_than_certain(groups, model, key):
    one = jax.tree.map(lambda x: x[0], groups[0])
    followed = model.follow(ENV, one)
    for code in 10 * jax.random.normal(key, (5, 16)):
        assert float(model.log_likelihood(one, followed, code)) <= 0


def test_what_follows_the_end_changes_nothing(groups, model):
    one = jax.tree.map(lambda x: x[0], groups[0])
    cut = dataclasses.replace(one, valid=one.valid.at[4:].set(False))
    wild = dataclasses.replace(
        cut, state=cut.state.at[4:].set(3), action=cut.action.at[4:].set(5)
    )
    code = model.encode(ENV, cut)
    assert np.allclose(code, model.encode(ENV, wild), atol=1e-6)
    judge = lambda seen: model.log_likelihood(seen, model.follow(ENV, seen), code)
    assert float(judge(cut)) == pytest.approx(float(judge(wild)), abs=1e-5)
    assert float(judge(cut)) > float(judge(one))


def test_who_is_not_there_is_not_judged(groups, model):
    one = jax.tree.map(lambda x: x[0], groups[0])
    gone = dataclasses.replace(one, present=one.present.at[:, 3].set(False))
    other = dataclasses.replace(gone, action=gone.action.at[:, 3].set(2))
    code = jnp.ones(16)
    judge = lambda seen: model.log_likelihood(seen, model.follow(ENV, seen), code)
    assert float(judge(gone)) == float(judge(other))
    assert np.array_equal(model.encode(ENV, gone), model.encode(ENV, other))


def test_the_order_of_trajectories_does_not_change_the_code(groups, clustered):
    code = jax.vmap(lambda one: clustered.progress.model.encode(ENV, one))
    mean = lambda rows: np.asarray(code(rows)).mean(0)
    turned = jax.tree.map(lambda x: x[::-1], groups[0])
    assert np.allclose(mean(groups[0]), mean(turned), atol=1e-5)


def test_learning_brings_the_loss_down(groups, clustered):
    batch = jax.tree.map(lambda *x: jnp.stack(x), *groups)
    fresh = Clusterer(ENV, groups[0], 4, TINY).progress.model
    loss = lambda model: float(clustered.loss(model, batch, jax.random.key(0)))
    assert loss(clustered.progress.model) < 0.3 * loss(fresh)
