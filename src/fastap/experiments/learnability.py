"""Can a team learn LBF at all? What decides it, measured before growing teammates."""

import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fastap.envs import make
from fastap.methods.learner import Learning
from fastap.teammates.grow import Growth, improve, judge, start


@dataclasses.dataclass(frozen=True)
class Trial:
    """One row of the table: an environment, a way to grow, some learning rates."""

    name: str
    env: dict[str, Any]
    growth: Growth
    rates: tuple[float, ...] = (5e-4,)
    seeds: int = 3


BASE = Growth()
TRIALS = (
    Trial("base", {}, BASE, (5e-4, 1e-3, 2e-3)),
    Trial("raw observations", {"encoding": "raw"}, BASE),
    Trial("state of observations", {"state": "observations"}, BASE),
    Trial(
        "raw, state of observations", {"encoding": "raw", "state": "observations"}, BASE
    ),
    Trial("1 update a round", {}, dataclasses.replace(BASE, updates=1)),
    Trial("2 updates a round", {}, dataclasses.replace(BASE, updates=2)),
    Trial("16 updates a round", {}, dataclasses.replace(BASE, updates=16)),
    Trial("absences from the start", {}, dataclasses.replace(BASE, absences=0.0)),
    Trial("absences in the last third", {}, dataclasses.replace(BASE, absences=2 / 3)),
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
    spec, growth = env.spec, trial.growth
    rates = jnp.repeat(jnp.array(trial.rates), trial.seeds)
    seeds = jnp.tile(jnp.arange(trial.seeds), len(trial.rates))
    begin = jax.jit(jax.vmap(functools.partial(start, env, growth)))
    runs = begin(jax.vmap(jax.random.key)(seeds))
    chunk = max(1, growth.rounds(spec.horizon) // points)
    rounds = jnp.arange(chunk)
    train = jax.jit(functools.partial(improve, env, growth), donate_argnums=0)
    train = train.lower(runs, rates, rounds).compile()
    test = jax.jit(
        jax.vmap(functools.partial(judge, env), in_axes=(0, None, None)),
    )
    keys = jax.random.split(jax.random.key(99), episodes)
    seconds = 0.0
    for point in range(1, points + 1):
        clock = time.perf_counter()
        runs, _ = jax.block_until_ready(train(runs, rates, rounds))
        seconds += time.perf_counter() - clock
        rounds = rounds + chunk
        steps = point * chunk * growth.episodes * spec.horizon
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
