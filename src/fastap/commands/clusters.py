"""`fastap zoo cluster`: Algorithm 1 over a zoo, with its figures."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from fastap.commands.edge import ZooName, check_range, measured, prepare, progress
from fastap.problem.spec import Mistake

SHOWN = 8  # groups, as many as in the paper


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Run Algorithm 1 over the training pool and write the labels into the zoo.

    Example: fastap zoo cluster --zoo my-zoo --out figures
    """

    zoo: ZooName = "lbf"
    """The zoo to label: a folder you can write to, or one that comes with fastap."""
    env: str | None = None
    """Which environment's own zoo, as another way to say --zoo."""
    out: Path = Path("clusters")
    """Folder for the figures: cross-play before and after, and embeddings."""
    bodies: Literal["own", "all"] = "own"
    """Watch groups with their own number of teammates, or with all."""
    trajectories: int = 64
    """How many episodes of each group are watched."""
    first: int = 2000
    """Gradient steps after the first group."""
    later: int = 1000
    """Gradient steps after every other group."""
    likelihood: Literal["categorical", "gaussian"] = "categorical"
    """How the decoder judges actions."""
    hidden: int = 16
    """Width of the decoder; where places are no cells of a board, 64 foretell more."""
    rate: float = 5e-4
    """Learning rate."""
    orders: int = 1
    """In how many orders to cluster; the first is recorded, all are reported."""
    force: bool = False
    """Overwrite figures."""

    def run(self, console: Console) -> None:
        """Watch, cluster, draw, and record."""
        from fastap.teammates import labels
        from fastap.teammates import zoo as store
        from fastap.teammates.clustering import Settings

        check_range("--trajectories", self.trajectories, 4, 10_000)
        check_range("--orders", self.orders, 1, 100)
        check_range("--first", self.first, 1, 10**7)
        check_range("--later", self.later, 1, 10**7)
        check_range("--hidden", self.hidden, 1, 10_000)
        check_range("--rate", self.rate, 1e-9, 1)
        folder = store.find(self.env or self.zoo)
        zoo = store.load(folder)
        if len(zoo.members("train")) < 2:
            raise Mistake("Clustering needs at least two groups in the training pool.")
        settings = Settings(
            first=self.first,
            later=self.later,
            likelihood=self.likelihood,
            hidden=self.hidden,
            rate=self.rate,
            piece=min(100, self.first, self.later),
        )
        prepare(self.out, self.force)
        watched = labels.watch(zoo, labels.Watching(self.trajectories, self.bodies))
        total = len(zoo.members("train")) * self.orders
        with progress(console, "clustering", total, "groups") as advance:
            tell = lambda count: advance(count, "")
            results = labels.label(zoo, watched, settings, self.orders, tell)
        reports = [labels.report(zoo, result) for result in results]
        reports[0]["clustered_with"] = dataclasses.asdict(settings)
        draw_clusters(zoo, results[0], self.out)
        record_labels(folder, zoo, reports, results[0])
        console.print(clusterings(reports))
        console.print(f"Wrote the labels into {folder} and figures into {self.out}.")


def clusterings(reports: list[dict[str, Any]]) -> Table:
    """Tabulate every rule, over all orders."""
    table = Table("rule", "alpha", "clusters", "ARI: types", "ARI: types and sizes")
    for name in reports[0]["clusterings"]:
        rows = [report["clusterings"][name] for report in reports]
        counts = ", ".join(str(row["clusters"]) for row in rows)
        words = []
        for measure in ("ari", "ari_with_size"):
            scores = [row[measure] for row in rows]
            each = ", ".join(f"{score:.2f}" for score in scores)
            words.append(f"{np.median(scores):.2f} ({each})")
        table.add_row(*name.split(), counts, *words)
    return table


def record_labels(folder: Path, zoo: Any, reports: list[Any], first: Any) -> None:
    """Write labels into the manifest, and every choice into a file beside it."""
    from fastap.teammates import zoo as store

    found = dict(reports[0])
    labels = found.pop("labels")
    more = {"ari_orders": [report["clusterings"] for report in reports[1:]]}
    now = store.load(folder)  # others may have written since
    if now.manifest.get("sha256") != zoo.manifest.get("sha256"):
        raise Mistake(f"{folder} was built anew meanwhile; cluster it again.")
    rows = [dict(row) for row in now.groups]
    for place, k in enumerate(zoo.members("train")):
        rows[k]["cluster"] = labels[place]
    store.save(folder, now.manifest | {"groups": rows} | found | more)
    choices = {
        f"{restaurant.rule} {restaurant.alpha}": [dataclasses.asdict(c) for c in past]
        for restaurant, past in first.clusterer.choices.items()
    }
    text = json.dumps({"order": found["order"], "choices": choices}, indent=1)
    store.replace(folder / "clustering.json", text.encode())


def draw_clusters(zoo: Any, labelled: Any, out: Path) -> None:
    """Draw cross-play before and after clustering, and the plane of the codes."""
    from fastap.report.film import save_figure
    from fastap.teammates import labels
    from fastap.teammates.crp import Restaurant

    chosen = Restaurant(labels.ALPHA[zoo.env.spec.name], "calibrated")
    figure = before_and_after(zoo, labelled.labels(chosen))
    save_figure(figure, out / "crossplay.png")
    save_figure(plane(zoo, labelled), out / "embeddings.png")


def before_and_after(zoo: Any, label: Any) -> Any:
    """Draw cross-play: of the paper's 8 groups, of all, and of their clusters."""
    from fastap.report.plots import heat_maps
    from fastap.teammates.crossplay import by_label

    pool = zoo.members("train")
    names = [zoo.groups[k]["name"] for k in pool]
    matrix = np.array(measured(zoo.manifest, "matrix"))[np.ix_(pool, pool)]
    order = np.argsort(label, kind="stable")
    clusters = [f"cluster {m}" for m in np.unique(label)]
    few = names[:SHOWN]
    parts = [
        matrix[:SHOWN, :SHOWN],
        matrix[np.ix_(order, order)],
        by_label(matrix, label),
    ]
    titles = [f"{len(few)} groups", f"all {len(pool)}, by cluster", "clusters"]
    return heat_maps(parts, titles, [few, [names[k] for k in order], clusters])


def plane(zoo: Any, labelled: Any) -> Any:
    """Draw the codes of some trajectories of every group, in a plane."""
    from fastap.report.plots import embeddings
    from fastap.teammates import labels
    from fastap.teammates.crp import Restaurant

    pool = zoo.members("train")
    chosen = Restaurant(labels.ALPHA[zoo.env.spec.name], "calibrated")
    names = [zoo.groups[k]["name"] for k in pool]
    codes = labels.in_pool_order(labelled)[:, :30]
    group = np.repeat(np.arange(len(pool)), codes.shape[1])
    points = codes.reshape(-1, codes.shape[-1])
    return embeddings(points, group, labelled.labels(chosen), names, SHOWN)
