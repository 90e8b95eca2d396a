"""The command line as a person meets it."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from fastap import __version__, make
from fastap.benchmarks import deciding, learning
from fastap.cli import main
from fastap.commands.edge import each
from fastap.envs.prey import Trained, load_prey
from fastap.methods.model import Learning
from fastap.methods.practice import Practice

FAST = ["--preset", "smoke", "--episodes", "8"]


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    seen = capsys.readouterr()
    assert stop.value.code == 2
    assert "Traceback" not in seen.err
    return seen.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("reproduce", "environments", "--env", "lbff"), "is no environment"),
        (("reproduce", "environments", "--change", "U[8,5]"), "1 <= a <= b"),
        (("reproduce", "environments", "--change", "U[0,3]"), "1 <= a <= b"),
        (("quickstart", "--episodes", "0"), "at least 1"),
        (("bench", "--parallel", "-1"), "at least 1"),
        (("bench", "--seconds", "0"), "--seconds must be"),
        (("bench", "--seconds", "nan"), "--seconds must be"),
        (("bench", "--parallel"), "at least one number"),
        (("bench", "--env"), "--env needs a name"),
        (("quickstart", "--minutes", "-1"), "--minutes must be"),
        (("export", "nowhere", "--out", "x.npz"), "is no run"),
        (("reproduce", "environments", "--change", "U[5,99999999999]"), "1 <= a <= b"),
        (("reproduce", "environments", "--env", "go"), "no environment"),
        (("bench", "--env", "chess"), "no environment"),
        (("reproduce", "environments", "--change", "soon"), "no change distribution"),
    ],
)
def test_a_mistake_gets_one_sentence_and_leaves_nothing(
    arguments, word, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    message = refused(capsys, *arguments)
    assert word in message and message.startswith("fastap: ")
    assert message.strip().count("\n") == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [("fly",), ("bench", "--speed"), ("reproduce", "table9"), ()]
)
def test_a_wrong_word_exits_with_two(arguments, capsys):
    assert refused(capsys, *arguments)


def test_quickstart_shows_yours_beside_shipped_and_never_overwrites(capsys, tmp_path):
    out = tmp_path / "first"
    main(["quickstart", "--out", str(out), *FAST])
    said = capsys.readouterr().out.replace("\n", "")
    page = out / "report.html"
    text = page.read_text()
    for who in ("qmix", "fastap", "shipped-qmix", "shipped-fastap"):
        assert who in said and f"<td>{who}</td>" in text
    assert "6,000,000" in said and "report.html" in said
    page.write_text("mine")
    assert "--force" in refused(capsys, "quickstart", "--out", str(out), *FAST)
    assert page.read_text() == "mine"
    main(["quickstart", "--out", str(out), "--force", *FAST])
    assert page.read_text().startswith("<!doctype html>")


def test_an_output_that_is_a_file_is_refused(capsys, tmp_path):
    place = tmp_path / "file"
    place.write_text("mine")
    assert "is a file" in refused(capsys, "quickstart", "--out", str(place), *FAST)
    inside = str(place / "deeper")
    assert "Could not use" in refused(capsys, "quickstart", "--out", inside, *FAST)
    assert place.read_text() == "mine"


def test_ctrl_c_ends_in_a_sentence(capsys, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fastap.commands.quickstart.Train.run", interrupt)
    with pytest.raises(SystemExit) as stop:
        main(["quickstart", "--out", str(tmp_path / "first"), *FAST])
    assert stop.value.code == 130
    assert "stopped" in capsys.readouterr().err


def test_bench_prints_one_object_per_line(capsys):
    quick = ["--parallel", "2", "--seconds", ".05", "--runs"]
    main(["bench", "--json", "--env", "lbf", "pp", *quick])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["peer"] for row in rows] == ["lbforaging", "mpe2", "jaxmarl"]
    for row in rows:
        assert row["kind"] == "env" and row["parallel"] == 2
        assert row["rate"] > 0 and row["peer_rate"] > 0 and row["memory_mib"] > 0
        assert row["unit"] == "joint steps/s" and row["device"]


def test_bench_times_the_loop_and_its_parts(monkeypatch):
    tiny = Practice(
        episodes=4,
        updates=1,
        batch=4,
        capacity=16,
        learning=Learning(hidden=8, embed=4),
    )
    monkeypatch.setattr(learning, "LOOP", tiny)
    monkeypatch.setattr(learning, "TURNS", 2)
    rows = list(learning.time_loop(make("lbf", horizon=4), 2, 3, 0.01))
    assert [row.kind for row in rows] == ["loop", "update", "play"]
    assert {row.parallel for row in rows} == {3}
    assert all(row.rate > 0 and row.method == "qmix, 2 learn" for row in rows)
    units = ["loops/s", "gradient steps/s", "episodes/s"]
    assert [row.unit for row in rows] == units


def test_bench_times_how_a_run_is_judged(monkeypatch):
    monkeypatch.setattr(learning, "EPISODES", 4)
    row = learning.time_evaluation("lbf", "qmix", 2, 0.01)
    assert (row.kind, row.unit, row.parallel) == ("eval", "joint steps/s", 2)
    assert row.rate > 0 and row.method == "qmix, U[5,8]"


def test_bench_times_decisions_in_numpy_and_onnx():
    rows = list(deciding.measure(0.02))
    assert [row.method for row in rows] == ["qmix, NumPy", "fastap, NumPy"]
    for row in rows:
        assert (row.kind, row.unit, row.parallel) == ("decide", "decisions/s", 1)
        assert row.peer == "onnxruntime" and row.peer_rate and row.rate > 0


def test_bench_prints_a_table(capsys):
    main(["bench", "--env", "cn", "--parallel", "2", "--seconds", ".05"])
    assert "joint steps/s" in capsys.readouterr().out


def test_help_is_there_for_every_command(capsys):
    commands = ("quickstart", "train", "eval", "report", "export", "zoo", "bench")
    for command in ([], *([name] for name in commands), ["reproduce"], ["doctor"]):
        with pytest.raises(SystemExit) as stop:
            main([*command, "--help"])
        assert stop.value.code == 0
        assert "fastap" in capsys.readouterr().out


def test_importing_is_silent_and_light():
    """The package pulls in no optional one, and says nothing."""
    code = (
        "import sys, fastap; "
        "print(fastap.__version__, [m for m in ('jaxmarl', 'flax', 'pettingzoo', "
        "'matplotlib.pyplot', 'gymnasium') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == f"{__version__} []" and run.stderr == ""


def test_a_real_process_exits_with_two_and_a_sentence(tmp_path):
    for arguments in (["bench", "--env", "none"], ["bench", "--parallel", "x"]):
        run = subprocess.run(
            [sys.executable, "-m", "fastap", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert run.returncode == 2 and "Traceback" not in run.stderr
        assert run.stderr


def test_the_library_refuses_in_a_sentence_outside_the_tests_too(tmp_path):
    """Without the run-time shape checks the same mistakes get the same answer."""
    code = """
