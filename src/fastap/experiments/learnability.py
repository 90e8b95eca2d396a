"""Can a team learn LBF at all? What decides it, measured before growing teammates."""

import csv
import dataclasses
import functools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fastap.envs import make
from fastap.envs.foraging import Foraging
from fastap.methods.learner import plain
from fastap.methods.model import Learning
from fastap.methods.practice import Drill, Practice
from fastap.problem.rollout import Players
from fastap.teammates.conventions import no_conventions
from fastap.teammates.crossplay import mean_return
from fastap.teammates.grow import Lesson, judge, lesson
from fastap.teammates.scripted import Planner, Random


@dataclasses.dataclass(frozen=True)
class Trial:
    """One row of the table: an environment, a way to practise, some learning rates."""

    name: str
    env: dict[str, Any]
    practice: Practice
    rates: tuple[float, ...] = (5e-4,)
    absences: float = 0.5  # the share of training with everybody there
    seeds: int = 3


LONG = Practice(steps=6_000_000)
BASE = Practice(steps=3_000_000)
TRIALS = (
    Trial("base, 6 M steps", {}, LONG, (5e-4, 1e-3, 2e-3)),
    Trial("base", {}, BASE),
    Trial("raw observations", {"encoding": "raw"}, BASE),
    Trial("state of observations", {"state": "observations"}, BASE),
    Trial(
        "raw, state of observations", {"encoding": "raw", "state": "observations"}, BASE
    ),
    Trial("1 update a round", {}, dataclasses.replace(BASE, updates=1)),
    Trial("2 updates a round", {}, dataclasses.replace(BASE, updates=2)),
    Trial("16 updates a round", {}, dataclasses.replace(BASE, updates=16)),
    Trial("absences from the start", {}, BASE, absences=0.0),
    Trial("absences in the last third", {}, BASE, absences=2 / 3),
    Trial("sight 2", {"sight": 2}, BASE),
    Trial("sight 6", {"sight": 6}, BASE),
    Trial(
        "rewards as they are",
        {},
        dataclasses.replace(BASE, learning=Learning(standardise=False)),
    ),
    Trial("vdn", {}, dataclasses.replace(BASE, learning=Learning(mixer="vdn"))),
)


@dataclasses.dataclass(frozen=True)
class Point:
    """How well one run plays at one moment."""

    trial: str
    rate: float
    seed: int
    steps: int
    seconds: float  # of training, all runs of the trial together, after compilation
    bodies: int
    score: float


def measure(trial: Trial, points: int, episodes: int = 500) -> Iterator[Point]:
    """Grow all runs of a trial together and judge them as they go."""
    env = make("lbf", **trial.env)
    spec, practice = env.spec, trial.practice
    rates = jnp.repeat(jnp.array(trial.rates), trial.seeds)
    seeds = jnp.tile(jnp.arange(trial.seeds), len(trial.rates))
    drill = Drill(env, spec.slots, practice, functools.partial(lesson, env))
    tasks = Lesson(jnp.full(len(rates), trial.absences), no_conventions(len(rates)))
    keys = jax.vmap(jax.random.key)(seeds)
    runs = jax.jit(jax.vmap(drill.start))(tasks, plain(rates), keys)
    chunk = max(1, practice.rounds(spec.horizon) // points)
    rounds = jnp.arange(chunk)
    train = jax.jit(drill.improve, donate_argnums=0).lower(runs, rounds).compile()
    test = jax.jit(
        jax.vmap(functools.partial(judge, env), in_axes=(0, None, None)),
    )
    keys = jax.random.split(jax.random.key(99), episodes)
    seconds = 0.0
    for point in range(1, points + 1):
        clock = time.perf_counter()
        runs, _ = jax.block_until_ready(train(runs, rounds))
        seconds += time.perf_counter() - clock
        rounds = rounds + chunk
        steps = point * chunk * practice.episodes * spec.horizon
        for size in range(spec.least, spec.mates + 1):
            scores = test(runs.learner.model.agents, jnp.array(size), keys)
            for rate, seed, score in zip(rates, seeds, np.asarray(scores), strict=True):
                yield Point(
                    trial.name,
                    float(rate),
                    int(seed),
                    steps,
                    seconds,
                    spec.controlled + size,
                    float(score),
                )


def read(path: Path) -> list[Point]:
    """Read the points of earlier trials."""
    with path.open(newline="") as file:
        return [
            Point(
                row["trial"],
                float(row["rate"]),
                int(row["seed"]),
                int(row["steps"]),
                float(row["seconds"]),
                int(row["bodies"]),
                float(row["score"]),
            )
            for row in csv.DictReader(file)
        ]


def yardsticks(episodes: int = 1000) -> dict[str, float]:
    """Measure the planner and the random team, with everybody there."""
    env = Foraging()
    teams = {"planner": Planner(env=env), "random team": Random()}
    keys = jax.random.split(jax.random.key(7), episodes)
    most = jnp.array(env.spec.mates)
    return {
        name: float(jax.jit(mean_return)(env, Players(team, team), most, keys))
        for name, team in teams.items()
    }


def write(points: Iterable[Point], path: Path) -> Iterator[Point]:
    """Write points to a file as they come, and pass them on."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(field.name for field in dataclasses.fields(Point))
        for point in points:
            rows.writerow(dataclasses.astuple(point))
            file.flush()
            yield point
