"""`fastap report`: one self-contained page from any runs."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console

from fastap.commands.edge import check_range, prepare_file
from fastap.commands.evaluate import BESIDE
from fastap.problem.spec import Mistake
from fastap.teammates.zoo import replace

CHANGES = ("stationary", "U[5,8]")
HEADS = (
    *("env", "change", "method", "seeds", "IQM", "95 %", "mean ± std"),
    *("seen types", "unseen types", *BESIDE),
)
LAGS = (0, 2, 4, 7)  # steps after a change that are shown of what memories know
DOTS = 300  # of a method's contexts
MOST = 5 * 2**20  # bytes of a page


@dataclasses.dataclass(frozen=True)
class Report:
    """Make one page of any runs: tables, curves, what change costs, and a replay.

    The page needs no network. The table is beside it as CSV and LaTeX.

    Example: fastap report runs/fastap runs/qmix --out report.html
    """

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Runs, or studies that hold some."""
    out: Path = Path("report.html")
    """The page."""
    episodes: int = 200
    """How many episodes a score is the mean of."""
    replays: int = 4
    """How many episodes can be played in the page."""
    force: bool = False
    """Overwrite the page."""

    def run(self, console: Console) -> None:
        """Judge what was not judged yet, and write the page."""
        from fastap.report.page import heading, latex, page
        from fastap.training.checkpoint import table

        check_range("--episodes", self.episodes, 1, 1_000_000)
        check_range("--replays", self.replays, 0, 20)
        prepare_file(self.out, self.force)
        for path in map(self.out.with_suffix, (".csv", ".tex")):
            prepare_file(path, self.force)
        runs = [run for folder in self.folders for run in runs_in(folder)]
        if not runs:
            raise Mistake("Name at least one run, or a study that holds some.")
        parts, rows = contents(runs, self.episodes)
        minds = subjects(runs)
        parts += inside(minds, min(self.episodes, 200))
        films = replay(minds, self.replays) if self.replays else {}
        parts.append(heading("Replay"))
        text = page("How agents fare when teammates change", parts, films)
        if len(text) > MOST:
            raise Mistake("The page would be too large; ask for fewer --replays.")
        cells = [words(row) for row in rows]
        named: list[Any] = [dict(zip(HEADS, line, strict=True)) for line in cells]
        replace(self.out.with_suffix(".csv"), table(tuple(named)).encode())
        replace(self.out.with_suffix(".tex"), latex(HEADS, cells).encode())
        replace(self.out, text.encode())
        console.print(f"Wrote {self.out} ({len(text) / 2**20:.1f} MiB).")


def runs_in(folder: Path) -> list[Path]:
    """Find the runs of a folder: itself, or those of a study."""
    from fastap.training.checkpoint import CONFIG

    if (folder / CONFIG).is_file():
        return [folder]
    ours_first = lambda run: ("fastap" not in run.name, run.name)
    found = [path.parent for path in folder.glob(f"runs/*/{CONFIG}")]
    found.sort(key=ours_first)
    if not found:
        raise Mistake(f"{folder} is no run, and no study that holds any.")
    return found


def contents(runs: Sequence[Path], episodes: int) -> tuple[list[str], list[Any]]:
    """Make the parts of the page, and the rows of its table."""
    from fastap.experiments.assess import Question
    from fastap.experiments.measure import answers, curves, status
    from fastap.report.figures import learning_curves, profiles, regrets
    from fastap.report.page import drawing, grid, heading
    from fastap.training.checkpoint import read_config

    asked, names_of = Question(CHANGES, "held-out", episodes), labels(runs)
    rows, lines, states = [], [], []
    for run in runs:
        settings, now = read_config(run)[0], status(run)
        names = ", ".join((settings.method, *settings.beside))
        states.append((run.name, names, settings.zoo, str(now)))
        if now.steps:
            call = lambda row, run=run: row | {"method": names_of[run, row["method"]]}
            rows += map(call, answers(run, asked))
            lines += map(call, curves(run, settings.env))
    unfinished = "Runs that are not done are shown as far as they are."
    parts = [heading("Runs", unfinished)]
    parts.append(grid(("run", "methods", "zoo", "state"), states))
    about = (
        f"Greedy play beside held-out groups, {episodes} episodes for each seed. The "
        "same are played by random agents, by agents that were trained beside these "
        "groups and are told their type, and by best responses that take turns."
    )
    parts += [heading("Returns", about), grid(HEADS, [words(row) for row in rows])]
    if lines:
        say = "How many seeds earn more than that, all changes weighing the same."
        parts.append(drawing(profiles(rows), say))
        envs = list(dict.fromkeys(line["env"] for line in lines))
        methods = list(dict.fromkeys(line["method"] for line in lines))
        figure = learning_curves(lines, methods, envs, "validation")
        say = "Return beside validation groups; bands are 95 % intervals over seeds."
        parts += [heading("Learning"), drawing(figure, say)]
        say = "Reward lost at each step after one change, against the same episodes."
        parts += [heading("After a sudden change"), drawing(regrets(rows), say)]
    parts += [teammates(zoo) for zoo in dict.fromkeys(state[2] for state in states)]
    return parts, rows


