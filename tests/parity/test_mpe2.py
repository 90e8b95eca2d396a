"""PP and CN are mpe2 1.1.1's simple_tag and simple_spread, to 1e-5.

Before every step the reference is set to the float32 numbers that ours has, so
that only the arithmetic of the step is compared.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpe2 import simple_spread_v3, simple_tag_v3

from fastap.envs.navigation import Navigation
from fastap.envs.particles import Arena
from fastap.envs.pursuit import Pursuit

EPISODES, STEPS, TOLERANCE = 1000, 25, 1e-5


def unwrap(parallel):
    return parallel.aec_env.unwrapped


def snap(world):
    """Round a reference world to float32, and read it."""
    for entity in (*world.agents, *world.landmarks):
        entity.state.p_pos = np.float32(entity.state.p_pos).astype(float)
        entity.state.p_vel = np.float32(entity.state.p_vel).astype(float)
    place = np.array([agent.state.p_pos for agent in world.agents])
    speed = np.array([agent.state.p_vel for agent in world.agents])
    marks = np.array([mark.state.p_pos for mark in world.landmarks])
    return place.copy(), speed.copy(), marks.copy()


def disturb(world, kind, draw):
    """Begin some episodes in trouble: bodies on bodies, on marks, far outside."""
    if kind == "overlap":
        centre = draw.uniform(-0.5, 0.5, 2)
        for agent in world.agents:
            agent.state.p_pos = centre + draw.uniform(-0.06, 0.06, 2)
            agent.state.p_vel = draw.uniform(-1, 1, 2)
    elif kind == "pressed":
        for agent in world.agents:
            mark = world.landmarks[draw.integers(len(world.landmarks))]
            agent.state.p_pos = mark.state.p_pos + draw.uniform(-0.2, 0.2, 2)
    elif kind == "outside":
        for agent in world.agents:
            agent.state.p_pos = draw.uniform(-3, 3, 2)


def act(world, kind, draw):
    """Random pushes, or all against one point."""
    actions = draw.integers(0, 5, len(world.agents))
    if kind != "random":
        goal = world.agents[0].state.p_pos
        for i, agent in enumerate(world.agents[1:], start=1):
            if draw.random() < 0.8:
                gap = goal - agent.state.p_pos
                axis = np.abs(gap).argmax()
                actions[i] = 1 + 2 * axis + (gap[axis] > 0)
    return actions


def play_reference(parallel, seed, episodes=EPISODES):
    """Record every transition of many episodes."""
    draw, world, tape = np.random.default_rng(seed), unwrap(parallel).world, []
    for episode in range(episodes):
        parallel.reset(seed=seed + episode)
        kind = ("random", "overlap", "pressed", "outside")[episode % 4]
        disturb(world, kind, draw)
        for step in range(STEPS):
            before = snap(world)
            actions = act(world, kind, draw)
            seen, reward, _, ended, _ = parallel.step(
                dict(zip(parallel.possible_agents, actions, strict=True))
            )
            place = np.array([agent.state.p_pos for agent in world.agents])
            speed = np.array([agent.state.p_vel for agent in world.agents])
            order = parallel.possible_agents
            shown = [seen[a] for a in order], [reward[a] for a in order]
            tape.append((*before, actions, place, speed, *shown))
            assert all(ended.values()) == (step == STEPS - 1)
    return [list(column) for column in zip(*tape, strict=True)]


def arenas(place, speed, marks):
    place, speed, marks = (jnp.asarray(x, jnp.float32) for x in (place, speed, marks))
    return jax.vmap(Arena)(place, speed, jnp.ones(place.shape[:2], bool), marks)


def largest(ours, theirs):
    return np.abs(np.asarray(ours) - np.asarray(theirs)).max()


@pytest.fixture(scope="module")
def tag():
    return play_reference(simple_tag_v3.parallel_env(max_cycles=STEPS), seed=1)


@pytest.fixture(scope="module")
def spread():
    return play_reference(simple_spread_v3.parallel_env(N=4, max_cycles=STEPS), seed=2)


def test_pursuit_is_simple_tag(tag):
    *before, actions, place, speed, seen, reward = tag
    env = Pursuit()
    after = jax.jit(jax.vmap(env.advance))(
        arenas(*map(np.array, before)), actions_of(actions)
    )
    assert largest(after.position, np.array(place)) < TOLERANCE
    assert largest(after.velocity, np.array(speed)) < TOLERANCE
    view = jax.jit(jax.vmap(env.view))(after).observation
    prey = jax.jit(jax.vmap(env.prey_view))(after)
    assert largest(view, np.array([row[:3] for row in seen])) < TOLERANCE
    assert largest(prey, np.array([row[3] for row in seen])) < TOLERANCE
    team = np.array(reward)[:, :3].sum(1)
    assert (team > 0).sum() > 100
    exact = settled(np.array(place), 0.125, against=3)
    assert largest(jax.jit(jax.vmap(env._reward))(after)[exact], team[exact]) == 0


def test_navigation_is_simple_spread(spread):
    *before, actions, place, speed, seen, reward = spread
    env = Navigation(layout="mpe2", reward="mpe2")
    step = jax.jit(jax.vmap(lambda w, a: env.step(w, a, jax.random.key(0))))
    after, outcome = step(arenas(*map(np.array, before)), actions_of(actions))
    assert largest(after.position, np.array(place)) < TOLERANCE
    assert largest(after.velocity, np.array(speed)) < TOLERANCE
    view = jax.jit(jax.vmap(env.view))(after).observation
    assert largest(view, np.array(seen)) < TOLERANCE
    exact = settled(np.array(place), 0.3)
    team = np.array(reward).sum(1)
    assert largest(outcome.reward[exact], team[exact]) < TOLERANCE


def actions_of(actions):
    return jnp.asarray(np.array(actions))


def settled(place, reach, against=None):
    """Leave out worlds in which two bodies touch by less than float32 can tell.

    There a difference of 1e-7 decides a collision; they are a handful.
    """
    gap = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1)
    gap = gap if against is None else gap[:, :against, against:]
    clear = np.all(np.abs(gap - reach) > 1e-5, axis=(1, 2))
    assert clear.mean() > 0.99
    return clear


def test_the_worlds_were_rough(tag, spread):
    """Bodies touched bodies and obstacles, many times over."""
    for (place, _, marks, *_), radius in ((tag, 0.15), (spread, 0.3)):
        gap = np.linalg.norm(
            np.array(place)[:, :, None] - np.array(place)[:, None], axis=-1
        )
        touching = (gap < radius) & ~np.eye(4, dtype=bool)
        assert touching.any((1, 2)).sum() > 2000
        to_mark = np.linalg.norm(
            np.array(place)[:, :, None] - np.array(marks)[:, None], axis=-1
        )
        assert (to_mark < 0.2).any((1, 2)).sum() > 2000


def test_our_reward_of_navigation_is_the_plain_sum(spread):
    """Ours: no halves, each collision once; stated apart from mpe2's."""
    *before, actions, place, _, _, _ = spread
    env = Navigation()
    step = jax.jit(jax.vmap(lambda w, a: env.step(w, a, jax.random.key(0))[1]))
    outcome = step(arenas(*map(np.array, before)), actions_of(actions))
    place, marks = np.array(place), np.array(before[2])
    distance = np.linalg.norm(marks[:, :, None] - place[:, None], axis=-1)
    pairs = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1)
    collisions = (pairs < 0.3).sum((1, 2)) - 4
    expected = -distance.min(2).sum(1) - collisions / 2
    exact = settled(place, 0.3)
    assert largest(outcome.reward[exact], expected[exact]) < TOLERANCE


