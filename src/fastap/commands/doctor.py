"""`fastap doctor`: whether this machine is ready, and what a run would take."""

import dataclasses
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fastap.commands.edge import ZooName
from fastap.training.settings import Preset, settings

PACKAGES = ("fastap", "jax", "jaxlib", "equinox", "optax", "numpy", "jaxmarl")


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Look at this machine, and at what a training run would take on it.

    It compiles the run and trains its first moments: a minute on two cores.

    Example: fastap doctor --env lbf --method fastap --preset quick
    """

    env: str = "lbf"
    """Which environment."""
    method: str = "fastap"
    """Which method."""
    preset: Preset = "paper"
    """Which sizes."""
    zoo: ZooName | None = None
    """Whom to train beside, if not the environment's own zoo."""
    seeds: int | None = None
    """How many runs, if not the preset's."""
    steps: int | None = None
    """Joint steps of play for each seed, if not the preset's."""
    out: Path = Path()
    """Where the run would be written."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def run(self, console: Console) -> None:
        """Measure, and print."""
        from fastap.training.forecast import forecast
        from fastap.training.train import course

        asked = {"zoo": self.zoo, "seeds": self.seeds, "steps": self.steps}
        ready = course(settings(self.env, self.method, self.preset, **asked))
        if not self.json:
            console.print("compiling the run and training its first moments ...")
        found = machine(self.out) | dataclasses.asdict(forecast(ready, full=True))
        if self.json:
            print(json.dumps(found | {"worries": worries(found)}))
            return
        table = Table("what", "this machine", "the run")
        for name, here in found["versions"].items():
            table.add_row(name, here, "")
        table.add_row("device", found["device"], f"{ready.settings.seeds} seeds")
        table.add_row("cores", str(found["cores"]), "")
        size = lambda number: f"{number / 2**30:.2f} GiB" if number else "unknown"
        table.add_row("memory", size(found["room"]), size(found["memory"]))
        table.add_row("disk", size(found["free"]), size(found["disk"]))
        table.add_row("compilation", "", f"{found['compilation']:.0f} s")
        table.add_row("training", "", f"{found['training'] / 60:.1f} min")
        table.add_row("rate", "", f"{found['steps_per_second']:,.0f} steps/s")
        console.print(table)
        for words in worries(found) or ["The run fits."]:
            console.print(words)


def machine(folder: Path) -> dict[str, Any]:
    """Describe this machine."""
    import jax

    from fastap.training.checkpoint import free_space

    device = jax.devices()[0]
    stats = device.memory_stats() or {}
    room = stats.get("bytes_limit")
    if room is None and hasattr(os, "sysconf"):
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "versions": {"python": platform.python_version()}
        | {name: found for name in PACKAGES if (found := installed(name))},
        "device": device.device_kind,
        "cores": os.cpu_count(),
        "room": room,
        "free": free_space(folder),
    }


def installed(package: str) -> str | None:
    """Return a package's version, if it is there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def worries(found: dict[str, Any]) -> list[str]:
    """Say what will not work, and what to do."""
    said = []
    if found["room"] and found["memory"] > found["room"]:
        said.append("Not enough memory: ask for fewer --seeds or a smaller --capacity.")
    if found["disk"] > found["free"]:
        said.append("Not enough disk: make room or train with --checkpoint policy.")
    return said
