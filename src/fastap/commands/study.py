"""The paper's experiments, run: what is missing is trained, what is there is read."""

import dataclasses
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Column, Table

from fastap.commands.edge import Enough, each
from fastap.commands.train import Train, facts
from fastap.problem.spec import Mistake
from fastap.teammates.zoo import replace
from fastap.training.settings import Preset, Settings, settings

Row = dict[str, Any]
FEW: dict[Preset, int] = {"smoke": 4, "quick": 200, "paper": 1000}  # episodes


@dataclasses.dataclass(frozen=True)
class Study:
    """Where the runs of a study are, and how large they are."""

    out: Path
    preset: Preset
    console: Console
    envs: tuple[str, ...] | None  # None: those that an experiment is about
    zoo: str | None = None
    steps: int | None = None
    seeds: int | None = None
    minutes: float = float("inf")
    clock: float = dataclasses.field(default_factory=time.monotonic)

    def folder(self, env: str, cohort: Any) -> Path:
        """Say where a cohort's runs are."""
        return self.out / "runs" / f"{env}-{cohort.name}"

    def settings(self, env: str, cohort: Any) -> dict[str, Any]:
        """List what a cohort's runs are asked for, beside the preset's own."""
        steps = cohort.steps(self.preset, self.steps)
        own = {"zoo": self.zoo, "steps": steps, "seeds": self.seeds}
        asked = own | cohort.asked(self.preset)
        if cohort.start:
            asked["start"] = f"../{env}-{cohort.start}"  # from the run's own folder
        return {name: value for name, value in asked.items() if value is not None}

    def left(self) -> float:
        """Return the minutes that are left."""
        return self.minutes - (time.monotonic() - self.clock) / 60

    def train(self, env: str, cohort: Any) -> Path:
        """Train a cohort, go on with it, or find that it is done."""
        from fastap.experiments.measure import status
        from fastap.training.checkpoint import check_zoo, read_config
        from fastap.training.train import course

        folder, asked = self.folder(env, cohort), self.settings(env, cohort)
        now = status(folder)
        if now.total:
            want = settings(env, cohort.method, self.preset, **asked)
            there, noted = read_config(folder)
            check_zoo(course(there), noted, folder)
            if not holds(there, want):
                raise Mistake(
                    f"{folder} was made with other settings than are asked for now; "
                    "name another --out."
                )
        if now.done:
            return folder
        if self.left() <= 0:
            raise Enough(f"the time is over; {folder} is {now}. Say it again to go on.")
        self.console.print(f"{folder.name}: {now}")
        new = asked | {"preset": self.preset}
        if cohort.start:
            new["start"] = str(self.out / "runs" / f"{env}-{cohort.start}")
        more: dict[str, Any] = {"resume": True} if now.total else new
        who: dict[str, Any] = {"out": folder, "env": env, "method": cohort.method}
        Train(**who, minutes=self.left(), **more).run(self.console)
        return folder

    def zoos(self, name: str) -> list[Any]:
        """Read the zoos of an experiment, one for each environment."""
        from fastap.experiments.study import EXPERIMENTS
        from fastap.teammates import zoo as store

        named = EXPERIMENTS[name].among(self.envs)
        if not named:
            known = ", ".join(EXPERIMENTS[name].envs)
            raise Mistake(f"{name} is about {known}; none of them was named.")
        if not self.zoo:
            return [store.load(env) for env in named]
        zoo = store.load(self.zoo)
        own = zoo.manifest["env"]
        if own not in named:
            listed = ", ".join(named)
            raise Mistake(f"The zoo '{self.zoo}' is for {own}, not for {listed}.")
        return [zoo]

    def runs(self, name: str) -> dict[str, list[Path]]:
        """Train all that an experiment needs, one environment after another."""
        from fastap.experiments.study import EXPERIMENTS

        cohorts = EXPERIMENTS[name].cohorts
        # a zoo that cannot be read is noticed before hours of training
        envs = [zoo.manifest["env"] for zoo in self.zoos(name)]
        return {env: [self.train(env, one) for one in cohorts(env)] for env in envs}

    def judged(self, name: str) -> dict[str, list[Row]]:
        """Judge the runs of an experiment; keep scores by seed, return all answers."""
        from fastap.experiments.assess import Question
        from fastap.experiments.measure import answers, recorded, scores, summaries
        from fastap.experiments.study import EXPERIMENTS

        experiment, found = EXPERIMENTS[name], {}
        changes, few = experiment.changes, FEW[self.preset]
        questions = [Question(changes, "held-out", few, m) for m in experiment.memories]
        for env, folders in self.runs(name).items():
            every = list(itertools.product(folders, questions))
            new = [one for one in every if recorded(*one) is None]
            each(self.console, "judging", new, lambda one: one[0].name, self.ask)
            answered = [answer for one in every for answer in answers(*one)]
            found[env] = [
                one
                for method in experiment.methods
                for one in answered
                if one["method"] == method
            ]
            self.keep(f"{name}-{env}", list(scores(found[env])), env)
            self.keep(f"{name}-{env}-summary", list(summaries(found[env])), env)
        return found

    def ask(self, one: tuple[Path, Any]) -> None:
        """Ask a run a question, if there is time."""
        from fastap.experiments.measure import answers

        if self.left() <= 0:
            raise Enough("the time is over; say it again to go on.")
        answers(*one)

    def keep(self, name: str, rows: Sequence[Row], env: str | None = None) -> None:
        """Write rows as CSV, and how they and a game's runs were made beside it."""
        from fastap.training.checkpoint import table

        replace(self.out / f"{name}.csv", table(tuple(rows)).encode())
        made = {"preset": self.preset, "runs": self.made(env) if env else {}}
        text = json.dumps(facts() | made, indent=1) + "\n"
        replace(self.out / f"{name}.json", text.encode())

    def made(self, env: str) -> dict[str, Any]:
        """Say where, by what and in how many seconds each run in a game was trained."""
        from fastap.training.checkpoint import read_clock, read_config

        found = {}
        for path in sorted((self.out / "runs").glob(f"{env}-*/config.json")):
            noted = read_config(path.parent)[1]
            names = ("device", "versions", "command")
            kept = {name: noted.get(name) for name in names}
            found[path.parent.name] = kept | {"seconds": read_clock(path.parent)}
        return found

    def is_papers(self, env: str) -> bool:
        """Say whether the paper's table 1 is about these teammates."""
        return env == "lbf" and self.zoo in (None, "lbf")

    def paper(self, env: str, change: str, method: str) -> str:
        """Return what the paper's table 1 says of a method, or nothing."""
        from fastap.experiments.study import printed

        return printed(change, method) if self.is_papers(env) else ""

    def tabulate(self, name: str, title: str, rows: Sequence[Row]) -> None:
        """Print rows as a table, if there are any, and write it for a paper."""
        from fastap.report.page import latex

        if not rows:
            return
        number = lambda x: "" if np.isnan(x) else f"{x:.3f}"
        write = lambda x: number(x) if isinstance(x, float) else str(x)
        heads = list(dict.fromkeys(head for row in rows for head in row))
        cells = [[write(row.get(head, "")) for head in heads] for row in rows]
        columns = [Column(head, overflow="fold") for head in heads]
        table = Table(*columns, title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
        first = [line[0] for line in cells]
        for k, line in enumerate(cells):  # what has the same name stands together
            last = len(set(first)) < len(first) and [first[k]] != first[k + 1 : k + 2]
            table.add_row(*line, end_section=last)
        self.console.print(table)
        replace(self.out / f"{name}.tex", latex(heads, cells).encode())

    def draw(self, name: str, figure: Any) -> None:
        """Write a figure."""
        from fastap.report.film import save_figure

        save_figure(figure, self.out / f"{name}.png")
        self.console.print(f"Wrote {self.out / name}.png.")


def holds(there: Settings, want: Settings) -> bool:
    """Say whether runs are those that are asked for; there may be more beside them."""
    alone = lambda one: dataclasses.replace(one, beside=())
    return alone(there) == alone(want) and set(want.beside) <= set(there.beside)
