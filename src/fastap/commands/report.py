"""`fastap report`: one self-contained page from any runs."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console

from fastap.commands.edge import check_range, each, prepare_file
from fastap.commands.evaluate import BESIDE, beside, sure
from fastap.commands.minds import KNOWING, inside, replay, subjects
from fastap.commands.naming import Names, Places, labels, places, runs_in
from fastap.problem.spec import Mistake
from fastap.teammates.zoo import replace

CHANGES = ("stationary", "U[5,8]")
HEADS = (
    *("zoo", "change", "method", "training", "seeds", "IQM", "95 %", "mean ± std"),
    *("win rate", "seen types", "unseen types", *BESIDE),
)
MOST = 5 * 2**20  # bytes of a page


@dataclasses.dataclass(frozen=True)
class Report:
    """Make one page of any runs: tables, curves, what change costs, and a replay.

    The page needs no network. Its tables are beside it as CSV and LaTeX.

    Example: fastap report runs/fastap runs/qmix --out report.html
    """

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Runs, or studies that hold some."""
    out: Path = Path("report.html")
    """The page."""
    episodes: int = 200
    """How many episodes a score is the mean of."""
    replays: int = 4
    """How many episodes of each game can be played in the page; fewer if they are
    long."""
    force: bool = False
    """Overwrite the page."""

    def run(self, console: Console) -> None:
        """Judge what was not judged yet, and write the page."""
        from fastap.report.page import latex, page
        from fastap.training.checkpoint import table

        check_range("--episodes", self.episodes, 1, 1_000_000)
        check_range("--replays", self.replays, 0, 20)
        prepare_file(self.out, self.force)
        for path, suffix in itertools.product(self.tables(), (".csv", ".tex")):
            prepare_file(path.with_suffix(suffix), self.force)
        found = [run for folder in self.folders for run in runs_in(folder)]
        runs = list(dict.fromkeys(found))
        if not runs:
            raise Mistake("Name at least one run, or a study that holds some.")
        where = places(runs)
        order = list(dict.fromkeys(where.values()))
        runs.sort(key=lambda run: order.index(where[run]))
        names = labels(runs, where)
        judge(console, list(where), self.question())
        parts, cells = contents(names, where, self.question())
        minds = subjects(names, where)
        more, known = inside(console, minds, min(self.episodes, 200))
        parts += [*more, *roster(runs)]
        films = replay(minds, self.replays) if self.replays else {}
        text = page("How agents fare when teammates change", parts, films)
        if len(text) > MOST:
            raise Mistake("The page would be too large; ask for fewer --replays.")
        tables = zip(self.tables(), (HEADS, KNOWING), (cells, known), strict=True)
        for path, heads, lines in tables:
            named: list[Any] = [dict(zip(heads, line, strict=True)) for line in lines]
            replace(path.with_suffix(".csv"), table(tuple(named)).encode())
            replace(path.with_suffix(".tex"), latex(heads, lines).encode())
        replace(self.out, text.encode())
        console.print(f"Wrote {self.out} ({len(text) / 2**20:.1f} MiB).")

    def question(self) -> Any:
        """Say what all agents are asked."""
        from fastap.experiments.assess import Question

        return Question(CHANGES, "held-out", self.episodes)

    def tables(self) -> tuple[Path, Path]:
        """Say where the page's two tables are kept: scores, and what agents know."""
        return self.out, self.out.with_stem(f"{self.out.stem}-memories")


def judge(console: Console, runs: Sequence[Path], asked: Any) -> None:
    """Ask all runs that have agents and were not asked the same before."""
    from fastap.experiments.measure import answers, recorded, status

    begun = [run for run in runs if status(run).steps]
    new = [run for run in begun if recorded(run, asked) is None]
    name = lambda run: run.name
    each(console, "judging", new, name, lambda run: answers(run, asked))


