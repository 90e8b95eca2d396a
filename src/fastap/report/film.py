"""Pictures and films of episodes, drawn without a display."""

import contextlib
import dataclasses
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle
from PIL import Image

from fastap.problem.episode import Episode
from fastap.problem.spec import Env, Mistake, Scene, Shape

INK, PAPER, GRID = "#22303c", "#ffffff", "#dfe5ea"
CONTROLLED, ALARM = "#1f6fd6", "#e4572e"
GROUPS = ("#f2a104", "#8e5bd0", "#12a594", "#d6409f", "#7a8b00", "#c2622d")
THINGS = {
    "food": "#4f9d4a",
    "goal": "#566573",
    "obstacle": "#b8c1c8",
    "prey": "#4f9d4a",
    "enemy": "#b3413b",
}


@dataclasses.dataclass(frozen=True)
class Clip:
    """An episode ready to be drawn: one scene per step, and who is on the team."""

    name: str
    controlled: int
    scenes: tuple[Scene, ...]  # one more than steps
    group: np.ndarray
    swap: np.ndarray
    present: np.ndarray
    earned: np.ndarray  # the return so far, one per scene

    def __len__(self) -> int:
        return len(self.scenes)


def clip(env: Env, episode: Episode, worlds: Any) -> Clip:
    """Cut an episode at its end and turn its worlds into scenes."""
    steps = int(episode.length)
    episode, worlds = jax.tree.map(np.asarray, (episode, worlds))
    scenes = [
        env.scene(jax.tree.map(lambda x, t=t: x[t], worlds)) for t in range(steps + 1)
    ]
    earned = np.concatenate([[0.0], np.cumsum(episode.reward[:steps])])
    return Clip(
        env.spec.name,
        env.spec.controlled,
        tuple(scenes),
        np.asarray(episode.group[:steps]),
        np.asarray(episode.swap[:steps]),
        np.asarray(episode.present[:steps]),
        earned,
    )


def save_frame(film: Clip, t: int, path: Path | str) -> None:
    """Write one step of an episode as PNG or SVG, by the file's ending."""
    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise Mistake(f"A picture is a .png or an .svg file, not '{path.name}'.")
    if not 0 <= t < len(film):
        raise Mistake(f"The episode has the steps 0 to {len(film) - 1}, not {t}.")
    save_figure(frame(film, t), path)


def save_film(film: Clip, path: Path | str, seconds: float = 0.35) -> None:
    """Write an episode as an animated GIF; it dwells on every change."""
    path = Path(path)
    if path.suffix != ".gif":
        raise Mistake(f"A film is a .gif file, not '{path.name}'.")
    images = [Image.fromarray(pixels(frame(film, t))) for t in range(len(film))]
    slow = [3 if _changes(film, t) else 1 for t in range(len(film))]
    times = [int(1000 * seconds * factor) for factor in slow]
    times[-1] *= 4
    palette = Image.Palette.ADAPTIVE
    first, *rest = [image.convert("P", palette=palette) for image in images]
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=times, loop=0)
    write(path, buffer.getvalue())


def frame(film: Clip, t: int) -> Figure:
    """Draw one step: the world, who is there, and where the changes are."""
    figure = Figure(figsize=(4.0, 4.9), dpi=100, facecolor=PAPER)
    title = f"{film.name}   step {t}   return {film.earned[t]:.2f}"
    figure.text(0.06, 0.958, title, color=INK, fontsize=10, weight="bold")
    if _changes(film, t):
        before, after = film.group[t - 1], film.group[t]
        text = f"teammates change: group {before} → {after}"
        figure.text(0.06, 0.922, text, color=ALARM, fontsize=9, weight="bold")
    board = figure.add_axes((0.06, 0.17, 0.88, 0.74))
    now = min(t, len(film.group) - 1)
    draw_scene(board, film.scenes[t], colour_of(film.group[now]))
    if _changes(film, t):
        for spine in board.spines.values():
            spine.set(color=ALARM, linewidth=3.0)
    _draw_team(figure.add_axes((0.06, 0.095, 0.88, 0.055)), film, now)
    _draw_timeline(figure.add_axes((0.06, 0.035, 0.88, 0.05)), film, t)
    return figure


