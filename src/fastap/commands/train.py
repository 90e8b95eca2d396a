"""`fastap train`: a method beside the groups of a zoo, resumable bit for bit."""

import dataclasses
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from fastap.commands.edge import Enough, ZooName, prepare, progress
from fastap.commands.log import open_logs
from fastap.problem.rollout import Memory
from fastap.problem.spec import Mistake
from fastap.training.settings import Mixer, Preset, Settings, Update, settings

Number = int | None
Real = float | None
Log = Literal["tensorboard", "wandb"]


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a method beside the groups of a zoo, all seeds side by side.

    What is not given comes from the preset and from the paper's table.

    Example: fastap train --env lbf --method fastap --preset quick --out runs/fastap
    """

    out: Path
    """Folder of the run: config.json, metrics.csv, policy.safetensors, checkpoint."""
    env: str = "lbf"
    """Which environment."""
    method: str = "fastap"
    """qmix, pearl, escp, escp-gated, liam, odits, fastap, fastap-wo-crp, ..., or
    oracle."""
    beside: tuple[str, ...] | None = None
    """Configurations of the method, trained in the same program: of fastap its
    ablations, odits, and weights such as fastap:lce=10; of oracle qmix."""
    start: str | None = None
    """Begin with the agents of the run in this folder, not with untrained ones."""
    preset: Preset = "paper"
    """smoke: seconds; quick: minutes on 2 cores; paper: the study, on a GPU."""
    zoo: ZooName | None = None
    """Whom to train beside: the environment's own, another shipped one, a folder."""
    seeds: Number = None
    """How many runs, from --first on."""
    first: Number = None
    """The first seed."""
    steps: Number = None
    """Joint steps of play for each seed."""
    train_change: str | None = None
    """What happens to teammates while training: stationary (default), U[5,8], ..."""
    share: Real = None
    """Of the training episodes in which teammates change, with --train-change."""
    memory: Memory | None = None
    """What a policy that takes over a body knows: fresh (default) or watched."""
    reveal: Number = None
    """How many groups are revealed at a time (the paper's L); 0: all at once."""
    groups: tuple[int, int] | None = None
    """How many groups of the pools train and validation; 0: all."""
    mixer: Mixer | None = None
    """qmix (default) or vdn."""
    update: Update | None = None
    """joint (default), or literal: Algorithm 2, a gradient step for every cluster."""
    trace: Real = None
    """Lambda of the goals of values: 0, but in 10m_vs_14m 0.9."""
    standardise: bool | None = None
    """Learn from rewards by their mean and spread: yes, but not in 10m_vs_14m."""
    rate: Real = None
    """Learning rate."""
    episodes: Number = None
    """Episodes played in every round."""
    updates: Number = None
    """Gradient steps in every round."""
    batch: Number = None
    """Episodes of a gradient step."""
    capacity: Number = None
    """Episodes remembered."""
    hidden: Number = None
    """Width of the networks."""
    embed: Number = None
    """Width of the mixer."""
    local: Number = None
    """Width of an agent's context."""
    team: Number = None
    """Width of the team's context."""
    gce: Real = None
    """Weight of the team's context loss."""
    lce: Real = None
    """Weight of the agents' context loss."""
    mi: Real = None
    """Weight of the mutual information."""
    rec: Real = None
    """Weight of the reconstruction."""
    points: Number = None
    """Points of the learning curve."""
    judged: Number = None
    """Episodes behind each point."""
    checkpoint: Literal["full", "policy"] = "full"
    """full: exact resume; policy: small files."""
    log: tuple[Log, ...] = ()
    """Write the curve to tensorboard or wandb too (pip install 'fastap[log]')."""
    minutes: float = float("inf")
    """Stop after so many, save, and say how to go on."""
    resume: bool = False
    """Go on with the run in --out, exactly where it was."""
    force: bool = False
    """Overwrite the run that is in --out."""
    deterministic: bool = False
    """The same numbers every time on a GPU too, at some cost."""

    def run(self, console: Console) -> None:
        """Begin or go on, and train to the end."""
        from fastap.training import checkpoint
        from fastap.training.train import course

        asked, noted = self.continued() if self.resume else (self.chosen(), {})
        steady = self.deterministic or bool(noted.get("deterministic"))
        if steady:
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true"
        kept = noted.get("checkpoint", self.checkpoint)
        ready, full = course(asked), kept == "full"
        checkpoint.check_zoo(ready, noted, self.out)
        state = None
        if self.resume:
            state = checkpoint.load(self.out, ready)
        fresh = checkpoint.read_start(self.out, ready) if state is None else state
        if not self.resume:
            prepare(self.out, self.force)
            checkpoint.check_space(self.out, ready, full)
        logs = open_logs(self.log, self.out, dataclasses.asdict(asked))
        if not self.resume:
            checkpoint.clear(self.out)
            made = {
                "checkpoint": kept,
                "deterministic": steady,
                "zoo": ready.zoo.fingerprint(),
            }
            checkpoint.write_config(self.out, asked, made | facts())
        if state is not None:  # the process may have died between two files
            checkpoint.publish(self.out, ready, state)
        keeper = Keeper(self.out, full, logs, self.minutes)
        state = drive(ready, fresh, keeper, console)
        console.print(summary(ready, state.rows))
        console.print(f"Wrote {self.out}.")

    def given(self) -> dict[str, Any]:
        """List the settings that were asked for."""
        names = {field.name for field in dataclasses.fields(Settings)}
        own = {name: getattr(self, name) for name in names - {"env", "method"}}
        if self.start:
            own["start"] = os.path.relpath(self.start, self.out)
        return {name: value for name, value in own.items() if value is not None}

    def chosen(self) -> Settings:
        """Fill in what was not asked for."""
        return settings(self.env, self.method, self.preset, **self.given())

    def continued(self) -> tuple[Settings, dict[str, Any]]:
        """Take the settings of the run that is there; refuse others beside them."""
        from fastap.training.checkpoint import read_config

        there, noted = read_config(self.out)
        given = self.given()
        for name in ("env", "method"):
            if getattr(self, name) != getattr(Train, name):
                given[name] = getattr(self, name)
        for name, value in given.items():
            if getattr(there, name) != value:
                raise Mistake(
                    f"{self.out} was begun with {name} = {getattr(there, name)}, not "
                    f"{value}; leave that out to go on, or begin another run."
                )
        return there, noted


