"""The paper's experiments, run: what is missing is trained, what is there is read."""

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from fastap.commands.edge import Enough
from fastap.commands.evaluate import BESIDE, beside
from fastap.commands.train import Train, facts
from fastap.problem.spec import Mistake
from fastap.teammates.zoo import replace
from fastap.training.settings import Preset, settings

Row = dict[str, Any]
FEW: dict[Preset, int] = {"smoke": 4, "quick": 200, "paper": 1000}  # episodes


@dataclasses.dataclass(frozen=True)
class Study:
    """Where the runs of a study are, and how large they are."""

    out: Path
    preset: Preset
    console: Console
    envs: tuple[str, ...]
    zoo: str | None = None
    steps: int | None = None
    seeds: int | None = None
    minutes: float = float("inf")
    clock: float = dataclasses.field(default_factory=time.monotonic)

    def folder(self, env: str, cohort: Any) -> Path:
        """Say where a cohort's runs are."""
        return self.out / "runs" / f"{env}-{cohort.name}"

    def settings(self, env: str, cohort: Any) -> dict[str, Any]:
        """List what a cohort's runs are asked for, beside the preset's own."""
        steps = cohort.steps(self.preset, self.steps)
        own = {"zoo": self.zoo, "steps": steps, "seeds": self.seeds}
        asked = own | cohort.asked(self.preset)
        if cohort.start:
            asked["start"] = f"../{env}-{cohort.start}"  # from the run's own folder
        return {name: value for name, value in asked.items() if value is not None}

    def left(self) -> float:
        """Return the minutes that are left."""
        return self.minutes - (time.monotonic() - self.clock) / 60

    def train(self, env: str, cohort: Any) -> Path:
        """Train a cohort, go on with it, or find that it is done."""
        from fastap.experiments.measure import status
        from fastap.training.checkpoint import check_zoo, read_config
        from fastap.training.train import course

        folder, asked = self.folder(env, cohort), self.settings(env, cohort)
        now = status(folder)
        if now.total:
            want = settings(env, cohort.method, self.preset, **asked)
            there, noted = read_config(folder)
            check_zoo(course(there), noted, folder)
            if there != want:
                raise Mistake(
                    f"{folder} was made with other settings than are asked for now; "
                    "name another --out."
                )
        if now.done:
            return folder
        if self.left() <= 0:
            raise Enough(f"the time is over; {folder} is {now}. Say it again to go on.")
        self.console.print(f"{folder.name}: {now}")
        new = asked | {"preset": self.preset}
        if cohort.start:
            new["start"] = str(self.out / "runs" / f"{env}-{cohort.start}")
        more: dict[str, Any] = {"resume": True} if now.total else new
        who: dict[str, Any] = {"out": folder, "env": env, "method": cohort.method}
        Train(**who, minutes=self.left(), **more).run(self.console)
        return folder

    def zoos(self, name: str) -> list[Any]:
        """Read the zoos of an experiment, one for each environment."""
        from fastap.experiments.study import EXPERIMENTS
        from fastap.teammates import zoo as store

        about = EXPERIMENTS[name].envs
        named = [env for env in about if env in self.envs]
        if not named:
            known = ", ".join(about)
            raise Mistake(f"{name} is about {known}; none of them was named.")
        if not self.zoo:
            return [store.load(env) for env in named]
        zoo = store.load(self.zoo)
        own = zoo.manifest["env"]
        if own not in named:
            listed = ", ".join(named)
            raise Mistake(f"The zoo '{self.zoo}' is for {own}, not for {listed}.")
        return [zoo]

    def runs(self, name: str) -> dict[str, list[Path]]:
        """Train all that an experiment needs, one environment after another."""
        from fastap.experiments.study import EXPERIMENTS

        cohorts = EXPERIMENTS[name].cohorts
        # a zoo that cannot be read is noticed before hours of training
        envs = [zoo.manifest["env"] for zoo in self.zoos(name)]
        return {env: [self.train(env, one) for one in cohorts(env)] for env in envs}

    def judged(self, name: str) -> dict[str, list[Row]]:
        """Judge the runs of an experiment; keep scores by seed, return all answers."""
        from fastap.experiments.assess import Question
        from fastap.experiments.measure import answers, recorded, scores, summaries
        from fastap.experiments.study import EXPERIMENTS

        experiment, found = EXPERIMENTS[name], {}
        changes, few = experiment.changes, FEW[self.preset]
        questions = [Question(changes, "held-out", few, m) for m in experiment.memories]
        for env, folders in self.runs(name).items():
            answered = []
            for folder, asked in itertools.product(folders, questions):
                if self.left() <= 0 and recorded(folder, asked) is None:
                    raise Enough("the time is over; say it again to go on.")
                answered += answers(folder, asked)
            found[env] = [
                one for one in answered if one["method"] in experiment.methods
            ]
            self.keep(f"{name}-{env}", list(scores(found[env])))
            self.keep(f"{name}-{env}-summary", list(summaries(found[env])))
        return found

    def keep(self, name: str, rows: Sequence[Row]) -> None:
        """Write rows as CSV, and how they were made beside it."""
        from fastap.training.checkpoint import table

        replace(self.out / f"{name}.csv", table(tuple(rows)).encode())
        made = {"preset": self.preset, "runs": self.made()}
        text = json.dumps(facts() | made, indent=1) + "\n"
        replace(self.out / f"{name}.json", text.encode())

    def made(self) -> dict[str, Any]:
        """Say where, by what and in how many seconds each run was trained."""
        from fastap.training.checkpoint import read_clock, read_config

        found = {}
        for path in sorted((self.out / "runs").glob("*/config.json")):
            noted = read_config(path.parent)[1]
            names = ("device", "versions", "command")
            kept = {name: noted.get(name) for name in names}
            found[path.parent.name] = kept | {"seconds": read_clock(path.parent)}
        return found

    def tabulate(self, name: str, title: str, rows: Sequence[Row]) -> None:
        """Print rows as a table, if there are any, and write it for a paper."""
        from fastap.report.page import latex

        if not rows:
            return
        write = lambda x: f"{x:.3f}" if isinstance(x, float) else str(x)
        heads, cells = list(rows[0]), [[*map(write, row.values())] for row in rows]
        table = Table(*heads, title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
        first = [line[0] for line in cells]
        for k, line in enumerate(cells):  # what has the same name stands together
            last = len(set(first)) < len(first) and [first[k]] != first[k + 1 : k + 2]
            table.add_row(*line, end_section=last)
        self.console.print(table)
        replace(self.out / f"{name}.tex", latex(heads, cells).encode())

    def draw(self, name: str, figure: Any) -> None:
        """Write a figure."""
        from fastap.report.film import save_figure

        save_figure(figure, self.out / f"{name}.png")
        self.console.print(f"Wrote {self.out / name}.png.")


def main_figure(study: Study) -> None:
    """Draw the learning curves of all methods, and tell where they end."""
    from fastap.experiments.measure import LATE, curves, finals
    from fastap.experiments.study import EXPERIMENTS
    from fastap.report.figures import learning_curves

    experiment, rows, last = EXPERIMENTS["main"], [], []
    found = study.runs("main")
    for env, folders in found.items():
        mine = [row for folder in folders for row in curves(folder, env)]
        study.keep(f"main-{env}", mine)
        rows += mine
        last += [one | paper(one) for one in finals(mine, experiment.methods)]
    title = f"validation groups, mean of the last {LATE} points"
    study.tabulate("main", title, last)
    curves_of = (rows, experiment.methods, list(found), "validation")
    study.draw("main", learning_curves(*curves_of))


def paper(row: Row) -> Row:
    """Return what the paper's table 1 says of a method, which is about lbf."""
    from fastap.experiments.study import printed

    known = row["env"] == "lbf"
    return {"paper": printed(row["change"], row["method"]) if known else ""}


def difference(study: Study) -> None:
    """Draw what change costs: the paper's measure, and that of policies alone."""
    from fastap.experiments.assess import reach
    from fastap.experiments.measure import costs
    from fastap.experiments.study import printed_difference
    from fastap.report.figures import bars

    panels: dict[str, dict[str, np.ndarray]] = {}
    for env, answers in study.judged("difference").items():
        still = next(one for one in answers if one["change"] == "stationary")
        whole = reach(still["floor"], still["ceiling"])
        where = env if whole else f"{env}, in units of return"
        paid = costs(answers)
        rows = [one.row() for one in paid]
        study.keep(f"difference-{env}-costs", rows)
        known = printed_difference if env == "lbf" else lambda method: ""
        shown = [row | {"paper": known(row["method"])} for row in rows]
        study.tabulate(f"difference-{env}", f"{env}: what change costs", shown)
        scaled = lambda lost, whole=whole: lost / (whole or 1.0)
        panels[f"{where}: change - no change"] = {
            one.method: scaled(one.difference) for one in paid
        }
        panels[f"{where}: change - same group"] = {
            one.method: scaled(-one.policies) for one in paid
        }
    study.draw("difference", bars(panels, "from random agents to the best known"))


def side_by_side(study: Study, name: str, env: str, answers: Sequence[Row]) -> None:
    """Print our scores, what they are held against, and the paper's beside them."""
    from fastap.experiments.study import EXPERIMENTS

    experiment, rows = EXPERIMENTS[name], []
    for change in experiment.changes:
        here = [one for one in answers if one["change"] == change]
        ours = {(one["method"], one["memory"]): words(one) for one in here}
        for one in here:
            ours |= {(w, one["memory"]): f"{x:.3f}" for w, x in beside(one)}
        known = {who for who, _ in ours}
        for who in (*experiment.methods, *(w for w in BESIDE if w in known)):
            cells = {
                f"ours, {memory}": ours.get((who, memory), "no run")
                for memory in experiment.memories
            }
            theirs = paper({"env": env, "change": change, "method": who})
            rows.append({"change": change, "method": who} | cells | theirs)
    study.tabulate(f"{name}-{env}", f"{env}, held-out", rows)


def words(answer: Row) -> str:
    """Write a score as the paper does."""
    return f"{answer['mean']:.3f}±{answer['std']:.3f}"


def table_one(study: Study) -> None:
    """Print table 1, the paper's numbers beside ours."""
    for env, answers in study.judged("table1").items():
        side_by_side(study, "table1", env, answers)
        better = beaten([a for a in answers if a["memory"] == "fresh"])
        study.keep(f"table1-{env}-improvement", better)
        title = "how probably a seed of Fastap is better"
        study.tabulate(f"table1-{env}-improvement", title, better)


def beaten(answers: Sequence[Row]) -> list[Row]:
    """Say how probably a seed of Fastap beats one of another method."""
    from fastap.evaluation.statistics import improvement

    rows: list[Row] = []
    returns = lambda method: [
        np.array(one["returns"]) for one in answers if one["method"] == method
    ]
    for method in dict.fromkeys(one["method"] for one in answers):
        if method != "fastap" and len(returns(method)) == len(returns("fastap")):
            both = returns("fastap"), returns(method)
            chance, low, high = improvement(*both, same=True)  # rows of one table
            found = {"probability": chance, "low": low, "high": high}
            rows.append({"against": method} | found)
    return rows


def by_method(name: str) -> Callable[[Study], None]:
    """Draw the scores of an experiment's methods as bars."""

    def draw(study: Study) -> None:
        from fastap.experiments.study import EXPERIMENTS
        from fastap.report.figures import bars

        panels, lines = {}, {}
        for env, answers in study.judged(name).items():
            side_by_side(study, name, env, answers)
            for change in EXPERIMENTS[name].changes:
                here = [one for one in answers if one["change"] == change]
                score = {one["method"]: np.array(one["returns"]) for one in here}
                panels[f"{env}, {change}"] = score
                lines[f"{env}, {change}"] = dict(beside(here[0] if here else {}))
        study.draw(name, bars(panels, "return, held-out groups", lines))

    return draw
