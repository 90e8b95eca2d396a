"""All that is asked of a trained run, beside what there is to compare it with."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from fastap.evaluation.adaptation import adaptation
from fastap.evaluation.evaluate import Judge, Played
from fastap.evaluation.statistics import interval, iqm, summary
from fastap.experiments.yardsticks import Spot, floor, own, seal, switching, told
from fastap.methods.model import Model
from fastap.problem.rollout import Memory
from fastap.problem.schedule import Never, parse
from fastap.teammates.yardsticks import WAYS
from fastap.teammates.zoo import Zoo
from fastap.training.checkpoint import read_agents
from fastap.training.settings import Pool
from fastap.training.train import POOLS, Course

MOMENTS = (8, 12)  # of the one change after which adaptation is measured
Answer = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Question:
    """Which changes, beside whom, and how often."""

    changes: tuple[str, ...]
    pool: Pool = "held-out"
    episodes: int = 1000
    memory: Memory = "fresh"


@dataclasses.dataclass(frozen=True, eq=False)  # equal only to itself: it remembers
class Case:
    """A trained run before its judges."""

    ready: Course
    model: Model | None
    question: Question

    @functools.cached_property
    def members(self) -> Int[np.ndarray, " k"]:
        """The groups of the pool; a run with fewer has as many held out as validate."""
        limits = dict(zip(POOLS, self.ready.settings.groups, strict=True))
        limit = limits["train" if self.question.pool == "train" else "validation"]
        return self.ready.zoo.members(self.question.pool)[: limit or None]

    @functools.cached_property
    def judge(self) -> Judge:
        """Who judges the agents."""
        return Judge(self.ready.zoo, self.question.episodes, self.question.memory)

    @functools.lru_cache  # noqa: B019, a case lives as long as its answers
    def played(self, change: str) -> Played:
        """Play all episodes of a change."""
        return self.judge(self.model, self.members, change)

    @functools.cached_property
    def spot(self) -> Spot:
        """Where the agents are judged."""
        zoo, question = self.ready.zoo, self.question
        where = (self.ready.settings.zoo, seal(zoo), tuple(self.members.tolist()))
        return Spot(*where, question.episodes, question.memory)

    def floor(self, change: str) -> float:
        """Return what random agents earn beside the same teammates."""
        return floor(self.spot, change)

    @property
    def ceiling(self) -> float | None:
        """What the best earn who know these groups, or else the best self-play."""
        found = (judge(self.spot, "stationary") for judge in (switching, own))
        known = [score for score in found if score is not None]
        return max(known) if known else best(self.ready.zoo, self.members)

    def parts(self) -> dict[str, Int[np.ndarray, " k"]]:
        """Split the groups: of types that were met in training, and of others."""
        zoo = self.ready.zoo
        met = np.isin(zoo.types, zoo.types[self.ready.members["train"]])[self.members]
        return {"seen": self.members[met], "unseen": self.members[~met]}

    @functools.lru_cache  # noqa: B019
    def halves(self, change: str) -> dict[str, Played]:
        """Play beside types that were met in training, and beside others."""
        return {
            name: self.judge(self.model, some, change)
            for name, some in self.parts().items()
            if len(some)
        }


def assess(folder: Path, question: Question) -> Iterator[Answer]:
    """Judge a run: one answer for each of its configurations and each change."""
    ready, model, step = read_agents(folder)
    case = Case(ready, model, question)
    far = {"steps": step, "planned": ready.steps(ready.beats), "run": str(folder)}
    for name in dict.fromkeys(ready.names):
        runs = np.flatnonzero(np.array(ready.names) == name)
        after = adapt(case, runs)
        for change in question.changes:
            who = {"env": ready.settings.env, "zoo": ready.settings.zoo, "method": name}
            found = answer(case, runs, change)
            yield who | found | {"adaptation": after} | far


def answer(case: Case, runs: Int[np.ndarray, " r"], change: str) -> Answer:
    """Say how one configuration does under one change."""
    question, played = case.question, case.played(change)
    returns = played.returns[runs]
    floor, ceiling = case.floor(change), case.ceiling
    halves = case.halves(change) if question.pool == "held-out" else {}
    return {
        "change": change,
        "pool": question.pool,
        "memory": question.memory,
        "episodes": question.episodes,
        "seeds": len(returns),
        "returns": returns.tolist(),
        **summary(returns),
        "floor": floor,
        "ceiling": ceiling,
        "score": normal(float(iqm(returns)), floor, ceiling),
        **wins(case, played, runs),
        **beside(case, change),
        **cost(case, runs, change),
        **{name: some.returns[runs].tolist() for name, some in halves.items()},
    }


def wins(case: Case, played: Played, runs: Int[np.ndarray, " r"]) -> Answer:
    """Say how often each seed reached the goal, where there is one."""
    if not case.ready.zoo.env.winnable:
        return {}
    return {"win_rate": played.win_rate[runs].tolist()}


def best(zoo: Zoo, members: Int[np.ndarray, " k"]) -> float | None:
    """Return the best self-play of teams as large as those of these groups."""
    known = zoo.manifest.get("best_selfplay")
    if known is None:
        return None
    bodies = zoo.env.spec.controlled + zoo.sizes[members]
    return float(np.mean([known[str(number)] for number in bodies]))


def normal(value: float, floor: float, ceiling: float | None) -> float | None:
    """Return a value on a scale from random agents to the best that is known."""
    whole = reach(floor, ceiling)
    return (value - floor) / whole if whole else None


def reach(floor: float, ceiling: float | None) -> float | None:
    """Return how far the best is from random agents, if it is known and better."""
    return ceiling - floor if ceiling is not None and ceiling > floor else None


def beside(case: Case, change: str) -> Answer:
    """Return what there is to compare with, of what there is.

    Agents that are told the type, trained with changes if the run was, or without;
    best responses; and the groups' own teams.
    """
    spot, trained = case.spot, parse(case.ready.settings.train_change)
    way = WAYS[not isinstance(trained.when, Never)]
    found = {
        "told": told(spot, change, way),
        "switching": switching(spot, change),
        "own": own(spot, change),
    }
    return {name: value for name, value in found.items() if value is not None}


def cost(case: Case, runs: Int[np.ndarray, " r"], change: str) -> Answer:
    """Return the paper's cost of change, and that of the new policies alone."""
    kind = parse(change)
    if isinstance(kind.when, Never) or kind.redraw != "group":
        return {}
    mean = lambda change: float(case.played(change).returns[runs].mean())
    here = mean(change)
    return {
        "difference": here - mean("stationary"),
        "cost_of_change": mean(f"{change}-same") - here,
    }


def adapt(case: Case, runs: Int[np.ndarray, " r"]) -> dict[str, Answer]:
    """Measure what one change at a fixed step does; the middle of all seeds."""
    rewards = lambda change: np.asarray(case.played(change).reward, float)[runs]
    floor = case.floor("stationary")
    scale = reach(floor, case.ceiling) or 1.0
    step = floor / case.ready.zoo.env.spec.horizon  # what it brings to random agents

    def after(at: int) -> Answer:
        pairs = zip(rewards("stationary"), rewards(f"at[{at}]"), strict=True)
        each = [adaptation(*pair, at, scale, step) for pair in pairs]
        middle = lambda values: float(np.median(values))
        return {
            "dip": middle([one.dip for one in each]),
            "recovery": finite(middle([one.recovery for one in each])),
            "area": middle(areas := [one.area for one in each]),
            "area_ci95": [float(edge) for edge in interval([np.array(areas)])],
            "regret": np.mean([one.regret for one in each], axis=0).tolist(),
        }

    return {f"at[{at}]": after(at) for at in MOMENTS}


def finite(lag: float) -> float | None:
    """Return a lag, or nothing where it never comes (JSON has no infinity)."""
    return lag if np.isfinite(lag) else None
