"""Figures of numbers: drawn without a display, and showing what they should."""

import numpy as np

from fastap.report.figures import bars, profiles, regrets
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


def test_a_method_has_one_colour_in_all_games():
    """The legend names it once."""
    lost = {"at[8]": {"regret": [0.1, 0.0]}}
    told = (("lbf", "fastap-wo-mi"), ("pp", "liam"), ("pp", "fastap-wo-mi"))
    rows = [
        {"env": env, "method": method, "adaptation": lost, "returns": [0.1, 0.4]}
        for env, method in told
    ]
    for figure in (regrets(rows), profiles(rows)):
        lines = [line for ax in figure.axes for line in ax.get_lines()]
        named = [line for line in lines if line.get_label() == "w/o MI"]
        assert len(named) == 2
        assert named[0].get_color() == named[1].get_color()


def test_bars_stand_in_rows():
    panels = {name: {"qmix": np.array([1.0, 2.0])} for name in "abcd"}
    figure = bars(panels, "return", down=2)
    places = [ax.get_subplotspec().get_geometry()[:3] for ax in figure.axes]
    assert places == [(2, 2, k) for k in range(4)]
    assert [bool(ax.get_ylabel()) for ax in figure.axes] == [True, False, True, False]
