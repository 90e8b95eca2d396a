"""Greedy play of trained agents, many runs on the same episodes."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from fastap.methods.actor import act_by
from fastap.methods.model import Model
from fastap.problem.rollout import Memory, Players, play
from fastap.problem.schedule import Schedule
from fastap.teammates.acceptance import SURE
from fastap.teammates.company import episodes_of
from fastap.teammates.zoo import Zoo

Earn = Callable[[Model, Schedule, Key[Array, " E"]], Float[Array, " R"]]


@dataclasses.dataclass(frozen=True)
class Judge:
    """Plays agents beside groups of a zoo; compiles once for all cases."""

    zoo: Zoo
    episodes: int
    memory: Memory = "fresh"

    @functools.cached_property
    def earn(self) -> Earn:
        """Return the mean returns of stacked models over some episodes."""
        env, mates = self.zoo.env, self.zoo.policy

        def one(model, schedules, keys):
            players = Players(act_by(env, model), mates, self.memory)
            each = lambda schedule, key: play(env, players, schedule, key).total
            return jax.vmap(each)(schedules, keys).mean()

        return jax.jit(jax.vmap(one, in_axes=(0, None, None)))

    def __call__(
        self, models: Model, members: Int[np.ndarray, " k"], change: str
    ) -> Float[np.ndarray, " R"]:
        """Judge all models on the same episodes beside these groups."""
        with jax.default_matmul_precision(SURE):
            teams = episodes_of(self.zoo, members, change, self.episodes)
            return np.asarray(self.earn(models, *teams), float)
