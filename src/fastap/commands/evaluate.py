"""`fastap eval`: trained runs beside any pool, under any change."""

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from fastap.commands.edge import check_range, each
from fastap.problem.rollout import Memory
from fastap.problem.schedule import parse
from fastap.problem.spec import Mistake
from fastap.teammates.zoo import replace
from fastap.training.settings import Pool


@dataclasses.dataclass(frozen=True)
class Eval:
    """Judge trained runs, greedily, on the same episodes; seeds are the unit.

    Example: fastap eval runs/fastap runs/qmix --change stationary 'U[5,8]'
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, as `fastap train` makes them."""
    change: tuple[str, ...] = ("stationary", "U[5,8]")
    """What happens to teammates: stationary, U[a,b], U[a,b]-same, at[t], ..."""
    pool: Pool = "held-out"
    """Beside whom: train, validation or held-out."""
    episodes: int = 1000
    """How many episodes of each change."""
    memory: Annotated[Memory, tyro.conf.arg(metavar="fresh|watched")] = "fresh"
    """What a policy that takes over a body knows."""
    json: bool = False
    """Print one JSON object for each run and change instead of a table."""

    def run(self, console: Console) -> None:
        """Judge all runs; each leaves its answers in its results.json too."""
        from fastap.experiments.assess import Question

        if not self.runs or not self.change:
            raise Mistake("Name at least one run and one change.")
        check_range("--episodes", self.episodes, 1, 1_000_000)
        for change in self.change:
            parse(change)
        asked = Question(self.change, self.pool, self.episodes, self.memory)
        aside = console
        if self.json:  # not among the answers, and only where somebody looks on
            aside = Console(stderr=True)
            aside.quiet = not aside.is_terminal
        name, ask = lambda run: run.name, lambda run: self.ask(run, asked)
        found = each(aside, "judging", self.runs, name, ask)
        rows = [answer for answers in found for answer in answers]
        if not self.json:
            console.print(summary(rows))

    def ask(self, folder: Path, asked: Any) -> list[dict[str, Any]]:
        """Judge one run; its answers are printed as they come, and kept."""
        from fastap.experiments.assess import assess

        answers = []
        for answer in assess(folder, asked):
            answers.append(answer)
            if self.json:
                print(json.dumps(answer), flush=True)
        remember(folder, answers)
        return answers


def remember(folder: Path, answers: Sequence[dict[str, Any]]) -> None:
    """Write answers into a run's results.json, in the place of older ones alike.

    Those of agents that were trained for less are forgotten.
    """
    names = ("method", "change", "pool", "memory", "episodes")
    question = lambda row: tuple(row.get(name) for name in names)
    steps = [row.get("steps") for row in answers]
    path, older = folder / "results.json", []
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        new = set(map(question, answers))
        older = [
            row
            for row in json.loads(path.read_text())
            if question(row) not in new and row.get("steps") in steps
        ]
    replace(path, (json.dumps([*older, *answers], indent=1) + "\n").encode())


BESIDE = {
    "random": "floor",
    "told": "told",
    "switching": "switching",
    "own team": "own",
}


def beside(row: dict[str, Any]) -> list[tuple[str, float]]:
    """List what a score can be compared with, by the names that tables give it."""
    return [(who, row[key]) for who, key in BESIDE.items() if key in row]


def summary(rows: Sequence[dict[str, Any]]) -> Table:
    """Tabulate each change: the runs, then what there is to compare them with.

    Runs beside other groups, or trained in another way, have yardsticks of their own.
    Of runs that are not done it is said how far they are.
    """
    from fastap.experiments.measure import trained

    heads = ("IQM", "95 %", "mean ± std", "dip", "lag")
    table = Table("change", "who", *heads, box=box.SIMPLE, padding=(0, 1, 0, 0))
    place = lambda row: (row["change"], row["env"], row["zoo"], *beside(row))
    for spot in dict.fromkeys(map(place, rows)):
        change, here = spot[0], [row for row in rows if place(row) == spot]
        for row in here:
            name = f"{Path(row['run']).name}: {row['method']} ({row['seeds']})"
            if not trained(row).done:
                name += f", {trained(row)}"
            table.add_row(change, name, *words(row))
        for who, score in beside(here[0]):
            table.add_row(change, who, f"{score:.3f}")
        table.add_section()
    return table


def words(row: dict[str, Any]) -> tuple[str, ...]:
    """Write what is known of one run under one change."""
    after = row["adaptation"]["at[12]"]
    lag = after["recovery"]
    return (
        f"{row['iqm']:.3f}",
        sure(row),
        f"{row['mean']:.3f} ± {row['std']:.3f}",
        f"{after['dip']:.3f}",
        "never" if lag is None else f"{lag:g}",
    )


def sure(row: dict[str, Any]) -> str:
    """Write the interval over seeds; one seed alone says nothing of others."""
    low, high = row["ci95"]
    return f"{low:.3f} - {high:.3f}" if row["seeds"] > 1 else "one seed"
