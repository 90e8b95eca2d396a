"""`fastap export`: a trained policy as one file, for whoever has no fastap."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console

from fastap.commands.edge import check_range, prepare_file
from fastap.problem.spec import Mistake
from fastap.teammates.zoo import replace

Format = Literal["npz", "onnx", "stablehlo"]
PARTS = {
    "memory": "what the action values remember; zeros at first",
    "doubt": "what the belief remembers; zeros at first (PEARL: ones in the first "
    "`context` numbers)",
    "last": "the action before, one-hot; zeros at first",
}


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a trained policy as one file, checked against the agents it came from.

    Beside the file goes a card, FILE.json: shapes, what inputs mean, training, results.
    A step takes the state and what is seen, and returns the next state, the actions
    and the contexts, so it can be called from any language.

    Example: fastap export runs/fastap --format onnx --out policy.onnx
    """

    folder: tyro.conf.Positional[Path]
    """The run."""
    out: Path
    """The file."""
    format: Annotated[Format, tyro.conf.arg(metavar="npz|onnx|stablehlo")] = "npz"
    """npz: for fastap/deploy/agent.py, which needs NumPy alone. onnx: for ONNX
    Runtime. stablehlo: for XLA, written by jax.export."""
    method: str | None = None
    """Which method, where the run holds several."""
    seed: int | None = None
    """Which of its seeds; by default the first."""
    episodes: int = 500
    """From how many episodes to learn what is usual, for the alarm; 0: without."""
    force: bool = False
    """Overwrite the file."""

    def run(self, console: Console) -> None:
        """Read, write, read back, compare."""
        from fastap.deploy import export
        from fastap.deploy.run import load

        check_range("--episodes", self.episodes, 0, 1_000_000)
        prepare_file(self.out, self.force)
        card_file = self.out.with_name(self.out.name + ".json")
        prepare_file(card_file, self.force)
        run = load(self.folder)
        place = run.team(self.seed, self.method)
        arrays, card = run.pack(self.seed, self.method)
        if self.format == "npz" and self.episodes:
            who = (self.seed, self.method)
            usual, rings = run.usual(self.episodes, *who)
            arrays, card = arrays | usual, card | {"alarm": rings}
        if self.format == "npz":
            data = export.write_npz(arrays, card)
            step = export.numpy_step(arrays, card)
        elif self.format == "onnx":
            data = export.write_onnx(arrays, card)
            step = export.read_onnx(data, card)
        else:
            data = export.write_stablehlo(run, place, card)
            step = export.read_stablehlo(data)
        worst = export.check(run, place, step, card)
        if not worst <= export.CLOSE:
            raise Mistake(f"The {self.format} differs from its agents by {worst:g}.")
        described = describe(card, arrays, self.format == "stablehlo")
        described |= {"bytes": len(data), "differs": worst}
        replace(self.out, data)
        replace(card_file, (json.dumps(described, indent=1) + "\n").encode())
        console.print(
            f"Wrote {self.out} ({len(data) / 1024:.0f} KiB), which differs from its "
            f"agents by {worst:.0e} at most, and {card_file.name}."
        )


def describe(
    card: dict[str, Any], arrays: dict[str, np.ndarray], blank: bool
) -> dict[str, Any]:
    """Say what goes in and what comes out, in order, with its shape."""
    from fastap.deploy.export import STATE, shapes

    sizes = shapes(card, blank)
    shape = lambda name: ["episodes", *sizes[name]]
    words = PARTS | card["inputs"]
    inputs = {name: {"shape": shape(name), "meaning": words[name]} for name in sizes}
    outputs = {f"next_{n}": {"shape": shape(n)} for n in STATE if n in sizes}
    outputs["action"] = {"shape": ["episodes", card["agents"]]}
    if card["context"] or blank:
        outputs["context"] = {"shape": ["episodes", card["agents"], card["context"]]}
    numbers = sum(x.size for name, x in arrays.items() if not name.startswith("usual."))
    return card | {"inputs": inputs, "outputs": outputs, "parameters": int(numbers)}
