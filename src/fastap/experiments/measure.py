"""What an experiment reads off its runs: how far they are, curves, scores."""

import contextlib
import csv
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from jaxtyping import Float

from fastap.evaluation.statistics import interval, spread
from fastap.experiments.assess import Answer, Question, assess
from fastap.experiments.yardsticks import seal
from fastap.problem.schedule import parse
from fastap.problem.spec import Mistake
from fastap.teammates.yardsticks import CHANGE
from fastap.teammates.zoo import replace
from fastap.training import checkpoint
from fastap.training.train import POOLS, WON, course

Rows = list[dict[str, Any]]
PARTS = ("win_rate", "seen", "unseen")  # of a score, seed by seed
ANSWERS = 3  # what answers hold, and what it means; older ones are given anew
LATE = 5  # points of a curve that say where it ends
YARDSTICKS = ("floor", "told", "switching", "own", "ceiling")  # to hold scores against


@dataclasses.dataclass(frozen=True)
class Status:
    """How far a run is."""

    steps: int
    total: int  # 0: it has not begun

    @property
    def done(self) -> bool:
        """Whether it was trained to its end."""
        return 0 < self.total <= self.steps

    def __str__(self) -> str:
        if not self.total:
            return "not begun"
        return "done" if self.done else f"at step {self.steps:,} of {self.total:,}"


def trained(answer: Answer) -> Status:
    """Say how far the agents were that gave an answer."""
    return Status(answer["steps"], answer["planned"])


def status(folder: Path) -> Status:
    """Say how far a run is; a damaged one is refused."""
    if not (folder / checkpoint.CONFIG).is_file():
        return Status(0, 0)
    ready = course(checkpoint.read_config(folder)[0])
    total = ready.steps(ready.beats)
    if not (folder / checkpoint.POLICY).is_file():
        return Status(0, total)
    step = checkpoint.read(folder / checkpoint.POLICY)[1].get("step", 0)
    return Status(int(step), total)


def curves(folder: Path, env: str) -> Rows:
    """Read the learning curves of all runs in a folder, in long form."""
    path, rows = folder / checkpoint.METRICS, Rows()
    try:
        text = path.read_text()
        if not text:  # it was stopped before its first point
            return rows
        lines = list(csv.DictReader(text.splitlines(), restkey="more"))
        if not lines or any("more" in line for line in lines):
            raise ValueError
        for line in lines:
            who = {"env": env, "method": line["variant"], "seed": int(line["seed"])}
            for column, score in line.items():
                change, _, pool = column.rpartition(" ")
                if pool in POOLS and is_change(change):
                    when = {"change": change, "pool": pool, "step": int(line["step"])}
                    won = line.get(f"{WON} {column}")
                    wins = {"win_rate": float(won)} if won else {}
                    rows.append(who | when | {"return": float(score)} | wins)
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise Mistake(f"{path} is damaged or missing; train that run anew.") from error
    return rows


def finals(rows: Rows, methods: Sequence[str], pool: str = "validation") -> Rows:
    """Say where curves end: mean and deviation over seeds, and how many were won."""
    here = [row for row in rows if row["pool"] == pool]
    returns, won = (ends(here, measure) for measure in ("return", "win_rate"))
    changes, found = dict.fromkeys(change for change, _ in returns), Rows()
    for case in itertools.product(changes, methods):
        if case in returns:
            each = returns[case]
            who = {"change": case[0], "method": case[1], "seeds": len(each)}
            score = dict(zip(("mean", "std"), spread(each), strict=True))
            wins = {"win rate": float(won[case].mean())} if case in won else {}
            found.append(who | score | wins)
    return found


def ends(
    rows: Rows, measure: str
) -> dict[tuple[str, str], Float[np.ndarray, " seeds"]]:
    """Average the last points of every curve: by change and method, seed by seed."""
    lines: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        if measure in row:
            seeds = lines.setdefault((row["change"], row["method"]), {})
            seeds.setdefault(row["seed"], []).append(row[measure])
    late = lambda seeds: np.array([mean(points[-LATE:]) for points in seeds.values()])
    return {case: late(seeds) for case, seeds in lines.items()}


