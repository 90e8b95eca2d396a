"""All that decides a training run: what `config.json` holds."""

import dataclasses
from typing import Any, Literal

from fastap.methods.model import Learning
from fastap.methods.practice import LONG, Practice
from fastap.methods.table import PAPER, Method, Weights, find
from fastap.problem.rollout import Memory
from fastap.problem.schedule import parse
from fastap.problem.spec import Mistake, check_kind
from fastap.teammates.company import SHARE

Preset = Literal["smoke", "quick", "paper"]
Pool = Literal["train", "validation", "held-out"]
Mixer = Literal["qmix", "vdn"]
Update = Literal["joint", "literal"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A run: a method, some seeds, the groups they meet, and how they learn."""

    env: str
    zoo: str
    method: str
    beside: tuple[str, ...]  # configurations of it, in the same program
    start: str  # the folder of a run whose agents these begin with, or nothing
    seeds: int  # of each, trained side by side
    first: int  # the first of them
    steps: int  # joint steps of play for each seed
    train_change: str  # what happens to teammates while training
    share: float  # of the training episodes in which it happens
    memory: Memory  # of a policy that takes over a body
    reveal: int  # groups revealed at a time, L; 0: all from the start
    groups: tuple[int, int]  # of the pools train and validation; 0: all
    # the learner
    mixer: Mixer
    update: Update
    trace: float  # lambda of the values' goals
    standardise: bool  # rewards
    rate: float
    episodes: int  # played at once in every round
    updates: int  # gradient steps in every round
    batch: int  # episodes of a gradient step
    capacity: int  # episodes remembered
    hidden: int
    embed: int
    # the paper's table
    local: int
    team: int
    gce: float
    lce: float
    mi: float
    rec: float
    # the curve
    points: int  # of the learning curve
    judged: int  # episodes behind each

    def __post_init__(self):
        find(self.method)
        names = (self.method, *self.beside)
        if len(set(names)) < len(names):
            raise Mistake(f"beside: every configuration once, not {', '.join(names)}.")
        for name in self.beside:
            configuration(name)
        parse(self.train_change)
        for name, kind in (("memory", Memory), ("mixer", Mixer), ("update", Update)):
            check_kind(name, getattr(self, name), kind)
        for name, (low, high) in BOUNDS.items():
            if not low <= getattr(self, name) <= high:
                raise Mistake(f"{name} must be at least {low} and at most {high:g}.")
        if min(self.groups) < 0:
            raise Mistake("groups must be at least 0; 0 means all.")
        if self.capacity % self.episodes:
            raise Mistake(
                f"capacity ({self.capacity}) must be a multiple of the episodes "
                f"played at once ({self.episodes})."
            )

    @property
    def row(self) -> Method:
        """The method's row of the table."""
        return find(self.method)

    @property
    def weights(self) -> Weights:
        """The paper's table, or what was asked for instead."""
        names = (field.name for field in dataclasses.fields(Weights))
        return Weights(**{name: getattr(self, name) for name in names})

    def practice(self) -> Practice:
        """Return how agents practise."""
        learning = Learning(
            method=self.row,
            local=self.local,
            team=self.team,
            mixer=self.mixer,
            update=self.update,
            trace=self.trace,
            standardise=self.standardise,
            hidden=self.hidden,
            embed=self.embed,
        )
        return Practice(
            steps=self.steps,
            episodes=self.episodes,
            updates=self.updates,
            batch=self.batch,
            capacity=self.capacity,
            learning=learning,
        )


def configuration(name: str) -> tuple[Method, dict[str, float]]:
    """Read a method with weights of its own: fastap, or fastap:lce=10,mi=0."""
    method, _, listed = name.partition(":")
    weights = {}
    for pair in filter(None, listed.split(",")):
        term, _, number = pair.partition("=")
        try:
            weights[term] = float(number)
        except ValueError:
            term = ""
        own = [loss.name for loss in find(method).losses]
        if term not in TERMS or term not in own or not 0 <= weights[term] <= MANY:
            raise Mistake(
                f"'{name}': write weights as in fastap:lce=10,mi=0, of losses that "
                f"the method has ({', '.join(own)})."
            )
    return find(method), weights


MANY = 10**9
TERMS = ("gce", "lce", "mi", "rec")
BOUNDS = {
    "seeds": (1, 1000),
    "first": (0, 10**9),
    "steps": (1, 10**12),
    "share": (0, 1),
    "reveal": (0, MANY),
    "trace": (0, 1),
    "rate": (0, 1),
    "episodes": (1, 100_000),
    "updates": (1, 10_000),
    "batch": (1, 100_000),
    "capacity": (1, MANY),
    "hidden": (1, 10_000),
    "embed": (1, 10_000),
    "local": (1, 10_000),
    "team": (1, 10_000),
    "gce": (0, MANY),
    "lce": (0, MANY),
    "mi": (0, MANY),
    "rec": (0, MANY),
    "points": (1, 100_000),
    "judged": (1, 1_000_000),
}
ADDED = {"trace": 0.0, "standardise": True}  # what runs had before it was a setting
REVEAL = {"lbf": 4, "pp": 1, "cn": 1, "10m_vs_14m": 2}  # the paper's L
COMMON: dict[str, Any] = {
    "beside": (),
    "start": "",
    "first": 0,
    "train_change": "stationary",
    "share": SHARE,
    "memory": "fresh",
    "mixer": "qmix",
    "update": "joint",
    "trace": 0.0,
    "standardise": True,
    "rate": 5e-4,
    "episodes": 32,
    "updates": 8,
    "batch": 32,
    "capacity": 4992,
    "hidden": 64,
    "embed": 32,
}
PRESETS: dict[Preset, dict[str, Any]] = {
    "smoke": {
        "seeds": 2,
        "steps": 1_600,
        "episodes": 4,
        "updates": 1,
        "batch": 4,
        "capacity": 16,
        "hidden": 8,
        "embed": 4,
        "groups": (4, 2),
        "points": 2,
        "judged": 4,
    },
    "quick": {
        "seeds": 3,
        "steps": 450_000,
        "groups": (8, 4),
        "points": 10,
        "judged": 100,
    },
    "paper": {
        "seeds": 5,
        "steps": 6_000_000,
        "groups": (0, 0),
        "points": 40,
        "judged": 200,
    },
}

LENGTH = {"pp": 3_000_000, "cn": 3_000_000, "10m_vs_14m": 2_000_000}  # of the study


def size(env: str, preset: Preset) -> dict[str, Any]:
    """Return how large a preset makes a run; each game has a length of its own."""
    own = {"steps": LENGTH[env]} if preset == "paper" and env in LENGTH else {}
    return PRESETS[preset] | own


def settings(env: str, method: str, preset: Preset, **asked: Any) -> Settings:
    """Fill in what was not asked for: from the preset and the paper's table."""
    check_kind("preset", preset, Preset)
    if env not in PAPER:
        raise Mistake(f"'{env}' is no environment; there are {', '.join(PAPER)}.")
    table = dataclasses.asdict(PAPER[env])
    own = {"env": env, "zoo": env, "method": method, "reveal": REVEAL[env]}
    given = {name: value for name, value in asked.items() if value is not None}
    usual = COMMON | LONG.get(env, {}) | table | own
    return Settings(**(usual | size(env, preset) | given))
