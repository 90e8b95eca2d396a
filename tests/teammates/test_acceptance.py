"""The measurements that accept a zoo, where the answers are known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.foraging import NORTH, SOUTH, Foraging
from fastap.methods.learner import Learning, begin
from fastap.methods.practice import Moment, Practice
from fastap.teammates import identify as naming
from fastap.teammates.acceptance import Company, beside, best_responses, skills
from fastap.teammates.identify import identify
from fastap.teammates.labels import recorded_order
from fastap.teammates.population import Own, mix
from fastap.teammates.scripted import Habitual, Planner, Random
from fastap.teammates.zoo import Zoo

ENV = Foraging(horizon=12, rows=4, columns=4, foods=1)
TINY = Learning(hidden=8, embed=4)
SMALL = Practice(steps=480, episodes=4, updates=1, batch=4, capacity=16, learning=TINY)
up = Own(decide=lambda glance, key: jnp.full(len(glance.slot), NORTH))
down = Own(decide=lambda glance, key: jnp.full(len(glance.slot), SOUTH))


def zoo_of(policy, rows):
    """A zoo without files."""
    groups = [
        {
            "name": str(i),
            "pool": "validation",
            "type": kind,
            "size": size,
            "skill": "full",
        }
        for i, (kind, size) in enumerate(rows)
    ]
    return Zoo({"name": "test", "env": "lbf", "groups": groups}, ENV, policy)


@pytest.fixture(scope="module")
def agents():
    return begin(ENV, 2, TINY, jax.random.key(0)).model.agents


def test_walkers_are_told_apart_and_twins_are_not(agents, monkeypatch):
    """At sight 3 nothing is hidden on a board of 4: up and down cannot be missed."""
    env = dataclasses.replace(ENV, sight=3)
    policy = mix(up, down)
    zoo = dataclasses.replace(zoo_of(policy, [("up", 2), ("down", 2)]), env=env)
    eyes = begin(env, 2, TINY, jax.random.key(0)).model.agents
    monkeypatch.setattr(naming, "RATE", 5e-3)
    facts = identify(zoo, eyes, "validation", 512, 800)
    seen = facts["identification"]
    assert seen["chance"] == pytest.approx(0.5, abs=0.06)
    assert seen["accuracy_by_lag"][4] > 0.75
    assert seen["accuracy_by_lag"][0] < 0.6  # nothing has been seen of them yet
    assert facts["identifiability"] > 1.5
    alike = dataclasses.replace(zoo_of(mix(up, up), [("a", 2), ("b", 2)]), env=env)
    facts = identify(alike, eyes, "validation", 512, 100)
    assert facts["identification"]["accuracy_by_lag"][4] < 0.6


def test_skills_are_normalised_between_the_random_team_and_the_best():
    planners = Habitual(
        planner=Planner(env=ENV),
        order=jnp.ones((1, 2)),
        noise=jnp.zeros(1),
        sight=jnp.array([6]),
        groups=1,
    )
    zoo = zoo_of(mix(planners, Random()), [("planner", 2), ("random", 1)])
    facts = skills(zoo, episodes=64)
    assert facts["groups"][0]["score"] == 1.0
    assert facts["groups"][1]["score"] == pytest.approx(0, abs=0.1)
    assert facts["groups"][0]["selfplay"].keys() == {"3", "4"}
    assert facts["best_selfplay"]["4"] == facts["groups"][0]["selfplay"]["4"]
    assert facts["floor"]["4"] < 0.3
    assert np.array(facts["matrix"]).shape == (2, 2)


def test_agents_train_beside_the_groups_they_are_allowed(agents):
    zoo = zoo_of(mix(up, down), [("up", 1), ("down", 2)])
    now = Moment(jnp.float32(0.5), jnp.float32(0))
    one = jax.jit(lambda task, key: beside(zoo, task, agents, now, key))
    for group, action in enumerate((NORTH, SOUTH)):
        task = Company(jnp.arange(2) == group)
        for seed in range(3):
            episode = one(task, jax.random.key(seed))
            there = np.asarray(episode.present)[:, 2]
            assert np.all(np.asarray(episode.action)[there, 2] == action)
            assert np.all(np.asarray(episode.group) == group)
            assert np.asarray(episode.present)[:, 3].all() == (group == 1)


def test_best_responses_are_compared_group_by_group():
    zoo = zoo_of(mix(up, down), [("up", 2), ("down", 2)])
    facts, agents = best_responses(zoo, SMALL, "validation", 2, 8)
    found = facts["best_responses"]
    gaps = np.array(found["alone"]) - np.array(found["together"])
    assert facts["best_response_gap"] == pytest.approx(gaps.mean(), abs=1e-3)
    assert agents.leave.bias.shape == (2, 6)


def test_the_recorded_order_has_larger_groups_first():
    rows = [("a", 1), ("b", 2), ("c", 1), ("d", 2), ("e", 2)]
    zoo = zoo_of(mix(*[up] * 5), rows)
    for group in zoo.groups:
        group["pool"] = "train"
    order = recorded_order(zoo, 0)
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert zoo.sizes[order].tolist() == [2, 2, 2, 1, 1]
    assert np.array_equal(order, recorded_order(zoo, 0))
