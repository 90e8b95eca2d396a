"""Shipped agents act as the trained ones do, in NumPy, ONNX and StableHLO."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastap
from fastap.cli import main
from fastap.deploy import export
from fastap.deploy.agent import Agents, Unreadable
from fastap.experiments.thoughts import Subject
from fastap.problem.spec import Mistake
from fastap.training import checkpoint
from fastap.training import settings as training
from fastap.training.train import State, course

METHODS = ("qmix", "fastap", "pearl", "escp", "liam")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs whose agents have learnt nothing, of every kind of belief."""
    out = tmp_path_factory.mktemp("runs")
    for method in (*METHODS, "oracle"):
        beside = ("qmix",) if method == "oracle" else ()
        ready = course(training.settings("lbf", method, "smoke", beside=beside))
        checkpoint.write_config(out / method, ready.settings, {"device": "cpu"})
        row = {"step": 1600, "seed": 0, "variant": method, "U[5,8] train": 0.25}
        state = State(ready.start().runs, ready.beats, (row,))
        checkpoint.publish(out / method, ready, state)
    return out


@pytest.mark.parametrize("method", METHODS)
def test_agents_do_and_believe_what_the_policy_did(runs, method):
    """In whole episodes, through changes of teammates."""
    seen = Subject(runs / method, method).watch("held-out", "U[5,8]", 4)
    assert seen.swap.any()
    run = fastap.load(runs / method)
    agents, many = run.agents(), run.agents()
    many.reset(4)
    n = run.env.spec.controlled
    played = seen.episodes
    for episode in range(4):
        agents.reset()
        for t in np.flatnonzero(seen.valid[episode]):
            view = (played.observation, played.available)
            observation, available = (np.asarray(x)[episode, t, :n] for x in view)
            action = agents.act(observation, available)
            assert np.array_equal(action, played.action[episode, t, :n])
            believed = agents.context
            assert believed.shape == seen.context[episode, t].shape
            assert np.allclose(believed, seen.context[episode, t], atol=1e-5)
    for t in range(5):
        observation = np.asarray(played.observation)[:, t, :n]
        actions = many.act(observation, np.asarray(played.available)[:, t, :n])
        assert np.array_equal(actions, played.action[:, t, :n])
        assert np.allclose(many.context, seen.context[:, t], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_every_format_is_the_same_policy(runs, method):
    run = fastap.load(runs / method)
    arrays, card = run.pack(seed=1)
    assert export.check(run, 1, export.numpy_step(arrays, card), card) < 1e-5
    graph = export.write_onnx(arrays, card)
    assert export.check(run, 1, export.read_onnx(graph, card), card) < 1e-5
    other = export.check(run, 0, export.numpy_step(arrays, card), card)
    assert other > 1e-3  # the check can fail


def test_a_method_that_was_trained_beside_an_oracle_needs_not_be_told(runs):
    run = fastap.load(runs / "oracle")
    arrays, card = run.pack(method="qmix")
    place = run.team(method="qmix")
    assert export.check(run, place, export.numpy_step(arrays, card), card) < 1e-5


def test_cards_list_arguments_in_the_order_of_a_step(runs, tmp_path):
    for kind, names in (("onnx", 4), ("stablehlo", 5)):
        out = str(tmp_path / kind)
        main(["export", str(runs / "qmix"), "--format", kind, "--out", out])
        card = json.loads((tmp_path / f"{kind}.json").read_text())
        order = [*card["inputs"]]
        assert len(order) == names and order[0] == "memory"
        assert order[-3:] == ["last", "observation", "available"]


def test_results_of_other_agents_are_not_on_the_card(runs):
    rows = [
        {"steps": steps, "method": "liam", "change": "stationary", "pool": "train"}
        | {"episodes": 8, "seeds": 2, "iqm": 0.5, "ci95": [0, 1], "floor": 0.1}
        for steps in (800, 1600)
    ]
    (runs / "liam" / "results.json").write_text(json.dumps(rows))
    card = fastap.load(runs / "liam").pack()[1]
    assert len(card["results"]) == 1 and card["results"][0]["iqm"] == 0.5


@pytest.mark.parametrize("method", ["qmix", "fastap"])
def test_stablehlo_is_the_same_policy(runs, method):
    run = fastap.load(runs / method)
    _, card = run.pack()
    data = export.write_stablehlo(run, 0, card)
    step = export.read_stablehlo(data)
    for episodes in (1, 8):
        assert export.check(run, 0, step, card, episodes) < 1e-5


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "policy.npz"
    main(["export", str(runs / "fastap"), "--out", str(path), "--episodes", "16"])
    return path


def test_the_command_writes_a_file_and_a_card(runs, exported, capsys):
    card = json.loads((exported.parent / "policy.npz.json").read_text())
    assert card["method"] == "fastap" and card["env"] == "lbf"
    assert card["inputs"]["observation"]["shape"] == ["episodes", 2, 21]
    assert card["outputs"]["action"]["shape"] == ["episodes", 2]
    assert card["differs"] < 1e-5 and card["bytes"] == exported.stat().st_size
    assert card["made"]["device"] == "cpu" and card["alarm"]["train"] <= 0.02
    with pytest.raises(SystemExit) as stop:
        main(["export", str(runs / "qmix"), "--out", str(exported)])
    assert stop.value.code == 2 and "--force" in capsys.readouterr().err


def test_one_file_and_numpy_are_all_that_a_robot_needs(exported, tmp_path):
    source = importlib.util.find_spec("fastap.deploy.agent")
    assert source is not None and source.origin is not None
    copy = tmp_path / "agent.py"
    copy.write_bytes(Path(source.origin).read_bytes())
    script = (
        "import sys, numpy, agent\n"
        f"agents = agent.Agents.read({str(exported)!r})\n"
        "print(agents.act(numpy.zeros((2, 21))), agents.change, agents.alarm)\n"
        "print([m for m in ('jax', 'fastap', 'equinox') if m in sys.modules])\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_context_that_jumps_is_a_change_and_a_far_one_an_alarm(exported):
    agents = Agents.read(exported)
    agents.act(np.zeros((2, 21)))
    centre = agents.usual["usual.centre"]
    see = lambda place: agents._see(place[:, None])
    see(centre[:, 0])
    see(centre[:, 0])
    assert np.all(agents.change == 0) and not agents.alarm.any()
    see(centre[:, 0] + np.array([[0.0], [50.0]]))
    assert agents.change.tolist() == [0, 1] and agents.alarm.tolist() == [False, True]


def test_what_cannot_be_deployed_is_refused(runs):
    with pytest.raises(Mistake, match="must be told"):
        fastap.load(runs / "oracle").agents()
    with pytest.raises(Mistake, match="has no fastap of seed 7"):
        fastap.load(runs / "fastap").agents(seed=7)
    with pytest.raises(Mistake, match="is no run"):
        fastap.load(runs / "nobody")
    agents = fastap.load(runs / "qmix").agents()
    with pytest.raises(Unreadable, match="see 21 numbers each, 2 of them"):
        agents.act(np.zeros((3, 21)))
    with pytest.raises(Unreadable, match="Nothing is known here"):
        _ = agents.change


@pytest.mark.parametrize(
    ("kind", "package"), [("onnx", "onnx"), ("stablehlo", "flatbuffers")]
)
def test_a_missing_package_is_named(runs, tmp_path, capsys, monkeypatch, kind, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "jax._src.export.serialization", raising=False)
    out = tmp_path / "policy"
    with pytest.raises(SystemExit) as stop:
        main(["export", str(runs / "qmix"), "--format", kind, "--out", str(out)])
    assert stop.value.code == 2 and not out.exists()
    assert f"{package} is not installed" in capsys.readouterr().err


def test_curves_and_settings_come_with_a_run(runs):
    run = fastap.load(runs / "fastap")
    assert run.settings.method == "fastap" and run.steps == 1600
    assert run.seeds == (0, 1) and run.names == ("fastap", "fastap")
    assert run.curves[0]["return"] == 0.25


@settings(deadline=None, max_examples=60)
@given(place=st.floats(0, 1), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_file_is_refused_or_harmless(exported, place, bit, cut):
    data = bytearray(exported.read_bytes())
    at = int(place * (len(data) - 1))
    if cut:
        data = data[:at]
    else:
        data[at] ^= 1 << bit
    broken = exported.parent / "broken.npz"
    broken.write_bytes(bytes(data))
    try:
        action = Agents.read(broken).act(np.zeros((2, 21)))
    except Unreadable as error:
        assert str(broken) in str(error)
    else:
        assert action.shape == (2,)