import jax, jax.numpy as jnp, fastap
env = fastap.make("lbf")
key = jax.random.key(0)
world = env.reset(jnp.ones(4, bool), key)
tries = [
    lambda: fastap.make("lbf", layout="dense"),
    lambda: fastap.make("lbf", rows=6.5),
    lambda: fastap.make("lbf", foods=9),
    lambda: env.step(world, jnp.zeros(3, int), key),
    lambda: env.step(world, jnp.zeros((2, 4), int), key),
    lambda: env.step(world, jnp.zeros(4), key),
    lambda: env.step(world, jnp.array([0, 0, 0, 7]), key),
    lambda: jax.jit(env.step)(world, jnp.zeros(5, int), key),
    lambda: env.step(world, [0, 0, 0, 9], key),
    lambda: fastap.make(["lbf"]),
    lambda: fastap.parse(None),
    lambda: fastap.Players(None, None, memory="wached"),
]
assert env.step(world, [0, 0, 0, 0], key)
for attempt in tries:
    try:
        attempt()
    except fastap.Mistake as mistake:
        print(mistake)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.stderr == "" and len(run.stdout.splitlines()) == 12


@pytest.fixture(scope="module")
def small_zoo(tmp_path_factory):
    out = tmp_path_factory.mktemp("zoo") / "small"
    main(("zoo", "build", "--preset", "smoke", "--out", str(out), "--episodes", "4"))
    return out


def test_a_zoo_is_built_shown_and_drawn(small_zoo, capsys, tmp_path):
    main(("zoo", "show", "--zoo", str(small_zoo), "--json"))
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["groups"]) == 4 and shown["env"] == "lbf"
    keys = {"name", "pool", "size", "skill", "type", "selfplay", "score", "cluster"}
    assert all(group.keys() == keys for group in shown["groups"])
    facts = {"best_selfplay", "floor", "diagonal", "off_diagonal", "ari", "clusters"}
    assert shown.keys() >= facts | {"best_response_gap", "label_gap", "identifiability"}
    main(("zoo", "show", "--zoo", str(small_zoo)))
    assert "half" in capsys.readouterr().out
    figure = tmp_path / "cross.png"
    main(("zoo", "crossplay", "--zoo", str(small_zoo), "--out", str(figure)))
    assert "within a type" in capsys.readouterr().out
    assert figure.stat().st_size > 5000
    again = ("zoo", "crossplay", "--zoo", str(small_zoo), "--out", str(figure))
    assert "add --force" in refused(capsys, *again)


def test_a_zoo_is_clustered(small_zoo, capsys, tmp_path):
    quick = ("--first", "4", "--later", "2", "--trajectories", "4", "--orders", "2")
    where = ("--zoo", str(small_zoo), "--out", str(tmp_path / "figures"))
    main(("zoo", "cluster", *where, *quick))
    assert "types and sizes" in capsys.readouterr().out
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"crossplay.png", "embeddings.png"}
    main(("zoo", "show", "--zoo", str(small_zoo), "--json"))
    shown = json.loads(capsys.readouterr().out)
    labels = [group["cluster"] for group in shown["groups"]]
    assert set(labels) == set(range(shown["clusters"])) and -1 <= shown["ari"] <= 1
    log = json.loads((small_zoo / "clustering.json").read_text())
    assert len(log["order"]) == 4 and len(log["choices"]) == 6
    for past in log["choices"].values():
        assert [choice["group"] for choice in past] == list(range(4))
    assert "is not empty" in refused(capsys, "zoo", "cluster", *where, *quick)


