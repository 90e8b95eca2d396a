"""Every experiment of the paper, end to end, as small as it gets."""

import csv
import dataclasses
import io
import json
import os
import shutil
import signal
import tarfile

import numpy as np
import pytest
from rich.console import Console

from fastap.cli import main
from fastap.commands import reproduce, study
from fastap.commands.study import holds
from fastap.commands.tables import shortly
from fastap.experiments.assess import Question
from fastap.experiments.measure import (
    answers,
    costs,
    curves,
    finals,
    recorded,
    status,
)
from fastap.experiments.study import (
    EXPERIMENTS,
    NEIGHBOURS,
    PAPER,
    Cohort,
    printed,
    printed_difference,
)
from fastap.experiments.thoughts import guessed
from fastap.problem.spec import Mistake
from fastap.teammates import zoo as store
from fastap.training.settings import settings

SMOKE = ("--preset", "smoke", "--env", "lbf")
FIGURES = {
    *("main", "main-won", "difference", "ablations", "crossplay-lbf"),
    *("embeddings-lbf", "snapshot", "context", "transfer", "sensitivity"),
}
TABLES = {
    *("main", "difference", "table1", "ablations", "crossplay", "embeddings"),
    *("context", "transfer", "sensitivity"),
}
MORE = {"difference-lbf-costs", "table1-lbf-improvement"}
PRINTED = {
    *("main-lbf", "table1-lbf", "table1-lbf-improvement", "difference-lbf"),
    *("ablations-lbf", "sensitivity-lbf", "context-lbf"),
    *("crossplay-lbf", "embeddings-lbf"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What `fastap reproduce all` makes."""
    out = tmp_path_factory.mktemp("study") / "all"
    main(["reproduce", "all", *SMOKE, "--out", str(out)])
    return out


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_every_figure_and_table_is_there(made):
    assert {path.stem for path in made.glob("*.png")} == FIGURES
    judged = {name for name in TABLES if EXPERIMENTS[name].changes}
    tables = {f"{n}-lbf" for n in TABLES} | {f"{n}-lbf-summary" for n in judged}
    assert {path.stem for path in made.glob("*.csv")} == tables | MORE
    assert {path.stem for path in made.glob("*.tex")} == PRINTED
    assert (made / "environments" / "environments.png").is_file()
    for path in made.glob("*.csv"):
        facts = json.loads(path.with_suffix(".json").read_text())
        assert facts["preset"] == "smoke" and facts["versions"]["jax"]
        if not EXPERIMENTS[path.stem.split("-")[0]].cohorts("lbf"):
            assert not facts["runs"]  # of teammates alone
            continue
        run = facts["runs"]["lbf-liam"]
        assert run["seconds"] > 0 and run["command"] and run["device"]


def test_summaries_are_of_the_same_scores(made):
    scores = rows_of(made / "table1-lbf.csv")
    for row in rows_of(made / "table1-lbf-summary.csv"):
        same = ("method", "change", "memory")
        here = [s for s in scores if all(s[name] == row[name] for name in same)]
        mean = np.mean([float(s["return"]) for s in here])
        assert float(row["mean"]) == pytest.approx(mean)
        assert float(row["low"]) <= float(row["iqm"]) <= float(row["high"])


def test_every_method_is_asked_what_its_memory_knows(made):
    rows = rows_of(made / "context-lbf.csv")
    assert [row["method"] for row in rows] == list(EXPERIMENTS["context"].methods)
    for row in rows:
        assert 0 < float(row["type by chance"]) < 1 > float(row["cluster by chance"])
        for lag in range(3):
            assert 0 <= float(row[f"type after {lag}"]) <= 1
            assert 0 <= float(row[f"cluster after {lag}"]) <= 1


def test_chance_knows_how_common_labels_are():
    assert guessed(np.array([0, 1, 1, 2]), np.array([1, 2, 1, 0])) == 6 / 16
    assert guessed(np.array([0, 0]), np.array([0, 3])) == 0.5
    assert np.isnan(guessed(np.array([2, 2]), np.array([], int)))


def test_tables_have_a_row_for_each_cell_and_seed(made):
    rows = rows_of(made / "table1-lbf.csv")
    parts = ("method", "change", "memory", "seed")
    cells = {tuple(row[part] for part in parts) for row in rows}
    experiment = EXPERIMENTS["table1"]
    assert len(rows) == len(cells) == 8 * 6 * 2 * 2
    assert {row["method"] for row in rows} == set(experiment.methods)
    assert {row["pool"] for row in rows} == {"held-out"}
    columns = ["env", "method", "change", "pool", "memory", "seed", "episodes"]
    assert list(rows[0])[:8] == [*columns, "return"]
    for row in rows:  # what anybody can earn, on the same episodes
        assert float(row["floor"]) < float(row["told"]) < 1
        assert float(row["floor"]) < float(row["own"]) <= float(row["ceiling"])
        assert float(row["floor"]) < float(row["switching"]) <= float(row["ceiling"])


def test_the_main_figure_of_another_environment(tmp_path, monkeypatch):
    """Where returns are losses; two methods stand for all, which compile longer."""
    some = dataclasses.replace(
        EXPERIMENTS["main"],
        cohorts=lambda env: (Cohort("oracle", "oracle", ("qmix",)),),
    )
    monkeypatch.setitem(EXPERIMENTS, "main", some)
    out = tmp_path / "cn"
    main(["reproduce", "main", "--preset", "smoke", "--zoo", "cn", "--out", str(out)])
    rows = rows_of(out / "main-cn.csv")
    assert {row["method"] for row in rows} == {"oracle", "qmix"}
    assert {row["change"] for row in rows} == {"stationary", "U[5,8]"}
    assert all(-300 < float(row["return"]) < 0 for row in rows)
    assert (out / "main.png").is_file()
    lines = (out / "main-cn.tex").read_text().splitlines()
    assert sum(line.endswith(r"&  \\") for line in lines) == 4  # no paper about it


def test_what_change_costs_is_worked_out_by_hand():
    """Two seeds each; the oracle is better, and does not count among the best."""
    returns = {
        ("qmix", "stationary"): [0.4, 0.6],
        ("qmix", "U[5,8]"): [0.3, 0.3],
        ("qmix", "U[5,8]-same"): [0.2, 0.4],
        ("oracle", "stationary"): [0.9, 0.9],
        ("oracle", "U[5,8]"): [0.4, 0.6],
        ("oracle", "U[5,8]-same"): [0.8, 0.8],
    }
    found = [
        {"env": "cn", "method": method, "change": change, "returns": scores}
        for (method, change), scores in returns.items()
    ]
    qmix, oracle = (one.row() for one in costs(found))
    assert qmix["less none"] == pytest.approx(-0.2)
    assert (qmix["low"], qmix["high"]) == pytest.approx((-0.3, -0.1))
    assert qmix["of the best"] == pytest.approx(-0.4)
    assert qmix["less same"] == pytest.approx(0, abs=1e-9)
    assert oracle["of the best"] == pytest.approx(-0.8)
    assert oracle["less same"] == pytest.approx(-0.3)
    shown = shortly(qmix, "-0.263")
    assert shown["change - no change"] == "-0.200 (-0.300 to -0.100)"
    assert list(shown).index("paper") == 2
    losses = [one | {"returns": [-x for x in one["returns"]]} for one in found]
    worse, _ = (one.row() for one in costs(losses))
    assert worse["of the best"] == pytest.approx(0.4)  # a share of its absolute value


def test_the_end_of_a_curve_is_its_last_five_points():
    """Two seeds, seven points; the first two would change the mean, if they counted."""
    rows = [
        {"env": "lbf", "method": "qmix", "change": "stationary", "pool": "validation"}
        | {
            "seed": seed,
            "step": step,
            "return": 9.0 if step < 2 else float(step + seed),
        }
        for step in reversed(range(7))
        for seed in (0, 2)
    ]
    others = [row | {"pool": "train", "return": 99.0} for row in rows]
    (end,) = finals(rows + others, ("qmix", "liam"))
    assert (end["mean"], end["std"], end["seeds"]) == (5.0, 1.0, 2)
    assert "win rate" not in end
    won = [row | {"win_rate": (row["step"] + row["seed"]) / 10} for row in rows]
    (end,) = finals(won, ("qmix",))
    assert end["mean"] == 5.0 and end["win rate"] == pytest.approx(0.5)
    assert finals([], ("qmix",)) == []


def test_tables_leave_blank_what_only_some_rows_have(tmp_path):
    """As of runs of before and after win rates were noted."""
    told = io.StringIO()
    one = study.Study(tmp_path, "smoke", Console(file=told, width=80), None)
    one.tabulate("both", "", [{"method": "old"}, {"method": "new", "win rate": 0.25}])
    assert "win rate" in told.getvalue() and "0.250" in told.getvalue()


def test_tables_leave_out_what_is_not_a_number(tmp_path):
    here = study.Study(tmp_path, "smoke", Console(file=io.StringIO()), None)
    here.tabulate("odd", "title", [{"who": "qmix", "jump": float("nan"), "n": 2}])
    assert r"qmix &  & 2 \\" in (tmp_path / "odd.tex").read_text()
    here.tabulate("none", "title", [])
    assert not (tmp_path / "none.tex").exists()


@pytest.mark.parametrize(
    ("zoo", "env", "words"),
    [(None, "lbf", ".562±.012"), ("lbf-conventions", "lbf", ""), (None, "cn", "")],
)
def test_the_paper_is_about_the_zoo_of_lbf(tmp_path, zoo, env, words):
    here = study.Study(tmp_path, "smoke", Console(), None, zoo)
    assert here.paper(env, "U[5,8]", "fastap") == words


def test_the_paper_says_what_change_costs():
    assert printed_difference("fastap") == "-0.080"
    assert printed_difference("odits") == "-0.285"
    assert printed_difference("oracle") == ""


def test_costs_are_of_the_same_scores(made):
    scores = rows_of(made / "difference-lbf.csv")
    rows = rows_of(made / "difference-lbf-costs.csv")
    assert {row["method"] for row in rows} == set(EXPERIMENTS["difference"].methods)
    for row in rows:
        mean = lambda change, row=row: np.mean(
            [
                float(s["return"])
                for s in scores
                if (s["method"], s["change"]) == (row["method"], change)
            ]
        )
        lost = mean("U[5,8]") - mean("stationary")
        assert float(row["less none"]) == pytest.approx(lost)
        assert float(row["low"]) <= lost + 1e-9 and lost - 1e-9 <= float(row["high"])
        policies = mean("U[5,8]") - mean("U[5,8]-same")
        assert float(row["less same"]) == pytest.approx(policies)


def test_crossplay_is_told_of_eight_groups_and_of_all(made):
    few, every = rows_of(made / "crossplay-lbf.csv")
    assert (few["groups"], every["groups"]) == ("8", "16")
    facts = store.load("lbf").manifest
    assert int(every["clusters"]) == facts["clusters"]
    assert float(every["ARI"]) == pytest.approx(facts["ari"], abs=1e-4)
    for ours, theirs in (("same", "within"), ("other", "between")):
        known = facts[f"crossplay_{theirs}_clusters"]
        assert float(every[f"{ours} cluster"]) == pytest.approx(known, abs=1e-3)
    for row in (few, every):
        assert float(row["self"]) > float(row["others"]) + 0.3


def test_a_table_for_a_paper_has_the_papers_numbers(made):
    lines = (made / "table1-lbf.tex").read_text().splitlines()
    (cell,) = (line for line in lines if line.startswith("U[5,8] & fastap &"))
    assert cell.endswith(r"& .562$\pm$.012 \\") and cell.count("&") == 4
    (told,) = (line for line in lines if line.startswith("U[3,3] & told &"))
    assert "no run" not in told and told.endswith(r"&  \\")


def test_answers_that_meant_something_else_are_given_anew(made, monkeypatch):
    run, changes = made / "runs" / "lbf-liam", EXPERIMENTS["difference"].changes
    asked = Question(changes, "held-out", study.FEW["smoke"])
    assert recorded(run, asked)
    monkeypatch.setattr("fastap.experiments.measure.ANSWERS", 1)
    assert recorded(run, asked) is None


def test_curves_are_those_of_the_runs(made):
    rows = rows_of(made / "main-lbf.csv")
    assert {row["method"] for row in rows} >= set(EXPERIMENTS["main"].methods)
    own = curves(made / "runs" / "lbf-liam", "lbf")
    theirs = [row for row in rows if row["method"] == "liam"]
    for measure in ("return", "win_rate"):
        assert [float(row[measure]) for row in theirs] == [row[measure] for row in own]
    for row in own:  # who has loaded all food has earned all there is
        assert 0 <= row["win_rate"] <= row["return"] + 1e-6


def test_curves_may_know_no_win_rates(tmp_path):
    """Those of games without a goal, and points of before they were noted."""
    lines = ["variant,seed,step,stationary train,won stationary train"]
    lines += ["qmix,0,100,0.5,", "qmix,0,200,0.5,0.25"]
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    old, new = curves(tmp_path, "lbf")
    assert "win_rate" not in old and new["win_rate"] == 0.25


def test_a_transfer_is_judged_under_its_target(made):
    rows = rows_of(made / "transfer-lbf.csv")
    assert {row["change"] for row in rows} == {"stationary", "U[5,8]", "U[3,6]"}
    assert {row["method"] for row in rows} == {"transferred", "scratch"}
    config = json.loads((made / "runs/lbf-transferred/config.json").read_text())
    assert config["settings"]["start"].endswith("lbf-source")


def test_a_source_is_trained_no_longer_than_in_the_paper():
    source, after, _ = EXPERIMENTS["transfer"].cohorts("lbf")
    assert source.steps("paper", None) == source.steps("paper", 3_000_000) == 600_000
    assert source.steps("smoke", None) == 1_600 and source.steps("paper", 9) == 9
    assert after.steps("paper", None) is None and after.steps("paper", 9) == 9


def test_what_is_done_is_not_done_again(made, monkeypatch, capsys):
    monkeypatch.setattr(study, "Train", None)
    monkeypatch.setattr("fastap.experiments.measure.assess", None)
    main(["reproduce", "table1", *SMOKE, "--out", str(made)])
    text = capsys.readouterr().out
    assert "ours" in text and ".642" in text  # the paper's number beside ours


def test_other_settings_are_refused(made, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "main", *SMOKE, "--steps", "3200", "--out", str(made)])
    assert stop.value.code == 2 and "other settings" in capsys.readouterr().err


def test_runs_may_hold_more_than_is_asked_for():
    want = settings("cn", "fastap", "smoke", beside=("odits",))
    there = lambda **other: dataclasses.replace(want, **other)
    assert holds(there(beside=("fastap-wo-gce", "odits")), want)
    assert not holds(there(beside=("fastap-wo-gce",)), want)
    assert not holds(there(rate=1e-3), want)


def test_time_that_is_over_is_said_and_nothing_is_lost(made, tmp_path, capsys):
    out = tmp_path / "late"
    main(["reproduce", "ablations", *SMOKE, "--minutes", "0", "--out", str(out)])
    assert "time is over" in capsys.readouterr().out
    assert not out.exists()
    runs = out / "runs" / "lbf-fastap"
    shutil.copytree(made / "runs" / "lbf-fastap", runs)
    main(["reproduce", "ablations", *SMOKE, "--minutes", "0", "--out", str(out)])
    assert (out / "ablations.png").is_file()


def test_who_is_asked_to_end_packs_first(made, tmp_path, monkeypatch, capsys):
    def asked_to_end(study):
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("It was not heard.")

    monkeypatch.setitem(reproduce.STUDY, "main", asked_to_end)
    archive, guard = tmp_path / "study.tar.gz", lambda *_: pytest.fail("not heard")
    before = signal.signal(signal.SIGTERM, guard)
    with pytest.raises(SystemExit) as stop:
        asked = ["reproduce", "main", *SMOKE, "--out", str(made)]
        main([*asked, "--pack", str(archive)])
    assert signal.signal(signal.SIGTERM, before) is guard
    assert stop.value.code == 130
    assert "every file it has written is whole" in capsys.readouterr().err
    with tarfile.open(archive) as tar:
        assert "runs/lbf-liam/policy.safetensors" in tar.getnames()


def test_an_answer_that_is_damaged_is_asked_again(made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made / "runs" / "lbf-oracle", copy)
    asked = Question(("stationary",), "validation", 8)
    first = answers(copy, asked)
    path = max((copy / "answers").iterdir(), key=lambda p: p.stat().st_mtime)
    for text in ("{", "[]", '{"a": 1}'):
        path.write_text(text)
        assert answers(copy, asked) == first
    assert json.loads(path.read_text())["answers"] == first


def test_a_run_says_how_far_it_is(made, tmp_path):
    assert str(status(tmp_path)) == "not begun"
    assert str(status(made / "runs" / "lbf-liam")) == "done"
    copy = tmp_path / "copy"
    shutil.copytree(made / "runs" / "lbf-liam", copy)
    (copy / "policy.safetensors").unlink()
    assert str(status(copy)) == "at step 0 of 1,600"
    (copy / "metrics.csv").write_text("step,seed\n1,x\n")
    with pytest.raises(Mistake, match="damaged"):
        curves(copy, "lbf")


@pytest.mark.parametrize(
    ("what", "more", "words"),
    [
        ("table1", "--env cn", "table1 is about lbf; none of them was named"),
        ("table1", "--zoo cn", "table1 is about lbf; none of them was named"),
        ("main", "--env cn --zoo lbf", "The zoo 'lbf' is for lbf, not for cn"),
        ("main", "--env lbf lfb", "'lfb' is no environment; there are lbf, pp"),
    ],
)
def test_an_experiment_about_others_says_so(tmp_path, capsys, what, more, words):
    with pytest.raises(SystemExit) as stop:
        asked = ["reproduce", what, "--preset", "smoke", *more.split()]
        main([*asked, "--out", str(tmp_path / "x")])
    assert stop.value.code == 2 and words in capsys.readouterr().err


def test_a_zoo_says_where_it_is_trained_in():
    asked = reproduce.Reproduce("main", zoo="cn", preset="smoke")
    assert asked.trained_in() == ("cn",)
    assert reproduce.Reproduce("main", preset="smoke").trained_in() == ("lbf",)
    quick = reproduce.Reproduce("main", preset="quick").trained_in()
    assert EXPERIMENTS["main"].among(quick) == ["lbf", "pp", "cn", "10m_vs_14m"]
    assert EXPERIMENTS["crossplay"].among(quick) == ["lbf"]  # as in the paper
    assert EXPERIMENTS["crossplay"].among(("cn", "pp")) == ["pp", "cn"]
    assert EXPERIMENTS["table1"].among(("cn",)) == []


def test_a_link_in_an_archive_is_refused(tmp_path, capsys):
    archive, link = tmp_path / "bad.tar.gz", tarfile.TarInfo("runs/x")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(link)
    with pytest.raises(SystemExit) as stop:
        asked = ["reproduce", "crossplay", "--out", str(tmp_path / "out")]
        main([*asked, "--unpack", str(archive)])
    assert stop.value.code == 2 and "no place" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["step,seed\n", "step,seed\n1,0,5\n", "step,seed\n1,x\n"]
)
def test_a_damaged_curve_is_refused(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(Mistake, match="damaged"):
        curves(tmp_path, "lbf")


def test_the_papers_table_is_written_down():
    assert printed("U[5,8]", "liam") == ".415±.026"
    assert printed("stationary", "escp") == ".618±.040"
    assert all(len(row.split()) == 7 for row in PAPER.values())
    assert printed("U[1,1]", "liam") == printed("U[5,8]", "oracle") == ""
    assert len(NEIGHBOURS) == 11


def test_a_study_travels_in_one_small_file(made, tmp_path, monkeypatch):
    archive, there = tmp_path / "study.tar.gz", tmp_path / "there"
    asked = ["reproduce", "ablations", *SMOKE]
    main([*asked, "--out", str(made), "--pack", str(archive)])
    whole = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    assert archive.stat().st_size < whole / 2
    monkeypatch.setattr(study, "Train", None)
    main([*asked, "--out", str(there), "--unpack", str(archive)])
    for path in made.rglob("*.csv"):
        assert (there / path.relative_to(made)).read_bytes() == path.read_bytes()
    kept = {path.parent.parent.name for path in there.rglob("state.safetensors")}
    assert kept == {"lbf-source"}  # which others begin with
    main(["reproduce", "transfer", *SMOKE, "--out", str(there)])  # moved, and the same


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "runs/../../x"])
def test_an_archive_writes_nowhere_else(tmp_path, capsys, name):
    archive = tmp_path / "bad.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
    with pytest.raises(SystemExit) as stop:
        asked = ["reproduce", "crossplay", "--out", str(tmp_path / "out")]
        main([*asked, "--unpack", str(archive)])
    assert stop.value.code == 2 and "no place" in capsys.readouterr().err
    assert not (tmp_path / "x").exists() and not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08cut"])
def test_what_is_no_archive_gets_one_sentence(tmp_path, capsys, content):
    archive = tmp_path / "bad.tar.gz"
    archive.write_bytes(content)
    with pytest.raises(SystemExit) as stop:
        asked = ["reproduce", "crossplay", "--out", str(tmp_path / "out")]
        main([*asked, "--unpack", str(archive)])
    assert stop.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_a_full_folder_is_not_overwritten(made, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        asked = ["reproduce", "crossplay", "--out", str(made)]
        main([*asked, "--unpack", str(tmp_path / "any.tar.gz")])
    assert stop.value.code == 2 and "not empty" in capsys.readouterr().err


def test_a_run_that_was_stopped_before_its_first_point_has_no_curve(tmp_path):
    (tmp_path / "metrics.csv").write_text("")
    assert curves(tmp_path, "lbf") == []
