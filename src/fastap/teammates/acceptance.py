"""Is a zoo worth training against? Measurements that decide before any method does."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fastap.methods.actor import act_by
from fastap.methods.model import Model
from fastap.methods.practice import Practice
from fastap.problem.rollout import Memory, Players, play
from fastap.problem.spec import Mistake
from fastap.teammates.company import SHARE, episodes_of
from fastap.teammates.crossplay import beside_all, cross_play, mean_return, summarise
from fastap.teammates.scripted import Random
from fastap.teammates.yardsticks import (
    CHANGE,
    WAYS,
    Switching,
    Task,
    Tell,
    rounded,
    train_all,
)
from fastap.teammates.zoo import Zoo

SURE = "highest"  # precision of products when judging, whatever the device
CHANGES = (*WAYS, f"{CHANGE}-same")
MEMORIES: tuple[Memory, ...] = ("fresh", "watched")
HEADLINE = {"trained": CHANGE, "change": CHANGE, "memory": "fresh"}


def skills(zoo: Zoo, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Measure every group with itself, and all with all.

    Returns what goes into the manifest; scores are normalised, so that the
    random team is 0 and the best self-play 1, for each number of bodies apart.
    """
    env, spec = zoo.env, zoo.env.spec
    keys = jax.random.split(jax.random.key(seed), episodes)
    cross = jax.jit(functools.partial(cross_play, env))
    floor = jax.jit(functools.partial(mean_return, env, Players(Random(), Random())))
    with jax.default_matmul_precision(SURE):
        matrices = {
            size: np.asarray(
                cross(zoo.policy, jnp.full(len(zoo.groups), size), keys), float
            )
            for size in range(spec.least, spec.mates + 1)
        }
        floors = {size: float(floor(jnp.array(size), keys)) for size in matrices}
    best = {size: float(matrix.diagonal().max()) for size, matrix in matrices.items()}
    place = np.arange(len(zoo.groups))
    own = np.stack([matrices[size][:, k] for k, size in enumerate(zoo.sizes)], axis=1)
    low = np.array([floors[size] for size in zoo.sizes])
    high = np.array([best[size] for size in zoo.sizes])
    better = np.where(high > low, high - low, np.inf)  # nobody better: all score 0
    normal = (own - low[None]) / better[None]
    bodies = lambda table: {str(spec.controlled + k): v for k, v in table.items()}
    rows = [
        {
            "selfplay": bodies(
                {s: round(float(m[k, k]), 4) for s, m in matrices.items()}
            ),
            "score": round(float(normal[k, k]), 4),
        }
        for k in place
    ]
    full = np.array([group["skill"] == "full" for group in zoo.groups])
    summary = summarise(normal[np.ix_(full, full)], zoo.types[full])
    return {
        "groups": rows,
        "floor": bodies(floors),
        "best_selfplay": bodies(best),
        **dataclasses.asdict(summary),
        "matrix": normal.round(4).tolist(),
    }


@dataclasses.dataclass(frozen=True)
class Cast:
    """Who is trained to accept a zoo, in the order of the runs.

    First a best response to each group of the pool alone; then, for every seed,
    agents for all of them: told the type of the group or not, met by changes in
    half of the training episodes or in none.
    """

    members: Int[np.ndarray, " k"]
    seeds: int
    ways = tuple(itertools.product(WAYS, ("qmix", "told")))

    def tasks(self) -> list[Task]:
        """Say whom each run is trained beside, and whether it is told their type."""
        members = tuple(self.members.tolist())
        every = [Task(members, way, kind == "told") for way, kind in self.ways]
        alone = [Task((group,)) for group in members]
        return alone + [task for task in every for _ in range(self.seeds)]

    def runs(self, trained: str, kind: str) -> slice:
        """Find the runs of one way of training."""
        first = len(self.members) + self.seeds * self.ways.index((trained, kind))
        return np.s_[first : first + self.seeds]


