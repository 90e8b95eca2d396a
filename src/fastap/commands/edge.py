"""Where commands meet the world: folders, ranges of numbers, progress."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fastap.envs import ENVIRONMENTS
from fastap.problem.spec import Mistake


def check_range(option: str, value: float, low: float, high: float) -> None:
    """Refuse a number outside its bounds, and what is no number."""
    if not low <= value <= high:
        raise Mistake(f"{option} must be at least {low} and at most {high}.")


def some(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an empty list of environments."""
    if not names:
        raise Mistake(f"--env needs a name: {', '.join(ENVIRONMENTS)}.")
    return names


def prepare(out: Path, force: bool) -> None:
    """Make an output folder, never touching what is there without `--force`."""
    try:
        if out.exists() and not out.is_dir():
            raise Mistake(f"{out} is a file; name a folder with --out.")
        if out.is_dir() and any(out.iterdir()) and not force:
            raise Mistake(f"{out} is not empty; name another --out or add --force.")
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"Could not use {out}: {error.strerror}.") from error


ZooName = Annotated[str, tyro.conf.arg(metavar="NAME|DIR")]
Advance = Callable[[float, str], None]  # how much is done, of all; what to say


@contextlib.contextmanager
def progress(console: Console, task: str, total: float, unit: str) -> Iterator[Advance]:
    """Show how far long work is: a bar on a terminal, plain lines elsewhere."""
    begin = time.monotonic()

    def rate(done: float) -> str:
        speed = done / max(time.monotonic() - begin, 1e-9)
        return f"{speed:,.0f} {unit}/s" if speed >= 10 else f"{speed:.2g} {unit}/s"

    if not console.is_terminal:

        def say(done: float, text: str) -> None:
            left = (time.monotonic() - begin) * (total / max(done, 1e-9) - 1)
            console.print(
                f"{task}: {done / total:.0%}, {rate(done)}, {left:.0f} s left. {text}"
            )

        yield say
        return
    columns = (
        *(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[speed]}"),
        ),
        *(TimeRemainingColumn(), TextColumn("{task.fields[text]}")),
    )
    with Progress(*columns, console=console) as bar:
        job = bar.add_task(task, total=total, speed="", text="compiling ...")

        def move(done: float, text: str) -> None:
            bar.update(job, completed=done, speed=rate(done), text=text)

        yield move


def measured(manifest: dict[str, Any], fact: str) -> Any:
    """Take a measurement out of a manifest."""
    if fact not in manifest:
        raise Mistake(f"The zoo '{manifest['name']}' has no '{fact}'; build it anew.")
    return manifest[fact]
