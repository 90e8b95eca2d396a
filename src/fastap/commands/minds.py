"""What the page shows of agents themselves: what they know, and how they play."""

from typing import Any

import numpy as np
from rich.console import Console

from fastap.commands.edge import each
from fastap.commands.naming import Names, Places

LAGS = (0, 2, 4, 7)  # steps after a change that are shown of what memories know
KNOWING = (
    *("zoo", "method", "variance within", "jump", "type, by chance"),
    *(f"type, {lag} after" for lag in LAGS),
)
DOTS = 300  # of a method's contexts
USUAL = 25  # steps of an episode
Minds = dict[tuple[str, str], Any]  # by place and name


def subjects(names: Names, where: Places) -> Minds:
    """Find the agents of all runs that have any, by the names they have here."""
    from fastap.experiments.measure import status
    from fastap.experiments.thoughts import Subject

    begun = {run for run in where if status(run).steps}
    return {
        (where[run], name): Subject(run, method)
        for (run, method), name in names.items()
        if run in begun
    }


def inside(
    console: Console, minds: Minds, episodes: int
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Say what memories know of the teammates, and draw contexts by type."""
    from fastap.report.figures import context_planes, name_of
    from fastap.report.page import drawing, grid, heading

    rows, contexts, kinds = [], {}, {}
    several = len({place for place, _ in minds}) > 1
    learn = lambda mind: minds[mind].facts(episodes)
    known_by = each(
        console, "reading memories", list(minds), " ".join, learn, "methods"
    )
    for ((place, method), subject), facts in zip(minds.items(), known_by, strict=True):
        name = f"{place}: {name_of(method)}" if several else method
        named = (facts[f"type after {lag}"] for lag in LAGS)
        known = (facts["within"], facts["jump"], facts["type by chance"], *named)
        words = ("" if np.isnan(x) else f"{x:.2f}" for x in known)
        rows.append((place, method, *words))
        seen = subject.watch("validation", "U[5,8]", episodes)
        if seen.context.shape[-1]:  # of the first agent: each has a space of its own
            points = seen.context[:, :, 0][seen.valid]
            some = np.linspace(0, len(points) - 1, min(DOTS, len(points))).astype(int)
            contexts[name] = points[some]
            kinds[name] = subject.zoo.types[seen.group[seen.valid][some]]
    say = (
        "How much of a context's variance is left between two changes, how far it "
        "moves at one against other times, and how often a linear reading of an "
        "agent's memory names the type of its teammates, by steps after a change. "
        "First seed, validation groups."
    )
    parts = [heading("What agents know of their teammates", say), grid(KNOWING, rows)]
    if contexts:
        say = "Contexts of the first agent; a colour is a planted type of teammates."
        parts.append(drawing(context_planes(contexts, kinds), say))
    return parts, rows


def replay(minds: Minds, count: int) -> dict[str, Any]:
    """Film the same episodes of every method, a stage for each place.

    Long episodes are fewer, so that the page stays small.
    """
    from fastap.experiments.thoughts import take
    from fastap.report.film import clip
    from fastap.report.page import reel, theatre

    stages: dict[str, Any] = {}
    for (place, name), subject in minds.items():
        horizon = subject.zoo.env.spec.horizon
        some = max(1, count * USUAL // max(horizon, USUAL))
        seen = subject.watch("held-out", "U[5,8]", some)
        films = [
            clip(seen.env, take(seen.episodes, i), take(seen.worlds, i))
            for i in range(some)
        ]
        stage = stages.setdefault(place, theatre(films[0], horizon))
        stage["methods"][name] = list(map(reel, films, seen.context))
    return stages
