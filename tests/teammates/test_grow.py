"""Growing a team, in the tiny: the loop runs, learns from its own play, and repeats."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.foraging import Foraging
from fastap.experiments.learnability import Trial, measure
from fastap.methods.learner import plain
from fastap.methods.model import Learning
from fastap.methods.networks import Values
from fastap.methods.practice import Drill, Practice
from fastap.teammates import grow as growing
from fastap.teammates.conventions import no_conventions
from fastap.teammates.grow import (
    Group,
    Lesson,
    Member,
    Trunk,
    grow,
    judge,
    lesson,
    self_play,
)

ENV = Foraging(horizon=6)
TINY = Practice(
    steps=6 * 4 * 10,
    episodes=4,
    updates=2,
    batch=4,
    capacity=16,
    learning=Learning(hidden=8, embed=4),
)
DRILL = Drill(ENV, 4, TINY, functools.partial(lesson, ENV))
LESSONS = Lesson(jnp.array([0.5, 0.5]), no_conventions(2))


@pytest.fixture(scope="module")
def grown():
    keys = jax.vmap(jax.random.key)(jnp.array([0, 1]))
    rates = jnp.array([1e-3, 1e-3])
    runs = jax.jit(jax.vmap(DRILL.start))(LESSONS, plain(rates), keys)
    train = jax.jit(DRILL.improve)
    return runs, train(runs, jnp.arange(10)), train


def test_all_runs_learn_side_by_side(grown):
    runs, (after, notes), _ = grown
    earned = notes["return"]
    assert earned.shape == (10, 2)
    assert np.array_equal(after.learner.updates, [20, 20])
    before, now = runs.learner.model.agents.leave, after.learner.model.agents.leave
    assert not np.array_equal(before.weight, now.weight)
    assert not np.array_equal(now.weight[0], now.weight[1])


def test_the_same_run_gives_the_same_numbers_in_two_pieces(grown):
    runs, (after, _), train = grown
    half, _ = train(runs, jnp.arange(5))
    whole, _ = train(half, jnp.arange(5, 10))
    assert np.array_equal(
        after.learner.model.agents.leave.weight, whole.learner.model.agents.leave.weight
    )


def test_absences_begin_when_they_should(grown):
    _, (after, _), train = grown
    present = np.asarray(after.memory.present)  # the last 16 episodes of 40
    assert not present[:, :, :, 3].all() and present[:, :, :, :3].all()
    runs = grown[0]
    early, _ = train(runs, jnp.arange(4))
    assert np.asarray(early.memory.present).all()


def test_exploring_fades():
    practice = dataclasses.replace(TINY, episodes=32, updates=8)
    epsilon = lambda now: float(practice.epsilon(jnp.array(now), 25))
    rounds = max(50_000 / 800, 2_500 / 8)
    assert epsilon(0) == 1.0
    assert epsilon(int(rounds / 2)) == pytest.approx(0.525, abs=0.01)
    assert epsilon(int(2 * rounds)) == pytest.approx(0.05)


def test_a_team_is_judged_without_exploring(grown, key):
    _, (after, _), _ = grown
    agents = jax.tree.map(lambda x: x[0], after.learner.model.agents)
    keys = jax.random.split(key, 8)
    score = jax.jit(functools.partial(judge, ENV))(agents, jnp.array(2), keys)
    again = jax.jit(functools.partial(judge, ENV))(agents, jnp.array(2), keys)
    assert 0 <= float(score) <= 1 and float(score) == float(again)
    episode = self_play(ENV, agents, jnp.float32(0), jnp.array(1), key)
    assert np.asarray(episode.present).sum(1).max() == 3


def test_a_trial_reports_every_run_at_every_point():
    trial = Trial("tiny", {"horizon": 6}, TINY, (1e-3, 5e-4), seeds=2)
    points = list(measure(trial, points=2, episodes=4))
    assert len(points) == 2 * 2 * 4
    assert {p.bodies for p in points} == {3, 4} and {p.seed for p in points} == {0, 1}
    assert [p.steps for p in points][-1] == TINY.steps
    assert all(0 <= p.score <= 1 and p.seconds > 0 for p in points)


def test_half_of_what_was_learnt_also_where_all_is_lost(grown):
    """From -80 to -30, half is at -52.5; from 0.2 to 0.8, at 0.44, as nothing is 0."""
    runs = grown[0]
    after = lambda i, score: growing.Grown(
        i, runs, runs.learner.model.agents, np.array([score])
    )
    pieces = lambda *scores: (
        growing.halfway([after(i, score) for i, score in enumerate(scores)], 0).pieces
    )
    assert pieces(-80.0, -60.0, -50.0, -30.0) == 2
    assert pieces(0.2, 0.4, 0.5, 0.8) == 2
    assert pieces(-30.0, -80.0) == 0  # it unlearnt


def test_groups_of_both_algorithms_come_in_the_order_of_the_plan(monkeypatch):
    """Those of one algorithm are grown together; progress counts both lots."""
    lots, heard = [], []
    nets = Values(1, 1, 1, jax.random.key(0))

    def grow_lot(env, trunks, practice, rate, tell):
        lots.append((practice.learning.mixer, [trunk.seed for trunk in trunks]))
        tell(1.0, f"{len(trunks)} trunks")
        return [Group(trunk, trunk.members[0], nets, 0) for trunk in trunks]

    monkeypatch.setattr(growing, "grow_together", grow_lot)
    plan = [
        Trunk("a", "train", (0, 0), seed, (Member(2),), kind)
        for seed, kind in enumerate(("vdn", "qmix", "vdn"))
    ]
    groups = grow(ENV, plan, TINY, tell=lambda done, grown: heard.append(done))
    assert lots == [("qmix", [1]), ("vdn", [0, 2])] and heard == [0.5, 1.0]
    assert [group.trunk.seed for group in groups] == [0, 1, 2]
