import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap import make
from fastap.envs.foraging import LOAD, Foraging
from fastap.experiments.environments import expert, returns
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import Schedule, parse
from fastap.teammates.scripted import Planner, Random, Still, assign

ENV = Foraging()


@jax.jit
def play_all(team, size, keys):
    fixed = jnp.zeros(25, int)
    plan = Schedule(fixed, fixed + size, fixed > 0)
    one = lambda key: play(ENV, Players(team, team), plan, key).total
    return jax.vmap(one)(keys)


def totals(team, size, episodes):
    keys = jax.random.split(jax.random.key(4), episodes)
    return np.asarray(play_all(team, jnp.array(size), keys))


@pytest.mark.parametrize(("size", "least"), [(1, 0.8), (2, 0.7)])
def test_the_planner_is_a_yardstick(size, least):
    total = totals(Planner(env=ENV), size, 1000)
    assert total.mean() >= least
    sixths = np.round(6 * total)
    assert np.abs(6 * total - sixths).max() < 1e-4
    assert set(sixths.astype(int).tolist()) <= {0, 2, 3, 4, 6}  # of three, of two


@pytest.mark.parametrize(("size", "exact"), [(1, 0.0003), (2, 0.025)])
def test_a_random_team_almost_never_gets_food(size, exact):
    """0.03 % of episodes with three bodies, 2.5 % with four."""
    episodes = 100_000
    share = (totals(Random(), size, episodes) > 0).mean()
    assert share > 0
    assert abs(share - exact) < 4 * np.sqrt(exact / episodes) + 0.1 * exact


def test_the_planner_loads_where_it_stands(key):
    board = jax.jit(ENV.reset)(jnp.ones(4, bool), key)
    food = board.food[0]
    sides = food[None] + jnp.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
    stand = board.__class__(
        sides,
        jnp.array([1, 1, 1, 1]),
        jnp.ones(4, bool),
        board.food,
        jnp.array([3, 0, 0]),
        jnp.array(3),
    )
    plan = jax.jit(Planner(env=ENV).plan)
    assert np.array_equal(plan(stand), [LOAD] * 4)


def test_goals_go_to_the_nearest_and_nobody_gets_two():
    way = jnp.array([[1.0, 2.0], [0.5, 9.0], [3.0, 3.0], [jnp.inf, jnp.inf]])
    assert np.array_equal(assign(way), [1, 0, -1, -1])


@pytest.mark.parametrize("name", ["pp", "cn"])
def test_a_scripted_team_beats_a_random_one(name):
    env, change = make(name), parse("U[5,8]")
    best, some = (
        float(returns(env, team, change, 300).mean())
        for team in (expert(env), Random())
    )
    assert best > some + 0.3 * abs(some)


def test_who_stays_takes_the_first_action_available(key):
    env = make("cn")
    plan = parse("stationary").draw(jnp.array([1]), jnp.ones(1, bool), 25, key)
    episode = jax.jit(play)(env, Players(Still(), Still()), plan, key)
    assert np.all(np.asarray(episode.action) == 0)
