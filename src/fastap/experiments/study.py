"""The paper's experiments as data: which runs each needs, and what is asked of them.

Runs are named by what they are, so that experiments share them: the Fastap of the
main figure is that of table 1, of the ablations and of every snapshot.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from fastap.methods.table import FASTAP
from fastap.problem.rollout import Memory
from fastap.training.settings import PRESETS, Preset

BASELINES = ("qmix", "pearl", "escp", "liam", "odits")
EVERYBODY = ("fastap", *BASELINES, "oracle")
ABLATIONS = ("fastap-wo-crp", *(f"fastap-wo-{term.name}" for term in FASTAP.losses))
ROWS = ("stationary", "U[5,8]", "U[6,7]", "U[2,9]", "U[3,6]", "U[3,3]")  # of table 1
COLUMNS = ("fastap", "fastap-wo-crp", "odits", "liam", "qmix", "pearl", "escp")
GRID = {
    "gce": (0.1, 0.4, 10.0),
    "lce": (0.1, 0.4, 10.0),
    "mi": (1e-4, 1e-2, 1e-1),
    "rec": (0.01, 1.0),
}
NEIGHBOURS = tuple(f"fastap:{k}={v:g}" for k, vs in GRID.items() for v in vs)
SOURCE, TARGET = "U[5,8]", "U[3,6]"  # of the transfer


@dataclasses.dataclass(frozen=True)
class Cohort:
    """Runs that are trained together: a method, and configurations of it."""

    name: str
    method: str
    beside: tuple[str, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()  # other settings of theirs
    start: str | None = None  # the cohort whose agents they begin with
    most: int | None = None  # steps, however long others are trained

    def asked(self, preset: Preset) -> dict[str, Any]:
        """Return the settings that are not the preset's own."""
        beside = self.beside[: len(ABLATIONS) + 1] if preset == "smoke" else self.beside
        return {"beside": beside, **dict(self.more)}

    def steps(self, preset: Preset, asked: int | None) -> int | None:
        """Say how long they are trained, if not as the preset has it."""
        if self.most is None:
            return asked
        return min(self.most, asked or PRESETS[preset]["steps"])


def fastap(env: str) -> Cohort:
    """Take Fastap and what is compiled with it: ODITS and ablations.

    All of them where the paper shows them; elsewhere that of the loss that costs most.
    """
    shown = ABLATIONS if env in ("lbf", "pp") else ("fastap-wo-gce",)
    return Cohort("fastap", "fastap", ("odits", *shown))


def everybody(env: str) -> tuple[Cohort, ...]:
    """List the six methods of the main figure, and the oracle."""
    alone = tuple(Cohort(name, name) for name in ("pearl", "escp", "liam"))
    return (fastap(env), Cohort("oracle", "oracle", ("qmix",)), *alone)


def transfer(env: str) -> tuple[Cohort, ...]:
    """Train on one change after another, and on the second from scratch."""
    del env
    changes = lambda change: (("train_change", change),)
    return (
        Cohort("source", "fastap", more=changes(SOURCE), most=600_000),
        Cohort("transferred", "fastap", more=changes(TARGET), start="source"),
        Cohort("scratch", "fastap", more=changes(TARGET)),
    )


def sensitivity(env: str) -> tuple[Cohort, ...]:
    """Take the weights of the paper's table, and their neighbours one at a time."""
    del env
    return (Cohort("weights", "fastap", NEIGHBOURS),)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper."""

    title: str
    envs: tuple[str, ...]
    cohorts: Callable[[str], tuple[Cohort, ...]]
    methods: tuple[str, ...]  # that are shown, in order
    changes: tuple[str, ...] = ()  # to be judged under, on held-out groups
    memories: tuple[Memory, ...] = ("fresh",)  # of teammates that take over
    also: tuple[str, ...] = ()  # environments for which it is made if they are named

    def among(self, named: tuple[str, ...] | None) -> list[str]:
        """Say for which environments it is made, of those that were named."""
        if named is None:
            return list(self.envs)
        return [env for env in (*self.envs, *self.also) if env in named]


ALL = ("lbf", "pp", "cn", "10m_vs_14m")
EXPERIMENTS = {
    "main": Experiment("Learning curves of all methods", ALL, everybody, EVERYBODY),
    "difference": Experiment(
        "What change costs",
        ALL,
        everybody,
        EVERYBODY,
        ("stationary", "U[5,8]", "U[5,8]-same"),
    ),
    "table1": Experiment(
        "Other distributions of change",
        ("lbf",),
        everybody,
        (*COLUMNS, "oracle"),
        ROWS,
        ("fresh", "watched"),
    ),
    "ablations": Experiment(
        "Fastap without one of its parts",
        ("lbf", "pp"),
        lambda env: (fastap(env),),
        ("fastap", *ABLATIONS),
        ("stationary", "U[5,8]"),
        also=("cn", "10m_vs_14m"),
    ),
    "context": Experiment(
        "Contexts through a change",
        ("lbf",),
        everybody,
        ("fastap", *BASELINES, "fastap-wo-crp"),
    ),
    "snapshot": Experiment(
        "A teammate leaves", ("lbf",), lambda env: (fastap(env),), ("fastap",)
    ),
    "transfer": Experiment(
        "From one distribution of change to another", ("lbf", "pp"), transfer, ()
    ),
    "crossplay": Experiment(
        "Groups and clusters with one another",
        ("lbf",),
        lambda env: (),
        (),
        also=ALL[1:],
    ),
    "embeddings": Experiment(
        "Trajectories of groups", ("lbf",), lambda env: (), (), also=ALL[1:]
    ),
    "sensitivity": Experiment(
        "The weights of the losses",
        ("lbf",),
        sensitivity,
        ("fastap", *NEIGHBOURS),
        ("U[5,8]",),
    ),
}

PAPER = {  # table 1: mean and deviation, in the order of its columns
    "stationary": (
        ".642±.008 .594±.015 .637±.008 .597±.029 .569±.033 .507±.021 .618±.040"
    ),
    "U[5,8]": (".562±.012 .400±.020 .352±.002 .415±.026 .306±.038 .288±.019 .404±.026"),
    "U[6,7]": (".567±.001 .444±.314 .487±.022 .454±.157 .444±.221 .333±.000 .556±.125"),
    "U[2,9]": (".484±.285 .222±.133 .416±.182 .401±.078 .443±.205 .205±.114 .514±.314"),
    "U[3,6]": (".518±.136 .366±.217 .444±.314 .388±.283 .353±.272 .264±.066 .502±.120"),
    "U[3,3]": (".384±.272 .246±.141 .342±.118 .362±.208 .222±.314 .243±.172 .271±.157"),
}


def printed(change: str, method: str) -> str:
    """Return what the paper's table 1 says, or nothing."""
    if change not in PAPER or method not in COLUMNS:
        return ""
    return PAPER[change].split()[COLUMNS.index(method)]


def printed_difference(method: str) -> str:
    """Return what change costs by the paper's table 1, or nothing."""
    both = (printed(change, method) for change in ("U[5,8]", "stationary"))
    scores = [float(text.partition("±")[0]) for text in both if text]
    return f"{scores[0] - scores[1]:.3f}" if scores else ""
