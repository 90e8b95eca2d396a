"""`fastap zoo accept` and `yardsticks`: whether a zoo asks, and what can be earned."""

import dataclasses
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from fastap.commands.edge import ZooName, check_range, progress
from fastap.problem.spec import Mistake
from fastap.training.settings import Preset


@dataclasses.dataclass(frozen=True)
class Accept:
    """Measure whether a zoo poses the question, and write it into the zoo.

    Example: fastap zoo accept --zoo my-zoo
    """

    zoo: ZooName = "lbf"
    """The zoo to judge: a folder you can write to, or one that comes with fastap."""
    env: str | None = None
    """Which environment's own zoo, as another way to say --zoo."""
    pool: Literal["train", "validation"] = "validation"
    """Which groups; the held-out ones are for final tables only."""
    preset: Preset = "paper"
    """smoke: nothing learnt; quick: 300,000 steps; paper: 6 million."""
    steps: int | None = None
    """Joint steps of training for each team, if not the preset's."""
    seeds: int = 3
    """How many teams are trained for all groups together."""
    episodes: int = 500
    """How many episodes a score is the mean of."""

    def run(self, console: Console) -> None:
        """Train best responses, ask who can be told apart, and record."""
        from fastap.teammates import zoo as store
        from fastap.teammates.acceptance import Cast, accept
        from fastap.teammates.identify import identify
        from fastap.teammates.yardsticks import PIECES

        check_range("--seeds", self.seeds, 1, 100)
        check_range("--episodes", self.episodes, 1, 100_000)
        folder = store.find(self.env or self.zoo)
        zoo = store.load(folder)
        if len(zoo.members(self.pool)) < 2:
            raise Mistake(f"The pool '{self.pool}' of {folder} has no two groups.")
        practice, naming = effort(self.preset, self.steps, zoo.manifest["env"])
        cast = Cast(zoo.members(self.pool), self.seeds)
        with progress(console, "training", practice.steps, "steps") as advance:
            share = practice.steps / PIECES
            tell = lambda piece, words: advance(piece * share, words)
            facts, model = accept(zoo, practice, cast, self.episodes, tell)
        console.print("asking who can be told apart ...")
        told = identify(zoo, model, self.pool, *naming)
        now = store.load(folder).manifest  # others may have written since
        store.save(folder, now | facts | told | {"accepted_on": self.pool})
        gap, known = facts["best_response_gap"], told["identifiability"]
        console.print(gaps(facts["label_gaps"]))
        console.print(
            f"best-response gap {gap:.2f} (wanted: 0.15), types named {known:.1f} "
            f"times as often as by chance (wanted: 2). Wrote it into {folder}."
        )


@dataclasses.dataclass(frozen=True)
class Yardsticks:
    """Train what others are measured by, and keep it with the zoo.

    A best response to every group of the pools validation and held-out, which
    take turns as groups do (switching), and teams that are told the type of the
    group that is there (told), trained beside a pool with and without changes.
    They are shown beside all that is judged with this zoo.

    Example: fastap zoo yardsticks --zoo my-zoo
    """

    zoo: ZooName = "lbf"
    """A folder you can write to, or a zoo that comes with fastap."""
    env: str | None = None
    """Which environment's own zoo, as another way to say --zoo."""
    preset: Preset = "paper"
    """smoke: nothing learnt; quick: 300,000 steps; paper: 6 million."""
    steps: int | None = None
    """Joint steps of training for each team, if not the preset's."""
    seeds: int = 3
    """How many teams are told, of each kind."""
    force: bool = False
    """Replace the ones that the zoo has."""

    def run(self, console: Console) -> None:
        """Train all teams at once, and keep their agents."""
        from fastap.teammates import yardsticks
        from fastap.teammates import zoo as store

        check_range("--seeds", self.seeds, 1, 100)
        folder = store.find(self.env or self.zoo)
        zoo = store.load(folder)
        if "yardsticks" in zoo.manifest and not self.force:
            raise Mistake(f"{folder} has yardsticks already; add --force to replace.")
        tasks = yardsticks.planned(zoo, self.seeds)
        if not tasks:
            raise Mistake(f"{folder} has no groups for validation and none held out.")
        practice, _ = effort(self.preset, self.steps, zoo.manifest["env"])
        with progress(console, "training", practice.steps, "steps") as advance:
            share = practice.steps / yardsticks.PIECES
            tell = lambda piece, words: advance(piece * share, words)
            models, curves = yardsticks.train_all(zoo, practice, tasks, tell)
        asked = f"--preset {self.preset} --steps {practice.steps} --seeds {self.seeds}"
        command = f"fastap zoo yardsticks --zoo {self.env or self.zoo} {asked}"
        facts = yardsticks.describe(tasks, practice, curves)
        facts |= store.made_with() | {"command": command}
        yardsticks.save(folder, zoo, models.agents, facts)
        last = ", ".join(f"{kind} {c[-1]:.2f}" for kind, c in facts["curves"].items())
        console.print(f"Return in training: {last}. Wrote {len(tasks)} teams.")


def gaps(rows: list[dict[str, Any]]) -> Table:
    """Tabulate what being told the type of one's teammates is worth."""
    table = Table("trained", "change", "memory", "qmix", "told", "switching")
    for row in rows:
        words = (row["trained"], row["change"], row["memory"])
        scores = (f"{row[kind]:.2f}" for kind in ("qmix", "told", "switching"))
        table.add_row(*words, *scores)
    return table


def longer(practice: Any, steps: int | None) -> Any:
    """Practise for as long as asked, if asked."""
    if steps is None:
        return practice
    check_range("--steps", steps, 1, 10**10)
    return dataclasses.replace(practice, steps=steps)


def effort(name: Preset, steps: int | None, env: str) -> tuple[Any, tuple[int, int]]:
    """Return how to train best responses, and the episodes and steps to learn names."""
    from fastap.methods.model import Learning
    from fastap.methods.practice import LONG, Practice

    tiny, own = Learning(hidden=8, embed=4), LONG.get(env, {})
    small = {"episodes": 4, "updates": 1, "batch": 4, "capacity": 16}
    sizes = {
        "smoke": (Practice(steps=500, learning=tiny, **small), (32, 5)),
        "quick": (Practice(steps=300_000, **own), (2_000, 1_000)),
        "paper": (Practice(steps=6_000_000, **own), (20_000, 5_000)),
    }
    practice, naming = sizes[name]
    return longer(practice, steps), naming
