"""Inside trained agents: their episodes, and what they believed in them."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from fastap.evaluation.latents import named_by_lag, probe, recall, since, steadiness
from fastap.methods.actor import act_by
from fastap.methods.model import Model
from fastap.problem.episode import Episode
from fastap.problem.rollout import AbstractPolicy, Memory, Players, film
from fastap.problem.schedule import Schedule
from fastap.problem.spec import Env, Mistake
from fastap.teammates.acceptance import SURE
from fastap.teammates.company import episodes_of
from fastap.teammates.zoo import Zoo
from fastap.training import checkpoint
from fastap.training.train import Course

LAGS = 8  # steps after a change that a memory is read at


@dataclasses.dataclass(frozen=True)
class Watched:
    """Some episodes of one run's agents, with all that they thought."""

    env: Env
    episodes: Episode
    worlds: Any
    context: Float[np.ndarray, "E T n D"]
    memory: Float[np.ndarray, "E T n M"]

    @property
    def group(self) -> np.ndarray:
        """Who was there."""
        return np.asarray(self.episodes.group)

    @property
    def swap(self) -> np.ndarray:
        """When teams changed."""
        return np.asarray(self.episodes.swap)

    @property
    def valid(self) -> np.ndarray:
        """Which steps were played."""
        return np.asarray(self.episodes.valid)


@dataclasses.dataclass(frozen=True)
class Subject:
    """The agents of one method and seed of a run."""

    folder: Path
    method: str
    seed: int = 0

    @functools.cached_property
    def agents(self) -> tuple[Course, Model]:
        """Read them, and how they were trained."""
        ready, models, _ = checkpoint.read_agents(self.folder)
        if self.method not in ready.names:
            held = ", ".join(dict.fromkeys(ready.names))
            raise Mistake(f"{self.folder} holds no '{self.method}'; it holds {held}.")
        place = ready.names.index(self.method) + self.seed
        return ready, jax.tree.map(lambda x: x[place], models)

    @property
    def zoo(self) -> Zoo:
        """Whom they were trained beside."""
        return self.agents[0].zoo

    def watch(self, pool: str, change: str, count: int) -> Watched:
        """Film episodes of theirs, and recall what they thought."""
        ready, model = self.agents
        env, mates = self.zoo.env, self.zoo.policy
        with jax.default_matmul_precision(SURE):
            met = ready.members.get(pool, self.zoo.members(pool))
            teams = episodes_of(self.zoo, met, change, count)
            how = (env, mates, ready.settings.memory)
            episodes, worlds, context, memory = film_all(*how, model, teams)
        thoughts = np.asarray(context), np.asarray(memory)
        return Watched(env, episodes, worlds, *thoughts)

    def facts(self, count: int) -> dict[str, Any]:
        """Say how steady contexts are between changes, and what memories know.

        They may know the planted type of a group never met, and the cluster of
        one met in training; each by the steps since a change.
        """
        seen = self.watch("validation", "U[5,8]", count)
        steady = steadiness(seen.context, seen.swap, seen.valid)
        facts = {"method": self.method, "within": steady.within, "jump": steady.jump}
        learn = self.watch("train", "stationary", count)
        tasks = {"type": (seen, self.zoo.types)}
        clusters = self.zoo.clusters
        if clusters[self.agents[0].members["train"]].min() >= 0:
            met = self.watch("train", "U[5,8]", count)
            tasks["cluster"] = (met, np.maximum(clusters, 0))
        for name, (tried, labels) in tasks.items():
            changed = tried.valid & (np.cumsum(tried.swap, axis=1) > 0)
            both = labels[learn.group][learn.valid], labels[tried.group][changed]
            facts[f"{name} by chance"] = guessed(*both)
            for lag, share in enumerate(named(learn, tried, labels)):
                facts[f"{name} after {lag}"] = float(share)
        return facts


def guessed(met: Int[np.ndarray, " N"], tried: Int[np.ndarray, " M"]) -> float:
    """Say how often one is right who knows no more than how common labels are."""
    if not (met.size and tried.size):
        return np.nan
    common = np.bincount(met, minlength=tried.max() + 1) / met.size
    return float(common[tried].mean())


def named(
    learn: Watched, tried: Watched, labels: Int[np.ndarray, " K"]
) -> Float[np.ndarray, " L"]:
    """Say how often memories name a group's label, by steps since a change.

    The reading is learnt from some episodes and tried on others, which change.
    """
    agents = learn.memory.shape[2]
    target = np.repeat(labels[learn.group][learn.valid], agents)
    flat = learn.memory[learn.valid].reshape(-1, learn.memory.shape[-1])
    reading = probe(flat, target, int(labels.max()) + 1)
    changed = np.cumsum(tried.swap, axis=1) > 0
    lag = np.where(tried.valid & changed, since(tried.swap), -1)
    return named_by_lag(reading, tried.memory, labels[tried.group], lag, LAGS)


@eqx.filter_jit
def film_all(
    env: Env,
    mates: AbstractPolicy,
    memory: Memory,
    model: Model,
    teams: tuple[Schedule, Key[Array, " E"]],
) -> tuple[Episode, Any, Array, Array]:
    """Film many episodes, and recall them all."""

    def one(schedule, key):
        players = Players(act_by(env, model), mates, memory)
        episode, worlds = film(env, players, schedule, key)
        thoughts = recall(env, model, episode)
        return episode, worlds, thoughts.context, thoughts.memory

    return jax.vmap(one)(*teams)


def take(tree: Any, place: int) -> Any:
    """Take one episode of many."""
    return jax.tree.map(lambda x: x[place], tree)


def leaving(seen: Watched) -> tuple[int, int]:
    """Find a step at which a teammate leaves; the best reward after it wins."""
    present = np.asarray(seen.episodes.present).sum(-1)
    leaves = np.zeros(seen.swap.shape, bool)
    leaves[:, 1:] = (present[:, 1:] < present[:, :-1]) & seen.valid[:, 1:]
    if not leaves.any():
        leaves = seen.swap & seen.valid
    if not leaves.any():
        raise Mistake("No team changed in any of the episodes that were watched.")
    reward = np.asarray(seen.episodes.reward)
    ahead = np.cumsum(reward[:, ::-1], axis=1)[:, ::-1]
    place = np.argmax(np.where(leaves, 1 + ahead, 0))
    episode, when = np.unravel_index(place, leaves.shape)
    return int(episode), int(when)


def longest(seen: Watched) -> int:
    """Find the episode with most steps, and of those the one with most changes."""
    return int(np.argmax(seen.valid.sum(1) * 100 + seen.swap.sum(1)))


def widest(contexts: np.ndarray) -> np.ndarray:
    """Project contexts onto the widest direction of each agent's own."""
    points = np.moveaxis(np.asarray(contexts, float), 2, 0)
    centred = points - points.mean((1, 2), keepdims=True)
    flat = centred.reshape(len(points), -1, points.shape[-1])
    _, _, axes = np.linalg.svd(flat, full_matrices=False)
    return np.einsum("netd,nd->etn", centred, axes[:, 0])
