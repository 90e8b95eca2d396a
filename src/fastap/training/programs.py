"""The compiled parts of a training, the same for all that differ in data alone."""

import dataclasses
import functools
from typing import Any

import jax
from jaxtyping import Array, Int

from fastap.methods import learner, replay
from fastap.methods.learner import Given
from fastap.methods.practice import Drill, Notes, Practice, Run
from fastap.problem.rollout import Memory
from fastap.teammates.company import Beside
from fastap.teammates.zoo import Zoo

HASTY = {"xla_backend_optimization_level": 0}  # for what runs once: compile in a third


@dataclasses.dataclass(frozen=True)
class Programs:
    """What every run does, compiled when it is first asked for."""

    drill: Drill

    @functools.cached_property
    def start(self) -> Any:
        """Begin all runs."""
        return jax.jit(jax.vmap(self.drill.start), compiler_options=HASTY)

    @functools.cached_property
    def improve(self) -> Any:
        """Let all runs play and learn for some rounds."""
        return jax.jit(self.drill.improve, donate_argnums=0)

    @functools.cached_property
    def norms(self) -> Any:
        """Measure every term's gradient, on one batch of each run."""
        return jax.jit(jax.vmap(self._norms, in_axes=(0, None, None)))

    def _norms(self, run: Run, beats: Int[Array, ""], written: Int[Array, ""]) -> Notes:
        practice = self.drill.practice
        _, k_own = jax.random.split(run.key)  # training goes on from the first
        k_sample, k_loss = jax.random.split(jax.random.fold_in(k_own, beats))
        shelves = replay.shelve(run.memory, written, run.dials.drawn)
        batch = replay.sample(run.memory, shelves, practice.batch, k_sample)
        reward = run.learner.rewards.scale(batch.reward)
        given = Given(batch, reward, run.dials, run.learner.memories, k_loss)
        return learner.norms(self.drill.env, practice.learning, run.learner, given)


@functools.lru_cache(maxsize=8)
def programs(zoo: Zoo, practice: Practice, memory: Memory) -> Programs:
    """Prepare to practise beside a zoo, or find that it was done before."""
    play = Beside(zoo, memory)
    return Programs(Drill(zoo.env, zoo.env.spec.controlled, practice, play))
