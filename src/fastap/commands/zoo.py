"""`fastap zoo`: grow teammates, look at them, judge them."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from fastap.commands.accept import Accept, Yardsticks, longer
from fastap.commands.clusters import Cluster
from fastap.commands.edge import ZooName, check_range, measured, prepare, progress
from fastap.commands.prey import Prey
from fastap.problem.spec import Mistake
from fastap.training.settings import Mixer, Preset

SCRIPTED = "lbf-conventions"


@dataclasses.dataclass(frozen=True)
class Build:
    """Grow a zoo: whole teams in self-play, all of them at once.

    Example: fastap zoo build --env lbf --preset quick --out my-zoo
    """

    out: Path
    """Folder for the zoo."""
    env: str = "lbf"
    """Which environment."""
    zoo: str | None = None
    """The zoo to build, if not the environment's own: lbf-conventions is scripted."""
    preset: Preset = "paper"
    """smoke: two tiny types; quick: one group; paper: all 32."""
    algorithm: Mixer | None = None
    """Grow all groups with this learner instead of the planned one (qmix)."""
    steps: int | None = None
    """Joint steps of self-play for each group, if not the preset's."""
    episodes: int = 500
    """How many episodes every pair of groups is judged by."""
    force: bool = False
    """Overwrite the zoo that is in the folder."""

    def run(self, console: Console) -> None:
        """Grow, judge, save."""
        from fastap.envs import make
        from fastap.teammates import zoo as store
        from fastap.teammates.grow import grow
        from fastap.teammates.plan import conventions

        check_range("--episodes", self.episodes, 1, 100_000)
        practice, trunks = preset(self.env, self.preset, self.steps)
        if self.algorithm:
            chosen = {"algorithm": self.algorithm}
            trunks = [dataclasses.replace(trunk, **chosen) for trunk in trunks]
        env = make(self.env)
        name = self.zoo or self.env
        if self.zoo not in (None, self.env, SCRIPTED):
            raise Mistake(f"There is no plan for a zoo '{self.zoo}'.")
        prepare(self.out, self.force)
        command = f"fastap zoo build --env {self.env} --preset {self.preset}"
        if name == SCRIPTED:
            command += f" --zoo {SCRIPTED}"
            manifest = {**store.describe(env, name, command), "kind": "scripted"}
            store.save(self.out, manifest | {"groups": conventions()})
        else:
            asked = {"steps": self.steps, "algorithm": self.algorithm}
            command += "".join(f" --{k} {v}" for k, v in asked.items() if v)
            with progress(console, "growing", practice.steps, "steps") as advance:

                def tell(done, grown):
                    words = f"self-play {grown.scores.mean():.2f}"
                    advance(done * practice.steps, words)

                groups = grow(env, trunks, practice, tell=tell)
            manifest, teams = store.of_groups(env, groups, name, command)
            manifest["hidden"] = practice.learning.hidden
            store.save(self.out, manifest, teams)
        console.print("judging every group with every other ...")
        judge(self.out, self.episodes)
        console.print(
            f"Wrote {self.out}; see it with `fastap zoo show --zoo {self.out}`."
        )


