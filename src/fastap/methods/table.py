"""Every method as a row: what it believes, and what shapes its beliefs."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal

from fastap.methods.beliefs import Build, Product, Recurrent, Silent
from fastap.methods.losses import (
    AbstractLoss,
    Compress,
    Distil,
    Gate,
    Reconstruct,
    Separate,
)
from fastap.problem.spec import Mistake

Labels = Literal["none", "group", "cluster"]


@dataclasses.dataclass(frozen=True)
class Term:
    """One loss: its name in the settings and in the curves, and its build."""

    name: str
    build: Callable[..., AbstractLoss]
    weight: float | None = None  # none: the environment's own
    averaged: bool = False  # over agents, not summed


@dataclasses.dataclass(frozen=True)
class Method:
    """What a method believes and what shapes its beliefs; the learner is shared."""

    name: str
    local: Build = Silent  # each agent's own: it acts on it
    team: Build = Silent  # the trainer's: it mixes by it
    losses: tuple[Term, ...] = ()
    labels: Labels = "none"  # what the losses take for the same
    even: bool = False  # batches hold all episodes alike, not as many of every label
    detach: bool = False  # keep the TD gradient out of the local belief
    told: bool = False  # the type of the present group, as an oracle would
    pace: float = 1.0  # the learning rate of local beliefs, against the others'


COMPRESS = Term("compress", Compress, weight=0.1)
RECONSTRUCT = Term("rec", Reconstruct)
DISTIL = Term("mi", Distil)
TEAM_APART = Term("gce", functools.partial(Separate, "team"))
LOCAL_APART = Term("lce", functools.partial(Separate, "local"))
GATE = functools.partial(Gate, "local")

point = functools.partial(Recurrent, certainty="none")
squashed = functools.partial(Recurrent, certainty="squashed")

QMIX = Method("qmix")
PEARL = Method("pearl", Product, losses=(COMPRESS,))
LIAM = Method(
    "liam",
    local=point,
    losses=(dataclasses.replace(RECONSTRUCT, weight=1.0, averaged=True),),
    detach=True,
    pace=1.4,
)
ESCP = Method("escp", squashed, losses=(LOCAL_APART,), labels="group", detach=True)
ESCP_GATED = dataclasses.replace(
    ESCP, name="escp-gated", losses=(Term("gate", GATE, weight=1.0),)
)
ODITS = Method(
    "odits",
    local=Recurrent,
    team=Recurrent,
    losses=(dataclasses.replace(DISTIL, averaged=True),),
)
FASTAP = Method(
    "fastap",
    local=Recurrent,
    team=Recurrent,
    losses=(TEAM_APART, LOCAL_APART, DISTIL, RECONSTRUCT),
    labels="cluster",
)
ORACLE = Method("oracle", told=True)


def without(term: Term) -> Method:
    """Take one loss from Fastap."""
    rest = tuple(t for t in FASTAP.losses if t is not term)
    return dataclasses.replace(FASTAP, name=f"fastap-wo-{term.name}", losses=rest)


ROWS = (
    *(QMIX, PEARL, ESCP, LIAM, ODITS, FASTAP),
    dataclasses.replace(FASTAP, name="fastap-wo-crp", labels="group"),
    *(without(term) for term in FASTAP.losses),
    dataclasses.replace(FASTAP, name="fastap-zero", losses=()),
    dataclasses.replace(FASTAP, name="fastap-even", even=True),
    *(ESCP_GATED, ORACLE),
)
METHODS = {method.name: method for method in ROWS}


def find(name: str) -> Method:
    """Look a method up."""
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise Mistake(f"'{name}' is no method; there are {known}.")
    return METHODS[name]


@dataclasses.dataclass(frozen=True)
class Weights:
    """How much: the widths of contexts and the weights of losses."""

    local: int  # the width of an agent's context, d_e
    team: int  # the width of the team's, d_z
    gce: float
    lce: float
    mi: float
    rec: float

    def of(self, method: Method, agents: int) -> tuple[float, ...]:
        """Return the weight of each loss of a method."""
        ours = dataclasses.asdict(self)
        weight = lambda term: ours[term.name] if term.weight is None else term.weight
        share = lambda term: agents if term.averaged else 1
        return tuple(weight(term) / share(term) for term in method.losses)


PAPER = {  # its table of hyper-parameters
    "lbf": Weights(4, 6, gce=1.0, lce=1.0, mi=1e-3, rec=0.1),
    "pp": Weights(16, 20, gce=0.4, lce=0.4, mi=1e-3, rec=0.2),
    "cn": Weights(4, 6, gce=0.4, lce=0.4, mi=1e-3, rec=0.2),
    "10m_vs_14m": Weights(8, 16, gce=10.0, lce=10.0, mi=1e-3, rec=0.2),
}
