"""The page: whole, safe, and with everything in it that a browser needs."""

import csv
import json
import re

import pytest
from tests.report.browser import visit

from fastap.cli import main
from fastap.commands.naming import labels, places, runs_in
from fastap.report.page import grid, latex, page
from fastap.teammates import zoo as store
from fastap.training import checkpoint
from fastap.training.settings import settings
from fastap.training.train import State, course


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs whose agents have learnt nothing; one is not done, one of another game."""
    out = tmp_path_factory.mktemp("runs")
    row = {"step": 800, "seed": 0, "variant": "qmix"}
    scores = {
        f"{c} {p}": 0.5
        for c in ("stationary", "U[5,8]")
        for p in ("train", "validation")
    }
    two = settings("lbf", "oracle", "smoke", beside=("qmix",))
    one = settings("cn", "qmix", "smoke", seeds=1)
    for asked, names in ((two, ("done", "early")), (one, ("elsewhere",))):
        ready = course(asked)
        state = ready.start()
        for name in names:
            beats = 1 if name == "early" else ready.beats
            now = State(state.runs, beats, (row | scores,))
            checkpoint.write_config(out / name, ready.settings, {})
            checkpoint.publish(out / name, ready, now)
    return out


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    asked = ["--episodes", "8", "--replays", "2", "--out", str(path)]
    named = [str(runs / name) for name in ("done", "early", "elsewhere")]
    main(["report", *named, *asked])
    return path


def films_in(path, place="lbf"):
    found = re.search(r'<script id="films"[^>]*>(.*?)</script>', path.read_text(), re.S)
    return json.loads(found[1])[place]


def rows_in(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_nothing_is_fetched_from_anywhere(made):
    text = made.read_text()
    assert not re.search(r'(src|href)\s*=\s*"(?!#|data:)', text)
    assert "@import" not in text and "fetch(" not in text
    assert made.stat().st_size < 5 * 2**20


def test_unfinished_runs_are_named(made):
    text = made.read_text()
    assert "at step 200 of 1,600" in text and "<td>done</td>" in text
    for row in rows_in(made.with_suffix(".csv")):  # and where their scores are
        early = row["method"].startswith("early")
        assert row["training"] == ("at step 200 of 1,600" if early else "done")


def test_yardsticks_stand_beside_every_score(made):
    """As rows of their own, beneath those of the same change and game."""
    text = made.read_text()
    table = text[text.index('<h2 id="returns">') :].split("</table>")[0]
    lines = re.findall(r"<tr( class=.beside.)?>(.*?)</tr>", table)[1:]
    cells = [(bool(kind), re.findall(r"<td>(.*?)</td>", line)) for kind, line in lines]
    first = next(row for row in rows_in(made.with_suffix(".csv")) if row["told"])
    spot = [row for row in cells if row[1][:2] == [first["zoo"], first["change"]]]
    named = {row[2]: row[3] for kind, row in spot if kind}
    assert named == {who: first[who] for who in named} and {"random", "told"} <= set(
        named
    )
    assert all("(" not in row[2] and not any(row[4:]) for kind, row in cells if kind)
    early = [row[2] for kind, row in cells if not kind and row[2].startswith("early")]
    assert early and all("at step 200 of 1,600" in name for name in early)


def test_the_contents_lead_to_every_part(made):
    text = made.read_text()
    links = re.findall(r'<a href="#([^"]+)">', text)
    assert links[:2] == ["replay", "returns"] and links[-1] == "runs"
    for link in links:
        assert text.count(f'id="{link}"') == 1


def test_methods_of_two_runs_are_told_apart(made):
    films = films_in(made)
    names = {
        f"{run}: {method}" for run in ("done", "early") for method in ("oracle", "qmix")
    }
    assert set(films["methods"]) == names
    rows = [row for row in rows_in(made.with_suffix(".csv")) if row["zoo"] == "lbf"]
    assert {row["method"] for row in rows} == names and len(rows) == 8
    assert made.with_suffix(".tex").read_text().count(r"\\") == 11


def test_games_are_told_apart(made):
    """A method of one game has its own name, whatever it is called in another."""
    assert set(films_in(made, "cn")["methods"]) == {"qmix"}
    assert films_in(made, "cn")["cells"] is False
    rows = [row for row in rows_in(made.with_suffix(".csv")) if row["zoo"] == "cn"]
    assert [row["method"] for row in rows] == ["qmix", "qmix"]
    assert all(float(row["IQM"]) < 0 and not row["win rate"] for row in rows)
    for row in rows:  # on a scale where less is lost
        scores = [float(row[who]) for who in ("random", "told", "own team")]
        assert scores == sorted(scores)
    text = made.read_text()
    for title in ("lbf, one change at[8]", "cn, one change at[12]", "cn, stationary"):
        assert title in text


def test_what_agents_know_is_beside_the_page_too(made):
    path = made.with_stem("report-memories")
    rows = rows_in(path.with_suffix(".csv"))
    assert [row["zoo"] for row in rows] == ["lbf"] * 4 + ["cn"]
    for row in rows:
        assert 0 <= float(row["type, 4 after"]) <= 1
    assert path.with_suffix(".tex").read_text().count(r"\\") == 6


def test_a_run_called_after_a_method_keeps_its_name(tmp_path):
    for name in ("lbf-fastap", "lbf-weights", "scratch"):
        asked = settings("lbf", "fastap", "smoke")
        if name == "lbf-weights":
            asked = settings("lbf", "fastap", "smoke", beside=("fastap:lce=10",))
        checkpoint.write_config(tmp_path / name, asked, {})
    runs = [tmp_path / n for n in ("lbf-fastap", "lbf-weights", "scratch")]
    names = ["fastap", "lbf-weights: fastap", "fastap:lce=10", "scratch"]
    assert list(labels(runs, places(runs)).values()) == names
    checkpoint.write_config(tmp_path / "fastap", settings("lbf", "fastap", "smoke"), {})
    two = [tmp_path / n for n in ("lbf-fastap", "fastap")]  # both are called so
    assert list(labels(two, places(two)).values()) == ["lbf-fastap", "fastap"]


def test_zoos_of_one_name_are_told_apart(tmp_path):
    whole = store.load("lbf-conventions").manifest
    for name, count in (("mine", 8), ("yours", 32)):
        few = {"name": "zoo", "groups": whole["groups"][:count]}
        store.save(tmp_path / name / "zoo", whole | few)
    zoos = [tmp_path / name / "zoo" for name in ("mine", "yours")]
    runs = [tmp_path / name for name in ("a", "b", "c")]
    for run, zoo in zip(runs, (*zoos, "lbf"), strict=True):
        asked = settings("lbf", "qmix", "smoke", zoo=str(zoo))
        checkpoint.write_config(run, asked, {})
    found = places(runs)
    assert list(found.values()) == [*(f"zoo ({zoo})" for zoo in zoos), "lbf"]
    assert places(runs[:1]) == {runs[0]: "zoo"}
    assert set(labels(runs, found).values()) == {"qmix"}


def test_a_study_is_shown_game_by_game(tmp_path):
    for name, env in (("cn-qmix", "cn"), ("lbf-qmix", "lbf"), ("lbf-fastap", "lbf")):
        asked = settings(env, name.partition("-")[2], "smoke")
        checkpoint.write_config(tmp_path / "runs" / name, asked, {})
    names = [run.name for run in runs_in(tmp_path)]
    assert names == ["lbf-fastap", "lbf-qmix", "cn-qmix"]


def test_the_page_says_what_agents_know_and_how_seeds_spread(made):
    text = made.read_text()
    assert "What agents know of their teammates" in text and "type, 4 after" in text
    assert "share of seeds above it" in text
    rows = rows_in(made.with_suffix(".csv"))
    kinds = ("seen types", "unseen types")
    for row in rows:
        parts = [float(row[kind]) for kind in kinds if row[kind]]
        mean = float(row["mean ± std"].split()[0])
        assert parts == [mean]  # the held-out groups of so few are of one sort


def test_all_methods_play_the_same_episodes(made):
    films = films_in(made)
    for one, *rest in zip(*films["methods"].values(), strict=True):
        assert len(one["scenes"]) == len(one["group"]) + 1 == len(one["earned"])
        for other in rest:
            shared = min(len(one["group"]), len(other["group"]))
            assert other["group"][:shared] == one["group"][:shared]
            assert other["scenes"][0] == one["scenes"][0]
    assert films["horizon"] == 25 and films["cells"]


def test_text_cannot_break_out_of_the_page():
    text = page("<b>", [grid(("<i>",), [("</td>",)])], {"x": "</script><script>"})
    assert "<b>" not in text and "<i>" not in text
    assert text.count("</script>") == 2
    assert latex(("a_b",), [("1 ± 2 %",)]).count(r"\_") == 1


def test_a_page_is_not_overwritten_and_wrong_folders_are_named(made, runs, capsys):
    for asked in (
        ["report", str(runs / "done"), "--out", str(made)],
        ["report", str(runs / "nobody"), "--out", str(runs / "x.html")],
        ["report", "--out", str(runs / "x.html")],
    ):
        with pytest.raises(SystemExit) as stop:
            main(asked)
        assert stop.value.code == 2
    assert not (runs / "x.html").exists()


def centre_of(film, t, kind):
    """Say where on the board something is, as shares of its width and height."""
    for name, x, y, *_ in film["scenes"][t]:
        if name == kind:
            return x, y
    raise AssertionError(kind)


def test_a_browser_plays_scrubs_and_switches(made, tmp_path):
    films = films_in(made)
    left, right, bottom, top = films["extent"]
    first, second = list(films["methods"])[:2]
    film = films["methods"][first][0]
    x, y = centre_of(film, 4, "controlled")
    place = f"{(x - left) / (right - left) - 0.03}, {(top - y) / (top - bottom) - 0.03}"
    cn = films_in(made, "cn")
    x, y = centre_of(cn["methods"]["qmix"][0], 3, "controlled")
    left, right, bottom, top = cn["extent"]
    other = f"{(x - left) / (right - left)}, {(top - y) / (top - bottom) - 0.01}"
    change = film["swap"].index(True)
    script = f"""
      seen.start = said(0);
      document.getElementById("next").click(); seen.next = said(0);
      document.getElementById("back").click(); seen.back = said(0);
      const scrub = document.getElementById("scrub");
      scrub.value = 4; scrub.dispatchEvent(new Event("input"));
      seen.scrubbed = said(1); seen.agent = pixel("board0", {place});
      scrub.value = {change}; scrub.dispatchEvent(new Event("input"));
      seen.change = said(0);
      press("ArrowRight"); seen.key = said(0);
      choose("left", {json.dumps(second)}); seen.switched = said(0);
      seen.shown = document.getElementById("left").value;
      choose("episode", 1); seen.episode = said(0);
      choose("place", "cn"); seen.elsewhere = said(1);
      seen.there = document.getElementById("left").value;
      scrub.value = 3; scrub.dispatchEvent(new Event("input")); seen.cn = said(0);
      seen.other = pixel("board1", {other});
      choose("place", "lbf"); seen.home = document.getElementById("left").value;
      seen.others = document.getElementById("right").value;
      press(" "); seen.playing = document.getElementById("play").textContent;
      await wait(1000); seen.played = said(0);
      press(" "); seen.paused = document.getElementById("play").textContent;
      const stopped = said(0); await wait(1000); seen.still = stopped === said(0);
      seen.wide = document.documentElement.scrollWidth <= window.innerWidth;
    """
    seen = visit(made, tmp_path, script)
    assert seen["errors"] == []
    assert seen["start"].startswith("step 0,") and seen["back"].startswith("step 0,")
    assert seen["next"].startswith("step 1,") and seen["scrubbed"].startswith("step 4,")
    assert seen["agent"] == [0x1F, 0x6F, 0xD6, 255]  # one of ours is there, in blue
    assert "teammates change" in seen["change"]
    assert seen["key"].startswith(f"step {change + 1},")
    assert seen["switched"].startswith("step 0,") and seen["shown"] == second
    assert seen["episode"].startswith("step 0,") and seen["playing"] == "Pause"
    assert seen["elsewhere"].startswith("step 0,") and seen["there"] == "qmix"
    assert seen["cn"].startswith("step 3,") and seen["home"] == first
    assert seen["others"] == second
    assert seen["other"] == [0x1F, 0x6F, 0xD6, 255]
    assert not seen["played"].startswith("step 0,") and seen["paused"] == "Play"
    assert seen["still"] and seen["wide"]


def test_a_phone_shows_it_without_scrolling_sideways(made, tmp_path):
    script = """seen.wide = document.documentElement.scrollWidth <= window.innerWidth;
      seen.drawn = pixel("board1", 0.5, 0.5)[3];"""
    seen = visit(made, tmp_path, script, width=500)  # the narrowest it opens
    assert seen == {"errors": [], "wide": True, "drawn": 255}


def test_a_browser_draws_each_agents_context_up_to_now(tmp_path):
    """Two agents, a number each: one rises when teammates change, the other falls."""
    film = {
        "scenes": [[["controlled", 1.0, 1.0, 0.3, "", 1.0]]] * 5,
        "group": [0, 0, 1, 1],
        "swap": [False, False, True, False],
        "present": [[True, True]] * 4,
        "earned": [0.0, 0.0, 0.5, 0.5, 1.0],
        "context": [[[0.0], [1.0]], [[0.0], [1.0]], [[1.0], [0.0]], [[1.0], [0.0]]],
    }
    stage = {"extent": [0, 2, 0, 2], "cells": True, "horizon": 4}
    path = tmp_path / "page.html"
    path.write_text(page("x", [], {"toy": stage | {"methods": {"m": [film]}}}))
    script = """
      const ink = (x, y) => {  // how much is drawn there, three pixels up and down
        const canvas = document.getElementById("thought0");
        const at = [x * canvas.width, y * canvas.height - 3, 1, 7];
        const data = [...canvas.getContext("2d").getImageData(...at).data];
        return data.filter((v, i) => i % 4 === 3 && v).length;
      };
      const places = [[0.2, 0.46], [0.7, 0.04], [0.2, 0.54], [0.7, 0.96]];
      const look = () => places.map(([x, y]) => ink(x, y) > 0);
      const scrub = document.getElementById("scrub");
      scrub.value = 1; scrub.dispatchEvent(new Event("input")); seen.before = look();
      scrub.value = 3; scrub.dispatchEvent(new Event("input")); seen.after = look();
      seen.empty = [ink(0.2, 0.2), ink(0.7, 0.75)];
      seen.game = document.getElementById("where").hidden;
    """
    seen = visit(path, tmp_path, script)
    assert seen["errors"] == [] and seen["empty"] == [0, 0] and seen["game"]
    assert seen["before"] == [True, False, True, False]
    assert seen["after"] == [True, True, True, True]
