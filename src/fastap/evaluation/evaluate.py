"""Greedy play of trained agents, many runs on the same episodes."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from fastap.methods.actor import act_by
from fastap.problem.rollout import AbstractPolicy, Memory, Players, play
from fastap.problem.schedule import Schedule
from fastap.problem.spec import Env
from fastap.teammates.acceptance import SURE
from fastap.teammates.company import episodes_of
from fastap.teammates.zoo import Zoo

CROWD = 2_000  # episodes played at once, for the sake of memory


class Played(eqx.Module):
    """What runs earned: runs first, then the episodes, the same for all."""

    reward: Float[Array, "*R T"]
    success: Bool[Array, "*R"]

    @property
    def returns(self) -> Float[np.ndarray, " R"]:
        """The mean return of each run."""
        return np.asarray(self.reward, float).sum(-1).mean(-1)


Earn = Callable[[Any, Schedule, Key[Array, " E"]], Played]


@dataclasses.dataclass(frozen=True)
class Judge:
    """Plays agents beside groups of a zoo; compiles once for all cases."""

    zoo: Zoo
    episodes: int
    memory: Memory = "fresh"
    work: Callable[[Env, Any], AbstractPolicy] = act_by  # makes a policy of a model

    @functools.cached_property
    def earn(self) -> Earn:
        """Let stacked models play some episodes."""
        env, mates = self.zoo.env, self.zoo.policy

        def one(model, schedule, key):
            players = Players(self.work(env, model), mates, self.memory)
            episode = play(env, players, schedule, key)
            return Played(episode.reward, episode.success)

        def some(models, schedules, keys):
            """Play a crowd at a time; teammates are the same for all models."""
            each = jax.vmap(one, in_axes=(0, None, None))
            teams, crowd = (schedules, keys), min(CROWD, self.episodes)
            played = jax.lax.map(lambda t: each(models, *t), teams, batch_size=crowd)
            return jax.tree.map(lambda x: x.swapaxes(0, 1), played)

        return jax.jit(some)

    def __call__(
        self, models: Any, members: Int[np.ndarray, " k"], change: str
    ) -> Played:
        """Judge all models on the same episodes beside these groups."""
        with jax.default_matmul_precision(SURE):
            teams = episodes_of(self.zoo, members, change, self.episodes)
            return self.earn(models, *teams)
