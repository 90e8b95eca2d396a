"""`fastap reproduce ratio`: how many gradient steps so much play deserves."""

import json
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fastap.commands.edge import prepare, progress
from fastap.commands.train import facts
from fastap.experiments.ratio import Ratio, run
from fastap.teammates.zoo import replace
from fastap.training.checkpoint import table
from fastap.training.train import CHANGES

Rows = list[dict[str, Any]]


def ratio(out: Path, asked: Ratio, force: bool, console: Console) -> None:
    """Train every method at every ratio, write the curves, tabulate their ends."""
    courses = list(asked.courses())
    prepare(out, force)
    path, rows = out / f"ratio-{Path(asked.zoo).name}.csv", Rows()
    for number, ready in courses:
        name = f"{ready.settings.method}, {number} per 8 episodes"
        steps = ready.steps(ready.beats)
        with progress(console, name, steps, "steps") as tell:
            rows += run(number, ready, tell)
        replace(path, table(tuple(rows)).encode())
    made = json.dumps(facts(), indent=1) + "\n"
    replace(path.with_suffix(".json"), made.encode())
    console.print(summary(rows))
    console.print(f"Wrote {path}.")


def summary(rows: Rows) -> Table:
    """Tabulate the means over seeds: after all steps, and after equal seconds."""
    heads = [f"{c} after {when}" for when in ("all steps", "as long") for c in CHANGES]
    table = Table("method", "gradient steps per 8 episodes", "seconds", *heads)
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        ends = {row["ratio"]: row["seconds"] for row in own}  # the last row wins
        for number, took in ends.items():
            here = [row for row in own if row["ratio"] == number]
            words = [f"{mean(here, took, c):.3f}" for c in CHANGES]
            words += [f"{mean(here, min(ends.values()), c):.3f}" for c in CHANGES]
            table.add_row(method, str(number), f"{took:.0f}", *words)
    return table


def mean(rows: Rows, seconds: float, change: str) -> float:
    """Return the mean over seeds of the last point not later than so many seconds."""
    past = [row for row in rows if row["seconds"] <= seconds]
    last = max((row["seconds"] for row in past), default=None)
    scores = [row[change] for row in past if row["seconds"] == last]
    return statistics.mean(scores) if scores else float("nan")