def is_change(text: str) -> bool:
    """Say whether this is how a change is written."""
    try:
        parse(text)
    except Mistake:
        return False
    return True


def ticket(folder: Path, question: Question) -> tuple[str, Path]:
    """Say what tells a question to a run's agents from any other, and where it is."""
    policy = (folder / checkpoint.POLICY).read_bytes()
    zoo = seal(course(checkpoint.read_config(folder)[0]).zoo)
    asked = json.dumps([ANSWERS, dataclasses.asdict(question), zoo], sort_keys=True)
    digest = hashlib.sha256(policy + asked.encode()).hexdigest()[:16]
    return digest, folder / "answers" / f"{digest}.json"


def recorded(folder: Path, question: Question) -> list[Answer] | None:
    """Return what a run's agents answered to the same question before."""
    digest, path = ticket(folder, question)
    with contextlib.suppress(
        OSError, ValueError, TypeError, KeyError
    ):  # else judged anew
        kept = json.loads(path.read_text())
        if kept["digest"] == digest:
            return kept["answers"]
    return None


def answers(folder: Path, question: Question) -> list[Answer]:
    """Judge a run, unless its agents were asked the same before."""
    known = recorded(folder, question)
    if known is not None:
        return known
    digest, path = ticket(folder, question)
    found = list(assess(folder, question))
    kept = json.dumps({"digest": digest, "answers": found})
    replace(path, (kept + "\n").encode())
    return found


@dataclasses.dataclass(frozen=True)
class Cost:
    """What change costs a method, seed by seed, on the same episodes."""

    env: str
    method: str
    still: Float[np.ndarray, " S"]  # under change less without: the paper's measure
    same: Float[np.ndarray, " S"]  # less where groups are replaced by themselves
    best: float  # the best return of any method without change

    def row(self) -> dict[str, Any]:
        """Write means and their intervals over seeds; the paper's share of the best."""
        across = lambda tasks: tasks[0].mean(-1)
        ends = lambda values: [float(x) for x in interval([values], across)]
        low, high = ends(self.still)
        least, most = ends(self.same)
        lost, policies = float(self.still.mean()), float(self.same.mean())
        share = lost / abs(self.best) if self.best else float("nan")
        return {
            **{"env": self.env, "method": self.method},
            **{"less none": lost, "low": low, "high": high, "of the best": share},
            **{"less same": policies, "same low": least, "same high": most},
        }


def costs(found: Sequence[Answer]) -> list[Cost]:
    """Say what change costs each method; oracles do not count among the best."""
    of = {(one["method"], one["change"]): np.array(one["returns"]) for one in found}
    methods = list(dict.fromkeys(one["method"] for one in found))
    rivals = [method for method in methods if method != "oracle"] or methods
    best = max(float(of[method, "stationary"].mean()) for method in rivals)
    return [
        Cost(
            env=found[0]["env"],
            method=method,
            still=of[method, CHANGE] - of[method, "stationary"],
            same=of[method, CHANGE] - of[method, f"{CHANGE}-same"],
            best=best,
        )
        for method in methods
    ]


def scores(found: Sequence[Answer]) -> Iterator[dict[str, Any]]:
    """Write answers in long form: one row for each seed."""
    for one in found:
        names = ("env", "method", "change", "pool", "memory")
        who = {name: one[name] for name in names}
        for seed, score in enumerate(one["returns"]):
            row = who | {"seed": seed, "episodes": one["episodes"], "return": score}
            for part in PARTS:
                if part in one:
                    row[part] = one[part][seed]
            yield row | {name: one[name] for name in YARDSTICKS if name in one}


def summaries(found: Sequence[Answer]) -> Iterator[dict[str, Any]]:
    """Write answers as tables do: one row for each method and change."""
    for one in found:
        who = ("env", "method", "change", "pool", "memory")
        names = (*who, "seeds", "episodes", "iqm")
        low, high = one["ci95"]
        more = ("mean", "std", "score")
        yield (
            {name: one[name] for name in names}
            | {"low": low, "high": high}
            | {name: one[name] for name in more}
            | {name: one[name] for name in YARDSTICKS if name in one}
            | {part: mean(one[part]) for part in PARTS if part in one}
        )