@dataclasses.dataclass(frozen=True)
class Show:
    """List the groups of a zoo: pool, size, skill, type, scores, cluster.

    Example: fastap zoo show --zoo lbf --json
    """

    zoo: ZooName = "lbf"
    """One that comes with fastap, or a folder."""
    env: str | None = None
    """Which environment's own zoo, as another way to say --zoo."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def run(self, console: Console) -> None:
        """Print what the manifest says."""
        from fastap.teammates import zoo as store

        manifest = store.load(self.env or self.zoo).manifest
        if self.json:
            print(json.dumps(summary(manifest)))
            return
        table = Table("group", "pool", "size", "skill", "self-play", "score", "cluster")
        for row in summary(manifest)["groups"]:
            scores = " / ".join(f"{v:.2f}" for v in (row["selfplay"] or {}).values())
            words = (row["name"], row["pool"], str(row["size"]), row["skill"], scores)
            table.add_row(*words, blank(row["score"]), blank(row["cluster"]))
        console.print(table)
        for fact in ("best_selfplay", "floor", *FACTS):
            console.print(f"{fact.replace('_', ' ')}: {manifest.get(fact)}")


@dataclasses.dataclass(frozen=True)
class Crossplay:
    """Draw what the groups of a zoo earn with one another.

    Example: fastap zoo crossplay --zoo lbf --out crossplay.png
    """

    zoo: ZooName = "lbf"
    """One that comes with fastap, or a folder."""
    env: str | None = None
    """Which environment's own zoo, as another way to say --zoo."""
    out: Path = Path("crossplay.png")
    """The figure."""
    force: bool = False
    """Overwrite the figure."""

    def run(self, console: Console) -> None:
        """Draw the matrix: the first 8 groups as in the paper, and all."""
        from fastap.report.film import save_figure
        from fastap.report.plots import heat_maps
        from fastap.teammates import zoo as store
        from fastap.teammates.crossplay import summarise

        zoo = store.load(self.env or self.zoo)
        if self.out.exists() and not self.force:
            raise Mistake(f"{self.out} is there already; add --force to overwrite it.")
        matrix = np.array(measured(zoo.manifest, "matrix"))
        names = [group["name"] for group in zoo.groups]
        first = zoo.members("train")[:8]
        parts = [matrix[np.ix_(first, first)], matrix]
        labels = [[names[i] for i in first], names]
        titles = [f"{len(first)} training groups", f"all {len(names)} groups"]
        save_figure(heat_maps(parts, titles, labels), self.out)
        facts = summarise(matrix, zoo.types)
        console.print(
            f"self-play {facts.diagonal:.2f}, with others {facts.off_diagonal:.2f}: "
            f"{facts.within:.2f} within a type, {facts.between:.2f} between types. "
            f"Wrote {self.out}."
        )


@dataclasses.dataclass(frozen=True)
class Zoo:
    """Teammates: build, show, crossplay, cluster, accept, yardsticks; pp's prey."""

    what: Annotated[
        Annotated[Build, tyro.conf.subcommand("build")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Crossplay, tyro.conf.subcommand("crossplay")]
        | Annotated[Cluster, tyro.conf.subcommand("cluster")]
        | Annotated[Accept, tyro.conf.subcommand("accept")]
        | Annotated[Yardsticks, tyro.conf.subcommand("yardsticks")]
        | Annotated[Prey, tyro.conf.subcommand("prey")],
        tyro.conf.arg(name=""),
    ]

    def run(self, console: Console) -> None:
        """Do what was asked for."""
        self.what.run(console)


FACTS = (
    *("diagonal", "off_diagonal", "best_response_gap", "label_gap"),
    *("identifiability", "ari", "clusters"),
)


def summary(manifest: dict[str, Any]) -> dict[str, Any]:
    """Cut a manifest down to what people ask for; null where not measured yet."""
    kept = ("name", "pool", "size", "skill", "type", "selfplay", "score", "cluster")
    groups = [{k: row.get(k) for k in kept} for row in manifest["groups"]]
    facts = {k: manifest.get(k) for k in ("best_selfplay", "floor", *FACTS)}
    return {"name": manifest["name"], "env": manifest["env"], "groups": groups, **facts}


def blank(value: float | None) -> str:
    """Write a number, or nothing."""
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def judge(folder: Path, episodes: int) -> None:
    """Measure the groups of a zoo and write it into its manifest."""
    from fastap.teammates import zoo as store
    from fastap.teammates.acceptance import skills

    zoo = store.load(folder)
    facts = skills(zoo, episodes)
    rows = [
        row | more for row, more in zip(zoo.groups, facts.pop("groups"), strict=True)
    ]
    store.save(folder, zoo.manifest | {"groups": rows} | facts)


def preset(env: str, name: Preset, steps: int | None) -> tuple[Any, Any]:
    """Return how to practise and what to grow."""
    from fastap.methods.practice import tiny, usual
    from fastap.teammates.grow import Member
    from fastap.teammates.plan import plan

    trunks = plan(env)
    one = dataclasses.replace(trunks[0], members=trunks[0].members[:1])
    weak = Member(trunks[0].members[0].size, "half")
    two = [
        dataclasses.replace(trunk, members=(trunk.members[i], weak))
        for i, trunk in enumerate(trunks[:2])
    ]
    sizes = {
        "smoke": (tiny(env, 2_000), two),
        "quick": (usual(env, 2_000_000), (one,)),
        "paper": (usual(env, 6_000_000), trunks),
    }
    practice, trunks = sizes[name]
    return longer(practice, steps), trunks
