"""Teams that know what others must find out: yardsticks, stored with a zoo."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from fastap.methods.actor import Actor, act_by
from fastap.methods.beliefs import Silent
from fastap.methods.learner import begin, plain
from fastap.methods.model import Model
from fastap.methods.networks import Sum, Values
from fastap.methods.practice import Drill, Practice
from fastap.problem.rollout import AbstractPolicy, Glance
from fastap.problem.schedule import parse
from fastap.problem.spec import Env, Mistake
from fastap.teammates import zoo as store
from fastap.teammates.company import SHARE, Beside, Company, all_at_once
from fastap.teammates.population import Population
from fastap.teammates.tensors import pack, read_stack, seal
from fastap.teammates.zoo import Zoo

CHANGE = "U[5,8]"  # what teams that are trained with changes meet
WAYS = ("stationary", CHANGE)
PIECES = 10  # training is cut into so many, and told of after each
FILE = "yardsticks.safetensors"
ANEW = "make them anew with `fastap zoo yardsticks --force`"
Tell = Callable[[int, str], None]


@dataclasses.dataclass(frozen=True)
class Task:
    """Whom a team is trained beside, what happens to them, and what it is told."""

    groups: tuple[int, ...]
    trained: str = "stationary"
    told: bool = False  # the type of the group that is there


def roles(zoo: Zoo, tasks: Sequence[Task]) -> tuple[Company, Float[Array, "R K C"]]:
    """Say whom each team meets, and what it is told of every group."""
    count, types = len(zoo.groups), zoo.types
    kinds = np.eye(types.max() + 1, dtype=np.float32)[types]
    met = np.array([np.isin(np.arange(count), task.groups) for task in tasks])
    share = [0.0 if task.trained == "stationary" else SHARE for task in tasks]
    change = jax.tree.map(lambda bound: jnp.full(len(tasks), bound), parse(CHANGE))
    company = Company(all_at_once(jnp.asarray(met)), jnp.array(share), change)
    return company, jnp.asarray(np.array([kinds * task.told for task in tasks]))


def train_all(
    zoo: Zoo, practice: Practice, tasks: Sequence[Task], tell: Tell, rate: float = 5e-4
) -> tuple[Model, Float[np.ndarray, "P R"]]:
    """Train a team for every task side by side; return them, and their curves."""
    drill = Drill(zoo.env, zoo.env.spec.controlled, practice, Beside(zoo))
    company, known = roles(zoo, tasks)
    keys = jax.vmap(jax.random.key)(jnp.arange(len(tasks)))
    dials = plain(jnp.full(len(tasks), rate))
    state = jax.jit(jax.vmap(drill.start))(company, dials, keys, known)
    rounds = practice.rounds(zoo.env.spec.horizon)
    train = jax.jit(drill.improve, donate_argnums=0)
    curves = []
    for piece in range(PIECES):
        start, stop = rounds * piece // PIECES, rounds * (piece + 1) // PIECES
        if start == stop:
            continue
        state, notes = train(state, jnp.arange(start, stop))
        earned = notes["return"]
        curves.append(np.asarray(earned[-max(1, len(earned) // 4) :].mean(0)))
        tell(piece + 1, f"return {curves[-1].mean():.2f}")
    return state.learner.model, np.array(curves)


def rounded(curve: Float[np.ndarray, " P"]) -> list[float]:
    """Write a curve as a manifest holds it."""
    return [round(float(score), 4) for score in curve]


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


Responses = tuple[Model, Int[Array, "*R K"]]  # teams, and whose turn it is beside whom


def respond(env: Env, model: Responses) -> Switching:
    """Put the teams that were trained for one group each to work."""
    teams, response = model
    return Switching(team=act_by(env, teams), response=response)


def planned(zoo: Zoo, seeds: int, pools: Sequence[str] = store.POOLS) -> list[Task]:
    """Plan a best response to each group, and teams told the types of each pool."""
    members = [tuple(zoo.members(pool).tolist()) for pool in pools]
    alone = [Task((group,)) for some in members for group in some]
    ways = [(some, way) for some in members if some for way in WAYS]
    return alone + [Task(*way, told=True) for way in ways for _ in range(seeds)]


@dataclasses.dataclass(frozen=True)
class Yardsticks:
    """The stored teams of a zoo."""

    zoo: Zoo
    tasks: tuple[Task, ...]
    agents: Values  # stacked, in the order of the tasks

    def models(self, rows: Sequence[int]) -> Model:
        """Take some of the teams, with what they are told."""
        _, known = roles(self.zoo, [self.tasks[row] for row in rows])
        agents = jax.tree.map(lambda x: x[np.array(rows)], self.agents)
        return Model(agents, Silent(), Silent(), Sum(), (), known)

    def told(self, members: Sequence[int], trained: str) -> Model | None:
        """Find the teams trained beside these groups and told their types."""
        rows = [
            row
            for row, task in enumerate(self.tasks)
            if task.told and task.trained == trained
            if set(members) <= set(task.groups)
        ]
        return self.models(rows) if rows else None

    def switching(self, members: Sequence[int]) -> Responses | None:
        """Find the best responses to these groups, as one stack of teams."""
        alone = {
            task.groups[0]: row
            for row, task in enumerate(self.tasks)
            if not task.told and len(task.groups) == 1
        }
        if not set(members) <= alone.keys():
            return None
        teams = self.models([alone[group] for group in members])
        return in_turn(self.zoo, members, teams)

    def pool(self, row: int) -> str:
        """Say beside whose groups a team was trained."""
        return self.zoo.groups[self.tasks[row].groups[0]]["pool"]

    def without(self, pools: Sequence[str]) -> "Yardsticks":
        """Leave out the teams of some pools."""
        rows = [i for i in range(len(self.tasks)) if self.pool(i) not in pools]
        agents = jax.tree.map(lambda x: x[np.array(rows, int)], self.agents)
        return Yardsticks(self.zoo, tuple(self.tasks[i] for i in rows), agents)

    def joined(self, more: "Yardsticks") -> "Yardsticks":
        """Put other teams behind these."""
        agents = jax.tree.map(lambda *x: jnp.concatenate(x), self.agents, more.agents)
        return Yardsticks(self.zoo, self.tasks + more.tasks, agents)

    @property
    def hidden(self) -> int:
        """The width of the teams' networks."""
        return self.agents.leave.weight.shape[-2]


