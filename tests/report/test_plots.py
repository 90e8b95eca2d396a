"""Figures of numbers: drawn without a display, and showing what they should."""

import numpy as np

from fastap.report.film import save_figure
from fastap.report.plots import embeddings, heat_maps


def test_heat_maps_stand_side_by_side(tmp_path):
    small, large = np.eye(3), np.full((14, 14), 0.5)
    names = [list("abc"), [f"group {i}" for i in range(14)]]
    figure = heat_maps([small, large], ["few", "many"], names)
    first, second, bar = figure.axes
    assert [t.get_text() for t in first.get_xticklabels()] == ["a", "b", "c"]
    written = [float(t.get_text()) for t in first.texts]
    assert written == small.flatten().tolist()
    assert not second.texts and "score" in bar.get_ylabel()
    save_figure(figure, tmp_path / "heat.png")
    assert (tmp_path / "heat.png").stat().st_size > 5000


def test_embeddings_get_an_ellipse_for_every_cluster(tmp_path):
    draw = np.random.default_rng(0)
    centres = np.repeat([[0.0, 0, 0], [8, 0, 0], [8, 1, 0]], 30, axis=0)
    points, group = centres + draw.normal(size=(90, 3)), np.repeat([0, 1, 2], 30)
    clusters = (np.array([0, 1, 1]), ["a", "b", "c"])
    assert len(embeddings(points, group, *clusters, few=3).axes) == 1
    figure = embeddings(points, group, *clusters, few=2)
    first, axes = figure.axes
    assert (first.get_title("left"), axes.get_title("left")) == ("2 groups", "3 groups")
    assert sum(len(dots.get_offsets()) for dots in first.collections) == 60
    assert len(axes.patches) == 2
    assert [t.get_text() for t in axes.texts] == ["a", "b"]
    wide = max(axes.patches, key=lambda ellipse: ellipse.width)
    assert 3 < wide.height < 6  # two standard deviations to each side
    save_figure(figure, tmp_path / "plane.svg")
    assert (tmp_path / "plane.svg").read_text().startswith("<?xml")
