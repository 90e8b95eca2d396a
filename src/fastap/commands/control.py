"""`fastap reproduce control`: whether the methods do what they must on a zoo."""

import itertools
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fastap.commands.edge import prepare, progress
from fastap.commands.train import facts
from fastap.experiments.control import CHANGES, PROGRAMS, Control, run
from fastap.teammates.zoo import replace
from fastap.training.checkpoint import table


def control(out: Path, asked: Control, force: bool, console: Console) -> None:
    """Train and judge both programs, write every score, and tabulate the means."""
    path = out / f"control-{Path(asked.zoo).name}.csv"
    courses = {program: asked.course(program) for program in PROGRAMS}
    prepare(out, force)
    rows: list[dict[str, Any]] = []
    clock = time.monotonic()
    for program, ready in courses.items():
        steps = ready.steps(ready.beats)
        with progress(console, f"training {program}", steps, "steps") as tell:
            rows += run(asked, ready, tell)
        replace(path, table(tuple(rows)).encode())
        made = facts() | {"seconds": round(time.monotonic() - clock)}
        replace(path.with_suffix(".json"), (json.dumps(made, indent=1) + "\n").encode())
    console.print(summary(rows))
    console.print(f"Wrote {path}.")


def summary(rows: Sequence[dict[str, Any]]) -> Table:
    """Tabulate the mean over seeds and their spread, on validation groups."""
    table = Table("method", "changes in training", "memory", *CHANGES)
    methods = dict.fromkeys(row["method"] for row in rows)
    shares = sorted({row["share"] for row in rows})
    for case in itertools.product(("fresh", "watched"), shares, methods):
        memory, share, method = case
        want = {"memory": memory, "share": share, "method": method}
        words = []
        for change in CHANGES:
            here = want | {"change": change, "pool": "validation"}
            scores = [row["return"] for row in rows if here.items() <= row.items()]
            words.append(
                f"{statistics.mean(scores):.3f} ± {statistics.pstdev(scores):.3f}"
            )
        table.add_row(method, f"{share:.0%}", memory, *words)
    return table
