"""The learning curve, written to other people's dashboards."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastap.problem.spec import Mistake
from fastap.training.checkpoint import CLOCK

Rows = Sequence[dict[str, Any]]
Logger = Callable[[Rows, float], None]  # the rows of a point, and the seconds so far
HINT = "pip install 'fastap[log]'"


def open_logs(kinds: Sequence[str], folder: Path, config: dict[str, Any]) -> Logger:
    """Open the dashboards asked for; without any, the clock alone is kept."""
    makers = {"tensorboard": tensorboard, "wandb": wandb}
    loggers = [clock(folder), *(makers[kind](folder, config) for kind in kinds)]

    def log(rows: Rows, seconds: float) -> None:
        for logger in loggers:
            logger(rows, seconds)

    return log


def clock(folder: Path) -> Logger:
    """Write when each point was reached; apart from the curve, which must repeat."""

    def log(rows: Rows, seconds: float) -> None:
        try:
            with (folder / CLOCK).open("a") as file:
                if not file.tell():
                    file.write("step,seconds\n")
                file.write(f"{rows[0]['step']},{seconds:.3f}\n")
        except OSError as error:
            raise Mistake(
                f"Could not write {folder / CLOCK}: {error.strerror}."
            ) from error

    return log


def tensorboard(folder: Path, config: dict[str, Any]) -> Logger:
    """Write event files, one for each seed."""
    del config
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise Mistake(f"tensorboard is not installed: {HINT}.") from error
    writers: dict[Any, Any] = {}

    def log(rows: Rows, seconds: float) -> None:
        for row in rows:
            seed = row["seed"]
            if seed not in writers:
                writers[seed] = EventFileWriter(str(folder / "tensorboard" / f"{seed}"))
            values = [
                Summary.Value(tag=name, simple_value=value)
                for name, value in row.items()
                if isinstance(value, float)
            ]
            summary = Summary(value=values)
            step, now = int(row["step"]), time.time()
            event = Event(step=step, wall_time=now, summary=summary)
            writers[seed].add_event(event)
            writers[seed].flush()

    return log


def wandb(folder: Path, config: dict[str, Any]) -> Logger:
    """Write to Weights & Biases, all seeds in one run."""
    try:
        import wandb as board
    except ImportError as error:
        raise Mistake(f"wandb is not installed: {HINT}.") from error
    run = board.init(project="fastap", dir=str(folder), config=config)

    def log(rows: Rows, seconds: float) -> None:
        named = {
            f"{name}/{row['seed']}": value
            for row in rows
            for name, value in row.items()
            if isinstance(value, float)
        }
        run.log(named | {"seconds": seconds}, step=int(rows[0]["step"]))

    return log
