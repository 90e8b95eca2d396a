"""`fastap zoo prey`: raise the prey of predator-prey."""

import dataclasses
import json
from pathlib import Path
from typing import Literal

from rich.console import Console

from fastap.commands.edge import prepare, progress


@dataclasses.dataclass(frozen=True)
class Prey:
    """Raise a prey for predator-prey, against chasers and against learnt predators.

    Example: fastap zoo prey --out my-prey
    """

    out: Path
    """Folder for prey.safetensors and what was measured."""
    preset: Literal["smoke", "paper"] = "paper"
    """smoke: nothing learnt; paper: the prey that comes with fastap (9 minutes)."""
    seed: int = 0
    """Chance."""
    force: bool = False
    """Overwrite the prey that is in the folder."""

    def run(self, console: Console) -> None:
        """Raise, judge, save."""
        import jax

        from fastap.envs.prey import Fleeing, save_prey
        from fastap.envs.pursuit import Pursuit
        from fastap.teammates.breed import Breeding, breed, judge_prey
        from fastap.teammates.zoo import describe, replace

        prepare(self.out, self.force)
        breeding = Breeding()
        if self.preset == "smoke":
            breeding = Breeding(rounds=2, hidden=8, generations=1)
        env = Pursuit(prey=Fleeing())
        total = breeding.generations
        with progress(console, "raising", total, "generations") as advance:
            prey = breed(env, breeding, advance, self.seed)
        facts = judge_prey(env, prey, jax.random.split(jax.random.key(1), 2000))
        command = f"fastap zoo prey --preset {self.preset} --seed {self.seed}"
        save_prey(prey, self.out / "prey.safetensors")
        told = describe(env, "prey", command) | facts
        replace(self.out / "prey.json", (json.dumps(told, indent=1) + "\n").encode())
        console.print(
            f"Chasers touch it in {facts['touched']:.0%} of episodes (wanted: 30 to "
            f"80 %); it is at home {facts['home']:.1%} of the time (wanted: 95 %). "
            f"Wrote {self.out}."
        )
