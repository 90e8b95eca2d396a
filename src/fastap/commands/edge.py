"""Where commands meet the world: folders, ranges of numbers, progress."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fastap.envs import ENVIRONMENTS
from fastap.problem.spec import Mistake

Thing = TypeVar("Thing")
Result = TypeVar("Result")


class Enough(Exception):
    """The time that was given is over; what was done is saved."""


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


def prepare_file(out: Path, force: bool) -> None:
    """See that a file can be written, never touching one without `--force`."""
    try:
        if out.is_dir():
            raise Mistake(f"{out} is a folder; name a file with --out.")
        if out.exists() and not force:
            raise Mistake(f"{out} is there already; add --force to overwrite it.")
    except OSError as error:
        raise Mistake(f"Could not use {out}: {error.strerror}.") from error


ZooName = Annotated[str, tyro.conf.arg(metavar="NAME|DIR")]
PAUSE = 10.0  # seconds between two plain lines
Advance = Callable[[float, str], None]  # how much is done, of all; what to say


class Pace:
    """How fast long work goes; what came before its first news was compilation."""

    def __init__(self, done: float):
        self.since = (time.monotonic(), done)
        self.first = True
        self.speed = 0.0

    def see(self, done: float) -> float:
        """Return the work per second so far."""
        now = time.monotonic()
        began, before = self.since
        self.speed = (done - before) / max(now - began, 1e-9)
        if self.first:
            self.since, self.first = (now, done), False
        return self.speed

    def words(self, unit: str) -> str:
        """Write the rate."""
        digits = ",.0f" if self.speed >= 10 else ".2g"
        return f"{self.speed:{digits}} {unit}/s"


@contextlib.contextmanager
def progress(
    console: Console, task: str, total: float, unit: str, done: int = 0
) -> Iterator[Advance]:
    """Show how far long work is: a bar on a terminal, plain lines elsewhere.

    Plain lines come at the start, at the end and every ten seconds.
    """
    pace, said = Pace(done), [-float("inf")]

    if not console.is_terminal:

        def say(done: float, text: str) -> None:
            speed, now = pace.see(done), time.monotonic()
            if now - said[0] < PAUSE and done < total:
                return
            said[0] = now
            far = f"{task}: {done / total:.0%}"
            if speed > 0:
                left = (total - done) / speed
                far += f", {pace.words(unit)}, {left:.0f} s left"
            console.print(f"{far}. {text}".rstrip())

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
    # a bar that is shown aside must leave alone what is printed for others to read
    own = not console.stderr
    with Progress(*columns, console=console, redirect_stdout=own) as bar:
        job = bar.add_task(
            task, total=total, completed=done, speed="", text="compiling ..."
        )

        def move(done: float, text: str) -> None:
            pace.see(done)
            bar.update(job, completed=done, speed=pace.words(unit), text=text)

        yield move


def each(
    console: Console,
    task: str,
    things: Sequence[Thing],
    called: Callable[[Thing], str],
    work: Callable[[Thing], Result],
    unit: str = "runs",
) -> list[Result]:
    """Do some long work with one thing after another, and show which of them it is."""
    found: list[Result] = []
    if not things:
        return found
    with progress(console, task, len(things), unit) as tell:
        for done, thing in enumerate(things):
            tell(done, called(thing))
            found.append(work(thing))
        tell(len(things), "")
    return found


def measured(manifest: dict[str, Any], fact: str) -> Any:
    """Take a measurement out of a manifest."""
    if fact not in manifest:
        raise Mistake(f"The zoo '{manifest['name']}' has no '{fact}'; build it anew.")
    return manifest[fact]


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Let a request to end be heard like Ctrl-C, so that what is to be kept is kept."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def hasty() -> Iterator[None]:
    """Compile in less time to slower programs: for what hardly runs at all."""
    import jax

    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.config.update(name, True)
    try:
        yield
    finally:
        jax.config.update(name, before)
