"""`fastap train` and `fastap doctor` as a person meets them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.conftest import CACHE

from fastap.cli import main
from fastap.training import checkpoint
from fastap.training.train import Course

SMOKE = ["train", "--preset", "smoke", "--method", "qmix"]


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("fastap: ") and message.strip().count("\n") == 0
    return message


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    main([*SMOKE, "--out", str(folder)])
    return folder


def same(one, two):
    assert (one / "metrics.csv").read_bytes() == (two / "metrics.csv").read_bytes()
    tensors = [
        checkpoint.read(folder / checkpoint.CHECKPOINT)[0] for folder in (one, two)
    ]
    assert all(np.array_equal(x, tensors[1][name]) for name, x in tensors[0].items())
    assert (one / checkpoint.POLICY).read_bytes() == (
        two / checkpoint.POLICY
    ).read_bytes()


def test_a_run_leaves_what_it_promises(whole, capsys):
    names = {path.name for path in whole.iterdir()}
    assert names == {
        *("config.json", "metrics.csv", "policy.safetensors", "checkpoint", "clock.csv")
    }
    config = json.loads((whole / "config.json").read_text())
    assert config["settings"]["method"] == "qmix"
    assert {"jax", "fastap", "python"} <= config["versions"].keys()
    assert len((whole / "metrics.csv").read_text().splitlines()) == 1 + 2 * 2
    assert (whole / "clock.csv").read_text().startswith("step,seconds\n800,")
    tensors, facts = checkpoint.read(whole / checkpoint.POLICY)
    assert facts["step"] == 1600
    assert any(name.startswith("agents.") for name in tensors)
    # a finished run that is resumed stays as it is, and mends what a kill took
    before = [
        (whole / name).read_bytes() for name in ("metrics.csv", checkpoint.POLICY)
    ]
    (whole / "metrics.csv").unlink()
    (whole / checkpoint.POLICY).write_bytes(b"half of it")
    main(["train", "--resume", "--out", str(whole)])
    after = [(whole / name).read_bytes() for name in ("metrics.csv", checkpoint.POLICY)]
    assert after == before
    assert "U[5,8]" in capsys.readouterr().out


def test_nothing_is_clobbered(whole, capsys):
    before = (whole / "metrics.csv").read_bytes()
    assert "add --force" in refused(capsys, *SMOKE, "--out", whole)
    message = refused(capsys, "train", "--resume", "--out", whole, "--seeds", 3)
    assert "begun with seeds = 2, not 3" in message
    message = refused(capsys, "train", "--resume", "--out", whole, "--method", "liam")
    assert "begun with method = qmix" in message
    assert (whole / "metrics.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--method", "magic"], "no method"),
        (["--env", "chess"], "no environment"),
        (["--zoo", "nowhere"], "is no zoo"),
        (["--seeds", "0"], "seeds must be"),
        (["--train-change", "now"], "no change distribution"),
        (["--resume"], "is no run"),
        (["--capacity", "30"], "multiple"),
    ],
    ids=str,
)
def test_a_mistake_leaves_nothing(arguments, word, capsys, tmp_path):
    out = tmp_path / "run"
    assert word in refused(
        capsys, "train", "--preset", "smoke", *arguments, "--out", out
    )
    assert not (out / "metrics.csv").exists()


def test_a_run_goes_on_beside_its_own_zoo_alone(whole, tmp_path, capsys):
    out = tmp_path / "run"
    out.mkdir()
    config = json.loads((whole / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"zoo": "another"}))
    assert "not the one that" in refused(capsys, "train", "--resume", "--out", out)


def test_ctrl_c_saves_and_says_how_to_go_on(whole, tmp_path, capsys, monkeypatch):
    out, check = tmp_path / "run", Course.check

    def interrupt(self, notes, beat):
        if beat == 2:
            signal.raise_signal(signal.SIGINT)
        check(self, notes, beat)

    monkeypatch.setattr(Course, "check", interrupt)
    with pytest.raises(SystemExit) as stop:
        main([*SMOKE, "--out", str(out)])
    assert stop.value.code == 130
    assert (
        f"at step 600. `fastap train --resume --out {out}`" in capsys.readouterr().err
    )
    monkeypatch.undo()
    main(["train", "--resume", "--out", str(out)])
    same(out, whole)


def test_a_loss_that_is_no_number_names_the_last_good_checkpoint(
    whole, tmp_path, capsys
):
    out = tmp_path / "run"
    (out / "checkpoint").mkdir(parents=True)
    (out / "config.json").write_bytes((whole / "config.json").read_bytes())
    tensors, facts = checkpoint.read(whole / checkpoint.CHECKPOINT)
    name = "learner.model.agents.leave.bias"
    tensors[name] = np.full_like(tensors[name], np.nan)
    checkpoint.write(
        out / checkpoint.CHECKPOINT, tensors, {"beats": 5, "rows": facts["rows"][:2]}
    )
    message = refused(capsys, "train", "--resume", "--out", out)
    assert "is no number any more for qmix, seed 0, at step 1000." in message
    assert f"last good checkpoint is {out / checkpoint.CHECKPOINT}, of step" in message


def test_small_files_cannot_go_on(tmp_path, capsys):
    out = tmp_path / "run"
    main([*SMOKE, "--checkpoint", "policy", "--out", str(out)])
    assert not (out / checkpoint.CHECKPOINT).exists()
    assert (out / "policy.safetensors").stat().st_size < 2**20
    assert "--checkpoint policy" in refused(capsys, "train", "--resume", "--out", out)


def test_a_killed_process_goes_on_as_if_nothing_had_happened(whole, tmp_path):
    out = tmp_path / "run"
    start = [sys.executable, "-m", "fastap"]
    env = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(CACHE)}

    def kill_when(there, *arguments):
        with subprocess.Popen([*start, *arguments, "--out", str(out)], env=env) as run:
            while not there.exists() and run.poll() is None:
                time.sleep(0.005)
            run.send_signal(signal.SIGKILL)

    kill_when(out / "config.json", *SMOKE)
    assert not (out / checkpoint.CHECKPOINT).exists()
    kill_when(out / checkpoint.CHECKPOINT, "train", "--resume")
    subprocess.run(
        [*start, "train", "--resume", "--out", str(out)], env=env, check=True
    )
    same(out, whole)


def test_the_doctor_measures_the_run_it_speaks_of(capsys):
    main(["doctor", "--preset", "smoke", "--method", "qmix", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["memory"] > 2**17
    assert found["disk"] > 2**20
    assert found["training"] > 0 < found["steps_per_second"]
    assert found["versions"]["jax"]
    main(["doctor", "--preset", "smoke", "--method", "qmix"])
    assert "The run fits." in capsys.readouterr().out


def test_a_start_that_is_none_costs_nothing(whole, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    before = {p: p.read_bytes() for p in copy.rglob("*") if p.is_file()}
    small = tmp_path / "small"
    shutil.copytree(whole, small)
    (small / checkpoint.CHECKPOINT).unlink()
    for start in (tmp_path / "typo", copy, small):
        with pytest.raises(SystemExit) as stop:
            main([*SMOKE, "--out", str(copy), "--force", "--start", str(start)])
        assert stop.value.code == 2
    assert "which keeps too little to begin with" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in copy.rglob("*") if p.is_file()} == before
