"""Laws of the two particle worlds, and cases worked out by hand."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastap import make
from fastap.envs.navigation import Navigation
from fastap.envs.particles import Arena
from fastap.envs.prey import Fleeing, Trained
from fastap.envs.pursuit import Pursuit
from fastap.problem.spec import Mistake

SEEDS = st.integers(0, 2**31 - 1)
WORLDS = {"cn": Navigation(), "pp": Pursuit(least=0, layout="presence")}
STEP = {name: jax.jit(env.step) for name, env in WORLDS.items()}
VIEW = {name: jax.jit(env.view) for name, env in WORLDS.items()}
RESET = {name: jax.jit(env.reset) for name, env in WORLDS.items()}
ADVANCE = jax.jit(WORLDS["pp"].advance)


def still(position, marks, present=None):
    position = jnp.array(position, float)
    there = jnp.ones(len(position), bool) if present is None else jnp.array(present)
    return Arena(position, jnp.zeros_like(position), there, jnp.array(marks, float))


def test_a_push_shows_one_step_later():
    """Positions move by the old velocity, as in mpe2's third version."""
    env = Navigation(agents=2, controlled=1, landmarks=1)
    world = still([[0, 0], [5, 5]], [[1, 1]])
    world, _ = env.step(world, jnp.array([2, 0]), jax.random.key(0))
    assert np.array_equal(world.position[0], [0, 0])
    assert world.velocity[0] == pytest.approx([0.5, 0.0])
    world, _ = env.step(world, jnp.array([0, 0]), jax.random.key(0))
    assert world.position[0] == pytest.approx([0.05, 0.0])
    assert world.velocity[0] == pytest.approx([0.375, 0.0])


def test_speeds_have_a_limit():
    world = still([[0, 0], [3, 3], [-3, 3], [3, -3]], [[9, 9], [8, 9]])
    for _ in range(30):
        world = ADVANCE(world, jnp.array([2, 4, 0, 2]))
    assert world.velocity[0] == pytest.approx([1.0, 0.0], abs=1e-5)
    assert world.velocity[3] == pytest.approx([1.3, 0.0], abs=1e-5)


def test_every_predator_is_paid_for_every_touch():
    env = Pursuit()
    touched = still([[0.1, 0], [-0.1, 0], [2, 2], [0, 0]], [[5, 5], [6, 6]])
    assert float(env._reward(touched)) == 10 * 2 * 3
    absent = dataclasses.replace(touched, present=jnp.array([True, False, True, True]))
    assert float(env._reward(absent)) == 10 * 1 * 2


def test_navigators_pay_for_distance_and_collisions():
    env = Navigation(agents=3, controlled=2, landmarks=2)
    world = still([[0, 0], [0.2, 0], [3, 0]], [[0, 1], [3, 2]])
    assert float(env._reward(world)) == pytest.approx(-1 - 2 - 1)
    gone = dataclasses.replace(world, present=jnp.array([True, True, False]))
    far = np.hypot(2.8, 2)
    assert float(env._reward(gone)) == pytest.approx(-1 - far - 1)


def test_bodies_in_one_place_do_not_break_the_world():
    env = Navigation()
    world = still([[0, 0], [0, 0], [1, 1], [1, 1]], [[0, 0]] * 4)
    after, outcome = env.step(world, jnp.zeros(4, int), jax.random.key(0))
    assert np.isfinite(after.position).all() and np.isfinite(outcome.reward)