def with_gap(world, at):
    """Put an absent body, with made-up motion, into every world."""
    insert = lambda x, value: jnp.insert(x, at, value, axis=1)
    return jax.vmap(Arena)(
        insert(world.position, 0.1),
        insert(world.velocity, 0.7),
        insert(world.present, False),
        world.mark,
    )


def test_an_absent_predator_is_a_game_without_it():
    parallel = simple_tag_v3.parallel_env(num_adversaries=2, max_cycles=STEPS)
    *before, actions, place, speed, seen, reward = play_reference(parallel, 3, 150)
    env = Pursuit(controlled=1)
    start = with_gap(arenas(*map(np.array, before)), at=2)
    actions = jnp.insert(actions_of(actions), 2, 4, axis=1)
    after = jax.jit(jax.vmap(env.advance))(start, actions)
    there = np.array([0, 1, 3])
    assert largest(after.position[:, there], np.array(place)) < TOLERANCE
    assert largest(after.velocity[:, there], np.array(speed)) < TOLERANCE
    view = np.asarray(jax.jit(jax.vmap(env.view))(after).observation)
    kept = np.r_[0:10, 12:16]  # all but where the absent one would be
    theirs = np.array([row[:2] for row in seen])
    assert largest(view[:, :2][..., kept], theirs) < TOLERANCE
    assert np.all(view[:, :2, 10:12] == 0) and np.all(view[:, 2] == 0)
    team = np.array(reward)[:, :2].sum(1)
    exact = settled(np.array(place), 0.125, against=2)
    assert largest(jax.jit(jax.vmap(env._reward))(after)[exact], team[exact]) == 0


def test_an_absent_navigator_is_a_game_without_it():
    parallel = simple_spread_v3.parallel_env(N=3, max_cycles=STEPS)
    *before, actions, place, speed, seen, reward = play_reference(parallel, 4, 150)
    env = Navigation(landmarks=3, layout="mpe2", reward="mpe2")
    start = with_gap(arenas(*map(np.array, before)), at=3)
    actions = jnp.insert(actions_of(actions), 3, 2, axis=1)
    step = jax.jit(jax.vmap(lambda w, a: env.step(w, a, jax.random.key(0))))
    after, outcome = step(start, actions)
    assert largest(after.position[:, :3], np.array(place)) < TOLERANCE
    assert largest(after.velocity[:, :3], np.array(speed)) < TOLERANCE
    view = np.asarray(jax.jit(jax.vmap(env.view))(after).observation)
    kept = np.r_[0:14, 16:20]
    assert largest(view[:, :3][..., kept], np.array(seen)) < TOLERANCE
    exact = settled(np.array(place), 0.3)
    team = np.array(reward).sum(1)
    assert largest(outcome.reward[exact], team[exact]) < TOLERANCE
