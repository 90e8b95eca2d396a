"""Every block of code in the documentation runs."""

import csv
import itertools
import re
import runpy
import shlex
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest

from fastap.cli import main
from fastap.commands.evaluate import BESIDE
from fastap.evaluation.statistics import improvement
from fastap.experiments.measure import ends
from fastap.teammates.zoo import load, save
from tests.idle import Began

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCKS = [
    pytest.param(code, id=f"{page.name}-{i}")
    for page in PAGES
    for i, code in enumerate(BLOCK.findall(page.read_text()))
]


CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
LINES = {
    line: pytest.param(line, id=f"{page.name}-{line[:40]}")
    for page in PAGES
    for block in CONSOLE.findall(page.read_text())
    for line in block.splitlines()
    if line.startswith("fastap ")
}


@pytest.mark.parametrize("line", LINES.values())
def test_commands_in_the_docs_are_right(line, idle, run, tmp_path, monkeypatch, capsys):
    """Each begins its work, beside the runs and zoos that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line, comments=True)[1:]
    if words[0] != "train" or "--resume" in words:
        for name in ("runs/fastap", "runs/qmix", "study/runs/lbf-fastap"):
            shutil.copytree(run, tmp_path / name)
    if "build" not in words:
        zoo = load("lbf-conventions").manifest
        save(tmp_path / "my-zoo", {k: v for k, v in zoo.items() if k != "yardsticks"})
    if words[0] == "reproduce" and "study" in words:
        shutil.rmtree(tmp_path / "study")
    if words == ["zoo", "show"]:  # the only one that has no work to begin
        main(words)
        assert "validation" in capsys.readouterr().out
        return
    with pytest.raises(Began):
        main(words)


@pytest.mark.parametrize("code", BLOCKS)
def test_code_in_the_docs_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "block.py"
    script.write_text(code)
    assert runpy.run_path(str(script))["fastap"]


def test_there_are_blocks_to_run():
    assert len(BLOCKS) >= 4


def test_links_in_the_docs_lead_somewhere():
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), (page.name, link)


TABLE = re.compile(r"<!-- (\S+\.csv)( watched)? -->\n((?:\|.*\n)+)")
TABLES = [
    pytest.param(*found, id=f"{page.name}-{found[0]}{found[1]}")
    for page in PAGES
    for found in TABLE.findall(page.read_text())
]


@pytest.mark.parametrize(("source", "memory", "text"), TABLES)
def test_tables_in_the_docs_are_those_of_the_results(source, memory, text):
    memory = memory.strip() or "fresh"
    with (ROOT / source).open() as file:
        here = [row for row in csv.DictReader(file) if row["memory"] == memory]
    rows = {(row["change"], row["method"]): row for row in here}
    assert len(rows) == len(here)
    cells = lambda line: [cell.strip(" `") for cell in line.strip("|").split("|")]
    short = lambda number: f"{float(number):.3f}".lstrip("0")
    heads, _, *lines = map(cells, text.splitlines())
    assert len(lines) >= 3 and len(heads) >= 6
    for change, *scores in lines:
        for who, score in zip(heads[1:], scores, strict=True):
            row = rows[change, "fastap" if who in BESIDE else who]
            both = f"{short(row['mean'])} ± {short(row['std'])}"
            assert score == (short(row[BESIDE[who]]) if who in BESIDE else both)


def test_results_in_the_docs_are_checked():
    assert len(TABLES) == 8


def returns_of(game: str) -> dict[tuple[str, str], list[float]]:
    """Read what every seed earned in a game, by method and change."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for name in ("difference", "ablations"):
        with (ROOT / "results" / f"{name}-{game}.csv").open() as file:
            for row in csv.DictReader(file):
                seeds = found.setdefault((row["method"], row["change"]), {})
                assert seeds.setdefault(row["seed"], float(row["return"])) == float(
                    row["return"]
                )
    return {case: list(seeds.values()) for case, seeds in found.items()}


