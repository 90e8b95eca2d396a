"""The positive control: whether knowing one's teammates helps, and can be learnt.

QMIX, Fastap, Fastap without its losses and the oracle, trained with teammates
that stay and with teammates that change, judged on the same episodes.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from fastap.evaluation.evaluate import Judge
from fastap.methods.model import Model
from fastap.problem.rollout import Memory
from fastap.teammates.company import SHARE
from fastap.training.settings import Preset, settings
from fastap.training.train import Course, course, variant

PROGRAMS = {"oracle": ("qmix", "oracle"), "fastap": ("fastap", "fastap-zero")}
CHANGES = ("stationary", "U[5,8]", "U[5,8]-same")
MEMORIES: tuple[Memory, ...] = ("fresh", "watched")
POOLS = ("train", "validation")
Tell = Callable[[int, str], None]  # the steps of each run so far, and what to say


@dataclasses.dataclass(frozen=True)
class Control:
    """How large the control is."""

    zoo: str
    preset: Preset = "paper"
    steps: int | None = None
    seeds: int = 3
    share: float = SHARE  # of the changing episodes, where there are any
    episodes: int = 1000

    def course(self, program: str) -> Course:
        """Prepare all configurations of one program."""
        asked = settings(
            env="lbf",
            method=program,
            preset=self.preset,
            zoo=self.zoo,
            steps=self.steps,
            seeds=self.seeds,
            train_change="U[5,8]",
            points=4 if self.preset == "paper" else None,
        )
        agents = 2
        each = [
            dataclasses.replace(variant(asked, agents, name), share=share)
            for name, share in itertools.product(PROGRAMS[program], (0.0, self.share))
        ]
        return course(asked, each)


def run(control: Control, ready: Course, tell: Tell) -> Iterator[dict[str, Any]]:
    """Train the configurations of a program, and judge every run of them."""
    state = ready.start()
    for after, notes in ready.train(state):
        tell(ready.steps(after.beats), f"return {notes['return'].mean():.2f}")
        state = after
    model = state.runs.learner.model
    shares = [v.share for v in ready.variants for _ in range(control.seeds)]
    for row in judge(ready, model, control.episodes):
        yield row | {"share": shares[row.pop("run")], "steps": ready.steps(ready.beats)}


def judge(ready: Course, model: Model, episodes: int) -> Iterator[dict[str, Any]]:
    """Judge every run in every case."""
    for memory in MEMORIES:
        jury = Judge(ready.zoo, episodes, memory)
        for pool, change in itertools.product(POOLS, CHANGES):
            scores = jury(model, ready.members[pool], change).returns
            case = {"change": change, "memory": memory, "pool": pool}
            for i, score in enumerate(scores):
                who = {"env": ready.settings.env, "zoo": ready.settings.zoo, "run": i}
                who |= {"method": ready.names[i], "seed": ready.seeds[i]}
                yield who | case | {"episodes": episodes, "return": float(score)}
