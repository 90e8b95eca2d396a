"""The measurements that accept a zoo, where the answers are known."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.foraging import NORTH, SOUTH, Foraging
from fastap.methods.actor import Actor
from fastap.methods.learner import begin
from fastap.methods.model import Learning
from fastap.methods.practice import Moment
from fastap.problem.rollout import Glance
from fastap.problem.schedule import After, Change, parse
from fastap.teammates import identify as naming
from fastap.teammates.acceptance import Cast, skills
from fastap.teammates.company import (
    Beside,
    Company,
    all_at_once,
    draw_all,
    episodes_of,
)
from fastap.teammates.identify import identify
from fastap.teammates.labels import recorded_order
from fastap.teammates.population import Own, mix
from fastap.teammates.scripted import Habitual, Planner, Random
from fastap.teammates.yardsticks import Switching, roles
from fastap.teammates.zoo import Zoo

ENV = Foraging(horizon=12, rows=4, columns=4, foods=1)
TINY = Learning(hidden=8, embed=4)
KEY = jax.random.key(0)
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
def model():
    return begin(ENV, 2, TINY, jax.random.key(0)).model


def test_walkers_are_told_apart_and_twins_are_not(monkeypatch):
    """At sight 3 nothing is hidden on a board of 4: up and down cannot be missed."""
    env = dataclasses.replace(ENV, sight=3)
    policy = mix(up, down)
    zoo = dataclasses.replace(zoo_of(policy, [("up", 2), ("down", 2)]), env=env)
    eyes = begin(env, 2, TINY, jax.random.key(0)).model
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


def test_agents_train_beside_the_groups_they_are_allowed(model):
    zoo = zoo_of(mix(up, down), [("up", 1), ("down", 2)])
    now = Moment(jnp.float32(0.5), jnp.float32(0))
    play, change = Beside(zoo), parse("U[5,8]")
    one = jax.jit(lambda task, key: play(task, model, now, key))
    for group, action in enumerate((NORTH, SOUTH)):
        task = Company(all_at_once(jnp.arange(2) == group), jnp.array(0.0), change)
        for seed in range(3):
            episode = one(task, jax.random.key(seed))
            there = np.asarray(episode.present)[:, 2]
            assert np.all(np.asarray(episode.action)[there, 2] == action)
            assert np.all(np.asarray(episode.group) == group)
            assert np.asarray(episode.present)[:, 3].all() == (group == 1)
            assert not np.any(episode.swap)
    changing = Company(jnp.zeros(2, int), jnp.array(1.0), change)
    episodes = [one(changing, jax.random.key(seed)) for seed in range(6)]
    assert all(np.any(episode.swap) for episode in episodes)
    assert any(len(np.unique(episode.group)) == 2 for episode in episodes)


def test_runs_of_one_program_may_wait_differently(model):
    zoo = zoo_of(mix(up, down), [("up", 1), ("down", 2)])
    play, now = Beside(zoo), Moment(jnp.float32(0.5), jnp.float32(0))
    waits = After(jnp.array([3, 8]), jnp.array([3, 8]))
    tasks = Company(jnp.zeros((2, 2), int), jnp.ones(2), Change(waits))
    one = lambda task, key: play(task, model, now, key).swap
    swaps = jax.jit(jax.vmap(one, (0, None)))(tasks, jax.random.key(0))
    when = [np.flatnonzero(swap).tolist() for swap in np.asarray(swaps)]
    assert when == [[3, 6, 9], [8]]  # of 12 steps


def test_all_uniform_waits_are_one_program():
    zoo = zoo_of(mix(up, down), [("up", 1), ("down", 2)])
    draw = lambda change: episodes_of(zoo, np.arange(2), change, 7)[0].swap
    first, before = draw("U[5,8]"), draw_all._cache_size()
    second = draw("U[2,3]")
    assert draw_all._cache_size() == before
    assert np.asarray(second).sum() > np.asarray(first).sum() > 0


def test_groups_are_revealed_in_turn():
    task = Company(jnp.array([0, 1, -1, 1, 3]), jnp.array(0.0), Change())
    met = lambda progress: np.flatnonzero(task.met(jnp.float32(progress))).tolist()
    assert [met(p) for p in (0, 0.24, 0.25, 0.74)] == [[0], [0], [0, 1, 3], [0, 1, 3]]
    assert met(0.75) == met(0.999) == [0, 1, 3, 4]


def test_some_episodes_change_and_the_others_stay(model):
    zoo = zoo_of(mix(up, down), [("up", 1), ("down", 2)])
    play, now = Beside(zoo), Moment(jnp.float32(0.5), jnp.float32(0))
    task = Company(jnp.zeros(2, int), jnp.array(0.25), parse("at[3]"))
    keys = jax.random.split(jax.random.key(0), 400)
    swaps = jax.jit(jax.vmap(lambda key: play(task, model, now, key).swap))(keys)
    assert np.asarray(swaps).any(1).mean() == pytest.approx(0.25, abs=0.07)


def test_the_cast_is_told_what_it_should_be():
    zoo = zoo_of(mix(up, down, up), [("b", 2), ("a", 2), ("b", 1)])
    cast = Cast(np.array([0, 2]), seeds=2)
    tasks, known = roles(zoo, cast.tasks())
    assert tasks.turn.tolist()[:2] == [[0, -1, -1], [-1, -1, 0]]
    assert np.all(np.asarray(tasks.turn)[2:] == [0, -1, 0])
    assert np.flatnonzero(np.asarray(known).any((1, 2))).tolist() == [4, 5, 8, 9]
    assert np.array_equal(known[4], [[0, 1], [1, 0], [0, 1]])
    assert np.flatnonzero(np.asarray(tasks.share)).tolist() == [6, 7, 8, 9]
    assert cast.runs("U[5,8]", "told") == np.s_[8:10]


def test_the_switching_response_is_the_team_of_whoever_is_there(model):
    """All its teams keep watching, so a change finds a team with a full memory."""
    other = begin(ENV, 2, TINY, jax.random.key(1)).model.agents
    both = jax.tree.map(lambda *x: jnp.stack(x), model.agents, other)
    policy = Switching(team=Actor(env=ENV, agents=both), response=jnp.array([1, 0]))
    seen = begin_to_see(8)
    memory = policy.start(2)
    blank = Actor(env=ENV, agents=other).start(2)
    alone = dict.fromkeys((0, 1), blank)
    for t, glance in enumerate(seen):
        told = eqx.tree_at(lambda g: g.group, glance, jnp.array(t % 2))
        memory, action = policy.act(memory, told, None)
        expected = {}
        for k, agents in enumerate((model.agents, other)):
            alone[k], expected[k] = Actor(env=ENV, agents=agents).act(
                alone[k], glance, None
            )
        assert np.array_equal(action, expected[1 - t % 2])


def begin_to_see(steps):
    """Look at random boards through the eyes of the controlled agents."""
    for seed in range(steps):
        world = ENV.reset(jnp.ones(4, bool), jax.random.key(seed))
        view = ENV.view(world)
        yield Glance(
            observation=view.observation[:2],
            available=view.available[:2],
            last=jnp.array([-1, -1]),
            slot=jnp.arange(2),
            present=jnp.ones(2, bool),
            group=jnp.array(0),
            world=world,
        )


def test_who_is_told_remembers_another_past():
    known = jnp.eye(2)
    learner = begin(ENV, 2, TINY, jax.random.key(0), known)
    glance = next(begin_to_see(1))
    actor = Actor(env=ENV, agents=learner.model.agents, known=known)
    look = lambda k: actor.act(
        actor.start(2), eqx.tree_at(lambda g: g.group, glance, jnp.array(k)), None
    )
    assert not np.allclose(look(0)[0][0], look(1)[0][0])
    blind = Actor(env=ENV, agents=learner.model.agents, known=0 * known)
    same = lambda k: blind.act(
        blind.start(2), eqx.tree_at(lambda g: g.group, glance, jnp.array(k)), None
    )
    assert np.allclose(same(0)[0][0], same(1)[0][0])


def test_the_recorded_order_has_larger_groups_first():
    rows = [("a", 1), ("b", 2), ("c", 1), ("d", 2), ("e", 2)]
    zoo = zoo_of(mix(*[up] * 5), rows)
    for group in zoo.groups:
        group["pool"] = "train"
    order = recorded_order(zoo, 0)
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert zoo.sizes[order].tolist() == [2, 2, 2, 1, 1]
    assert np.array_equal(order, recorded_order(zoo, 0))
