"""Cooperative agents that keep working when their teammates suddenly change."""

from typing import Any

from fastap.envs import make
from fastap.problem.episode import Episode
from fastap.problem.rollout import AbstractPolicy, Glance, Players, film, play
from fastap.problem.schedule import Change, Schedule, parse
from fastap.problem.spec import Env, Mistake, Outcome, Spec, View

__version__ = "0.1.0"

__all__ = [
    "AbstractPolicy",
    "Change",
    "Env",
    "Episode",
    "Glance",
    "Mistake",
    "Outcome",
    "Players",
    "Schedule",
    "Spec",
    "View",
    "film",
    "load",
    "make",
    "parse",
    "play",
]


def load(folder: Any) -> Any:
    """Read a trained run: settings, curves, and agents that act.

    Example: fastap.load("runs/lbf-fastap").agents()
    """
    from fastap.deploy.run import load

    return load(folder)
