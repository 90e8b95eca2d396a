"""`fastap reproduce learnability`: the table that the recipe comes from."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fastap.commands.edge import progress


def learn(out: Path, console: Console, trials: Sequence[Any] | None = None) -> None:
    """Run every trial, write its points, and draw them."""
    from fastap.experiments.learnability import TRIALS, measure, write

    trials = TRIALS if trials is None else trials
    path = out / "learnability-lbf.csv"
    total = sum(trial.practice.steps for trial in trials)

    def points():
        done = 0
        for trial in trials:
            for point in measure(trial, points=8):
                advance(done + point.steps, f"{trial.name}: {point.score:.2f}")
                yield point
            done += trial.practice.steps

    with progress(console, "learning", total, "steps") as advance:
        drawn = list(write(points(), path))
    draw(drawn, out)
    console.print(f"Wrote {path} and figures against steps and seconds.")


def draw(points: Sequence[Any], out: Path) -> None:
    """Draw the scores with everybody there, against steps and against seconds."""
    from fastap.experiments.learnability import yardsticks
    from fastap.report.film import save_figure
    from fastap.report.plots import curves

    most = max(point.bodies for point in points)
    marks = yardsticks()
    for field, across in (("steps", "joint steps"), ("seconds", "seconds of training")):
        table: dict[str, dict[float, list[float]]] = defaultdict(dict)
        for point in points:
            if point.bodies == most:
                name = f"{point.trial}, {point.rate:g}"
                table[name].setdefault(getattr(point, field), []).append(point.score)
        lines = {
            name: (list(rows), list(rows.values())) for name, rows in table.items()
        }
        save_figure(curves(lines, across, marks), out / f"learnability-{field}.png")
