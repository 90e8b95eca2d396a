"""The experiments that compare methods: curves, costs, and tables of scores."""

from collections.abc import Callable, Sequence

import numpy as np

from fastap.commands.evaluate import BESIDE, beside
from fastap.commands.study import Row, Study


def main_figure(study: Study) -> None:
    """Draw the learning curves of all methods, and tell where they end."""
    from fastap.experiments.measure import LATE, curves, finals
    from fastap.experiments.study import EXPERIMENTS
    from fastap.report.figures import learning_curves

    experiment, rows = EXPERIMENTS["main"], []
    found = study.runs("main")
    for env, folders in found.items():
        mine = [row for folder in folders for row in curves(folder, env)]
        study.keep(f"main-{env}", mine, env)
        rows += mine
        ends = finals(mine, experiment.methods)
        title = f"{env}, validation: mean of the last {LATE} points"
        theirs = lambda one, env=env: study.paper(env, one["change"], one["method"])
        last = [one | {"paper, table 1": theirs(one)} for one in ends]
        study.tabulate(f"main-{env}", title, last)
    curves_of = lambda envs: (rows, experiment.methods, envs, "validation")
    study.draw("main", learning_curves(*curves_of(list(found))))
    winnable = list(dict.fromkeys(row["env"] for row in rows if "win_rate" in row))
    if winnable:
        won = learning_curves(*curves_of(winnable), measure="win_rate")
        study.draw("main-won", won)


def difference(study: Study) -> None:
    """Draw and tell what change costs: the paper's measure, and policies alone."""
    from fastap.experiments.assess import reach
    from fastap.experiments.measure import costs
    from fastap.experiments.study import printed_difference
    from fastap.report.figures import bars

    rest: dict[str, dict[str, np.ndarray]] = {}
    same: dict[str, dict[str, np.ndarray]] = {}
    for env, answers in study.judged("difference").items():
        still = next(one for one in answers if one["change"] == "stationary")
        whole = reach(still["floor"], still["ceiling"])
        where = env if whole else f"{env}, in units of return"
        paid = costs(answers)
        rows = [one.row() for one in paid]
        study.keep(f"difference-{env}-costs", rows, env)
        paper = printed_difference if study.is_papers(env) else lambda method: ""
        shown = [shortly(row, paper(row["method"])) for row in rows]
        study.tabulate(f"difference-{env}", f"{env}: what change costs", shown)
        scaled = lambda lost, whole=whole: lost / (whole or 1.0)
        rest[f"{where}: change - no change"] = {
            one.method: scaled(one.still) for one in paid
        }
        same[f"{where}: change - same group"] = {
            one.method: scaled(one.same) for one in paid
        }
    title = "from random agents to the best known"
    study.draw("difference", bars(rest | same, title, down=2))


def shortly(row: Row, paper: str) -> Row:
    """Write what change costs as a table shows it, intervals in brackets."""
    write = lambda x: f"{x:.3f}" if abs(x) < 10 else f"{x:.1f}"
    sure = lambda *names: "{} ({} to {})".format(*(write(row[n]) for n in names))
    return {
        "method": row["method"],
        "change - no change": sure("less none", "low", "high"),
        "paper": paper,
        "of the best": row["of the best"],
        "change - same group": sure("less same", "same low", "same high"),
    }


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
            theirs = {"paper": study.paper(env, change, who)}
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
        study.keep(f"table1-{env}-improvement", better, env)
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
    """Print the scores of an experiment's methods, and draw them as bars."""

    def draw(study: Study) -> None:
        from fastap.experiments.study import EXPERIMENTS
        from fastap.report.figures import bars

        found, panels, lines = study.judged(name), {}, {}
        for env, answers in found.items():
            side_by_side(study, name, env, answers)
            for change in EXPERIMENTS[name].changes:
                here = [one for one in answers if one["change"] == change]
                score = {one["method"]: np.array(one["returns"]) for one in here}
                panels[f"{env}, {change}"] = score
                lines[f"{env}, {change}"] = dict(beside(here[0] if here else {}))
        title = "return, held-out groups"
        study.draw(name, bars(panels, title, lines, down=len(found)))

    return draw