def contents(
    names: Names, where: Places, asked: Any
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Make the parts of the page, and the rows of its table."""
    from fastap.experiments.measure import answers, curves, status
    from fastap.report.figures import profiles, regrets
    from fastap.report.page import drawing, heading
    from fastap.training.checkpoint import read_config

    rows, lines, zoos = [], [], {}
    for run in where:
        settings = read_config(run)[0]
        zoos[settings.zoo] = None
        if status(run).steps:
            call = lambda row, run=run: (
                row | {"env": where[run], "method": names[run, row["method"]]}
            )
            rows += map(call, answers(run, asked))
            lines += map(call, curves(run, settings.env))
    about = (
        f"Greedy play beside held-out groups, {asked.episodes} episodes for each "
        "seed; how many seeds is said in brackets. The same are played by random "
        "agents, by agents that were trained beside these groups and are told their "
        "type, by best responses that take turns (switching), and by the groups' own "
        "teams, with which they grew up, in turn too."
    )
    games = list(dict.fromkeys(row["env"] for row in rows))
    rows.sort(key=lambda row: (games.index(row["env"]), CHANGES.index(row["change"])))
    parts = [heading("Returns", about), compared(rows)]
    if lines:
        say = "How many seeds earn more than that, all changes weighing the same."
        parts.append(drawing(profiles(rows), say))
        parts += [heading("Learning"), *learning(lines)]
        say = "Reward lost at each step after one change, against the same episodes."
        parts += [heading("After a sudden change"), drawing(regrets(rows), say)]
    return parts + teammates(list(zoos)), [words(row) for row in rows]


def roster(runs: Sequence[Path]) -> list[str]:
    """List the runs, and how far they are."""
    from fastap.experiments.measure import status
    from fastap.report.page import grid, heading
    from fastap.training.checkpoint import read_config

    states = []
    for run in runs:
        settings = read_config(run)[0]
        methods = ", ".join((settings.method, *settings.beside))
        states.append((run.name, methods, settings.zoo, str(status(run))))
    about = "Runs that are not done are shown as far as they are."
    return [heading("Runs", about), grid(("run", "methods", "zoo", "state"), states)]


def compared(rows: Sequence[dict[str, Any]]) -> str:
    """Tabulate each change: the runs, then what there is to compare them with.

    Runs beside other groups, or trained in another way, have yardsticks of their own.
    """
    from fastap.experiments.measure import trained
    from fastap.report.page import grid

    shown = ("zoo", "change", "method", "IQM", "95 %", "mean ± std")
    parts = ("win rate", "seen types", "unseen types")
    lines: list[list[str]] = []
    apart: set[int] = set()
    place = lambda row: (row["env"], row["change"], *beside(row))
    for spot in dict.fromkeys(map(place, rows)):
        here = [row for row in rows if place(row) == spot]
        for row in here:
            cells = dict(zip(HEADS, words(row), strict=True))
            state = "" if trained(row).done else f", {trained(row)}"
            cells["method"] += f" ({row['seeds']}){state}"
            lines.append([cells[head] for head in (*shown, *parts)])
        for who, score in beside(here[0]):
            apart.add(len(lines))
            lines.append([*spot[:2], who, f"{score:.3f}", *[""] * 5])
    return grid((*shown, *parts), lines, apart)


def teammates(zoos: Sequence[str]) -> list[str]:
    """Draw the cross-play of the training groups of zoos in which it was measured."""
    from fastap.report.page import drawing, heading
    from fastap.report.plots import heat_maps
    from fastap.teammates import zoo as store

    parts = []
    say = "What the agents of one group earn beside the teammates of another."
    for zoo in map(store.load, zoos):
        if "matrix" in zoo.manifest:
            pool = zoo.members("train")
            matrix = np.array(zoo.manifest["matrix"])[np.ix_(pool, pool)]
            names = [zoo.groups[k]["name"] for k in pool]
            title = f"{zoo.manifest['name']}: training groups"
            parts.append(drawing(heat_maps([matrix], [title], [names]), say))
    return [heading("Teammates"), *parts] if parts else []


def learning(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Draw how methods learnt: returns, and win rates in games that can be won."""
    from fastap.report.figures import learning_curves
    from fastap.report.page import drawing

    methods, parts = list(dict.fromkeys(line["method"] for line in lines)), []
    for measure, name in (("return", "Return"), ("win_rate", "Win rate")):
        envs = list(dict.fromkeys(line["env"] for line in lines if measure in line))
        if envs:
            curves = (lines, methods, envs, "validation")
            say = (
                f"{name} beside validation groups; bands are 95 % intervals over seeds."
            )
            parts.append(drawing(learning_curves(*curves, measure=measure), say))
    return parts


def words(row: dict[str, Any]) -> tuple[str, ...]:
    """Write one row of the table."""
    from fastap.experiments.measure import trained

    part = lambda name: f"{np.mean(row[name]):.3f}" if name in row else ""
    return (
        row["env"],
        row["change"],
        row["method"],
        str(trained(row)),
        str(row["seeds"]),
        f"{row['iqm']:.3f}",
        sure(row),
        f"{row['mean']:.3f} ± {row['std']:.3f}",
        part("win_rate"),
        part("seen"),
        part("unseen"),
        *map(part, BESIDE.values()),
    )
