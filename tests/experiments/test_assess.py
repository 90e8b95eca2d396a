"""Judging runs: pairing, pools, what stands beside a number, and damaged folders."""

import dataclasses
import io
import json

import jax
import numpy as np
import pytest
from rich.console import Console

from fastap.cli import main
from fastap.commands.evaluate import summary as table
from fastap.commands.evaluate import sure
from fastap.evaluation.evaluate import Judge
from fastap.experiments.assess import Case, Question, beside, best
from fastap.experiments.yardsticks import told
from fastap.methods.actor import act_by
from fastap.problem.rollout import Players, play
from fastap.teammates.company import episodes_of
from fastap.training import checkpoint
from fastap.training.settings import settings
from fastap.training.train import State, course

EPISODES = 40  # untrained agents are lucky in a few of them


@pytest.fixture(scope="module")
def ready():
    return course(settings("lbf", "qmix", "smoke"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, ready):
    """A run whose agents have learnt nothing, as training would leave it."""
    out = tmp_path_factory.mktemp("runs") / "new"
    noted = {"zoo": ready.zoo.fingerprint()}
    checkpoint.write_config(out, ready.settings, noted)
    checkpoint.publish(out, ready, State(ready.start().runs, ready.beats, ()))
    return out


@pytest.fixture(scope="module")
def judge(ready):
    """One who has the episodes played in crowds of 15, 15 and 10."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastap.evaluation.evaluate.CROWD", 15)
        yield Judge(ready.zoo, EPISODES)


@pytest.fixture(scope="module")
def answers(folder):
    """What `fastap eval --json` prints of it."""
    asked = ["eval", str(folder), "--episodes", str(EPISODES), "--json"]
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lambda text, **_: lines.append(text))
        main([*asked, "--change", "stationary", "U[5,8]"])
    return [json.loads(line) for line in lines]


def test_read_agents_act_as_the_trained_ones_do(folder, ready, judge):
    _, model, step = checkpoint.read_agents(folder)
    assert step == ready.steps(ready.beats)
    members = ready.members["train"]
    trained = ready.start().runs.learner.model
    found, made = (judge(m, members, "U[5,8]").reward for m in (model, trained))
    assert np.any(made) and np.array_equal(found, made)


def test_episodes_are_the_same_for_every_run(ready, judge):
    """A run judged beside others, in a crowd, earns what it earns alone."""
    model = ready.start().runs.learner.model
    members = ready.members["train"]
    both = judge(model, members, "U[5,8]").reward
    schedules, keys = episodes_of(ready.zoo, members, "U[5,8]", EPISODES)
    second = jax.tree.map(lambda x: x[1], model)
    players = Players(act_by(ready.zoo.env, second), ready.zoo.policy)
    alone = jax.jit(lambda team, key: play(ready.zoo.env, players, team, key).reward)
    assert np.any(both[1])
    for i in range(EPISODES):
        team = jax.tree.map(lambda x, i=i: x[i], schedules)
        assert np.array_equal(alone(team, keys[i]), both[1, i])


def test_a_change_late_leaves_the_beginning_alone(ready, judge):
    """Pairing: until the change, nothing differs."""
    model, members = ready.start().runs.learner.model, ready.members["train"]
    stay, change = (judge(model, members, c).reward for c in ("stationary", "at[12]"))
    assert np.any(stay[..., :12]) and np.array_equal(stay[..., :12], change[..., :12])
    assert np.any(stay[..., 12:] != change[..., 12:])


def test_an_answer_has_what_was_promised(answers, folder):
    assert [answer["change"] for answer in answers] == ["stationary", "U[5,8]"]
    for answer in answers:
        assert answer["env"] == "lbf" and answer["method"] == "qmix"
        assert answer["pool"] == "held-out" and answer["episodes"] == EPISODES
        assert answer["seeds"] == len(answer["returns"]) == 2
        assert answer["ci95"][0] <= answer["iqm"] <= answer["ci95"][1]
        assert answer["mean"] == pytest.approx(np.mean(answer["returns"]))
        assert set(answer["adaptation"]) == {"at[8]", "at[12]"}
        assert len(answer["adaptation"]["at[8]"]["regret"]) == 25 - 8
    assert json.loads((folder / "results.json").read_text()) == answers


def test_costs_are_differences_of_means(answers, folder, ready):
    still, moving = answers
    assert "difference" not in still
    assert moving["difference"] == pytest.approx(moving["mean"] - still["mean"])
    case = Case(ready, checkpoint.read_agents(folder)[1], Question((), "held-out", 40))
    same = case.judge(case.model, case.members, "U[5,8]-same").returns.mean()
    assert moving["cost_of_change"] == pytest.approx(same - moving["mean"])
    assert moving["cost_of_change"] != 0


def test_held_out_types_are_split_into_met_and_new(ready):
    case = Case(ready, None, Question(("stationary",)))
    groups = [case.ready.zoo.groups[k] for k in case.members]
    assert {group["pool"] for group in groups} == {"held-out"}
    assert len(groups) == ready.settings.groups[1]
    whole = course(settings("lbf", "qmix", "paper"))
    split = Case(whole, None, Question(("stationary",))).parts()
    types = whole.zoo.types
    met = set(types[whole.members["train"]])
    assert {k for part in split.values() for k in part} == set(
        whole.zoo.members("held-out")
    )
    assert len(split["seen"]) == len(split["unseen"]) == 4
    assert set(types[split["seen"]]) <= met and not set(types[split["unseen"]]) & met


def test_the_floor_is_what_random_agents_earn(ready):
    case = Case(ready, None, Question(("stationary",), "validation", 200))
    assert 0 < case.floor("stationary") < 0.2


@pytest.mark.parametrize("trained", ["stationary", "U[6,7]"])
def test_who_is_told_was_trained_alike(trained):
    whole = course(settings("lbf", "qmix", "smoke", train_change=trained))
    case = Case(whole, None, Question((), "validation", EPISODES))
    way = "U[5,8]" if trained == "U[6,7]" else trained
    assert beside(case, "stationary")["told"] == told(case.spot, "stationary", way)
    other = "stationary" if way == "U[5,8]" else "U[5,8]"
    assert told(case.spot, "stationary", other) != told(case.spot, "stationary", way)


def test_a_zoo_that_has_no_yardsticks_has_a_floor_and_own_teams(ready, monkeypatch):
    monkeypatch.setattr("fastap.experiments.yardsticks.load", lambda name: None)
    bare = dataclasses.replace(ready.zoo, manifest=dict(ready.zoo.manifest))
    del bare.manifest["yardsticks"]
    case = Case(dataclasses.replace(ready, zoo=bare), None, Question((), episodes=40))
    found = beside(case, "stationary")
    assert found.keys() == {"own"} and found["own"] > 0.8 > case.floor("stationary")
    assert case.ceiling == found["own"]
    monkeypatch.setattr("fastap.experiments.assess.own", lambda *_: None)
    assert case.ceiling == best(bare, case.members)


def test_the_ceiling_is_the_best_that_is_known(ready, monkeypatch):
    case = Case(ready, None, Question((), episodes=40))
    for switching, own, top in ((0.5, 0.6, 0.6), (0.5, 0.4, 0.5), (None, -3, -3)):
        for name, score in (("switching", switching), ("own", own)):
            monkeypatch.setattr(
                f"fastap.experiments.assess.{name}", lambda *_, score=score: score
            )
        assert case.ceiling == top


def test_runs_that_are_held_against_others_stand_apart(answers):
    first, second = answers[0], answers[0] | {"run": "other", "told": 0.25}
    text = io.StringIO()
    Console(file=text, width=120).print(table([first, second, first]))
    lines = text.getvalue().splitlines()
    told = [i for i, line in enumerate(lines) if " told " in line]
    (other,) = (i for i, line in enumerate(lines) if "other: qmix" in line)
    assert len(told) == 2 and told[0] < other < told[1] and "0.250" in lines[told[1]]


def test_agents_that_are_not_done_are_told_apart(answers):
    early = answers[0] | {"run": "other", "steps": 200}
    text = io.StringIO()
    Console(file=text, width=160).print(table([answers[0], early]))
    assert answers[0]["steps"] == answers[0]["planned"] == 1600
    lines = [line for line in text.getvalue().splitlines() if ": qmix (2)" in line]
    assert ["at step 200 of 1,600" in line for line in lines] == [False, True]


def test_a_table_shows_the_floor_beside(folder, capsys):
    asked = ["eval", str(folder), "--pool", "validation", "--episodes", str(EPISODES)]
    main([*asked, "--change", "U[5,8]"])
    text = capsys.readouterr().out
    assert "new: qmix (2)" in text
    assert all(who in text for who in ("random", "told", "switching"))


@pytest.mark.parametrize("name", ["config.json", "policy.safetensors"])
@pytest.mark.parametrize("how", ["cut", "gone", "other"])
def test_damaged_runs_get_one_sentence(folder, tmp_path, capsys, name, how):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    data = (copy / name).read_bytes()
    if how == "gone":
        (copy / name).unlink()
    else:
        (copy / name).write_bytes(data[: len(data) // 2] if how == "cut" else b"{}")
    with pytest.raises(SystemExit) as stop:
        main(["eval", str(copy)])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_another_zoo_is_refused(folder, tmp_path, capsys):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"zoo": "0123456789abcdef"}))
    with pytest.raises(SystemExit) as stop:
        main(["eval", str(copy)])
    assert stop.value.code == 2 and "not the one" in capsys.readouterr().err


def test_what_cannot_be_asked_is_refused(folder, capsys):
    for more in (["--change", "sometimes"], ["--episodes", "0"]):
        with pytest.raises(SystemExit) as stop:
            main(["eval", str(folder), *more])
        assert stop.value.code == 2


def test_an_interval_of_one_seed_is_none(answers):
    several = answers[0]
    low, high = several["ci95"]
    assert several["seeds"] > 1 and sure(several) == f"{low:.3f} - {high:.3f}"
    assert sure(several | {"seeds": 1}) == "one seed"