@pytest.mark.parametrize("name", WORLDS)
@given(seed=SEEDS, first=st.booleans())
def test_an_absent_body_is_invisible_intangible_and_unrewarded(name, seed, first):
    env = WORLDS[name]
    spec = env.spec
    slot = spec.controlled if first else spec.slots - 1
    present = spec.present(jnp.array(slot - spec.controlled))
    k_reset, k_action, k_ghost = jax.random.split(jax.random.key(seed), 3)
    world = RESET[name](present, k_reset)
    action = jax.random.randint(k_action, (spec.slots,), 0, 5)
    ghost = jax.random.uniform(k_ghost, (2, 2), minval=-1, maxval=1)
    moved = eqx.tree_at(
        lambda w: (w.position, w.velocity),
        world,
        (world.position.at[slot].set(ghost[0]), world.velocity.at[slot].set(ghost[1])),
    )
    assert np.array_equal(VIEW[name](world).observation, VIEW[name](moved).observation)
    assert np.all(np.asarray(VIEW[name](world).observation[slot]) == 0)
    assert np.array_equal(VIEW[name](world).available[slot], [1, 0, 0, 0, 0])
    after, outcome = STEP[name](moved, action, k_reset)
    plain, expected = STEP[name](world, action.at[slot].set(0), k_reset)
    assert np.array_equal(after.position, plain.position)
    assert np.array_equal(after.velocity, plain.velocity)
    assert outcome.reward == expected.reward


@given(seed=SEEDS, order=st.permutations(range(4)))
def test_relabelling_navigators_changes_no_reward(seed, order):
    order = jnp.array(order)
    k_reset, k_action = jax.random.split(jax.random.key(seed))
    world = RESET["cn"](jnp.ones(4, bool), k_reset)
    action = jax.random.randint(k_action, (4,), 0, 5)
    bodies = lambda w: (w.position, w.velocity, w.present)
    renamed = eqx.tree_at(bodies, world, tuple(x[order] for x in bodies(world)))
    after, outcome = STEP["cn"](world, action, k_reset)
    other, expected = STEP["cn"](renamed, action[order], k_reset)
    assert np.allclose(after.position[order], other.position, atol=1e-6)
    assert np.allclose(after.velocity[order], other.velocity, atol=1e-5)
    assert float(outcome.reward) == pytest.approx(float(expected.reward), abs=1e-5)


@given(seed=SEEDS, order=st.permutations(range(3)))
def test_relabelling_predators_changes_no_reward(seed, order):
    env = WORLDS["pp"]
    order = jnp.array([*order, 3])
    k_reset, k_action = jax.random.split(jax.random.key(seed))
    world = RESET["pp"](jnp.ones(3, bool), k_reset)
    action = jax.random.randint(k_action, (4,), 0, 5)
    bodies = lambda w: (w.position, w.velocity, w.present)
    renamed = eqx.tree_at(bodies, world, tuple(x[order] for x in bodies(world)))
    after, other = ADVANCE(world, action), ADVANCE(renamed, action[order])
    assert np.allclose(after.position[order], other.position, atol=1e-6)
    assert float(env._reward(after)) == float(env._reward(other))


def test_newcomers_arrive_anywhere_at_rest(key):
    env = Navigation()
    world = env.reset(env.spec.present(jnp.array(1)), key)
    world = dataclasses.replace(world, velocity=world.velocity + 0.3)
    luck = jax.vmap(env.luck)(jax.random.split(key, 4000))
    everybody = jnp.ones(4, bool)
    after = jax.vmap(env.swap, in_axes=(None, None, 0))(world, everybody, luck)
    assert np.all(np.asarray(after.velocity[:, 3]) == 0)
    place = np.asarray(after.position[:, 3])
    assert np.all(np.abs(place) <= 1)
    assert np.abs(place.mean(0)).max() < 4 * np.sqrt(1 / 3 / 4000)
    assert np.abs(place.var(0) - 1 / 3).max() < 0.03
    assert np.all(np.asarray(after.position[:, :3]) == np.asarray(world.position[:3]))
    assert np.all(np.asarray(after.velocity[:, :3]) == np.asarray(world.velocity[:3]))


def test_predators_leave_and_arrive_and_the_prey_stays(key):
    env = Pursuit(least=0)
    both, none = env.spec.present(jnp.array(1)), env.spec.present(jnp.array(0))
    world = env.reset(both, key)
    alone = env.swap(world, none, env.luck(key))
    assert np.array_equal(alone.present, [1, 1, 0, 1])
    again = env.swap(alone, both, env.luck(key))
    assert np.array_equal(again.present, [1, 1, 1, 1])
    for after in (alone, again):
        kept = np.array([0, 1, 3])
        assert np.array_equal(after.position[kept], world.position[kept])
    assert not np.array_equal(again.position[2], world.position[2])


