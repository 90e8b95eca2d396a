"""The figures of the study: curves, costs, contexts; seeds are the unit in all."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from fastap.evaluation.statistics import interval, profile
from fastap.report.film import GROUPS, INK

Rows = Sequence[Mapping[str, Any]]
COLOURS = {
    "fastap": "#d1495b",
    "qmix": "#66717e",
    "pearl": "#edae49",
    "escp": "#00798c",
    "liam": "#3066be",
    "odits": "#8f5db7",
    "oracle": "#111111",
}
NAMES = {
    "fastap": "Fastap",
    "oracle": "oracle",
    "transferred": "after other changes",
    "scratch": "from scratch",
}


def name_of(method: str) -> str:
    """Write a method's name as papers do."""
    if method.startswith("fastap-wo-"):
        return f"w/o {method.removeprefix('fastap-wo-').upper()}"
    if ":" in method:  # other weights, or the method of a named run
        return method.removeprefix("fastap:")
    return NAMES.get(method, method.upper() if method in COLOURS else method)


def colour_of(method: str, place: int) -> str:
    """Give a method its colour in every figure."""
    return COLOURS.get(method, GROUPS[place % len(GROUPS)])


def style_of(method: str) -> str:
    """Draw what a method is without, or with other weights, in broken lines."""
    return "--" if method.startswith(("fastap-", "fastap:")) else "-"


def numbered(rows: Rows) -> dict[str, int]:
    """Give every method a number, so that it has one colour in all panels."""
    return {m: k for k, m in enumerate(dict.fromkeys(row["method"] for row in rows))}


def only(rows: Rows, **want: Any) -> list[Mapping[str, Any]]:
    """Take the rows that say so."""
    return [row for row in rows if want.items() <= row.items()]


def band(scores: np.ndarray) -> tuple[float, float, float]:
    """Return the mean over seeds and its interval."""
    mean = lambda tasks: tasks[0].mean(-1)
    low, high = interval([scores], mean, reps=1000)
    return float(scores.mean()), float(low), float(high)


def learning_curves(
    rows: Rows,
    methods: Sequence[str],
    envs: Sequence[str],
    pool: str,
    changes: Sequence[str] = ("stationary", "U[5,8]"),
    measure: str = "return",
) -> Figure:
    """Draw return, or win rate, over steps: a row for each change, a column each game.

    Rows that do not have the measure are left out.
    """
    rows = [row for row in rows if measure in row]
    figure = Figure(figsize=(3.3 * len(envs) + 1.6, 5.2), layout="constrained")
    grid = figure.subplots(len(changes), len(envs), squeeze=False)
    for i, change in enumerate(changes):
        for j, env in enumerate(envs):
            ax, here = grid[i, j], only(rows, env=env, change=change, pool=pool)
            dress(ax, f"{env}, {change}")
            ax.xaxis.set_major_locator(MaxNLocator(5))
            ax.xaxis.set_major_formatter(EngFormatter(sep=""))
            if not here:
                empty(ax)
            for k, method in enumerate(methods):
                draw_curve(ax, only(here, method=method), method, k, measure)
        grid[i, 0].set_ylabel(measure.replace("_", " "), color=INK, fontsize=8)
    for ax in grid[-1]:
        ax.set_xlabel("steps", color=INK, fontsize=8)
    labelled(figure, grid)
    return figure


def draw_curve(
    ax: Axes, rows: Rows, method: str, place: int, measure: str = "return"
) -> None:
    """Draw one method's mean over seeds, with its interval."""
    steps = sorted({row["step"] for row in rows})
    if not steps:
        return
    bands = [band(np.array([r[measure] for r in only(rows, step=s)])) for s in steps]
    mean, low, high = np.array(bands).T
    colour = colour_of(method, place)
    how = {"color": colour, "lw": 1.6, "ls": style_of(method)}
    ax.plot(steps, mean, label=name_of(method), **how)
    ax.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)


def bars(
    panels: Mapping[str, Mapping[str, np.ndarray]],
    title: str,
    lines: Mapping[str, Mapping[str, float]] | None = None,
    down: int = 1,
) -> Figure:
    """Draw one bar for each method in each panel, every seed as a dot.

    What they are to be compared with, panel by panel, is drawn as lines. Panels
    stand in so many rows, all of a length.
    """
    across = len(panels) // down
    size = (3.4 * across + 1.2, 3.4 * down)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for ax, (panel, scores) in zip(grid.flat, panels.items(), strict=True):
        dress(ax, panel)
        if not scores:
            empty(ax)
            continue
        for k, (method, values) in enumerate(scores.items()):
            mean, low, high = band(values)
            colour = colour_of(method, k)
            ax.bar(k, mean, color=colour, alpha=0.75, width=0.7)
            ax.plot([k, k], [low, high], color=INK, lw=1.2)
            ax.scatter(np.full(len(values), k), values, s=8, color=INK, zorder=3)
        names = [name_of(method) for method in scores]
        ax.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
        ax.axhline(0, color=INK, lw=0.6)
        mark_lines(ax, (lines or {}).get(panel, {}))
    for ax in grid[:, 0]:
        ax.set_ylabel(title, color=INK, fontsize=8)
    return figure


def mark_lines(ax: Axes, lines: Mapping[str, float]) -> None:
    """Draw scores across a panel and name them at its right, one above the other."""
    for score in lines.values():
        ax.axhline(score, color=INK, lw=0.8, ls=":")
    low, high = ax.get_ylim()
    place, across = -np.inf, ax.get_yaxis_transform()
    for who, score in sorted(lines.items(), key=lambda line: line[1]):
        place = max(score, place + 0.045 * (high - low))
        ax.text(1.01, place, who, fontsize=6, color=INK, va="center", transform=across)


