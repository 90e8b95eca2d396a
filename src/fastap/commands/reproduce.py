"""`fastap reproduce`: the paper's tables and figures, and those that led to them."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from fastap.commands.archive import pack, unpack
from fastap.commands.control import control
from fastap.commands.edge import ZooName, check_range, hasty, heard, prepare, some
from fastap.commands.learnability import learn
from fastap.commands.ratio import ratio
from fastap.commands.scenes import context, crossplay, embeddings, snapshot, transfer
from fastap.commands.study import Study
from fastap.commands.tables import by_method, difference, main_figure, table_one
from fastap.envs import ENVIRONMENTS, check_name
from fastap.problem.schedule import parse
from fastap.training.settings import Preset

What = Literal[
    "environments",
    "main",
    "difference",
    "table1",
    "ablations",
    "crossplay",
    "embeddings",
    "snapshot",
    "context",
    "transfer",
    "sensitivity",
    "all",
    "learnability",
    "control",
    "ratio",
]
STUDY: dict[str, Callable[[Study], None]] = {
    "main": main_figure,
    "difference": difference,
    "table1": table_one,
    "ablations": by_method("ablations"),
    "crossplay": crossplay,
    "embeddings": embeddings,
    "snapshot": snapshot,
    "context": context,
    "transfer": transfer,
    "sensitivity": by_method("sensitivity"),
}


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Make the paper's figures and tables.

    Runs that are missing are trained, those that are there are used: a long
    experiment can be cut with --minutes and gone on with by saying it again.

    Example: fastap reproduce table1 --preset quick --out study
    """

    what: tyro.conf.Positional[What]
    """One of the paper's, or all; learnability, control and ratio led to our
    settings: what decides learning in lbf, whether knowing one's teammates can help
    at all, and how many gradient steps so much play deserves."""
    out: Path = Path("reproduced")
    """Folder for what is made."""
    env: tuple[str, ...] | None = None
    """Which environments, if not all: a smoke test trains in lbf alone."""
    change: str = "U[5,8]"
    """For environments: when teammates change."""
    seed: int = 2
    """For environments: where chance begins."""
    zoo: ZooName | None = None
    """For what trains: beside whom, if not beside the environment's own."""
    preset: Preset = "paper"
    """For what trains: how large."""
    steps: int | None = None
    """For what trains: joint steps of each run, if not the preset's."""
    seeds: int | None = None
    """For what trains: how many of each, if not the preset's."""
    minutes: float = float("inf")
    """Stop after so many; saying it again goes on."""
    pack: Path | None = None
    """Pack the study into this archive at the end, for another machine."""
    unpack: Path | None = None
    """Begin with what such an archive holds."""
    force: bool = False
    """Overwrite what an earlier run left in the folder."""

    @property
    def named(self) -> tuple[str, ...]:
        """The environments that were asked for."""
        return tuple(ENVIRONMENTS) if self.env is None else self.env

    def run(self, console: Console) -> None:
        """Make what was asked for."""
        for name in some(self.named):
            check_name(name)
        if self.what == "control":
            self.control(console)
        elif self.what == "ratio":
            self.ratio(console)
        elif self.what == "learnability":
            prepare(self.out, self.force)
            learn(self.out, console)
        elif self.what == "environments":
            self.environments(self.out, console)
        else:
            self.study(console)

    def study(self, console: Console) -> None:
        """Run one experiment of the study, or all; pack what there is at the end."""
        if self.unpack:
            unpack(self.unpack, self.out, self.force)
        compiler = hasty() if self.preset == "smoke" else contextlib.nullcontext()
        with heard():
            try:
                with compiler:
                    self.experiments(console)
            finally:
                if self.pack and self.out.is_dir():
                    console.print(f"packing {self.out} ...")
                    console.print(f"Packed {pack(self.out, self.pack)}.")

    def experiments(self, console: Console) -> None:
        """Run one experiment of the study, or all."""
        from fastap.experiments.study import EXPERIMENTS

        named = self.trained_in()
        how = (named, self.zoo, self.steps, self.seeds, self.minutes)
        study = Study(self.out, self.preset, console, *how)
        if self.what == "all":
            self.environments(self.out / "environments", console)
        for name in STUDY if self.what == "all" else (self.what,):
            experiment = EXPERIMENTS[name]
            if self.what == "all" and not experiment.among(named):
                known = ", ".join(experiment.envs)
                console.print(f"{name} is about {known}; it is left out.")
                continue
            console.print(f"{name} ...")
            STUDY[name](study)

    def trained_in(self) -> tuple[str, ...] | None:
        """Say in which environments to train: those named, or what goes without."""
        from fastap.teammates.zoo import load

        if self.env is not None:
            return self.env
        if self.zoo:
            return (load(self.zoo).manifest["env"],)
        return ("lbf",) if self.preset == "smoke" else None

    def control(self, console: Console) -> None:
        """Train QMIX, Fastap and the oracle, with and without changes."""
        from fastap.experiments.control import Control

        few = {"episodes": 8} if self.preset == "smoke" else {}
        zoo = self.zoo or "lbf-conventions"
        asked = Control(zoo, self.preset, self.steps, self.seeds or 3, **few)
        control(self.out, asked, self.force, console)

    def ratio(self, console: Console) -> None:
        """Train at every ratio of gradient steps to play."""
        from fastap.experiments.ratio import Ratio

        asked = Ratio(self.zoo or "lbf", self.preset, self.steps, self.seeds or 3)
        ratio(self.out, asked, self.force, console)

    def environments(self, out: Path, console: Console) -> None:
        """Film an episode of each environment and put them side by side."""
        from fastap.envs import make
        from fastap.experiments.environments import example
        from fastap.report.film import clip, contact_sheet, save_figure, save_film

        change = parse(self.change)
        check_range("--seed", self.seed, 0, 2**32 - 1)
        for name in some(self.named):
            make(name)
        prepare(out, self.force or out != self.out)
        clips = [clip(*example(name, change, self.seed)) for name in self.named]
        for film in clips:
            save_film(film, out / f"{film.name}.gif")
        steps = [len(film) // 3 for film in clips]
        save_figure(contact_sheet(clips, steps), out / "environments.png")
        console.print(f"Wrote {out}/environments.png and a film of each.")