def test_a_zoo_is_judged(small_zoo, capsys):
    quick = ("--preset", "smoke", "--episodes", "4", "--seeds", "1")
    asked = (*quick, "--pool", "train", "--steps", "600")
    main(("zoo", "accept", "--zoo", str(small_zoo), *asked))
    assert "best-response gap" in capsys.readouterr().out
    main(("zoo", "show", "--zoo", str(small_zoo), "--json"))
    shown = json.loads(capsys.readouterr().out)
    assert shown["identifiability"] >= 0
    facts = json.loads((small_zoo / "manifest.json").read_text())
    found = facts["best_responses"]
    assert found["steps"] == 600
    whole = {k: facts["best_selfplay"][k] - facts["floor"][k] for k in facts["floor"]}
    sizes = [str(2 + group["size"]) for group in facts["groups"]]
    whole = np.array([whole[size] if whole[size] > 0 else 1 for size in sizes])
    gaps = (np.array(found["alone"]) - np.array(found["together"])) / whole
    assert shown["best_response_gap"] == pytest.approx(gaps.mean(), abs=1e-3)
    rows = facts["label_gaps"]
    assert len({(r["trained"], r["change"], r["memory"]) for r in rows}) == 12
    met = {"trained": "U[5,8]", "change": "U[5,8]", "memory": "fresh"}
    (row,) = (row for row in rows if met.items() <= row.items())
    gap = (row["told"] - row["qmix"]) / whole.mean()
    assert shown["label_gap"] == pytest.approx(gap, abs=1e-3)
    message = refused(capsys, "zoo", "accept", "--zoo", str(small_zoo), *quick)
    assert "'validation'" in message and "has no two groups" in message


def test_a_prey_is_raised(capsys, tmp_path):
    where = ("zoo", "prey", "--preset", "smoke", "--out", str(tmp_path / "prey"))
    main(where)
    assert "Chasers touch it" in capsys.readouterr().out
    nerves = load_prey(tmp_path / "prey" / "prey.safetensors")
    env = make("pp", prey=Trained(nerves))
    assert env.prey.nerves.inputs == 14
    facts = json.loads((tmp_path / "prey" / "prey.json").read_text())
    assert 0 <= facts["touched"] <= 1 and 0 <= facts["home"] <= 1
    assert "is not empty" in refused(capsys, *where)


def test_a_damaged_zoo_is_refused_and_left_alone(small_zoo, capsys, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in small_zoo.iterdir():
        (copy / file.name).write_bytes(file.read_bytes()[:-1])
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    message = refused(capsys, "zoo", "show", "--zoo", str(copy))
    assert message.startswith("fastap: ") and message.count("\n") == 1
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("zoo", "show", "--zoo", "bronx"), "'bronx' is no zoo"),
        (("zoo", "build", "--env", "go", "--out", "z"), "no plan for a zoo of 'go'"),
        (("zoo", "build", "--zoo", "lbff", "--out", "z"), "no plan for a zoo 'lbff'"),
        (("zoo", "build", "--steps", "0", "--out", "z"), "--steps must be"),
        (("zoo", "build", "--episodes", "0", "--out", "z"), "--episodes must be"),
    ],
)
def test_a_mistake_about_zoos_leaves_nothing(
    arguments, word, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert word in refused(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("last", "code"), [("--help", 0), ("show", 1)])
def test_nothing_is_said_when_nobody_reads_any_more(last, code):
    ours, theirs = os.pipe()
    os.close(ours)  # as `| head` does when it has seen enough
    call = [sys.executable, "-m", "fastap", "zoo", last]
    ended = subprocess.run(call, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    assert (ended.returncode, ended.stderr) == (code, "")  # 1 is rich's own way


def test_long_work_says_how_far_it_is():
    """Plain lines where there is no terminal: first what it is at, then how fast."""
    text = io.StringIO()
    console = Console(file=text, width=200)
    assert each(console, "judging", ["a", "bc"], str.upper, len) == [1, 2]
    first, *_, last = text.getvalue().splitlines()
    assert first == "judging: 0%. A"  # nothing is known of the pace yet
    assert last.startswith("judging: 100%, ") and "runs/s, 0 s left" in last
    assert each(console, "judging", [], str, len) == []


def test_a_bar_aside_leaves_alone_what_is_printed(capsys):
    """Answers are for other programs, whatever a terminal shows meanwhile."""
    console = Console(stderr=True, force_terminal=True, width=40)
    long = json.dumps({"returns": [0.123456789] * 20})
    each(console, "judging", ["a"], str, lambda _: print(long))
    seen = capsys.readouterr()
    assert seen.out == long + "\n" and "judging" in seen.err
