"""Fastap on the probes: it infers, follows a change, and notices an absence."""

import pytest
from tests import probes

from fastap.methods.actor import act_by


@pytest.fixture(scope="module")
def fastap():
    return probes.train("fastap", rounds=500)


def test_no_policy_without_memory_beats_chance():
    best = {task: probes.best_without_memory(task) for task in probes.TASKS}
    assert best == pytest.approx({"infer": 0.5, "change": 0.5, "absence": 1 / 3})


def test_fastap_reaches_the_optimum_of_every_probe(fastap):
    earned = probes.judge(lambda model: act_by(probes.Echo(), model))(fastap)
    assert min(earned.values()) > 0.97, earned


def test_and_not_without_its_memory(fastap):
    forget = lambda model: probes.Forgetful(act_by(probes.Echo(), model))
    earned = probes.judge(forget)(fastap)
    for task, score in earned.items():
        assert score <= probes.best_without_memory(task) + 0.08, earned
