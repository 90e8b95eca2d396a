"""Figures of numbers: cross-play, embeddings, curves."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from fastap.report.film import GROUPS, INK

HEAT = "YlGnBu"


def heat_maps(
    matrices: Sequence[Float[np.ndarray, "..."]],
    titles: Sequence[str],
    names: Sequence[Sequence[str]],
) -> Figure:
    """Draw cross-play matrices side by side, on one scale."""
    widths = [max(3.4, 0.24 * len(matrix) + 2.2) for matrix in matrices]
    figure = Figure(
        figsize=(sum(widths) + 0.8, max(widths) - 0.4), layout="constrained"
    )
    axes = figure.subplots(1, len(matrices), squeeze=False, width_ratios=widths)[0]
    image = None
    for ax, matrix, title, labels in zip(axes, matrices, titles, names, strict=True):
        image = ax.imshow(matrix, vmin=0, vmax=1, cmap=HEAT)
        ax.set_title(title, color=INK, fontsize=10, loc="left")
        ax.set_xticks(range(len(matrix)), labels, rotation=90, fontsize=6)
        ax.set_yticks(range(len(matrix)), labels, fontsize=6)
        ax.set_xlabel("their teammates", color=INK, fontsize=8)
        if len(matrix) <= 12:
            for (i, j), value in np.ndenumerate(matrix):
                shade = "white" if value > 0.55 else INK
                text = f"{value:.2f}"
                ax.text(j, i, text, ha="center", va="center", fontsize=6, color=shade)
    axes[0].set_ylabel("controlled agents of", color=INK, fontsize=8)
    if image is not None:
        bar = figure.colorbar(image, ax=list(axes), shrink=0.7)
        bar.set_label("normalised score", color=INK, fontsize=8)
    return figure


def embeddings(
    points: Float[np.ndarray, "P D"],
    group: Int[np.ndarray, " P"],
    cluster: Int[np.ndarray, " K"],
    names: Sequence[str],
    few: int,
) -> Figure:
    """Draw trajectories' embeddings in the plane of their two widest directions.

    Of the first few groups and then, if there are more, of all.
    """
    counts = [few, len(cluster)] if len(cluster) > few else [len(cluster)]
    figure = Figure(figsize=(5.8 * len(counts), 5.2), layout="constrained")
    panels = figure.subplots(1, len(counts), squeeze=False)[0]
    for ax, count in zip(panels, counts, strict=True):
        some = group < count
        draw_plane(ax, points[some], group[some], cluster[:count], names)
        ax.set_title(f"{count} groups", color=INK, fontsize=10, loc="left")
    return figure


def draw_plane(
    ax: Axes,
    points: Float[np.ndarray, "P D"],
    group: Int[np.ndarray, " P"],
    cluster: Int[np.ndarray, " K"],
    names: Sequence[str],
) -> None:
    """Draw the plane of some groups.

    Colours are clusters, with an ellipse of two standard deviations each; groups
    of one cluster differ in their markers.
    """
    centred = points - points.mean(0, keepdims=True)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    plane = centred @ axes[:2].T
    share = spread[:2] ** 2 / max(float((spread**2).sum()), 1e-12)
    markers = "osD^vP*Xhp<>"
    for label in np.unique(cluster):
        colour = GROUPS[label % len(GROUPS)]
        for nth, k in enumerate(np.flatnonzero(cluster == label)):
            rows = plane[group == k]
            marker = markers[nth % len(markers)]
            ax.scatter(*rows.T, s=14, c=colour, marker=marker, alpha=0.6, lw=0)
        rows = plane[np.isin(group, np.flatnonzero(cluster == label))]
        ax.add_patch(_two_sigma(rows, colour))
        member = names[int(np.flatnonzero(cluster == label)[0])]
        ax.annotate(member, rows.mean(0), color=INK, fontsize=7, ha="center")
    ax.set_xlabel(f"first component ({share[0]:.0%} of the variance)", fontsize=8)
    ax.set_ylabel(f"second component ({share[1]:.0%})", fontsize=8)
    ax.tick_params(labelsize=7)


def curves(
    lines: Mapping[str, tuple[Sequence[float], Sequence[Sequence[float]]]],
    across: str,
    marks: Mapping[str, float],
) -> Figure:
    """Draw scores against something, a band from the worst to the best run.

    Dashed lines mark what others score.
    """
    figure = Figure(figsize=(7.6, 4.4), layout="constrained")
    ax = figure.subplots()
    shades = colormaps["tab20"]
    for i, (name, (xs, ys)) in enumerate(lines.items()):
        rows, colour = np.asarray(ys), shades(i % 20)
        ax.plot(xs, rows.mean(1), label=name, color=colour, lw=1.4)
        ax.fill_between(xs, rows.min(1), rows.max(1), color=colour, alpha=0.15, lw=0)
    for name, height in marks.items():
        ax.axhline(height, color=INK, lw=0.8, ls="--")
        at = {"xycoords": ("axes fraction", "data"), "va": "bottom"}
        ax.annotate(name, (0.01, height), color=INK, fontsize=7, **at)
    ax.set_xlabel(across, fontsize=8)
    ax.set_ylabel("mean return, 4 bodies", fontsize=8)
    ax.set_ylim(0, 1.04)
    ax.tick_params(labelsize=7)
    figure.legend(loc="outside right center", fontsize=7, frameon=False)
    return figure


def _two_sigma(rows: Float[np.ndarray, "P 2"], colour: str) -> Ellipse:
    values, vectors = np.linalg.eigh(np.cov(rows.T) + 1e-12 * np.eye(2))
    angle = np.degrees(np.arctan2(*vectors[::-1, 1]))
    width, height = 4 * np.sqrt(values[::-1])
    return Ellipse(
        tuple(rows.mean(0)),
        width,
        height,
        angle=angle,
        fill=False,
        edgecolor=colour,
        linewidth=1.2,
    )
