"""A finished run, ready for use: its settings, curves and agents."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fastap.deploy.agent import FORMAT, SCHEMA, SURE, WARM, Agents, distance
from fastap.experiments.measure import curves
from fastap.experiments.thoughts import Subject, Watched
from fastap.methods.beliefs import AbstractBelief, Product, Recurrent
from fastap.methods.model import Model
from fastap.problem.spec import Env, Mistake
from fastap.training.checkpoint import read_agents, read_config
from fastap.training.settings import Settings

QUANTILES = 201  # of the moves that are usual
Arrays = dict[str, np.ndarray]
MEANING = {  # of one agent's observation
    "lbf": (
        "foods, oneself, then the others: row, column and level of each, counted "
        "from the corner of one's window; -1, -1, 0 for what is not seen"
    ),
    "pp": "velocity, position, obstacles, other predators, prey, the prey's velocity",
    "cn": "velocity, position, landmarks, other agents",
    "10m_vs_14m": "allies, then enemies, then oneself, as in SMAX",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """What `fastap train` has left in a folder."""

    folder: Path
    settings: Settings
    made: dict[str, Any]  # versions, device, command
    steps: int  # that its agents were trained for
    names: tuple[str, ...]  # the configuration of each of its teams
    seeds: tuple[int, ...]  # and its seed
    env: Env
    model: Model  # stacked, one for each team

    @functools.cached_property
    def curves(self) -> list[dict[str, Any]]:
        """The learning curves, a row for each point."""
        return curves(self.folder, self.settings.env)

    def agents(self, seed: int | None = None, method: str | None = None) -> Agents:
        """Take one team: NumPy in, NumPy out, with a memory of its own."""
        return Agents(*self.pack(seed, method))

    def team(self, seed: int | None = None, method: str | None = None) -> int:
        """Find one team among all; by default the first."""
        method = method or self.settings.method
        wanted = self.seeds[0] if seed is None else seed
        for place, who in enumerate(zip(self.names, self.seeds, strict=True)):
            if who == (method, wanted):
                return place
        held = ", ".join(
            f"{m} {s}" for m, s in zip(self.names, self.seeds, strict=True)
        )
        raise Mistake(f"{self.folder} has no {method} of seed {wanted}; it has {held}.")

    def pack(
        self, seed: int | None = None, method: str | None = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Write one team as plain arrays, and a card that says what they mean."""
        place = self.team(seed, method)
        model = jax.tree.map(lambda x: np.asarray(x[place]), self.model)
        if model.known is not None and np.any(model.known):
            raise Mistake("An oracle must be told who is there; it cannot be deployed.")
        arrays = {
            **named("values.enter", model.agents.enter),
            **named("values.gru.inputs", model.agents.gru.inputs),
            **named("values.gru.memory", model.agents.gru.memory),
            **named("values.leave", model.agents.leave),
            **belief_arrays(model.local),
        }
        if model.known is not None:  # of QMIX trained beside an oracle: all zeros
            told = self.env.spec.inputs + self.env.spec.actions
            told = np.arange(told, told + model.known.shape[1])
            weight = arrays["values.enter.weight"]
            arrays["values.enter.weight"] = np.delete(weight, told, axis=1)
        coding = self.env.coding()
        if coding is not None:
            arrays |= {"encode.source": coding[0], "encode.value": coding[1]}
        start = np.asarray(model.local.start())
        spec = self.env.spec
        card = {
            "format": FORMAT,
            "schema": SCHEMA,
            "env": spec.name,
            "method": self.names[place],
            "seed": self.seeds[place],
            "steps": self.steps,
            "agents": spec.controlled,
            "observation": spec.observation,
            "actions": spec.actions,
            "memory": int(model.agents.gru.memory.weight.shape[-2]),
            "doubt": int(start.shape[-1]),
            "context": int(model.local.width),
            "belief": kind_of(model.local),
            "inputs": {
                "observation": MEANING.get(spec.name, "what the environment shows"),
                "available": "which actions are allowed",
            },
            "zoo": self.settings.zoo,
            "train_change": self.settings.train_change,
            "made": self.made,
            "results": results(self.folder, self.steps),
        }
        return arrays, card

    def usual(
        self, episodes: int, seed: int | None = None, method: str | None = None
    ) -> tuple[Arrays, dict[str, float]]:
        """Learn what contexts usually do beside training groups that stay.

        Returns arrays for the agents, and how far they can be trusted: how often
        the alarm rings beside training groups, held-out groups of types that were
        met, and of others; and how often `change` is above 0.95, at the step of a
        change and at other times.
        """
        place = self.team(seed, method)
        count = self.seeds[place] - self.settings.first
        subject = Subject(self.folder, self.names[place], count)
        seen = subject.watch("train", "stationary", episodes)
        if not seen.context.shape[-1]:
            return {}, {}
        label = subject.zoo.clusters
        late = seen.valid & (np.arange(seen.valid.shape[1]) >= WARM)
        points, group = seen.context[late], label[seen.group[late]]
        kinds = np.unique(group)
        centre = np.stack([points[group == k].mean(0) for k in kinds], axis=1)
        spread = np.stack([points[group == k].std(0) for k in kinds], axis=1) + 1e-3
        far = distance(centre, spread)
        limit = np.quantile(far(points), SURE, axis=0)
        move = np.linalg.norm(np.diff(seen.context, axis=1), axis=-1)[seen.valid[:, 1:]]
        moves = np.quantile(move, np.linspace(0, 1, QUANTILES), axis=0).T
        arrays = {"centre": centre, "spread": spread, "limit": limit, "moves": moves}
        rings = {"train": float((far(points) > limit).mean())}
        other = subject.watch("held-out", "stationary", episodes)
        late = other.valid & (np.arange(other.valid.shape[1]) >= WARM)
        types = subject.zoo.types
        trained = subject.agents[0].members["train"]
        met = np.isin(types, types[trained])[other.group[late]]
        ringing = (far(other.context[late]) > limit).mean(-1)
        for name, part in (("types met", met), ("types not met", ~met)):
            if part.any():
                rings[name] = float(ringing[part].mean())
        rings |= noticed(subject.watch("held-out", "U[5,8]", episodes), moves)
        return {f"usual.{k}": v.astype(np.float32) for k, v in arrays.items()}, rings


