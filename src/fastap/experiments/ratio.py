"""How many gradient steps so much play deserves: return over steps and seconds."""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from fastap.training.settings import Preset, settings
from fastap.training.train import CHANGES, Course, course

METHODS = ("qmix", "fastap")
RATIOS = (1, 2, 4, 8)  # gradient steps for every 8 episodes
Tell = Callable[[int, str], None]  # the steps of each run so far, and what to say


@dataclasses.dataclass(frozen=True)
class Ratio:
    """How large the comparison is."""

    zoo: str = "lbf"
    preset: Preset = "paper"
    steps: int | None = None
    seeds: int = 3

    def courses(self) -> Iterator[tuple[int, Course]]:
        """Prepare one training for every method and ratio."""
        usual = settings("lbf", "qmix", self.preset)
        for method, ratio in itertools.product(METHODS, RATIOS):
            asked = settings(
                env="lbf",
                method=method,
                preset=self.preset,
                zoo=self.zoo,
                steps=self.steps,
                seeds=self.seeds,
                updates=max(1, ratio * usual.episodes // 8),
                points=10 if self.preset == "paper" else None,
            )
            yield ratio, course(asked)


def run(ratio: int, ready: Course, tell: Tell) -> Iterator[dict[str, Any]]:
    """Train the seeds of one course; return its curve over steps and seconds.

    Seconds count the compiled beats alone: neither compilation nor judging.
    """
    beats, state = [], ready.start()
    clock = time.perf_counter()
    for after, notes in ready.train(state):
        if not ready.is_point(after.beats):
            beats.append(time.perf_counter() - clock)
        tell(ready.steps(after.beats), f"return {notes['return'].mean():.2f}")
        state, clock = after, time.perf_counter()
    beat = statistics.median(beats or [0.0])
    for row in state.rows:
        who = {"method": ready.settings.method, "ratio": ratio, "seed": row["seed"]}
        seconds = beat * float(row["step"]) / ready.steps(1)
        when = {"step": row["step"], "seconds": round(seconds, 2)}
        scores = {change: row[f"{change} validation"] for change in CHANGES}
        yield who | when | scores
