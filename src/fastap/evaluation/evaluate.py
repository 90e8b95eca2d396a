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

    @property
    def win_rate(self) -> Float[np.ndarray, " R"]:
        """The share of each run's episodes in which the goal was reached."""
        return np.asarray(self.success, float).mean(-1)


Work = Callable[[Env, Any], AbstractPolicy]  # makes a policy of a model


@dataclasses.dataclass(frozen=True)
class Judge:
    """Plays agents beside groups of a zoo."""

    zoo: Zoo
    episodes: int
    memory: Memory = "fresh"
    work: Work = act_by

    def __call__(
        self, models: Any, members: Int[np.ndarray, " k"], change: str
    ) -> Played:
        """Judge stacked models on the same episodes beside these groups."""
        how = (self.work, self.memory, min(CROWD, self.episodes))
        with jax.default_matmul_precision(SURE):
            teams = episodes_of(self.zoo, members, change, self.episodes)
            return earn(*how, (self.zoo.env, self.zoo.policy), models, teams)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def earn(
    work: Work,
    memory: Memory,
    crowd: int,
    game: tuple[Env, AbstractPolicy],
    models: Any,
    teams: tuple[Schedule, Key[Array, " E"]],
) -> Played:
    """Let stacked models play, a crowd at a time; compiled once for all cases."""
    env, mates = game

    def one(model, schedule, key):
        players = Players(work(env, model), mates, memory)
        episode = play(env, players, schedule, key)
        return Played(episode.reward, episode.success)

    each = jax.vmap(one, in_axes=(0, None, None))  # teammates are the same for all
    played = jax.lax.map(lambda team: each(models, *team), teams, batch_size=crowd)
    return jax.tree.map(lambda x: x.swapaxes(0, 1), played)