def accept(
    zoo: Zoo, practice: Practice, cast: Cast, episodes: int, tell: Tell
) -> tuple[dict[str, Any], Model]:
    """Train the whole cast at once, and find what knowing one's teammates is worth.

    The best-response gap: how much better the agents trained for a group alone
    are with it than those trained for all. The label gap: what being told the
    type adds. Both are on the scale of scores, from a random team to the best
    self-play. Returns the facts, and one of the teams trained for all.
    """
    whole = scale(zoo, cast.members)
    models, curves = train_all(zoo, practice, cast.tasks(), tell)
    earned = judge_all(zoo, models, episodes)
    own = earned[np.arange(len(cast.members)), cast.members]
    general = earned[cast.runs("stationary", "qmix")][:, cast.members].mean(0)
    rows = label_gaps(zoo, cast, models, episodes)
    headline = next(row for row in rows if HEADLINE.items() <= row.items())
    facts = {
        "best_response_gap": round(float(((own - general) / whole).mean()), 4),
        "best_responses": {
            "alone": own.round(4).tolist(),
            "together": general.round(4).tolist(),
            "steps": practice.steps,
            "seeds": cast.seeds,
            "share": SHARE,
        },
        "label_gap": round((headline["told"] - headline["qmix"]) / whole.mean(), 4),
        "label_gaps": rows,
        "curves": {
            " ".join(way): rounded(curves[:, cast.runs(*way)].mean(1))
            for way in cast.ways
        },
    }
    one = cast.runs(CHANGE, "qmix").stop - 1
    return facts, jax.tree.map(lambda x: x[one], models)


def scale(zoo: Zoo, members: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Return what separates a random team from the best, as large as each group's."""
    facts, bodies = zoo.manifest, zoo.env.spec.controlled + zoo.sizes[members]
    if not {"best_selfplay", "floor"} <= facts.keys():
        raise Mistake("The groups of this zoo were never judged; build it anew.")
    read = lambda name: np.array([facts[name][str(count)] for count in bodies])
    high, low = read("best_selfplay"), read("floor")
    return np.where(high > low, high - low, 1.0)


def judge_all(
    zoo: Zoo, models: Model, episodes: int, seed: int = 1
) -> Float[np.ndarray, "R K"]:
    """Play every run's agents beside every group, greedily, unchanging."""
    env, sizes = zoo.env, jnp.asarray(zoo.sizes)
    keys = jax.random.split(jax.random.key(seed), episodes)

    @jax.jit
    def test(models):
        act = functools.partial(act_by, env)
        one = lambda model: beside_all(env, act(model), zoo.policy, sizes, keys)
        return jax.lax.map(one, models)

    with jax.default_matmul_precision(SURE):
        return np.asarray(test(models), float)


def label_gaps(
    zoo: Zoo, cast: Cast, models: Model, episodes: int
) -> list[dict[str, Any]]:
    """Tabulate QMIX, QMIX told the type, and the switching best response."""
    env = zoo.env
    response = np.zeros(len(zoo.groups), int)
    response[cast.members] = np.arange(len(cast.members))
    act = functools.partial(act_by, env)
    best, rest = (
        jax.tree.map(lambda x, part=part: x[part], models)
        for part in (np.s_[: len(cast.members)], np.s_[len(cast.members) :])
    )
    switching = Switching(team=act(best), response=jnp.asarray(response))

    @functools.partial(jax.jit, static_argnums=0)
    def earn(memory: Memory, schedules, keys):
        def mean(policy):
            players = Players(policy, zoo.policy, memory)
            each = lambda schedule, key: play(env, players, schedule, key).total
            return jax.vmap(each)(schedules, keys).mean()

        return mean(switching), jax.lax.map(lambda model: mean(act(model)), rest)

    def rows(change: str, memory: Memory) -> list[dict[str, Any]]:
        with jax.default_matmul_precision(SURE):
            teams = episodes_of(zoo, cast.members, change, episodes)
            top, general = earn(memory, *teams)
        ways = np.asarray(general, float).reshape(2, 2, -1).mean(-1).round(4)
        return [
            {"trained": trained, "change": change, "memory": memory}
            | {"qmix": qmix, "told": told, "switching": round(float(top), 4)}
            for trained, (qmix, told) in zip(CHANGES, ways.tolist(), strict=False)
        ]

    cases = itertools.product(CHANGES, MEMORIES)
    return [row for change, memory in cases for row in rows(change, memory)]