def test_navigation_works_without_any_teammate(key):
    env = Navigation(least=0)
    world = env.reset(env.spec.present(jnp.array(0)), key)
    after, outcome = env.step(world, jnp.array([1, 2, 0, 0]), key)
    assert np.isfinite(float(outcome.reward))
    assert np.all(np.asarray(env.view(after).observation[2:]) == 0)


def test_the_prey_runs_from_the_nearest_predator():
    seen = jnp.array([0.0, 0, 0, 0, 9, 9, 9, -9, 0.3, 0, -2, 0, 0, 0])
    assert Fleeing()(seen, 2) == 1  # a predator is close on the right: go left
    assert Fleeing()(-seen, 2) == 2


def test_pursuit_works_without_obstacles(key):
    env = Pursuit(obstacles=0, prey=Fleeing())
    world = env.reset(jnp.ones(3, bool), key)
    after, _ = env.step(world, jnp.zeros(3, int), key)
    assert env.view(after).observation.shape == (3, 12) == (3, env.spec.observation)


def test_the_trained_prey_is_refused_where_it_does_not_fit():
    for sizes in ({"obstacles": 1}, {"agents": 4}):
        with pytest.raises(Mistake, match="3 predators and 2 obstacles"):
            Pursuit(**sizes)


@pytest.mark.parametrize("kind", ["trained", "fleeing"])
def test_the_prey_stays_in_the_arena(key, kind):
    """It is caught by chasers now and then, and does not simply run away."""
    from fastap.experiments.environments import draw_schedule
    from fastap.problem.rollout import Players, film
    from fastap.problem.schedule import parse
    from fastap.teammates.scripted import Chaser

    env = Pursuit() if kind == "trained" else Pursuit(prey=Fleeing())
    assert isinstance(env.prey, Trained) == (kind == "trained")

    def one(key):
        plan = draw_schedule(env, parse("stationary"), key)
        episode, worlds = film(env, Players(Chaser(), Chaser()), plan, key)
        return episode.total, worlds.position[:, -1]

    total, prey = jax.jit(jax.vmap(one))(jax.random.split(key, 500))
    assert 0.3 < (np.asarray(total) > 0).mean() < 0.8
    assert (np.abs(np.asarray(prey)).max(-1) < 1.5).mean() > 0.95


@pytest.mark.parametrize("state", ["full", "observations"])
@pytest.mark.parametrize("layout", ["presence", "mpe2"])
@pytest.mark.parametrize("name", ["pp", "cn"])
def test_sizes_are_what_the_spec_says(name, layout, state, key):
    env = make(name, layout=layout, state=state)
    spec = env.spec
    view = env.view(env.reset(jnp.ones(spec.slots, bool), key))
    assert view.observation.shape == (spec.slots, spec.observation)
    assert view.state.shape == (spec.state,)
    assert env.encode(view.observation).shape == (spec.slots, spec.inputs)
    assert env.encode_state(view.state).shape == (spec.state_inputs,)
    assert make("cn", layout="mpe2").spec.observation == 24
    assert make("pp").spec.observation == 16


@pytest.mark.parametrize(
    ("name", "parameters", "word"),
    [
        ("pp", dict(obstacles=-1), "obstacles"),
        ("pp", dict(agents=1), "controlled"),
        ("cn", dict(landmarks=0), "landmarks"),
        ("cn", dict(controlled=5), "controlled"),
        ("cn", dict(reward="best"), "reward"),
        ("qq", {}, "no environment"),
    ],
)
def test_impossible_worlds_are_refused_in_a_sentence(name, parameters, word):
    with pytest.raises(Mistake, match=word):
        make(name, **parameters)