def contact_sheet(
    films: Sequence[Clip], steps: Sequence[int], titles: Sequence[str] = ()
) -> Figure:
    """Draw one step of several episodes side by side."""
    figure = Figure(figsize=(3.2 * len(films), 3.5), dpi=120, facecolor=PAPER)
    names = [film.name for film in films]
    for i, (film, t) in enumerate(zip(films, steps, strict=True)):
        axes = figure.add_subplot(1, len(films), i + 1)
        axes.set_title((titles or names)[i], color=INK, fontsize=12, weight="bold")
        group = film.group[min(t, len(film.group) - 1)]
        draw_scene(axes, film.scenes[t], colour_of(group))
    figure.tight_layout()
    return figure


def draw_scene(axes: Axes, scene: Scene, mates: str) -> None:
    """Draw all shapes of a world; teammates wear the colour of their group."""
    left, right, bottom, top = scene.extent
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    axes.set(xticks=[], yticks=[])
    axes.set_facecolor("#fbfcfd")
    for spine in axes.spines.values():
        spine.set(color=GRID, linewidth=1.5)
    if scene.cells:
        for x in range(int(left) + 1, int(right)):
            axes.axvline(x, color=GRID, linewidth=1, zorder=0)
        for y in range(int(bottom) + 1, int(top)):
            axes.axhline(y, color=GRID, linewidth=1, zorder=0)
    for shape in scene.shapes:
        _draw_shape(axes, shape, mates)


def colour_of(group: int | np.integer) -> str:
    """Give each group of teammates a colour of its own."""
    return GROUPS[int(group) % len(GROUPS)]


def pixels(figure: Figure) -> np.ndarray:
    """Draw a figure into an array of RGB bytes."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file's ending, whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], facecolor=figure.get_facecolor())
    write(path, buffer.getvalue())


def write(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it, so that it is never half."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise Mistake(f"Could not write {path}: {error.strerror}.") from error


def _changes(film: Clip, t: int) -> bool:
    return 0 < t < len(film.swap) and bool(film.swap[t])


def _draw_shape(axes: Axes, shape: Shape, mates: str) -> None:
    x, y, radius = shape.x, shape.y, shape.radius
    colour = {"controlled": CONTROLLED, "mate": mates, **THINGS}[shape.kind]
    faint = 0.35 + 0.65 * shape.strength
    if shape.kind == "food":
        corner = (x - radius, y - radius)
        style = f"round,pad=0,rounding_size={radius / 2}"
        patch = FancyBboxPatch(corner, 2 * radius, 2 * radius, boxstyle=style)
    else:
        patch = Circle((x, y), radius)
    edge = INK if shape.kind in ("controlled", "mate") else "none"
    patch.set(facecolor=colour, edgecolor=edge, linewidth=1.0, alpha=faint)
    if shape.kind == "goal":  # visible when somebody stands on it
        patch.set(zorder=3, edgecolor="white")
    axes.add_artist(patch)
    if shape.label:
        text = axes.text(x, y - 0.02 * radius, shape.label, fontsize=11)
        text.set(ha="center", va="center", color="white", weight="bold")


def _draw_team(axes: Axes, film: Clip, now: int) -> None:
    """Draw one chip per slot; an empty, dashed one is an absent teammate."""
    axes.set(xlim=(0, 10), ylim=(0, 1))
    axes.axis("off")
    axes.text(0, 0.5, "team", color=INK, fontsize=8, va="center")
    for slot, there in enumerate(film.present[now]):
        x = 1.2 + 0.8 * slot
        mine = slot < film.controlled
        colour = CONTROLLED if mine else colour_of(film.group[now])
        style = "solid" if there else (0, (2, 2))
        fill = colour if there else "none"
        chip = Rectangle((x, 0.15), 0.6, 0.7, facecolor=fill, edgecolor=colour)
        chip.set(linestyle=style, linewidth=1.2)
        axes.add_artist(chip)
        ink = "white" if there else colour
        text = axes.text(x + 0.3, 0.48, str(slot), color=ink, fontsize=7)
        text.set(ha="center", va="center")


def _draw_timeline(axes: Axes, film: Clip, t: int) -> None:
    """Colour each step by its group and mark every change."""
    steps = len(film.group)
    axes.set(xlim=(0, steps), ylim=(0, 1))
    axes.axis("off")
    for i, group in enumerate(film.group):
        axes.add_artist(Rectangle((i, 0.25), 1, 0.4, color=colour_of(group), lw=0))
        if film.swap[i]:
            axes.plot([i, i], [0.05, 0.95], color=ALARM, linewidth=2)
    axes.plot([min(t, steps)], [0.45], "o", color=INK, markersize=6, clip_on=False)
