"""`fastap zoo accept` and `yardsticks`: whether a zoo asks, and what can be earned."""

import dataclasses
from typing import Any, Literal, get_args

from rich.console import Console
from rich.table import Table

from fastap.commands.edge import ZooName, check_range, progress
from fastap.problem.spec import Mistake
from fastap.training.settings import Pool, Preset


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

    A best response to every group, which take turns as groups do (switching),
    and teams that are told the type of the group that is there (told), trained
    beside a pool with and without changes. They are shown beside all that is
    judged with this zoo.

    Example: fastap zoo yardsticks --zoo my-zoo --pools held-out
    """

    zoo: ZooName = "lbf"
    """A folder you can write to, or a zoo that comes with fastap."""
    env: str | None = None
    """Which environment's own zoo, as another way to say --zoo."""
    preset: Preset = "paper"
    """smoke: nothing learnt; quick: 300,000 steps; paper: 6 million."""
    steps: int | None = None
    """Joint steps of training for each team, if not the preset's."""
    pools: tuple[Pool, ...] = get_args(Pool)
    """Beside whose groups; the teams that the zoo has for other pools are kept."""
    seeds: int = 3
    """How many teams are told, of each kind."""
    force: bool = False
    """Replace the ones that the zoo has for these pools."""

    def run(self, console: Console) -> None:
        """Train all teams at once, and keep their agents."""
        from fastap.teammates import yardsticks
        from fastap.teammates import zoo as store

        check_range("--seeds", self.seeds, 1, 100)
        folder = store.find(self.env or self.zoo)
        zoo = store.load(folder)
        pools = tuple(dict.fromkeys(self.pools))
        tasks = yardsticks.planned(zoo, self.seeds, pools)
        if not tasks:
            raise Mistake(
                f"{folder} has no groups for {', '.join(pools) or 'no pool'}."
            )
        practice, _ = effort(self.preset, self.steps, zoo.manifest["env"])
        width = practice.learning.hidden
        yardsticks.remaining(folder, pools, width, self.force)  # or refuse
        with progress(console, "training", practice.steps, "steps") as advance:
            share = practice.steps / yardsticks.PIECES
            tell = lambda piece, words: advance(piece * share, words)
            models, curves = yardsticks.train_all(zoo, practice, tasks, tell)
        teams = yardsticks.Yardsticks(zoo, tuple(tasks), models.agents)
        asked = f"--preset {self.preset} --steps {practice.steps} --seeds {self.seeds}"
        asked += f" --pools {' '.join(pools)}"
        command = f"fastap zoo yardsticks --zoo {self.env or self.zoo} {asked}"
        how = store.made_with() | {"command": command}
        facts = yardsticks.describe(teams, practice, curves)
        yardsticks.save(folder, teams, {pool: facts[pool] | how for pool in facts})
        console.print(f"Wrote {len(tasks)} teams. Return in training:")
        for pool, found in facts.items():
            last = (f"{kind} {c[-1]:.2f}" for kind, c in found["curves"].items())
            console.print(f"  {pool}: {', '.join(last)}")


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
    from fastap.methods.practice import tiny, usual

    sizes = {
        "smoke": (tiny(env, 500), (32, 5)),
        "quick": (usual(env, 300_000), (2_000, 1_000)),
        "paper": (usual(env, 6_000_000), (20_000, 5_000)),
    }
    practice, naming = sizes[name]
    return longer(practice, steps), naming
