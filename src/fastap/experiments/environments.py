"""The figure of the environments: one episode with changing teammates in each."""

from typing import Any

import jax
import jax.numpy as jnp

from fastap.envs import make
from fastap.envs.combat import Combat
from fastap.envs.foraging import Foraging
from fastap.envs.navigation import Navigation
from fastap.envs.pursuit import Pursuit
from fastap.problem.episode import Episode
from fastap.problem.rollout import AbstractPolicy, Players, film, play
from fastap.problem.schedule import Change, Schedule
from fastap.problem.spec import Env
from fastap.teammates.scripted import Chaser, Gatherer, Goer, Planner, Random


def expert(env: Env) -> AbstractPolicy:
    """Return the scripted team that knows an environment best."""
    match env:
        case Foraging():
            return Planner(env=env)
        case Combat():
            return Gatherer(env=env)
        case Pursuit():
            return Chaser()
        case Navigation():
            return Goer()
        case _:
            return Random()


def draw_schedule(env: Env, change: Change, key: Any) -> Schedule:
    """Draw changes between as many groups as there are team sizes, twice."""
    spec = env.spec
    sizes = jnp.repeat(jnp.arange(spec.least, spec.mates + 1), 2)
    return change.draw(sizes, jnp.ones(len(sizes), bool), spec.horizon, key)


def example(name: str, change: Change, seed: int = 0) -> tuple[Env, Episode, Any]:
    """Film one episode of an environment's scripted team."""
    env = make(name)
    k_change, k_play = jax.random.split(jax.random.key(seed))
    team = Players(expert(env), expert(env))
    schedule = draw_schedule(env, change, k_change)
    return env, *jax.jit(film)(env, team, schedule, k_play)


def returns(
    env: Env, team: AbstractPolicy, change: Change, episodes: int, seed: int = 0
) -> jax.Array:
    """Return what a team earns in each of many episodes."""

    def one(key):
        k_change, k_play = jax.random.split(key)
        schedule = draw_schedule(env, change, k_change)
        return play(env, Players(team, team), schedule, k_play).total

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), episodes))
