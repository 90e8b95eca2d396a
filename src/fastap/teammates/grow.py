"""Growing teams: all N agents learn together in self-play, many runs at once."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from fastap.methods.actor import Actor
from fastap.methods.learner import plain
from fastap.methods.model import Model
from fastap.methods.networks import Values
from fastap.methods.practice import Drill, Moment, Practice, Run
from fastap.problem.episode import Episode
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import unchanging
from fastap.problem.spec import Env
from fastap.teammates.conventions import Convention, teach

Pool = Literal["train", "validation", "held-out"]
Skill = Literal["full", "half"]
Algorithm = Literal["qmix", "vdn"]
Habit = tuple[int, int]  # of a convention; -1 for none
HALF = 0.55  # of its trunk's last score, at which a half-skilled team stays
PIECES, PARTING = 20, 14  # training is cut into pieces; members part after some
JUDGED = 200  # episodes after every piece


class Lesson(eqx.Module):
    """What one team is to become."""

    absences: Float[Array, "*R"]  # the share of training with everybody there
    convention: Convention


def lesson(
    env: Env, each: Lesson, model: Model, now: Moment, key: PRNGKeyArray
) -> Episode:
    """Play an episode to learn from: with absences in time, and nudged rewards."""
    spec = env.spec
    k_size, k_play = jax.random.split(key)
    size = jax.random.randint(k_size, (), spec.least, spec.mates + 1)
    size = jnp.where(now.progress >= each.absences, size, spec.mates)
    episode = self_play(env, model.agents, now.epsilon, size, k_play)
    return teach(env, each.convention, now.progress, episode)


def self_play(
    env: Env,
    agents: Values,
    epsilon: Float[Array, ""] | None,
    size: Int[Array, ""],
    key: PRNGKeyArray,
) -> Episode:
    """Play one episode of a team with itself, with a number of its mates there."""
    n = env.spec.controlled
    act = lambda part: Actor(env=env, agents=part, epsilon=epsilon)
    team = Players(act(seats(agents, np.s_[:n])), act(seats(agents, np.s_[n:])))
    return play(env, team, unchanging(env.spec.horizon, size), key)


def seats(agents: Values, which: slice) -> Values:
    """Take the networks of some slots."""
    return jax.tree.map(lambda x: x[which], agents)


def judge(
    env: Env, agents: Values, size: Int[Array, ""], keys: Key[Array, " E"]
) -> Float[Array, ""]:
    """Return what a team earns with itself, without exploring."""
    greedy = functools.partial(self_play, env, agents, None, size)
    return jax.vmap(greedy)(keys).total.mean()


@dataclasses.dataclass(frozen=True)
class Member:
    """One group to be: how many of its networks are teammates, and how skilled."""

    size: int
    skill: Skill = "full"


@dataclasses.dataclass(frozen=True)
class Trunk:
    """One run from which the members of a type branch."""

    type: str
    pool: Pool
    habit: Habit
    seed: int
    members: tuple[Member, ...]
    algorithm: Algorithm = "qmix"


@dataclasses.dataclass(frozen=True)
class Group:
    """A grown team, and where it comes from."""

    trunk: Trunk
    member: Member
    agents: Values
    steps: int  # of self-play that it has learnt from


@dataclasses.dataclass(frozen=True)
class Grown:
    """All runs after some pieces of training."""

    pieces: int
    runs: Run
    agents: Values  # on the host
    scores: Float[np.ndarray, " R"]  # with everybody there


Tell = Callable[[float, Grown], None]  # the share that is done comes first


def grow(
    env: Env,
    trunks: Sequence[Trunk],
    practice: Practice,
    rate: float = 5e-4,
    tell: Tell = lambda done, grown: None,
) -> list[Group]:
    """Grow groups, those of one algorithm together, in the order of the trunks."""
    kinds, groups = sorted({trunk.algorithm for trunk in trunks}), []
    for i, kind in enumerate(kinds):
        learning = dataclasses.replace(practice.learning, mixer=kind)
        mine = [trunk for trunk in trunks if trunk.algorithm == kind]
        heard = lambda done, grown, i=i: tell((i + done) / len(kinds), grown)
        how = dataclasses.replace(practice, learning=learning)
        groups += grow_together(env, mine, how, rate, heard)
    return sorted(groups, key=lambda group: trunks.index(group.trunk))


def grow_together(
    env: Env, trunks: Sequence[Trunk], practice: Practice, rate: float, tell: Tell
) -> list[Group]:
    """Grow all groups at once: first the trunks, then the branches.

    A trunk always has everybody there; absences begin where members part. A
    half-skilled member is its trunk when that had learnt about half.
    """
    drill = Drill(env, env.spec.slots, practice, functools.partial(lesson, env))
    past = list(_train(drill, _plant(drill, trunks, rate), (0, PARTING), tell))
    full = [
        (i, j)
        for i, trunk in enumerate(trunks)
        for j, member in enumerate(trunk.members)
        if member.skill == "full"
    ]
    branches = _part(past[-1].runs, np.array(full))
    *_, last = _train(drill, branches, (PARTING, PIECES), tell)
    steps = _piece(drill) * practice.episodes * env.spec.horizon
    groups = []
    for i, trunk in enumerate(trunks):
        for j, member in enumerate(trunk.members):
            when, at = (last, full.index((i, j))) if (i, j) in full else (None, i)
            when = when or halfway(past, i)
            agents = jax.tree.map(lambda x, at=at: x[at], when.agents)
            groups.append(Group(trunk, member, agents, steps * when.pieces))
    return groups


def halfway(past: Sequence[Grown], run: int) -> Grown:
    """Find when a run had first learnt about half of what it knew at the end."""
    low = min(0.0, past[0].scores[run])  # to know nothing may cost
    goal = low + HALF * (past[-1].scores[run] - low)
    return next(grown for grown in past if grown.scores[run] >= goal)


def _plant(drill: Drill, trunks: Sequence[Trunk], rate: float) -> Run:
    column = lambda name: jnp.array([getattr(trunk, name) for trunk in trunks])
    count = len(trunks)
    task = Lesson(jnp.full(count, PARTING / PIECES), Convention(column("habit")))
    keys = jax.vmap(jax.random.key)(column("seed"))
    return jax.jit(jax.vmap(drill.start))(task, plain(jnp.full(count, rate)), keys)


def _part(runs: Run, members: Int[np.ndarray, "M 2"]) -> Run:
    """Let members go on from their trunks, each with chance of its own."""
    branches = jax.tree.map(lambda x: x[members[:, 0]], runs)
    keys = jax.vmap(jax.random.fold_in)(branches.key, jnp.asarray(members[:, 1]))
    return dataclasses.replace(branches, key=keys)


def _piece(drill: Drill) -> int:
    """Count the rounds of a piece of training."""
    return max(1, drill.practice.rounds(drill.env.spec.horizon) // PIECES)


def _train(
    drill: Drill, runs: Run, span: tuple[int, int], tell: Tell
) -> Iterator[Grown]:
    """Train all runs piece by piece, and judge them after each."""
    env, rounds = drill.env, jnp.arange(_piece(drill))
    improve = jax.jit(drill.improve, donate_argnums=0)
    test = jax.jit(jax.vmap(functools.partial(judge, env), in_axes=(0, None, None)))
    keys = jax.random.split(jax.random.key(0), JUDGED)
    for piece in range(*span):
        runs, _ = improve(runs, rounds + piece * len(rounds))
        agents = runs.learner.model.agents
        scores = np.asarray(test(agents, jnp.array(env.spec.mates), keys))
        grown = Grown(piece + 1, runs, jax.tree.map(np.array, agents), scores)
        tell(grown.pieces / PIECES, grown)
        yield grown
