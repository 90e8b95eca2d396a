"""Growing a team: all N agents learn together in self-play, many runs at once."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from fastap.methods.learner import Actor
from fastap.methods.networks import Values
from fastap.methods.practice import Moment
from fastap.problem.episode import Episode
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import Schedule
from fastap.problem.spec import Env
from fastap.teammates.conventions import Convention, teach


class Lesson(eqx.Module):
    """What one team is to become."""

    absences: Float[Array, "*R"]  # the share of training with everybody there
    convention: Convention


def lesson(
    env: Env, each: Lesson, agents: Values, now: Moment, key: PRNGKeyArray
) -> Episode:
    """Play an episode to learn from: with absences in time, and nudged rewards."""
    spec = env.spec
    k_size, k_play = jax.random.split(key)
    size = jax.random.randint(k_size, (), spec.least, spec.mates + 1)
    size = jnp.where(now.progress >= each.absences, size, spec.mates)
    episode = self_play(env, agents, now.epsilon, size, k_play)
    return teach(env, each.convention, now.progress, episode)


def self_play(
    env: Env,
    agents: Values,
    epsilon: Float[Array, ""],
    size: Int[Array, ""],
    key: PRNGKeyArray,
) -> Episode:
    """Play one episode of a team with itself, with a number of its mates there."""
    steps, n = env.spec.horizon, env.spec.controlled
    act = lambda part: Actor(env=env, agents=part, epsilon=epsilon)
    team = Players(act(seats(agents, np.s_[:n])), act(seats(agents, np.s_[n:])))
    alone = jnp.zeros(steps, int)
    schedule = Schedule(alone, jnp.full(steps, size), jnp.zeros(steps, bool))
    return play(env, team, schedule, key)


def seats(agents: Values, which: slice) -> Values:
    """Take the networks of some slots."""
    return jax.tree.map(lambda x: x[which], agents)


def judge(
    env: Env, agents: Values, size: Int[Array, ""], keys: Key[Array, " E"]
) -> Float[Array, ""]:
    """Return what a team earns with itself, without exploring."""
    greedy = functools.partial(self_play, env, agents, jnp.float32(0), size)
    return jax.vmap(greedy)(keys).total.mean()