def noticed(seen: Watched, moves: np.ndarray) -> dict[str, float]:
    """Say how often a context's move is among the largest twentieth."""
    large = moves[:, int(0.95 * (QUANTILES - 1))]
    far = np.linalg.norm(np.diff(seen.context, axis=1), axis=-1) > large
    swap, valid = seen.swap[:, 1:], seen.valid[:, 1:]
    moments = {"change noticed": valid & swap, "change imagined": valid & ~swap}
    return {name: float(far[when].mean()) for name, when in moments.items()}


def load(folder: str | Path) -> Run:
    """Read a run: `fastap.load(folder).agents()` is a team that acts."""
    folder = Path(folder)
    settings, made = read_config(folder)
    ready, model, steps = read_agents(folder)
    who = (tuple(ready.names), tuple(ready.seeds))
    return Run(folder, settings, made, steps, *who, ready.zoo.env, model)


def shipped(method: str) -> Path:
    """Say where the trained agents are that come with fastap: qmix and fastap."""
    return Path(__file__).parents[1] / "shipped" / method


def named(name: str, layer: Any) -> Arrays:
    """Name the arrays of a layer."""
    return {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}


def belief_arrays(belief: AbstractBelief) -> Arrays:
    """Name the arrays of a belief."""
    if not isinstance(belief, Recurrent | Product):
        return {}
    layers = ("enter", "deeper", "leave")
    arrays = [named(f"belief.{name}", getattr(belief, name)) for name in layers]
    if isinstance(belief, Recurrent):
        parts = ("inputs", "memory")
        arrays += [named(f"belief.gru.{p}", getattr(belief.gru, p)) for p in parts]
    return {name: array for some in arrays for name, array in some.items()}


def kind_of(belief: AbstractBelief) -> str:
    """Say how a belief is computed."""
    if isinstance(belief, Recurrent):
        kinds = {"learnt": "gaussian", "none": "point", "squashed": "squashed"}
        return kinds[belief.certainty]
    return "product" if isinstance(belief, Product) else "none"


def results(folder: Path, steps: int) -> list[dict[str, Any]]:
    """Read what `fastap eval` has found of agents after so many steps."""
    try:
        rows = json.loads((folder / "results.json").read_text())
        kept = ("method", "change", "pool", "episodes", "seeds", "iqm", "ci95", "floor")
        now = [row for row in rows if row["steps"] == steps]
        return [{name: row[name] for name in kept} for row in now]
    except (OSError, ValueError, KeyError, TypeError):
        return []
