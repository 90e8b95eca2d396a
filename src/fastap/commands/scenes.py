"""Experiments that look inside: a snapshot, contexts, a transfer, the teammates."""

import re

import numpy as np

from fastap.commands.clusters import SHOWN, before_and_after, plane
from fastap.commands.edge import each, measured, progress
from fastap.commands.study import FEW, Row, Study
from fastap.problem.spec import Mistake
from fastap.teammates.zoo import Zoo

DRAWN = ("fastap", "liam", "fastap-wo-crp")  # the contexts that the paper draws


def snapshot(study: Study) -> None:
    """Draw an episode around the moment when a teammate leaves."""
    from fastap.experiments.thoughts import Subject, leaving, take
    from fastap.report.film import clip, contact_sheet

    (folder,) = study.runs("snapshot")["lbf"]
    seen = Subject(folder, "fastap").watch("held-out", "U[5,8]", FEW[study.preset])
    episode, when = leaving(seen)
    film = clip(seen.env, take(seen.episodes, episode), take(seen.worlds, episode))
    steps = [t for t in range(when - 2, when + 4) if 0 <= t < len(film)]
    titles = [f"step {t}" + ", a change" * (t == when) for t in steps]
    study.draw("snapshot", contact_sheet([film] * len(steps), steps, titles))


def context(study: Study) -> None:
    """Draw contexts through one episode, and measure how steady they are."""
    from fastap.experiments.study import EXPERIMENTS
    from fastap.experiments.thoughts import LAGS, Subject, longest, widest
    from fastap.report.figures import context_lines
    from fastap.training.checkpoint import read_config

    count, folders = FEW[study.preset], study.runs("context")["lbf"]
    subjects = {}
    for folder in folders:
        settings = read_config(folder)[0]
        for method in (settings.method, *settings.beside):
            subjects[method] = Subject(folder, method)
    methods = EXPERIMENTS["context"].methods
    learn = lambda method: subjects[method].facts(count)
    rows = each(study.console, "reading memories", methods, str, learn, "methods")
    study.keep("context-lbf", rows, "lbf")
    kept = ("method", "within", "jump", "type by chance", f"type after {LAGS - 1}")
    shown = [{key: row[key] for key in kept} for row in rows]
    title = "variance within segments, jump at changes, types named"
    study.tabulate("context-lbf", title, shown)
    films = {m: subjects[m].watch("held-out", "U[5,8]", count) for m in DRAWN}
    first = films[DRAWN[0]]
    one = longest(first)
    lines = {method: widest(film.context)[one] for method, film in films.items()}
    team = first.group[one], first.swap[one]
    study.draw("context", context_lines(lines, *team))


def transfer(study: Study) -> None:
    """Draw learning on new changes: after other changes, and from scratch."""
    from fastap.experiments.measure import curves
    from fastap.experiments.study import TARGET
    from fastap.report.figures import learning_curves

    rows: list[Row] = []
    for env, folders in study.runs("transfer").items():
        mine: list[Row] = []
        for name, folder in zip(("transferred", "scratch"), folders[1:], strict=True):
            mine += [row | {"method": name} for row in curves(folder, env)]
        study.keep(f"transfer-{env}", mine, env)
        here = [r for r in mine if r["change"] == TARGET and r["pool"] == "validation"]
        mean = lambda name, step, here=here: np.mean(
            [r["return"] for r in here if r["method"] == name and r["step"] == step]
        )
        steps = sorted({row["step"] for row in here})
        gap = [mean("transferred", step) - mean("scratch", step) for step in steps]
        study.console.print(
            f"{env}: jumpstart {gap[0]:+.3f} (at the first point), {np.mean(gap):+.3f} "
            f"on average, judged under {TARGET}."
        )
        rows += mine
    envs = list(dict.fromkeys(row["env"] for row in rows))
    changes = ("stationary", TARGET)
    names = ("transferred", "scratch")
    study.draw("transfer", learning_curves(rows, names, envs, "validation", changes))


def called(zoo: Zoo) -> str:
    """Name a zoo so that a file can be called after it."""
    return re.sub(r"[^\w-]", "_", zoo.manifest["name"])


def crossplay(study: Study) -> None:
    """Tell and draw what groups earn with one another, before and after clustering."""
    from fastap.teammates.crossplay import summarise
    from fastap.teammates.crp import adjusted_rand

    for zoo in study.zoos("crossplay"):
        name, pool = zoo.manifest["name"], zoo.members("train")
        label, types = zoo.clusters[pool], zoo.types[pool]
        if (label < 0).any():
            raise Mistake(
                f"The groups of '{name}' have no clusters: `fastap zoo cluster`."
            )
        matrix = np.array(measured(zoo.manifest, "matrix"))[np.ix_(pool, pool)]
        rows: list[Row] = []
        for count in sorted({min(SHOWN, len(pool)), len(pool)}):
            some = matrix[:count, :count], label[:count]
            kin, found = summarise(some[0], types[:count]), summarise(*some)
            rows.append(
                {
                    "groups": count,
                    "self": found.diagonal,
                    "others": found.off_diagonal,
                    "same type": kin.within,
                    "other type": kin.between,
                    "clusters": len(np.unique(some[1])),
                    "same cluster": found.within,
                    "other cluster": found.between,
                    "ARI": adjusted_rand(types[:count], some[1]),
                }
            )
        study.keep(f"crossplay-{called(zoo)}", rows)
        study.tabulate(f"crossplay-{called(zoo)}", f"{name}: normalised scores", rows)
        study.draw(f"crossplay-{called(zoo)}", before_and_after(zoo, label))


def embeddings(study: Study) -> None:
    """Run Algorithm 1 over the training pool; tell, and draw the plane of its codes."""
    from fastap.teammates import labels
    from fastap.teammates.clustering import Settings

    small = study.preset == "smoke"
    watching = labels.Watching(4 if small else 64, "own")
    steps = Settings(first=4, later=2, piece=2) if small else Settings()
    for zoo in study.zoos("embeddings"):
        name, total = zoo.manifest["name"], len(zoo.members("train"))
        with progress(study.console, "clustering", total, "groups") as advance:
            tell = lambda count, advance=advance: advance(count, "")
            watched = labels.watch(zoo, watching)
            (result,) = labels.label(zoo, watched, steps, 1, tell)
        facts = labels.report(zoo, result)
        kept = ("clusters", "ari", "silhouette", "evidence", "worth_of_the_code")
        found = {key.replace("_", " "): facts[key] for key in kept}
        rows: list[Row] = [{"groups": total} | found]
        study.keep(f"embeddings-{called(zoo)}", rows)
        study.tabulate(f"embeddings-{called(zoo)}", f"{name}: Algorithm 1", rows)
        study.draw(f"embeddings-{called(zoo)}", plane(zoo, result))