def test_what_the_global_loss_costs_is_that_of_the_results():
    text = (ROOT / "docs" / "results.md").read_text()
    part = text.split("## What holds Fastap back")[1].split("### The positive")[0]
    _, *lines = re.findall(r"\| `([^`]+)` \| `([^`]+)` \| (.+) \|\n", part)
    assert len(lines) == 8  # four games, with change and without
    short = lambda number: f"{number:.3f}".lstrip("0")
    for game, change, cells in lines:
        *scores, chance = cells.split(" | ")
        returns = returns_of(game)
        of = lambda method, case=change, seeds=returns: np.array(seeds[method, case])
        told = [
            f"{short(of(who).mean())} ± {short(of(who).std())}"
            for who in ("fastap", "fastap-wo-gce", "odits", "qmix")
        ]
        assert scores == told
        better = improvement([of("fastap-wo-gce")], [of("fastap")], reps=10)[0]
        assert chance == brief(better)


def brief(chance: float) -> str:
    """Write a probability as the page does."""
    return f"{chance:.2f}".lstrip("0") if chance < 1 else "1.0"


def test_chances_over_four_games_are_those_of_the_results():
    text = (ROOT / "docs" / "results.md").read_text()
    rows = re.findall(r"\| `([^`]+)` beats `([^`]+)` \| (.+) \|\n", text)
    assert len(rows) == 6
    games = ("lbf", "pp", "cn", "10m_vs_14m")
    tables = [[returns_of(game) for game in games], [ends_of(game) for game in games]]
    for ours, theirs, cells in rows:
        told = []
        for table, change in itertools.product(tables, ("stationary", "U[5,8]")):
            both = (
                [np.array(game[who, change]) for game in table]
                for who in (ours, theirs)
            )
            chance, low, high = map(brief, improvement(*both))
            told.append(f"{chance} ({low} to {high})")
        assert cells.split(" | ") == told


def ends_of(game: str) -> dict[tuple[str, str], list[float]]:
    """Read where curves beside validation groups end, by method and change."""
    rows = []
    with (ROOT / "results" / f"main-{game}.csv").open() as file:
        for row in csv.DictReader(file):
            if row["pool"] == "validation":
                numbers = {"step": int(row["step"]), "return": float(row["return"])}
                rows.append(row | numbers)
    found = ends(rows, "return")
    return {(method, change): list(x) for (change, method), x in found.items()}


def test_the_causes_in_the_docs_are_those_of_the_results():
    with (ROOT / "results" / "causes-lbf-conventions.csv").open() as file:
        rows = list(csv.DictReader(file))
    text = (ROOT / "docs" / "results.md").read_text()
    part = text.split("causes-lbf-conventions.csv")[1].split("It is the global loss")[0]
    lines = re.findall(r"\| `([^`]+)`[^|]*\| ([^|]+) \| ([^|]+) \|", part)
    said = {name: scores for name, *scores in lines if name != "stationary"}
    assert said.keys() == {row["method"] for row in rows}
    for name, scores in said.items():
        runs = dict.fromkeys(row["run"] for row in rows if row["method"] == name)
        for case, score in zip(("stationary", "U[5,8]"), scores, strict=True):
            means = [
                statistics.mean(
                    float(row[f"{case} validation"])
                    for row in rows
                    if (row["method"], row["run"]) == (name, run)
                )
                for run in runs
            ]
            told = [float(number) for number in score.split(", ")]
            assert told == pytest.approx(means, abs=6e-4)


def test_every_command_in_the_docs_exists(capsys):
    text = "\n".join(page.read_text() for page in PAGES)
    commands = set(re.findall(r"`fastap ([a-z]+)", text))
    assert commands
    for command in commands:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0


def test_every_target_in_the_readme_is_in_the_makefile():
    targets = set(re.findall(r"^make ([a-z]+)", PAGES[0].read_text(), re.MULTILINE))
    assert targets == {"quickstart", "test"}
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in targets)
