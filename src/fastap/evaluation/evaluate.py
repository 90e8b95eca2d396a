"""Greedy play of trained agents, many runs on the same episodes."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from fastap.methods.actor import act_by
from fastap.methods.model import Model
from fastap.problem.rollout import AbstractPolicy, Memory, Players, play
from fastap.problem.schedule import Schedule
from fastap.teammates.company import episodes_of
from fastap.teammates.zoo import Zoo

SURE = "highest"  # precision of products when judging, whatever the device
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
        mates = self.zoo.policy

        def one(model, schedules, keys):
            mine = act_by(self.zoo.env, model)
            return mean_return(self.zoo, Players(mine, mates, self.memory))(
                schedules, keys
            )

        return jax.jit(jax.vmap(one, in_axes=(0, None, None)))

    def __call__(
        self, models: Model, members: Int[np.ndarray, " k"], change: str
    ) -> Float[np.ndarray, " R"]:
        """Judge all models on the same episodes beside these groups."""
        with jax.default_matmul_precision(SURE):
            teams = episodes_of(self.zoo, members, change, self.episodes)
            return np.asarray(self.earn(models, *teams), float)

    def floor(
        self, policy: AbstractPolicy, members: Int[np.ndarray, " k"], change: str
    ) -> float:
        """Judge any policy in the place of the trained agents."""
        players = Players(policy, self.zoo.policy, self.memory)
        teams = episodes_of(self.zoo, members, change, self.episodes)
        return float(jax.jit(mean_return(self.zoo, players))(*teams))


def mean_return(zoo: Zoo, players: Players) -> Callable[..., Float[Array, ""]]:
    """Return what players earn over some episodes, in the mean."""
    each = lambda schedule, key: play(zoo.env, players, schedule, key).total
    return lambda schedules, keys: jnp.mean(jax.vmap(each)(schedules, keys))
