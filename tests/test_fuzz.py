"""Whatever is typed, and whatever became of a file: success, or one sentence and 2."""

import contextlib
import dataclasses
import io
import json
import os
import random
import re
import subprocess
import sys

import pytest

import fastap.cli
from fastap.commands import doctor, evaluate, export, quickstart, report, reproduce
from fastap.commands import prey as prey_command
from fastap.commands import train as train_command
from fastap.commands import zoo as zoo_command
from fastap.deploy.agent import Agents, Unreadable
from fastap.deploy.export import write_npz
from fastap.deploy.run import load, results
from fastap.envs.prey import SHIPPED, load_prey
from fastap.experiments.measure import curves, status
from fastap.problem.spec import Mistake
from fastap.teammates import yardsticks
from fastap.teammates import zoo as store
from fastap.training import checkpoint
from fastap.training.train import course
from tests.idle import Began

COMMANDS = {
    ("quickstart",): quickstart.Quickstart,
    ("train",): train_command.Train,
    ("eval",): evaluate.Eval,
    ("report",): report.Report,
    ("export",): export.Export,
    ("bench",): fastap.cli.Bench,
    ("reproduce",): reproduce.Reproduce,
    ("doctor",): doctor.Doctor,
    ("zoo", "build"): zoo_command.Build,
    ("zoo", "show"): zoo_command.Show,
    ("zoo", "crossplay"): zoo_command.Crossplay,
    ("zoo", "cluster"): zoo_command.Cluster,
    ("zoo", "accept"): zoo_command.Accept,
    ("zoo", "yardsticks"): zoo_command.Yardsticks,
    ("zoo", "prey"): prey_command.Prey,
}
NUMBERS = ("-1", "0", "1", "2", "7", "0.5", "nan", "inf", "1e400", "9" * 20, "ten")
WORDS = (
    *("", " ", "-", "--", "-1", "0", "1", "2", "0.5", "nan", "inf", "1e400", "-0"),
    *("99999999999999999999", "None", "null", "true", "[]", "{}", "a" * 300, "ü", "😀"),
    *(
        "U[5,8]",
        "U[5,8",
        "U[8,5]",
        "U[0,0]",
        "at[3]",
        "at[x]",
        "stationary",
        "U[5,8]-x",
    ),
    *("lbf", "pp", "cn", "10m_vs_14m", "lbf-conventions", "chess", "fastap", "qmix"),
    *("fastap:lce=", "fastap:lce=10", "fastap:mi=nan", "oracle", "smoke", "quick"),
    *("train", "held-out", "fresh", "npz", "onnx", "..", "/", "/dev/null", "nowhere"),
    *("run", "run/config.json", "precious", "precious.txt", "a/b/c", "~", "%s", "\t"),
    *("table1", "all", "environments", "tensorboard", "--force", "--help", "--resume"),
)


def option(field):
    return "--" + field.name.replace("_", "-")


def given(field, chance):
    """Make up an option and its value, of the right kind more often than not."""
    kind = str(field.type)
    if field.name in ("runs", "folders", "folder"):
        return [chance.choice(("run", "run", "nowhere", "precious", ""))]
    if field.name == "what":
        return [chance.choice(("environments", "table1", "crossplay", "all", "x"))]
    if "bool" in kind:
        return [option(field)] if field.name != "force" else []
    words = WORDS
    if "int" in kind or "float" in kind:
        words = NUMBERS
    if field.name == "out":
        words = ("new", "deep/new", "precious", "precious.txt", "run", "")
    if "Literal" in kind and chance.random() < 0.7:
        words = re.findall(r"'([^']+)'", kind) or WORDS
    if chance.random() < 0.1:
        words = WORDS
    return [option(field), chance.choice(words)]


def typed(chance):
    """Make up a command line, mostly of words that exist and in their places."""
    command = chance.choice(list(COMMANDS))
    fields = dataclasses.fields(COMMANDS[command])
    line = [*command]
    for field in fields:
        if field.default is dataclasses.MISSING and chance.random() < 0.95:
            line += given(field, chance)
    for field in chance.sample(fields, min(len(fields), chance.randint(0, 3))):
        line += given(field, chance)
    if chance.random() < 0.05:
        chance.shuffle(line)
    return [word for word in line if word != "--force"]


def ends(line):
    """Run a command line; return what is wrong with how it ends, if anything."""
    said, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            fastap.cli.main(line)
    except Began:
        return None
    except SystemExit as stop:
        text = errors.getvalue()
        if stop.code in (0, None):
            return None
        if stop.code != 2:
            return f"exit {stop.code}"
        own = text.startswith("fastap: ") and text.strip().count("\n") == 0
        parser = "--help" in text and "Traceback" not in text  # its own, in a frame
        return None if own or parser else text or "silence"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("seed", range(4))
