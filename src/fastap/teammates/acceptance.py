"""Is a zoo worth training against? Measurements that decide before any method does."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from fastap.methods.actor import Actor, act_by
from fastap.methods.learner import plain
from fastap.methods.model import Model
from fastap.methods.practice import Drill, Practice
from fastap.problem.rollout import AbstractPolicy, Glance, Memory, Players, play
from fastap.problem.schedule import parse
from fastap.teammates.company import SHARE, Beside, Company, all_at_once, episodes_of
from fastap.teammates.crossplay import beside_all, cross_play, mean_return, summarise
from fastap.teammates.scripted import Random
from fastap.teammates.zoo import Zoo

SURE = "highest"  # precision of products when judging, whatever the device
CHANGES = ("stationary", "U[5,8]", "U[5,8]-same")
MEMORIES: tuple[Memory, ...] = ("fresh", "watched")
PIECES = 10  # training is cut into so many, and judged after each
HEADLINE = {"trained": "U[5,8]", "change": "U[5,8]", "memory": "fresh"}


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
    ways = tuple(itertools.product(("stationary", "U[5,8]"), ("qmix", "told")))

    def tasks(self, zoo: Zoo) -> tuple[Company, Float[Array, "R K C"]]:
        """Say whom each run is trained beside, and what it is told of them."""
        count = len(zoo.groups)
        types = np.eye(zoo.types.max() + 1, dtype=np.float32)[zoo.types]
        every = np.isin(np.arange(count), self.members)
        ways = [way for way in self.ways for _ in range(self.seeds)]
        allowed = [*np.eye(count, dtype=bool)[self.members], *([every] * len(ways))]
        alone = [("stationary", "qmix")] * len(self.members)
        share = [0.0 if way == "stationary" else SHARE for way, _ in alone + ways]
        known = [types * (kind == "told") for _, kind in alone + ways]
        met = all_at_once(jnp.asarray(np.array(allowed)))
        company = Company(met, jnp.array(share))
        return company, jnp.asarray(np.array(known))

    def runs(self, trained: str, kind: str) -> slice:
        """Find the runs of one way of training."""
        first = len(self.members) + self.seeds * self.ways.index((trained, kind))
        return np.s_[first : first + self.seeds]


Tell = Callable[[int, str], None]


def accept(
    zoo: Zoo, practice: Practice, cast: Cast, episodes: int, tell: Tell
) -> tuple[dict[str, Any], Model]:
    """Train the whole cast at once, and find what knowing one's teammates is worth.

    The best-response gap: how much better the agents trained for a group alone
    are with it than those trained for all. The label gap: what being told the
    type adds. Returns the facts, and one of the teams trained for all.
    """
    env, play = zoo.env, Beside(zoo, parse(HEADLINE["change"]))
    drill = Drill(env, env.spec.controlled, practice, play)
    models, curves = train_all(zoo, drill, cast, tell)
    earned = judge_all(zoo, models, episodes)
    own = earned[np.arange(len(cast.members)), cast.members]
    general = earned[cast.runs("stationary", "qmix")][:, cast.members].mean(0)
    rows = label_gaps(zoo, cast, models, episodes)
    headline = next(row for row in rows if HEADLINE.items() <= row.items())
    facts = {
        "best_response_gap": round(float((own - general).mean()), 4),
        "best_responses": {
            "alone": own.round(4).tolist(),
            "together": general.round(4).tolist(),
            "steps": practice.steps,
            "seeds": cast.seeds,
            "share": SHARE,
        },
        "label_gap": round(headline["told"] - headline["qmix"], 4),
        "label_gaps": rows,
        "curves": curves,
    }
    one = cast.runs("U[5,8]", "qmix").stop - 1
    return facts, jax.tree.map(lambda x: x[one], models)


def train_all(
    zoo: Zoo, drill: Drill, cast: Cast, tell: Tell, rate: float = 5e-4
) -> tuple[Model, dict[str, list[float]]]:
    """Train all runs side by side; return them, and the curve of each way."""
    tasks, known = cast.tasks(zoo)
    count = len(known)
    keys = jax.vmap(jax.random.key)(jnp.arange(count))
    state = jax.jit(jax.vmap(drill.start))(
        tasks, plain(jnp.full(count, rate)), keys, known
    )
    rounds = drill.practice.rounds(drill.env.spec.horizon)
    train = jax.jit(drill.improve, donate_argnums=0)
    curves: dict[str, list[float]] = {f"{a} {b}": [] for a, b in cast.ways}
    for piece in range(PIECES):
        start, stop = rounds * piece // PIECES, rounds * (piece + 1) // PIECES
        if start == stop:
            continue
        state, notes = train(state, jnp.arange(start, stop))
        earned = notes["return"]
        last = np.asarray(earned[-max(1, len(earned) // 4) :].mean(0))
        for way in cast.ways:
            score = round(float(last[cast.runs(*way)].mean()), 4)
            curves[" ".join(way)].append(score)
        tell(piece + 1, f"return {last.mean():.2f}")
    return state.learner.model, curves


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


class Switching(AbstractPolicy):
    """For every group the team trained for it; all of them watch, one acts."""

    team: Actor  # stacked, one for each response
    response: Int[Array, " K"]  # to each group
    groups: int = eqx.field(static=True, default=1)

    def start(self, slots: int) -> PyTree[Array]:
        """Return the empty memories of all teams, slots first."""
        count = len(self.team.agents.leave.bias)
        wide = lambda x: jnp.broadcast_to(x[:, None], (slots, count, *x.shape[1:]))
        return jax.tree.map(wide, self.team.start(slots))

    def luck(self, slots: int, key: PRNGKeyArray) -> None:
        """Leave nothing to chance."""

    def act(
        self, memory: PyTree[Array], glance: Glance, luck: None
    ) -> tuple[PyTree[Array], Int[Array, " P"]]:
        """Let all teams look; do what the response to the present group would."""
        look = lambda team, memory: team.act(memory, glance, luck)
        each = jax.vmap(look, in_axes=(0, 1), out_axes=(1, 0))
        memory, actions = each(self.team, memory)
        return memory, actions[self.response[glance.group]]


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