def facts() -> dict[str, Any]:
    """Say what a run was made with, and how."""
    from fastap.teammates.zoo import made_with

    return made_with() | {"command": shlex.join(["fastap", *sys.argv[1:]])}


@dataclasses.dataclass(frozen=True)
class Keeper:
    """Saves a training, and writes its curve wherever it is wanted."""

    out: Path
    full: bool
    logs: Any
    minutes: float = float("inf")  # until it is stopped as by Ctrl-C

    def save(self, course: Any, state: Any) -> None:
        """Save."""
        from fastap.training import checkpoint

        checkpoint.save(self.out, course, state, self.full)

    def how(self) -> str:
        """Say how to go on."""
        if self.full:
            return f"`fastap train --resume --out {self.out}` goes on."
        return "It cannot go on, for --checkpoint policy was asked for."


def drive(course: Any, state: Any, keeper: Keeper, console: Console) -> Any:
    """Train to the end, saving at every point of the curve and when stopped."""
    from fastap.training.checkpoint import read_clock
    from fastap.training.train import Broken

    total, before = course.steps(course.beats), course.steps(state.beats)
    clock, already = time.monotonic(), read_clock(keeper.out) or 0.0
    bar = progress(console, "training", total, "steps", before)
    with stoppable() as asked, bar as tell:
        late = lambda: time.monotonic() - clock > 60 * keeper.minutes
        stopped = lambda: asked() or late()
        try:
            for after, notes in course.train(state):
                point = len(after.rows) > len(state.rows)
                state = after
                if point or stopped():  # before a word is said, which may fail
                    keeper.save(course, state)
                words = f"return {notes['return'].mean():.2f}"
                if state.rows:
                    words += f"; {latest(course, state.rows)}"
                tell(course.steps(state.beats), words)
                if point:
                    last = state.rows[-len(course.seeds) :]
                    keeper.logs(last, already + time.monotonic() - clock)
                if stopped() and state.beats < course.beats:
                    words = f"stopped at step {course.steps(state.beats)}. "
                    stop = KeyboardInterrupt if asked() else Enough
                    raise stop(words + keeper.how())
        except Broken as broken:
            raise Mistake(f"{broken} {last_good(keeper, course)}") from None
    return state


def last_good(keeper: Keeper, course: Any) -> str:
    """Say which checkpoint is still good."""
    from fastap.training import checkpoint

    path = keeper.out / checkpoint.CHECKPOINT
    if not path.is_file():
        return "There is no checkpoint. Try a smaller --rate."
    step = course.steps(checkpoint.read(path)[1]["beats"])
    return f"The last good checkpoint is {path}, of step {step}."


@contextmanager
def stoppable() -> Iterator[Any]:
    """Let Ctrl-C and SIGTERM ask for a stop; a second one stops at once."""
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise KeyboardInterrupt
        print("stopping and saving ...", file=sys.stderr, flush=True)

    names = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(name, note) for name in names]
    try:
        yield lambda: bool(asked)
    finally:
        for name, handler in zip(names, before, strict=True):
            signal.signal(name, handler)


def latest(course: Any, rows: Any) -> str:
    """Say how the runs did at the last point of the curve."""
    last = rows[-len(course.seeds) :]
    mean = lambda column: sum(row[column] for row in last) / len(last)
    cases = ("stationary validation", "U[5,8] validation")
    return ", ".join(f"{case} {mean(case):.2f}" for case in cases)


def summary(course: Any, rows: Any) -> Table:
    """Tabulate the last point of the curve, seed by seed."""
    from fastap.training.train import CHANGES, POOLS

    cases = [f"{change} {pool}" for pool in POOLS for change in CHANGES]
    table = Table("method", "seed", *cases)
    for row in rows[-len(course.seeds) :]:
        who = (row["variant"], str(row["seed"]))
        table.add_row(*who, *(f"{row[case]:.3f}" for case in cases))
    return table