def test_any_command_line_ends_well(seed, idle, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(run)
    (tmp_path / "precious").mkdir()
    kept = [tmp_path / "precious" / "file", tmp_path / "precious.txt"]
    for path in kept:
        path.write_text("mine")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    chance, wrong = random.Random(seed), []
    for _ in range(400):
        line = typed(chance)
        how = ends(line)
        if how:
            wrong.append((line, how))
    assert wrong == []
    assert all(path.read_text() == "mine" for path in kept)
    for name, data in before.items():
        assert (run / name).read_bytes() == data


def test_real_processes_end_well(run, tmp_path):
    (tmp_path / "run").symlink_to(run)
    chance, wrong = random.Random(99), []
    quick = [("eval",), ("report",), ("export",), ("zoo", "show"), ("train",)]
    for _ in range(20):
        command = chance.choice(quick)
        fields = dataclasses.fields(COMMANDS[command])
        line = [
            *command,
            "nowhere",
            option(chance.choice(fields)),
            chance.choice(WORDS),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "fastap", *line],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=os.environ | {"COLUMNS": "80"},
        )
        if done.returncode not in (0, 2) or "Traceback" in done.stderr:
            wrong.append((line, done.returncode, done.stderr[-300:]))
    assert wrong == []


def spoilt(data, chance):
    """Damage some bytes, or a value of what they say."""
    kind = chance.randrange(6)
    raw = bytearray(data)
    at = chance.randrange(len(raw) + 1)
    if kind == 0:
        return bytes(raw[:at])
    if kind == 1 and at < len(raw):
        raw[at] ^= 1 << chance.randrange(8)
        return bytes(raw)
    if kind == 2:
        more = bytes(chance.randrange(256) for _ in range(chance.randint(1, 20)))
        return bytes(raw[:at] + more + raw[at:])
    if kind == 3:
        return chance.choice(
            [b"", b"{}", b"[]", b"null", b"\x00" * 64, b"1e999", raw[::-1]]
        )
    try:
        tree = json.loads(data)
    except ValueError:
        return bytes(raw[: at // 2] + raw[at:])
    place = tree
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = chance.choice(list(keys))
        if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.8:
            place = place[key]
            continue
        odd = [
            None,
            -1,
            0,
            1e308,
            10**30,
            "",
            "x",
            [],
            {},
            True,
            [[]],
            "../x",
            "U[5,8]",
        ]
        if kind == 5 and isinstance(place, dict):
            del place[key]
        else:
            place[key] = chance.choice(odd)
        break
    return json.dumps(tree).encode()


def check_reader(folder, name, read, cases, seed=0):
    """Spoil a file again and again; whoever reads it succeeds or says why not."""
    path = folder / name
    whole, chance, wrong = path.read_bytes(), random.Random(seed), []
    try:
        for case in range(cases):
            broken = spoilt(whole, chance)
            path.write_bytes(broken)
            try:
                read(folder)
            except (Mistake, Unreadable) as mistake:
                if not str(mistake) or "\n" in str(mistake):
                    wrong.append((case, "no sentence", str(mistake)))
            except Exception as error:
                wrong.append((case, repr(error)[:200], broken[:80]))
            assert path.read_bytes() == broken  # left as it was
    finally:
        path.write_bytes(whole)
    assert wrong == []


def test_damaged_settings(run):
    check_reader(run, "config.json", checkpoint.read_config, 300)
    check_reader(run, "config.json", status, 100, seed=1)


def test_damaged_curves(run):
    check_reader(run, "metrics.csv", lambda folder: curves(folder, "lbf"), 150)


def test_damaged_policies(run):
    check_reader(run, "policy.safetensors", load, 40)


def test_damaged_checkpoints(run):
    ready = course(checkpoint.read_config(run)[0])
    read = lambda folder: checkpoint.load(folder, ready)
    check_reader(run, checkpoint.CHECKPOINT, read, 60)


def test_damaged_results_are_no_results(run):
    (run / "results.json").write_text(json.dumps([{"method": "fastap", "iqm": 0.5}]))
    check_reader(run, "results.json", lambda folder: results(folder, 1600), 100)
    row = {"method": "fastap", "change": "stationary", "iqm": 0.25}
    for text in ("", "[", "{}", "[1]", "null"):
        (run / "results.json").write_text(text)
        evaluate.remember(run, [row])
        assert json.loads((run / "results.json").read_text())[-1] == row


def test_damaged_zoos(tmp_path):
    source = store.find("lbf-conventions")
    for name in ("manifest.json", "clustering.json"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    check_reader(tmp_path, "manifest.json", store.load, 150)


def test_damaged_yardsticks(tmp_path):
    source = store.find("lbf-conventions")
    for name in ("manifest.json", yardsticks.FILE):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    check_reader(tmp_path, "manifest.json", yardsticks.load, 60)
    check_reader(tmp_path, yardsticks.FILE, yardsticks.load, 30)


def test_damaged_prey(tmp_path):
    (tmp_path / "prey.safetensors").write_bytes(SHIPPED.read_bytes())
    read = lambda folder: load_prey(folder / "prey.safetensors")
    check_reader(tmp_path, "prey.safetensors", read, 100)


def test_damaged_exports(run, tmp_path):
    (tmp_path / "p.npz").write_bytes(write_npz(*load(run).pack()))
    check_reader(tmp_path, "p.npz", lambda folder: Agents.read(folder / "p.npz"), 100)
