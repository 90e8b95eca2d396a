"""The positive control as a command."""

import csv
import json

from fastap.cli import main
from fastap.commands import control
from fastap.experiments.control import Control


def test_fastap_without_its_losses_stands_beside_fastap():
    ready = Control("lbf-conventions", "smoke", seeds=1).course("fastap")
    each = [(v.name, v.share, any(v.weights)) for v in ready.variants]
    assert each == [
        ("fastap", 0.0, True),
        ("fastap", 0.5, True),
        ("fastap-zero", 0.0, False),
        ("fastap-zero", 0.5, False),
    ]


def test_the_control_trains_and_judges_every_configuration(
    tmp_path, capsys, monkeypatch
):
    """One of its two programs, for the time it takes to compile them."""
    monkeypatch.setattr(control, "PROGRAMS", ("oracle",))
    asked = ["reproduce", "control", "--preset", "smoke", "--seeds", "1"]
    main([*asked, "--out", str(tmp_path)])
    text = (tmp_path / "control-lbf-conventions.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    cases = {
        name: {row[name] for row in rows}
        for name in ("method", "share", "change", "memory", "pool", "zoo", "env")
    }
    assert cases == {
        "method": {"qmix", "oracle"},
        "share": {"0.0", "0.5"},
        "change": {"stationary", "U[5,8]", "U[5,8]-same"},
        "memory": {"fresh", "watched"},
        "pool": {"train", "validation"},
        "zoo": {"lbf-conventions"},
        "env": {"lbf"},
    }
    assert len(rows) == 2 * 2 * 3 * 2 * 2
    # scripted teammates remember nothing, so what they knew makes no difference
    score = {
        tuple(row[k] for k in ("method", "share", "change", "pool", "memory")): row
        for row in rows
    }
    for (*case, memory), row in score.items():
        if memory == "fresh":
            assert row["return"] == score[(*case, "watched")]["return"]
    facts = json.loads((tmp_path / "control-lbf-conventions.json").read_text())
    assert facts["device"] and facts["versions"]["jax"]
    assert "oracle" in capsys.readouterr().out
