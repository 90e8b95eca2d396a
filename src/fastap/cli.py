"""The command line: everything that touches files, clocks and terminals."""

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import jax
import tyro
from jax.errors import JaxRuntimeError
from rich.console import Console
from rich.table import Table

from fastap.commands.doctor import Doctor
from fastap.commands.edge import Enough, check_range, some
from fastap.commands.evaluate import Eval
from fastap.commands.export import Export
from fastap.commands.quickstart import Quickstart
from fastap.commands.report import Report
from fastap.commands.reproduce import Reproduce
from fastap.commands.train import Train
from fastap.commands.zoo import Zoo
from fastap.envs import ENVIRONMENTS
from fastap.problem.spec import Mistake


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure this machine: environments beside installed peers, and learning.

    Example: fastap bench --env lbf --json
    """

    env: tuple[str, ...] = tuple(ENVIRONMENTS)
    """Which environments."""
    parallel: tuple[int, ...] = (1, 64, 1024)
    """How many episodes at once."""
    runs: tuple[int, ...] = (1,)
    """How many learners side by side, in lbf; none: only the environments."""
    seconds: float = 1.0
    """How long each is measured."""
    json: bool = False
    """Print one JSON object per line instead of a table."""

    def run(self, console: Console) -> None:
        """Time everything and print as it comes."""
        from fastap.benchmarks import deciding, environments, learning
        from fastap.envs import make

        if not self.parallel:
            raise Mistake("--parallel needs at least one number.")
        for option, counts in (("--parallel", self.parallel), ("--runs", self.runs)):
            for count in counts:
                check_range(option, count, 1, 1_000_000)
        check_range("--seconds", self.seconds, 0.001, 3600)
        for name in some(self.env):
            make(name)
        table = Table(
            "what", "env", "at once", "rate", "unit", "peer", "peer's", "times"
        )
        loops = learning.measure("lbf", self.runs, self.seconds)
        games = environments.measure(self.env, self.parallel, self.seconds)
        more = itertools.chain(loops, deciding.measure(self.seconds))
        wanted = self.runs and "lbf" in self.env
        for row in itertools.chain(games, more if wanted else ()):
            if self.json:
                print(json.dumps(dataclasses.asdict(row)), flush=True)
                continue
            peer, times = "", ""
            if row.peer_rate:
                peer, times = f"{row.peer_rate:,.0f}", f"{row.rate / row.peer_rate:.1f}"
            what = f"{row.kind}, {row.method}" if row.method else row.kind
            numbers = (str(row.parallel), f"{row.rate:,.0f}", row.unit)
            table.add_row(what, row.env, *numbers, row.peer or "", peer, times)
        if not self.json:
            console.print(table)


Command = Annotated[
    Annotated[Quickstart, tyro.conf.subcommand("quickstart")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Zoo, tyro.conf.subcommand("zoo")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")],
    tyro.conf.OmitSubcommandPrefixes,
]


def remember_programs() -> None:
    """Keep compiled programs in the user's cache folder, unless told where else."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(home) / "fastap"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; what the user can mend ends in one sentence and exit 2."""
    about = "Cooperative agents that keep working when their teammates change."
    try:
        command = tyro.cli(Command, prog="fastap", description=about, args=arguments)
        remember_programs()
        command.run(Console())
    except Mistake as mistake:
        print(f"fastap: {mistake}", file=sys.stderr)
        raise SystemExit(2) from None
    except JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print("fastap: not enough memory; ask for fewer at once.", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # somebody closed the other end, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a disk, a folder or a name that cannot be used
        words = f"{error.strerror or error}: {error.filename or 'a file'}"
        print(f"fastap: {words}.", file=sys.stderr)
        raise SystemExit(2) from None
    except Enough as enough:
        print(f"fastap: {enough}")
    except KeyboardInterrupt as stop:
        words = str(stop) or "stopped; every file it has written is whole."
        print(f"fastap: {words}", file=sys.stderr)
        raise SystemExit(130) from None
