"""What stands beside every score: chance, being told, and a team for each group."""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from fastap.evaluation.evaluate import Judge, Work
from fastap.methods.actor import act_by
from fastap.problem.rollout import Memory
from fastap.problem.spec import Env
from fastap.teammates import zoo as store
from fastap.teammates.scripted import Random
from fastap.teammates.yardsticks import Yardsticks, load, own_teams, respond
from fastap.teammates.zoo import Zoo


@dataclasses.dataclass(frozen=True)
class Spot:
    """Where scores are compared: with which groups, and how they are played.

    Spots that are equal have equal yardsticks, so each is measured only once.
    """

    zoo: str  # a name or a folder
    seal: str  # tells what is in it from what was
    members: tuple[int, ...]
    episodes: int
    memory: Memory

    def judge(self, work: Work, models: Any, change: str) -> float:
        """Play some agents on the episodes that everybody else has; return the mean."""
        zoo = opened(self.zoo, self.seal)[0]
        play = Judge(zoo, self.episodes, self.memory, work)
        return float(play(models, np.array(self.members), change).returns.mean())


def seal(zoo: Zoo) -> str:
    """Tell a zoo and its yardsticks from all others."""
    noted = zoo.manifest.get("yardsticks")
    teams = noted.get("sha256") if isinstance(noted, dict) else noted
    return f"{zoo.fingerprint()} {teams}"


@functools.lru_cache(maxsize=8)
def opened(name: str, seal: str) -> tuple[Zoo, Yardsticks | None]:
    """Read a zoo and its teams; its seal says when to read them anew."""
    del seal
    return store.load(name), load(name)


@functools.lru_cache(maxsize=1000)
def floor(spot: Spot, change: str) -> float:
    """Return what random agents earn."""
    return spot.judge(nobody, jnp.zeros(1), change)


@functools.lru_cache(maxsize=1000)
def told(spot: Spot, change: str, trained: str) -> float | None:
    """Return what agents earn that are told the type of their teammates."""
    teams = opened(spot.zoo, spot.seal)[1]
    models = teams.told(spot.members, trained) if teams else None
    return None if models is None else spot.judge(act_by, models, change)


@functools.lru_cache(maxsize=1000)
def switching(spot: Spot, change: str) -> float | None:
    """Return what best responses earn that take turns as the groups do."""
    teams = opened(spot.zoo, spot.seal)[1]
    models = teams.switching(spot.members) if teams else None
    return None if models is None else spot.judge(respond, models, change)


@functools.lru_cache(maxsize=1000)
def own(spot: Spot, change: str) -> float | None:
    """Return what agents earn that grew up with the groups, and take turns too."""
    models = own_teams(opened(spot.zoo, spot.seal)[0], spot.members)
    return None if models is None else spot.judge(respond, models, change)


def nobody(env: Env, model: Any) -> Random:
    """Put random agents in the place of a model's."""
    del env, model
    return Random()
