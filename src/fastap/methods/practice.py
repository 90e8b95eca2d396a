"""Practice: play some episodes, remember them, learn from remembered ones; repeat."""

import dataclasses
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from fastap.methods import replay
from fastap.methods.learner import Dials, Learner, begin, update
from fastap.methods.model import Known, Learning, Model, Part
from fastap.methods.replay import Experience
from fastap.problem.episode import Episode
from fastap.problem.spec import Env


@dataclasses.dataclass(frozen=True)
class Practice:
    """How long agents learn, and from how much play."""

    steps: int = 8_000_000  # joint steps of play
    episodes: int = 32  # played at once, in every round
    updates: int = 8  # gradient steps in every round
    batch: int = 32  # episodes of a gradient step
    capacity: int = 4992  # episodes remembered
    learning: Learning = dataclasses.field(default_factory=Learning)

    def rounds(self, horizon: int) -> int:
        """Count the rounds of play and learning."""
        return max(1, self.steps // (self.episodes * horizon))

    def epsilon(self, now: Int[Array, ""], horizon: int) -> Float[Array, ""]:
        """Explore less and less, over 50,000 steps or 2,500 updates."""
        play, learn = 50_000 / (self.episodes * horizon), 2_500 / self.updates
        return jnp.maximum(0.05, 1.0 - 0.95 * now / max(play, learn))


# Environments of long episodes and many agents: there goals trust what came, and
# rewards are as they are, since returns in units of their spread would be in hundreds.
LONG: dict[str, dict[str, Any]] = {
    "10m_vs_14m": {"capacity": 960, "trace": 0.9, "standardise": False}
}


def usual(env: str, steps: int) -> Practice:
    """Return how agents practise a game, for so many steps."""
    own = LONG.get(env, {})
    part = lambda kind: {f.name: own[f.name] for f in fields(kind) if f.name in own}
    return Practice(steps=steps, learning=Learning(**part(Learning)), **part(Practice))


def tiny(env: str, steps: int) -> Practice:
    """Return the same with next to nothing learnt, in seconds."""
    own = usual(env, steps)
    learning = dataclasses.replace(own.learning, hidden=8, embed=4)
    small = {"episodes": 4, "updates": 1, "batch": 4, "capacity": 16}
    return dataclasses.replace(own, learning=learning, **small)


class Moment(eqx.Module):
    """Where in its training a run is when it plays an episode."""

    epsilon: Float[Array, ""]
    progress: Float[Array, ""]  # from 0 to 1


class Run(eqx.Module):
    """Some agents on their way, and a task of their own to practise."""

    learner: Learner
    memory: Experience
    key: Key[Array, "*R"]
    task: Any  # arrays; what `Play` makes of them is its own affair
    dials: Dials


Notes = dict[str, Float[Array, "*C"]]  # losses, norms of gradients, returns
Play = Callable[[Any, Model, Moment, PRNGKeyArray], Episode]  # the task comes first


@dataclasses.dataclass(frozen=True)
class Drill:
    """All that many runs have in common: a game, and a way to practise it."""

    env: Env
    agents: int  # how many learn, in the first slots
    practice: Practice
    play: Play

    def start(
        self,
        task: Any,
        dials: Dials,
        key: PRNGKeyArray,
        known: Known = None,
    ) -> Run:
        """Begin a run with untrained agents and an empty memory."""
        k_learner, k_run = jax.random.split(key)
        how = (self.env, self.agents, self.practice.learning)
        learner = begin(*how, k_learner, known)
        now = Moment(jnp.float32(1), jnp.float32(0))

        def one(key):
            episode = self.play(task, learner.model, now, key)
            return replay.keep(episode, self.agents)

        memory = replay.empty(jax.eval_shape(one, key), self.practice.capacity)
        return Run(learner, memory, k_run, task, dials)

    def improve(self, runs: Run, rounds: Int[Array, " C"]) -> tuple[Run, Notes]:
        """Let all runs play and learn for these rounds; note how it went, C by R."""
        return jax.lax.scan(jax.vmap(self.round, (0, None)), runs, rounds)

    def round(self, run: Run, now: Int[Array, ""]) -> tuple[Run, Notes]:
        """Play some episodes, remember them, and learn from remembered ones."""
        practice, horizon = self.practice, self.env.spec.horizon
        key, k_play, k_learn = jax.random.split(run.key, 3)
        progress = now / practice.rounds(horizon)
        moment = Moment(practice.epsilon(now, horizon), progress.astype(jnp.float32))
        one = lambda key: self.play(run.task, run.learner.model, moment, key)
        episodes = jax.vmap(one)(jax.random.split(k_play, practice.episodes))
        fresh = replay.keep(episodes, self.agents)
        memory = replay.add(run.memory, fresh, now * practice.episodes)
        written = (now + 1) * practice.episodes
        learner, notes = self.learn(run, memory, written, k_learn)
        notes |= {"return": episodes.total.mean(), "epsilon": moment.epsilon}
        return Run(learner, memory, key, run.task, run.dials), notes

    def learn(
        self, run: Run, memory: Experience, written: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[Learner, Notes]:
        """Take the gradient steps of a round; note the mean of each loss."""
        practice = self.practice
        drawn = replay.shelve(memory, written, run.dials.drawn)

        def step(learner, key, moves: Part = "all", shelves=drawn, label=None):
            how = dataclasses.replace(practice.learning, moves=moves)
            k_sample, k_update = jax.random.split(key)
            batch = replay.sample(memory, shelves, practice.batch, k_sample, label)
            return update(self.env, how, learner, batch, run.dials, k_update)

        def literal(learner, key):
            """Let values learn from every label in turn, then beliefs from all."""
            shelves = replay.shelve(memory, written, run.dials.labels)

            def from_one(learner, label):
                luck = jax.random.fold_in(key, label)
                after, _ = step(learner, luck, "values", shelves, label)
                there = shelves.count[label] > 0
                choose = lambda new, old: jnp.where(there, new, old)
                return jax.tree.map(choose, after, learner), None

            labels = jnp.arange(practice.learning.labels)
            learner, _ = jax.lax.scan(from_one, learner, labels)
            last = jax.random.fold_in(key, practice.learning.labels)
            return step(learner, last, "beliefs")

        once = step if practice.learning.update == "joint" else literal
        keys = jax.random.split(key, practice.updates)
        learner, notes = jax.lax.scan(once, run.learner, keys)
        return learner, jax.tree.map(jnp.mean, notes)