def in_turn(zoo: Zoo, members: Sequence[int], teams: Model) -> Responses:
    """Give every group the team of its own, of as many."""
    response = np.zeros(len(zoo.groups), int)
    response[np.array(members)] = np.arange(len(members))
    stack = lambda x: jnp.asarray(x)[None]
    return jax.tree.map(stack, teams), stack(response)


def own_teams(zoo: Zoo, members: Sequence[int]) -> Responses | None:
    """Take from each group that learnt the agents with which it grew up.

    Nobody trained them for it, but often they earn more than who was.
    """
    if not isinstance(zoo.policy, Population):
        return None
    rows, ours = np.array(members), zoo.env.spec.controlled
    agents = jax.tree.map(lambda x: x[rows, :ours], zoo.policy.agents)
    return in_turn(zoo, members, Model(agents, Silent(), Silent(), Sum(), (), None))


def save(folder: Path, teams: Yardsticks, trained: dict[str, Any]) -> None:
    """Write the teams beside the groups, and into the manifest what they are.

    What is there by now of other pools is kept: others may have written since.
    """
    pools = [teams.pool(row) for row in range(len(teams.tasks))]
    kept = remaining(folder, pools, teams.hidden, force=True)
    now = store.load(folder).manifest
    if kept:
        teams = kept.joined(teams)
        trained = now["yardsticks"].get("trained", {}) | trained
    data = pack(teams.agents)
    noted = {
        "teams": [dataclasses.asdict(task) for task in teams.tasks],
        "hidden": teams.hidden,
        "trained": trained,
        "sha256": seal(data),
        "groups": identity(teams.zoo),
    }
    store.replace(folder / FILE, data)
    store.save(folder, now | {"yardsticks": noted})


def identity(zoo: Zoo) -> str:
    """Tell groups from all others, whatever was measured of them since."""
    since = ("cluster", "selfplay", "score")
    rows = [{k: v for k, v in row.items() if k not in since} for row in zoo.groups]
    parts = [zoo.manifest.get(name) for name in ("env", "layout", "sha256")]
    return seal(json.dumps([rows, parts], sort_keys=True).encode())[:16]


def load(name: str | Path) -> Yardsticks | None:
    """Read the teams of a zoo, if it has any."""
    folder = store.find(name)
    zoo = store.load(folder)
    noted = zoo.manifest.get("yardsticks")
    if noted is None:
        return None
    try:
        tasks = tuple(task_of(row, len(zoo.groups)) for row in noted["teams"])
        digest, hidden = noted["sha256"], noted["hidden"]
        known = isinstance(noted.get("trained", {}), dict)
        if not (tasks and known) or noted["groups"] != identity(zoo):
            raise ValueError
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Mistake(
            f"{folder}: what its manifest says of yardsticks is damaged, or of other "
            f"groups; {ANEW}."
        ) from error
    known = roles(zoo, tasks)[1][0]
    count, how = zoo.env.spec.controlled, store.width(hidden, folder)
    build = lambda: begin(zoo.env, count, how, jax.random.key(0), known).model.agents
    shapes = jax.eval_shape(build)
    agents = read_stack(folder / FILE, digest, shapes, len(tasks), ANEW)
    return Yardsticks(zoo, tasks, agents)


def remaining(
    folder: Path, pools: Sequence[str], hidden: int, force: bool
) -> Yardsticks | None:
    """Find the teams that stay when those of some pools are made, or made anew."""
    there_are = {group["pool"] for group in store.load(folder).groups}
    if force and there_are <= set(pools):
        return None  # nothing stays, so what is there may be damaged
    there = load(folder)
    if there is None:
        return None
    kept = there.without(pools)
    if len(kept.tasks) < len(there.tasks) and not force:
        raise Mistake(f"{folder} has yardsticks already; add --force to replace.")
    if kept.tasks and kept.hidden != hidden:
        raise Mistake(
            f"{folder}: teams that are there are {kept.hidden} wide, new ones would be "
            f"{hidden}; {ANEW}."
        )
    return kept if kept.tasks else None


def task_of(row: dict[str, Any], count: int) -> Task:
    """Read one task from a manifest."""
    groups, trained, told = row["groups"], row["trained"], row["told"]
    fine = groups and all(type(group) is int and 0 <= group < count for group in groups)
    if not fine or trained not in WAYS or type(told) is not bool:
        raise ValueError
    return Task(tuple(groups), trained, told)


def describe(
    teams: Yardsticks, practice: Practice, curves: Float[np.ndarray, "P R"]
) -> dict[str, Any]:
    """Say for each pool how long its teams learnt, and how far they came."""
    pools = [teams.pool(row) for row in range(len(teams.tasks))]
    kinds = [f"told, {task.trained}" if task.told else "alone" for task in teams.tasks]
    found: dict[str, Any] = {}
    for pool, kind in dict.fromkeys(zip(pools, kinds, strict=True)):
        some = np.array([one == (pool, kind) for one in zip(pools, kinds, strict=True)])
        facts = found.setdefault(pool, {"steps": practice.steps, "curves": {}})
        facts["curves"][kind] = rounded(curves[:, some].mean(1))
    return found
