"""The table of update ratios as a command."""

import csv
import math

from fastap.cli import main
from fastap.commands.ratio import mean
from fastap.experiments import ratio


def test_every_ratio_trains_and_its_curve_is_written(tmp_path, monkeypatch, capsys):
    """One method of two, for the time it takes to compile them."""
    monkeypatch.setattr(ratio, "METHODS", ("qmix",))
    monkeypatch.setattr(ratio, "RATIOS", (2, 8))
    asked = ["reproduce", "ratio", "--preset", "smoke", "--seeds", "2", "--zoo", "lbf"]
    main([*asked, "--out", str(tmp_path)])
    rows = list(csv.DictReader((tmp_path / "ratio-lbf.csv").read_text().splitlines()))
    assert {(row["ratio"], row["seed"], row["step"]) for row in rows} == {
        (number, seed, step)
        for number in "28"
        for seed in "01"
        for step in ("800", "1600")
    }
    assert all(float(row["seconds"]) > 0 for row in rows)
    assert "qmix" in capsys.readouterr().out


def test_updates_follow_the_ratio():
    courses = list(ratio.Ratio("lbf", "paper").courses())
    updates = {(c.settings.method, number): c.practice.updates for number, c in courses}
    plays = {c.practice.episodes for _, c in courses}
    assert plays == {32}
    assert updates == {
        (method, number): 4 * number
        for method in ("qmix", "fastap")
        for number in (1, 2, 4, 8)
    }


def test_equal_seconds_are_compared_at_the_last_point_before():
    points = ((1.0, 0.1), (2.0, 0.2), (2.0, 0.4), (3.0, 0.9))
    rows = [{"seconds": when, "stationary": score} for when, score in points]
    assert math.isclose(mean(rows, 2.5, "stationary"), 0.3)
    assert mean(rows, 3.0, "stationary") == 0.9
    assert math.isnan(mean(rows, 0.5, "stationary"))
