"""`fastap quickstart`: from nothing to trained, judged and shown agents."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from fastap.commands.edge import Enough, check_range, prepare
from fastap.commands.evaluate import beside
from fastap.commands.report import CHANGES, Report
from fastap.commands.train import Train
from fastap.problem.spec import Mistake

SHARES = {"qmix": 0.35, "fastap": 0.65}  # of the time: so both see as many steps
METHODS = tuple(SHARES)


@dataclasses.dataclass(frozen=True)
class Quickstart:
    """Train two methods for two minutes, and see them beside ones trained longer.

    Example: fastap quickstart --out quickstart
    """

    out: Path = Path("quickstart")
    """Folder for the runs and the page."""
    minutes: float = 2.5
    """For training, both methods together, the wait for the compiler included."""
    episodes: int = 200
    """How many episodes each number is the mean of."""
    preset: Literal["smoke", "quick"] = "quick"
    """smoke: nothing is learnt, for tests; quick: something is."""
    force: bool = False
    """Overwrite what an earlier run left in the folder."""

    def run(self, console: Console) -> None:
        """Train, judge, and write a page."""
        check_range("--episodes", self.episodes, 1, 1_000_000)
        check_range("--minutes", self.minutes, 0, 1e6)
        prepare(self.out, self.force)
        say = lambda part, words: console.print(f"[bold]{part} of 4[/bold]  {words}")
        say(
            1,
            "Two agents forage with teammates that come with fastap: 32 groups, each "
            "with habits of its own. During an episode one group takes the place of "
            "another, and nobody tells the two.",
        )
        for part, (method, words) in enumerate(WHY.items(), start=2):
            say(part, words)
            self.train(method, console)
        say(
            4,
            "Both are judged beside groups never met in training, next to the same "
            "methods after 6 million steps on a GPU, which come with fastap.",
        )
        runs = [self.out / "runs" / method for method in METHODS] + self.shipped()
        page = self.out / "report.html"
        Report(tuple(runs), page, self.episodes, 3, self.force).run(console)
        console.print(scores(runs, self.episodes))
        console.print(
            f"Open {page} in a browser: tables, curves, and a replay in which you can "
            "watch what two methods do when their teammates change."
        )

    def train(self, method: str, console: Console) -> None:
        """Train one method until its share of the time is over."""
        small: dict[str, Any] = {"groups": (0, 0), "points": 4, "checkpoint": "policy"}
        if self.preset == "smoke":
            small = {"checkpoint": "policy", "groups": (0, 0)}
        how = {"preset": self.preset, "seeds": 1, "train_change": "U[5,8]", **small}
        folder = self.out / "runs" / method
        try:
            time = {"minutes": self.minutes * SHARES[method], "force": self.force}
            Train(folder, method=method, **time, **how).run(console)
        except Enough:
            console.print(f"The time for {method} is over; its agents are kept.")

    def shipped(self) -> list[Path]:
        """Copy the trained agents that come with fastap, to be judged beside."""
        from fastap.deploy.run import shipped

        copies = []
        for method in METHODS:
            copy = self.out / "runs" / f"shipped-{method}"
            try:
                shutil.copytree(shipped(method), copy, dirs_exist_ok=True)
            except OSError as error:
                raise Mistake(f"Could not write {copy}: {error.strerror}.") from error
            copies.append(copy)
        return copies


WHY = {
    "qmix": "QMIX learns to act together, and has only its memory to tell by.",
    "fastap": "Fastap also learns what kind of teammates it has, from how they act: a "
    "context that should jump when they change.",
}


def scores(runs: list[Path], episodes: int) -> Table:
    """Tabulate yours beside the shipped ones."""
    from fastap.experiments.assess import Question
    from fastap.experiments.measure import answers, status

    asked = Question(CHANGES, "held-out", episodes)  # what the page has asked
    table = Table("agents", "steps", *CHANGES, title="return, held-out groups")
    measured: dict[str, dict[str, float]] = {}
    for run in runs:
        now = status(run)
        rows = {row["change"]: row for row in answers(run, asked)}
        cells = (f"{rows[change]['iqm']:.3f}" for change in CHANGES)
        table.add_row(run.name, f"{now.steps:,}", *cells)
        for change, row in rows.items():
            for who, score in beside(row):
                measured.setdefault(who, {})[change] = score
    for who, score in measured.items():
        table.add_row(who, "", *(f"{score[change]:.3f}" for change in CHANGES))
    return table