def labels(runs: Sequence[Path]) -> dict[tuple[Path, str], str]:
    """Name every method of every run, by the run too where two have the same."""
    from fastap.training.checkpoint import read_config

    each = []
    for run in runs:
        settings = read_config(run)[0]
        each += [(run, name) for name in (settings.method, *settings.beside)]
    often = Counter(method for _, method in each)
    held = Counter(run for run, _ in each)

    def own(run: Path, method: str) -> str:
        if often[method] == 1:
            return method
        return run.name if held[run] == 1 else f"{run.name}: {method}"

    names = {who: own(*who) for who in each}
    alike = Counter(names.values())
    full = lambda run, method: f"{run}: {method}"
    return {who: n if alike[n] == 1 else full(*who) for who, n in names.items()}


def teammates(name: str) -> str:
    """Draw the cross-play of a zoo's training groups, if it was measured."""
    from fastap.report.page import drawing, heading
    from fastap.report.plots import heat_maps
    from fastap.teammates import zoo as store

    zoo = store.load(name)
    if "matrix" not in zoo.manifest:
        return ""
    pool = zoo.members("train")
    matrix = np.array(zoo.manifest["matrix"])[np.ix_(pool, pool)]
    names = [zoo.groups[k]["name"] for k in pool]
    figure = heat_maps([matrix], [f"{name}: training groups"], [names])
    say = "What the agents of one group earn beside the teammates of another."
    return heading("Teammates") + drawing(figure, say)


def subjects(runs: Sequence[Path]) -> dict[str, Any]:
    """Find the agents of all runs that have any, by the names they have here."""
    from fastap.experiments.measure import status
    from fastap.experiments.thoughts import Subject

    begun = {run for run in runs if status(run).steps}
    return {
        name: Subject(run, method)
        for (run, method), name in labels(runs).items()
        if run in begun
    }


def inside(minds: dict[str, Any], episodes: int) -> list[str]:
    """Say what memories know of the teammates, and draw contexts by type."""
    from fastap.report.figures import context_planes
    from fastap.report.page import drawing, grid, heading

    rows, contexts, kinds = [], {}, {}
    for name, subject in minds.items():
        facts = subject.facts(episodes)
        named = (facts[f"type after {lag}"] for lag in LAGS)
        known = (facts["within"], facts["jump"], *named)
        rows.append((name, *("" if np.isnan(x) else f"{x:.2f}" for x in known)))
        seen = subject.watch("validation", "U[5,8]", episodes)
        if seen.context.shape[-1]:  # of the first agent: each has a space of its own
            points = seen.context[:, :, 0][seen.valid]
            some = np.linspace(0, len(points) - 1, min(DOTS, len(points))).astype(int)
            contexts[name] = points[some]
            kinds[name] = subject.zoo.types[seen.group[seen.valid][some]]
    heads = ("method", "variance within", "jump", *(f"type, {k} after" for k in LAGS))
    say = (
        "How much of a context's variance is left between two changes, how far it "
        "moves at one against other times, and how often a linear reading of an "
        "agent's memory names the type of its teammates, by steps after a change. "
        "First seed, validation groups."
    )
    parts = [heading("What agents know of their teammates", say), grid(heads, rows)]
    if contexts:
        say = "Contexts of the first agent; a colour is a planted type of teammates."
        parts.append(drawing(context_planes(contexts, kinds), say))
    return parts


def words(row: dict[str, Any]) -> tuple[str, ...]:
    """Write one row of the table."""
    low, high = row["ci95"]
    part = lambda name: f"{np.mean(row[name]):.3f}" if name in row else ""
    return (
        row["env"],
        row["change"],
        row["method"],
        str(row["seeds"]),
        f"{row['iqm']:.3f}",
        f"{low:.3f} - {high:.3f}",
        f"{row['mean']:.3f} ± {row['std']:.3f}",
        part("seen"),
        part("unseen"),
        *map(part, BESIDE.values()),
    )


def replay(minds: dict[str, Any], count: int) -> Any:
    """Film the same episodes of every method of the first run's environment."""
    from fastap.experiments.thoughts import take
    from fastap.report.film import clip
    from fastap.report.page import reel, theatre

    reels, stage = {}, None
    place = lambda subject: (subject.zoo.env.spec.name, subject.zoo.fingerprint())
    for name, subject in minds.items():
        if place(subject) != place(next(iter(minds.values()))):
            continue
        seen = subject.watch("held-out", "U[5,8]", count)
        films = [
            clip(seen.env, take(seen.episodes, i), take(seen.worlds, i))
            for i in range(count)
        ]
        reels[name] = list(map(reel, films, seen.context))
        stage = (films[0], seen.env.spec.horizon)
    return theatre(reels, *stage) if stage else {}