def context_lines(
    lines: Mapping[str, np.ndarray], groups: np.ndarray, swap: np.ndarray
) -> Figure:
    """Draw the widest direction of each method's context through one episode.

    The ground is coloured by the group that is there; lines mark changes.
    """
    figure = Figure(figsize=(7.4, 1.5 * len(lines) + 0.8), layout="constrained")
    grid = figure.subplots(len(lines), 1, squeeze=False, sharex=True)[:, 0]
    kinds = {group: k for k, group in enumerate(dict.fromkeys(groups.tolist()))}
    for k, (ax, (method, line)) in enumerate(zip(grid, lines.items(), strict=True)):
        dress(ax, name_of(method))
        for t, group in enumerate(groups.tolist()):
            shade = GROUPS[kinds[group] % len(GROUPS)]
            ax.axvspan(t - 0.5, t + 0.5, color=shade, alpha=0.12, lw=0)
        for t in np.flatnonzero(swap):
            ax.axvline(t - 0.5, color=INK, lw=0.8, ls="--")
        for agent, style in zip(line.T, ("-", "--", ":", "-.") * 4, strict=False):
            ax.plot(agent, color=colour_of(method, k), lw=1.4, ls=style)
    grid[-1].set_xlabel("step", color=INK, fontsize=8)
    return figure


def dress(ax: Axes, title: str) -> None:
    """Give a panel its title and small print."""
    ax.set_title(title, color=INK, fontsize=9, loc="left")
    ax.tick_params(labelsize=7)
    ax.spines[["top", "right"]].set_visible(False)


def empty(ax: Axes) -> None:
    """Say in a panel that nothing is known."""
    place = {"transform": ax.transAxes, "ha": "center", "va": "center"}
    ax.text(0.5, 0.5, "no runs yet", color=INK, fontsize=8, **place)
    ax.set_xticks([])
    ax.set_yticks([])


def labelled(figure: Figure, grid: np.ndarray) -> None:
    """Name every line once."""
    found = [ax.get_legend_handles_labels() for ax in grid.flat]
    names = {
        name: line
        for lines, words in found
        for line, name in zip(lines, words, strict=True)
    }
    if names:
        where = {"loc": "outside right center", "fontsize": 8, "frameon": False}
        figure.legend(list(names.values()), list(names), **where)


def profiles(answers: Rows) -> Figure:
    """Draw which share of a method's seeds earns more than each return.

    A panel for each environment; all changes weigh the same.
    """
    envs = list(dict.fromkeys(row["env"] for row in answers))
    place = numbered(answers)
    figure = Figure(figsize=(3.6 * len(envs) + 1.6, 3.0), layout="constrained")
    axes = figure.subplots(1, max(1, len(envs)), squeeze=False, sharey=True)
    for ax, env in zip(axes[0], envs, strict=False):
        dress(ax, env)
        here = only(answers, env=env)
        every = np.concatenate([row["returns"] for row in here])
        levels = np.linspace(min(0.0, every.min()), every.max(), 200)
        for method in dict.fromkeys(row["method"] for row in here):
            tasks = [np.array(row["returns"]) for row in only(here, method=method)]
            line, colour = profile(tasks, levels), colour_of(method, place[method])
            how = {"color": colour, "ls": style_of(method)}
            ax.plot(levels, line, label=name_of(method), **how)
        ax.set_xlabel("return", color=INK, fontsize=8)
    axes[0, 0].set_ylabel("share of seeds above it", color=INK, fontsize=8)
    labelled(figure, axes)
    return figure


def context_planes(
    contexts: Mapping[str, np.ndarray], kinds: Mapping[str, np.ndarray]
) -> Figure:
    """Draw contexts in the plane of their two widest directions, coloured by kind."""
    across = max(1, min(len(contexts), 4))
    down = max(1, -(-len(contexts) // across))
    figure = Figure(figsize=(2.5 * across, 2.5 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax in axes[len(contexts) :]:
        ax.set_axis_off()
    for ax, (method, points) in zip(axes, contexts.items(), strict=False):
        dress(ax, name_of(method))
        centred = points - points.mean(0, keepdims=True)
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        plane = np.zeros((len(points), 2))
        plane[:, : len(directions)] = centred @ directions[:2].T
        for k, kind in enumerate(np.unique(kinds[method])):
            rows = plane[kinds[method] == kind]
            ax.scatter(*rows.T, s=9, color=GROUPS[k % len(GROUPS)], alpha=0.6, lw=0)
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def regrets(answers: Rows) -> Figure:
    """Draw what is lost at each lag after one change.

    A row for each environment, a column for each moment of the change.
    """
    moments = list(answers[0]["adaptation"]) if answers else []
    envs = list(dict.fromkeys(row["env"] for row in answers))
    down, across, place = max(1, len(envs)), max(1, len(moments)), numbered(answers)
    size = (3.6 * across + 1.6, 2.4 * down + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharey="row")
    for env, line in zip(envs, axes, strict=False):
        here = only(answers, env=env)
        methods = dict.fromkeys(row["method"] for row in here)
        for ax, moment in zip(line, moments, strict=False):
            dress(ax, f"{env}, one change {moment}")
            ax.axhline(0, color=INK, lw=0.6)
            for method in methods:
                (row, *_) = only(here, method=method)
                lost = row["adaptation"][moment]["regret"]
                colour = colour_of(method, place[method])
                how = {"color": colour, "lw": 1.4, "ls": style_of(method)}
                ax.plot(lost, label=name_of(method), **how)
            ax.set_xlabel("steps since the change", color=INK, fontsize=8)
        line[0].set_ylabel("reward lost", color=INK, fontsize=8)
    labelled(figure, axes)
    return figure
