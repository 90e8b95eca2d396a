"""Growing a team: all N agents learn together in self-play, many runs at once."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from fastap.methods import replay
from fastap.methods.learner import Actor, Learner, Learning, begin, update
from fastap.methods.networks import Values
from fastap.methods.replay import Experience
from fastap.problem.episode import Episode
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import Schedule
from fastap.problem.spec import Env


@dataclasses.dataclass(frozen=True)
class Growth:
    """How long a team learns, and from what."""

    steps: int = 8_000_000  # joint steps of play
    episodes: int = 32  # played at once, in every round
    updates: int = 8  # gradient steps in every round
    batch: int = 32  # episodes of a gradient step
    capacity: int = 4992  # episodes remembered
    absences: float = 0.5  # the share of training with everybody there
    learning: Learning = dataclasses.field(default_factory=Learning)

    def rounds(self, horizon: int) -> int:
        """Count the rounds of play and learning."""
        return max(1, self.steps // (self.episodes * horizon))

    def epsilon(self, now: Int[Array, ""], horizon: int) -> Float[Array, ""]:
        """Explore less and less, over 50,000 steps or 2,500 updates."""
        play, learn = 50_000 / (self.episodes * horizon), 2_500 / self.updates
        return jnp.maximum(0.05, 1.0 - 0.95 * now / max(play, learn))


class Run(eqx.Module):
    """One team on its way."""

    learner: Learner
    memory: Experience
    key: PRNGKeyArray


def start(env: Env, growth: Growth, key: PRNGKeyArray) -> Run:
    """Begin a run with an untrained team and an empty memory."""
    k_learner, k_run = jax.random.split(key)
    learner = begin(env, env.spec.slots, growth.learning, k_learner)
    size = jnp.array(env.spec.mates)
    shape = functools.partial(self_play, env, learner.model.agents, jnp.float32(1))
    example = jax.eval_shape(lambda k: replay.keep(shape(size, k), env.spec.slots), key)
    return Run(learner, replay.empty(example, growth.capacity), k_run)


def improve(
    env: Env,
    growth: Growth,
    runs: Run,
    rates: Float[Array, " R"],
    rounds: Int[Array, " C"],
) -> tuple[Run, Float[Array, "C R"]]:
    """Let all runs play and learn for these rounds; return what they earned."""
    each = jax.vmap(functools.partial(one_round, env, growth), in_axes=(0, 0, None))
    return jax.lax.scan(lambda runs, now: each(runs, rates, now), runs, rounds)


def one_round(
    env: Env, growth: Growth, run: Run, rate: Float[Array, ""], now: Int[Array, ""]
) -> tuple[Run, Float[Array, ""]]:
    """Play some episodes, remember them, and learn from remembered ones."""
    spec = env.spec
    key, k_size, k_play, k_learn = jax.random.split(run.key, 4)
    mixed = now >= growth.absences * growth.rounds(spec.horizon)
    sizes = jax.random.randint(k_size, (growth.episodes,), spec.least, spec.mates + 1)
    sizes = jnp.where(mixed, sizes, spec.mates)
    keys = jax.random.split(k_play, growth.episodes)
    epsilon = growth.epsilon(now, spec.horizon)
    team = functools.partial(self_play, env, run.learner.model.agents, epsilon)
    episodes = jax.vmap(team)(sizes, keys)
    fresh = replay.keep(episodes, spec.slots)
    memory = replay.add(run.memory, fresh, now * growth.episodes)

    def learn(learner, k):
        batch = replay.sample(memory, (now + 1) * growth.episodes, growth.batch, k)
        return update(env, growth.learning, learner, batch, rate)[0], None

    steps = jax.random.split(k_learn, growth.updates)
    learner, _ = jax.lax.scan(learn, run.learner, steps)
    return Run(learner, memory, key), episodes.total.mean()


def self_play(
    env: Env,
    agents: Values,
    epsilon: Float[Array, ""],
    size: Int[Array, ""],
    key: PRNGKeyArray,
) -> Episode:
    """Play one episode of a team with itself, with a number of its mates there."""
    team = Actor(env=env, agents=agents, epsilon=epsilon)
    steps = env.spec.horizon
    alone = jnp.zeros(steps, int)
    schedule = Schedule(alone, jnp.full(steps, size), jnp.zeros(steps, bool))
    return play(env, Players(team, team), schedule, key)


def judge(
    env: Env, agents: Values, size: Int[Array, ""], keys: Key[Array, " E"]
) -> Float[Array, ""]:
    """Return what a team earns with itself, without exploring."""
    greedy = functools.partial(self_play, env, agents, jnp.float32(0), size)
    return jax.vmap(greedy)(keys).total.mean()
