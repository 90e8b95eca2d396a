"""One self-contained page: tables, figures, and episodes to play in the browser."""

import html
import io
import json
import re
from collections.abc import Container, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from fastap.report.film import Clip

Cells = Sequence[Sequence[str]]


def page(title: str, parts: Sequence[str], films: Mapping[str, Any]) -> str:
    """Put parts and films into the page; nothing is fetched from anywhere."""
    template = Template((files("fastap.report") / "page.html").read_text())
    data = json.dumps(films, separators=(",", ":")).replace("<", "\\u003c")
    body = "\n".join(parts)
    links = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', body)
    links = [("replay", "Replay")] * bool(films) + links
    listed = "".join(f'<a href="#{place}">{name}</a>' for place, name in links)
    about = {
        "title": html.escape(title),
        "contents": f'<nav aria-label="Parts of the page">{listed}</nav>',
    }
    return template.substitute(about, body=body, films=data)


def heading(text: str, words: str = "") -> str:
    """Begin a part of the page; the page's contents lead to it."""
    more = f"<p>{html.escape(words)}</p>" if words else ""
    place = re.sub(r"\W+", "-", text.lower())
    return f'<h2 id="{place}">{html.escape(text)}</h2>{more}'


def grid(heads: Sequence[str], rows: Cells, beside: Container[int] = ()) -> str:
    """Write a table; rows to compare others with are set apart."""
    line = lambda cells, tag: "".join(
        f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells
    )
    kind = lambda place: ' class="beside"' if place in beside else ""
    body = "".join(f"<tr{kind(k)}>{line(row, 'td')}</tr>" for k, row in enumerate(rows))
    head = f"<thead><tr>{line(heads, 'th')}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'


def drawing(figure: Figure, words: str) -> str:
    """Put a figure into the page, as lines and not as pixels."""
    text = io.StringIO()
    with rc_context({"svg.hashsalt": "fastap", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    caption = f"<figcaption>{html.escape(words)}</figcaption>"
    return f"<figure>{svg[svg.index('<svg') :]}{caption}</figure>"


def latex(heads: Sequence[str], rows: Cells) -> str:
    """Write a table for a paper."""
    special = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$"}
    safe = lambda cell: cell.translate(str.maketrans(special))
    line = lambda cells: " & ".join(map(safe, cells)) + r" \\"
    body = "\n".join(line(row) for row in rows)
    columns = "l" * len(heads)
    return (
        f"\\begin{{tabular}}{{{columns}}}\n\\hline\n{line(heads)}\n\\hline\n{body}\n"
        "\\hline\n\\end{tabular}\n"
    )


def reel(film: Clip, context: np.ndarray) -> dict[str, Any]:
    """Write one episode so that a browser can play it."""
    steps = len(film.group)
    shape = lambda s: [
        s.kind,
        *(round(float(value), 3) for value in (s.x, s.y, s.radius)),
        s.label,
        round(float(s.strength), 2),
    ]
    return {
        "scenes": [[shape(s) for s in scene.shapes] for scene in film.scenes],
        "group": film.group.tolist(),
        "swap": film.swap.tolist(),
        "present": film.present.tolist(),
        "earned": np.round(film.earned, 4).tolist(),
        "context": np.round(np.asarray(context, float)[:steps], 4).tolist(),
    }


def theatre(film: Clip, horizon: int) -> dict[str, Any]:
    """Set up a stage, on which the reels of any methods can be shown."""
    scene = film.scenes[0]
    stage = {"extent": list(map(float, scene.extent)), "cells": scene.cells}
    return stage | {"horizon": horizon, "methods": {}}
