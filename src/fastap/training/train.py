"""Training: seeds and configurations side by side, in compiled beats."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from fastap.evaluation.evaluate import Judge
from fastap.methods.learner import Dials
from fastap.methods.model import Known
from fastap.methods.practice import Practice, Run
from fastap.methods.table import Labels
from fastap.problem.schedule import parse
from fastap.problem.spec import Mistake
from fastap.teammates import zoo as store
from fastap.teammates.company import NEVER, Company
from fastap.teammates.zoo import Zoo
from fastap.training.programs import Programs, programs
from fastap.training.settings import Settings, configuration

BEAT = 2  # rounds in one compiled call, or about
CHANGES = ("stationary", "U[5,8]")
POOLS = ("train", "validation")
WON = "won"  # before the name of a case: the column of its win rates
Row = dict[str, float | int | str]
Noted = dict[str, Float[np.ndarray, "C R"]]  # of the rounds of a beat, for each run


@dataclasses.dataclass(frozen=True)
class Variant:
    """One configuration; all that differs is traced, so many share a program."""

    name: str
    rate: float
    weights: tuple[float, ...]  # of the losses of the program's method
    labels: Labels
    drawn: Labels  # by which batches are drawn
    share: float  # of the episodes in which teammates change
    told: bool  # the type of the present group


def variant(settings: Settings, agents: int, name: str | None = None) -> Variant:
    """Return a method as a configuration of the settings' own program.

    Losses that it has not are switched off. So the ablations and ODITS are
    configurations of Fastap, and QMIX one of the oracle. A name may bring weights
    of its own: fastap:lce=10.
    """
    program, (row, own) = settings.row, configuration(name or settings.method)
    weights = dataclasses.replace(settings.weights, **own)
    shape = lambda method: (method.local, method.team, method.detach, method.pace)
    known = {term.name for term in program.losses}
    terms = (term.name for term in row.losses)
    theirs = dict(zip(terms, weights.of(row, agents), strict=True))
    if shape(row) != shape(program) or theirs.keys() - known or row.told > program.told:
        raise Mistake(
            f"'{row.name}' is no configuration of '{program.name}', so it cannot be "
            "trained beside it."
        )
    return Variant(
        name=name or settings.method,
        rate=settings.rate,
        weights=tuple(theirs.get(term.name, 0.0) for term in program.losses),
        labels=row.labels,
        drawn="none" if row.even else row.labels,
        share=settings.share,
        told=row.told,
    )


@dataclasses.dataclass(frozen=True)
class State:
    """Where a training is: all that the rest of it depends on."""

    runs: Run
    beats: int  # done
    rows: tuple[Row, ...]  # of the learning curve so far


class Broken(Mistake):
    """A loss is no number any more."""

    def __init__(self, term: str, step: int, name: str, seed: int):
        super().__init__(
            f"'{term}' is no number any more for {name}, seed {seed}, at step {step}."
        )


@dataclasses.dataclass(frozen=True)
class Course:
    """A training, ready to begin: what all its runs share, and how they differ."""

    settings: Settings
    zoo: Zoo
    variants: tuple[Variant, ...]

    @functools.cached_property
    def members(self) -> dict[str, Int[np.ndarray, " k"]]:
        """The groups of each pool that take part."""
        counts = zip(POOLS, self.settings.groups, strict=True)
        return {pool: self.zoo.members(pool)[: n or None] for pool, n in counts}

    @functools.cached_property
    def practice(self) -> Practice:
        """How to practise, for a whole number of beats."""
        plan, steps = self.settings.practice(), self.steps(self.beats)
        most = max(self.labels(variant.labels).max() for variant in self.variants)
        learning = dataclasses.replace(plan.learning, labels=int(most) + 1)
        return dataclasses.replace(plan, steps=steps, learning=learning)

    @functools.cached_property
    def pulse(self) -> tuple[int, int]:
        """Count the rounds of a beat, and the beats of the whole training.

        The last beat is whole, too: a run may be a round longer than asked for.
        """
        rounds = self.settings.practice().rounds(self.zoo.env.spec.horizon)
        length = min(BEAT, rounds)
        return length, -(-rounds // length)

    @property
    def beats(self) -> int:
        """Count the beats of the whole training."""
        return self.pulse[1]

    def is_point(self, beats: int) -> bool:
        """Say whether the curve gets a point after so many beats."""
        share = lambda beats: beats * self.settings.points // self.beats
        return share(beats) > share(beats - 1)

    def steps(self, beats: int) -> int:
        """Count the joint steps of each run after some beats."""
        per_round = self.settings.episodes * self.zoo.env.spec.horizon
        return beats * self.pulse[0] * per_round

    @property
    def seeds(self) -> list[int]:
        """The seed of every run; configurations come one after another."""
        seeds = range(self.settings.first, self.settings.first + self.settings.seeds)
        return [seed for _ in self.variants for seed in seeds]

    @property
    def names(self) -> list[str]:
        """The configuration of every run."""
        return [v.name for v in self.variants for _ in range(self.settings.seeds)]

    @property
    def programs(self) -> Programs:
        """What every run does."""
        return programs(self.zoo, self.practice, self.settings.memory)

    def start(self) -> State:
        """Begin every run, with untrained agents."""
        return State(self.programs.start(*self.given()), 0, ())

    def shapes(self) -> Run:
        """Return the runs as they begin, without their numbers."""
        return jax.eval_shape(jax.vmap(self.programs.drill.start), *self.given())

    def given(self) -> tuple[Company, Dials, Key[Array, " R"], Known]:
        """List what the runs begin with: all in which they differ."""
        each = [v for v in self.variants for _ in range(self.settings.seeds)]
        dials = Dials(
            jnp.array([v.rate for v in each]),
            jnp.array([v.weights for v in each], jnp.float32),
            jnp.array([self.labels(v.labels) for v in each]),
            jnp.array([self.labels(v.drawn) for v in each]),
        )
        turns = jnp.broadcast_to(self.turns(), (len(each), len(self.zoo.groups)))
        change = jax.tree.map(
            lambda bound: jnp.full(len(each), bound), parse(self.settings.train_change)
        )
        tasks = Company(turns, jnp.array([v.share for v in each]), change)
        keys = jax.vmap(jax.random.key)(jnp.array(self.seeds))
        known = None
        if self.settings.row.told:  # in a program of oracles, those who are none
            types = np.eye(self.zoo.types.max() + 1, dtype=np.float32)[self.zoo.types]
            known = jnp.array([types * v.told for v in each])
        return tasks, dials, keys, known

    def labels(self, kind: Labels) -> Int[np.ndarray, " L"]:
        """Say which groups are the same to the losses."""
        if kind == "none":
            return np.zeros(len(self.zoo.groups), int)
        if kind == "group":
            labels = np.zeros(len(self.zoo.groups), int)
            labels[self.members["train"]] = np.arange(len(self.members["train"]))
            return labels
        clusters = [row.get("cluster") for row in self.zoo.groups]
        if any(clusters[k] is None for k in self.members["train"]):
            name = self.zoo.manifest["name"]
            raise Mistake(
                f"The groups of '{name}' have no clusters yet; run "
                f"`fastap zoo cluster --zoo {self.settings.zoo}` first."
            )
        return np.array([cluster or 0 for cluster in clusters])

    def turns(self) -> Int[np.ndarray, " K"]:
        """Say in which part of training each group is revealed, in recorded order."""
        names = [row["name"] for row in self.zoo.groups]
        first = [name for name in self.zoo.manifest.get("order", ()) if name in names]
        order = [names.index(name) for name in dict.fromkeys([*first, *names])]
        order = [k for k in order if k in self.members["train"]]
        size = self.settings.reveal or len(order)
        turns = np.full(len(names), NEVER)
        turns[order] = np.arange(len(order)) // size
        return turns

    @functools.cached_property
    def judge(self) -> Judge:
        """Who judges the runs at every point of the curve."""
        return Judge(self.zoo, self.settings.judged, self.settings.memory)

    def train(self, state: State) -> Iterator[tuple[State, Noted]]:
        """Train on from a state, beat by beat; the curve grows point by point."""
        length = self.pulse[0]
        for beat in range(state.beats, self.beats):
            rounds = jnp.arange(length) + beat * length
            runs, notes = self.programs.improve(state.runs, rounds)
            notes = jax.tree.map(np.asarray, notes)
            self.check(notes, beat)
            rows = state.rows
            if self.is_point(beat + 1):
                rows = rows + self.point(runs, notes, beat + 1)
            state = State(runs, beat + 1, rows)
            yield state, notes

    def check(self, notes: Noted, beat: int) -> None:
        """Stop when a loss is no number any more."""
        for term, values in notes.items():
            wrong = np.argwhere(~np.isfinite(values))
            if len(wrong):
                late, run = map(int, wrong[0])
                step = self.steps(beat) + late * self.steps(1) // self.pulse[0]
                raise Broken(term, step, self.names[run], self.seeds[run])

    def point(self, runs: Run, notes: Noted, beats: int) -> tuple[Row, ...]:
        """Judge every run: one row for each."""
        agents = runs.learner.model.acting()
        changes = dict.fromkeys((*CHANGES, self.settings.train_change))
        played = {
            f"{change} {pool}": self.judge(agents, self.members[pool], change)
            for pool in POOLS
            for change in changes
        }
        columns: dict[str, Any] = {case: one.returns for case, one in played.items()}
        if self.zoo.env.winnable:
            columns |= {f"{WON} {case}": one.win_rate for case, one in played.items()}
        columns |= {name: values.mean(0) for name, values in notes.items()}
        written = beats * self.pulse[0] * self.settings.episodes
        norms = self.programs.norms(runs, jnp.array(beats), jnp.array(written))
        columns |= jax.tree.map(np.asarray, norms)
        return tuple(
            {"step": self.steps(beats), "seed": seed, "variant": name}
            | {column: float(values[i]) for column, values in columns.items()}
            for i, (seed, name) in enumerate(zip(self.seeds, self.names, strict=True))
        )


def course(settings: Settings, variants: Sequence[Variant] = ()) -> Course:
    """Prepare a training: of a method, or of several configurations of it."""
    zoo = store.load(settings.zoo)
    made_for = zoo.manifest["env"]
    if made_for != settings.env:
        raise Mistake(f"'{settings.zoo}' is for {made_for}, not for {settings.env}.")
    agents, names = zoo.env.spec.controlled, (settings.method, *settings.beside)
    own = [variant(settings, agents, name) for name in names]
    ready = Course(settings, zoo, tuple(variants or own))
    for pool, members in ready.members.items():
        if not len(members):
            raise Mistake(f"The zoo '{settings.zoo}' has no groups for {pool}.")
    for one in ready.variants:
        ready.labels(one.labels)
    return ready
