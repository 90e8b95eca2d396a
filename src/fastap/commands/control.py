"""`fastap reproduce control`: whether the methods do what they must on a zoo."""

import csv
import io
import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fastap.commands.edge import progress
from fastap.experiments.control import CHANGES, PROGRAMS, Control, run
from fastap.teammates.zoo import replace


def control(out: Path, asked: Control, console: Console) -> None:
    """Train and judge both programs, write every score, and tabulate the means."""
    rows: list[dict[str, Any]] = []
    for program in PROGRAMS:
        total = asked.course(program)
        steps = total.steps(total.beats)
        with progress(console, f"training {program}", steps, "steps") as tell:
            rows += run(asked, program, tell)
    text = io.StringIO()
    lines = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)
    path = out / f"control-{Path(asked.zoo).name}.csv"
    replace(path, text.getvalue().encode())
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
