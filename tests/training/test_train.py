"""A training: who is met when, what is noted, and nothing lost on the way."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastap.problem.spec import Mistake
from fastap.training import checkpoint
from fastap.training.settings import Settings, settings
from fastap.training.train import Broken, course, variant

SMOKE = settings("lbf", "fastap", "smoke")


@pytest.fixture(scope="module")
def ready():
    return course(SMOKE)


@pytest.fixture(scope="module")
def trained(ready, tmp_path_factory):
    """Train to the end; keep a checkpoint from the middle of it."""
    folder = tmp_path_factory.mktemp("run")
    notes = []
    for state, noted in ready.train(ready.start()):
        notes.append(noted)
        if state.beats == 3:
            checkpoint.save(folder, ready, state, full=True)
    return folder, state, notes


def same(one, two):
    pairs = zip(
        checkpoint.plain(one).items(), checkpoint.plain(two).items(), strict=True
    )
    return all(a == b and np.array_equal(x, y) for (a, x), (b, y) in pairs)


def test_the_curve_has_a_row_for_every_seed_and_point(ready, trained):
    _, state, notes = trained
    assert [(row["step"], row["seed"]) for row in state.rows] == [
        (800, 0),
        (800, 1),
        (1600, 0),
        (1600, 1),
    ]
    assert len(notes) == ready.beats == 8
    for row in state.rows:
        numbers = {k: v for k, v in row.items() if isinstance(v, float)}
        assert all(np.isfinite(v) for v in numbers.values())
        for case in ("stationary train", "U[5,8] train", "U[5,8] validation"):
            assert 0 <= row[f"won {case}"] <= row[case] + 1e-6 <= 1 + 1e-6
        assert {"td", "gce", "lce", "mi", "rec", "epsilon", "return"} <= row.keys()
        # each term moves its own part, and is seen to
        assert row["gradient team of gce"] > 0 == row["gradient team of lce"]
        assert row["gradient local of rec"] > 0 == row["gradient values of rec"]
        assert row["gradient values of td"] > 0 < row["gradient local of td"]


def test_seeds_differ_in_everything(trained):
    _, state, _ = trained
    weight = np.asarray(state.runs.learner.model.agents.enter.weight)
    assert not np.allclose(weight[0], weight[1])
    action = np.asarray(state.runs.memory.action)
    assert not np.array_equal(action[0], action[1])


def test_a_training_goes_on_from_its_checkpoint_bit_for_bit(ready, trained):
    folder, whole, _ = trained
    middle = checkpoint.load(folder, ready)
    assert middle.beats == 3
    *_, (state, _) = ready.train(middle)
    assert checkpoint.table(state.rows) == checkpoint.table(whole.rows)
    assert same(state.runs, whole.runs)


def test_batches_are_drawn_by_labels_of_their_own(ready, trained):
    """So that all episodes can be drawn alike, whatever the losses separate."""
    folder, *_ = trained

    def after(drawn):
        runs = checkpoint.load(folder, ready).runs
        dials = dataclasses.replace(runs.dials, drawn=drawn(runs.dials.drawn))
        runs = dataclasses.replace(runs, dials=dials)
        _, notes = ready.programs.improve(runs, jnp.arange(2) + 6)
        return np.asarray(notes["td"])

    by_label, alike = after(lambda x: x), after(lambda x: x.at[0].set(0))
    assert not np.allclose(by_label[:, 0], alike[:, 0])
    assert np.array_equal(by_label[:, 1], alike[:, 1])


def test_trainings_that_differ_in_data_alone_share_their_programs(ready):
    other = lambda **asked: course(settings("lbf", "fastap", "smoke", **asked)).programs
    assert other() is other(gce=10.0, first=7, train_change="stationary")
    assert other() is ready.programs
    assert other(train_change="U[5,8]") is other(train_change="U[2,3]")
    assert other(hidden=9) is not ready.programs is not other(memory="watched")
    assert other(zoo="lbf-conventions") is not ready.programs


def test_groups_are_revealed_in_the_recorded_order():
    ready = course(settings("lbf", "qmix", "paper"))
    turns, groups = ready.turns(), ready.zoo.groups
    assert sorted(turns) == [-1] * 16 + [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert all(groups[k]["pool"] == "train" for k in np.flatnonzero(turns >= 0))
    first = [groups[k]["name"] for k in np.flatnonzero(turns == 0)]
    assert set(first) == set(ready.zoo.manifest["order"][:4])
    assert all(groups[k]["size"] == 2 for k in np.flatnonzero(turns == 0))
    at_once = course(settings("lbf", "qmix", "paper", reveal=0)).turns()
    assert np.array_equal(at_once >= 0, turns >= 0)
    assert at_once.max() == 0


def test_the_quick_preset_meets_the_first_groups_alone():
    ready = course(settings("lbf", "qmix", "quick"))
    assert {pool: len(k) for pool, k in ready.members.items()} == {
        "train": 8,
        "validation": 4,
    }
    assert np.array_equal(np.flatnonzero(ready.turns() >= 0), np.arange(8))


def test_labels_are_clusters_groups_or_nothing():
    ready = course(settings("lbf", "fastap", "paper"))
    train = ready.members["train"]
    recorded = [ready.zoo.groups[k]["cluster"] for k in train]
    assert ready.labels("cluster")[train].tolist() == recorded
    assert ready.labels("group")[train].tolist() == list(range(16))
    assert not ready.labels("none").any()
    assert ready.practice.learning.labels == max(recorded) + 1
    groups = [row | {"cluster": None} for row in ready.zoo.groups]
    bare = dataclasses.replace(
        ready.zoo, manifest=ready.zoo.manifest | {"groups": groups}
    )
    with pytest.raises(Mistake, match="fastap zoo cluster"):
        dataclasses.replace(ready, zoo=bare).labels("cluster")


def test_ablations_and_odits_are_configurations_of_fastap():
    names = ("fastap", "fastap-wo-lce", "fastap-wo-crp", "odits", "fastap-zero")
    names += ("fastap-even",)
    each = {name: variant(SMOKE, 2, name) for name in names}
    assert each["fastap"].weights == (1.0, 1.0, 1e-3, 0.1)
    assert each["fastap-wo-lce"].weights == (1.0, 0.0, 1e-3, 0.1)
    assert each["odits"].weights == (0.0, 0.0, 1e-3 / 2, 0.0)
    assert each["fastap-zero"].weights == (0.0,) * 4
    assert each["fastap-wo-crp"].labels == each["fastap-wo-crp"].drawn == "group"
    assert each["fastap-even"].weights == each["fastap"].weights
    assert each["fastap-even"].labels == "cluster"
    assert each["fastap-even"].drawn == "none"
    for name in ("qmix", "liam", "escp", "pearl"):
        with pytest.raises(Mistake, match="no configuration"):
            variant(SMOKE, 2, name)
    oracle = settings("lbf", "oracle", "smoke")
    assert variant(oracle, 2, "oracle").told and not variant(oracle, 2, "qmix").told


def test_configurations_stand_beside_seeds():
    several = [variant(SMOKE, 2, name) for name in ("fastap", "odits")]
    several.append(dataclasses.replace(several[0], rate=1e-4, share=0.25))
    ready = course(SMOKE, several)
    runs = ready.shapes()
    assert runs.dials.weights.shape == (6, 4)
    assert ready.names == ["fastap"] * 2 + ["odits"] * 2 + ["fastap"] * 2
    assert ready.seeds == [0, 1] * 3


def test_an_oracle_is_told_the_type_and_others_nothing():
    asked = settings("lbf", "oracle", "smoke", seeds=1)
    both = course(asked, [variant(asked, 2, name) for name in ("qmix", "oracle")])
    known = np.asarray(both.start().runs.learner.model.known)
    assert not known[0].any()
    assert np.array_equal(known[1].argmax(1), both.zoo.types)


def test_what_is_no_number_stops_with_its_name(ready):
    notes = {"td": np.ones((2, 2)), "lce": np.array([[1.0, 1.0], [1.0, np.nan]])}
    with pytest.raises(Broken, match=r"'lce' .* for fastap, seed 1, at step 700\."):
        ready.check(notes, beat=3)


def test_every_game_has_its_own_length():
    steps = lambda env, preset, **asked: settings(env, "qmix", preset, **asked).steps
    assert [steps(env, "paper") for env in ("lbf", "pp", "cn", "10m_vs_14m")] == [
        *(6_000_000, 3_000_000, 3_000_000, 2_000_000)
    ]
    assert steps("pp", "quick") == steps("lbf", "quick") == 450_000
    assert steps("pp", "paper", steps=800) == 800


@given(st.integers(1, 10**7), st.integers(1, 100))
def test_curves_have_as_many_points_as_asked_for_and_steps_are_right(steps, points):
    ready = course(settings("lbf", "qmix", "quick", steps=steps, points=points))
    there = [beat for beat in range(1, ready.beats + 1) if ready.is_point(beat)]
    assert len(there) == min(points, ready.beats)
    assert there[-1] == ready.beats
    trained, one_round = ready.steps(ready.beats), 32 * 25
    assert steps // one_round <= trained / one_round <= max(1, steps // one_round) + 1
    assert ready.practice.rounds(25) == ready.pulse[0] * ready.beats


def test_settings_refuse_what_cannot_be():
    for wrong, match in (
        ({"share": 1.5}, "share must be"),
        ({"seeds": 0}, "seeds must be"),
        ({"train_change": "sometimes"}, "no change distribution"),
        ({"capacity": 30}, "multiple"),
        ({"rate": float("nan")}, "rate must be"),
        ({"groups": (-1, 2)}, "groups must be"),
    ):
        with pytest.raises(Mistake, match=match):
            settings("lbf", "qmix", "smoke", **wrong)
    with pytest.raises(Mistake, match="no method"):
        settings("lbf", "magic", "smoke")
    with pytest.raises(Mistake, match="no environment"):
        settings("chess", "qmix", "smoke")
    with pytest.raises(Mistake, match="is for lbf"):
        course(settings("pp", "qmix", "smoke", zoo="lbf"))


def test_the_papers_table_is_the_default():
    table = {
        "lbf": (4, 6, 1.0, 1.0, 1e-3, 0.1, 4),
        "pp": (16, 20, 0.4, 0.4, 1e-3, 0.2, 1),
        "cn": (4, 6, 0.4, 0.4, 1e-3, 0.2, 1),
        "10m_vs_14m": (8, 16, 10.0, 10.0, 1e-3, 0.2, 2),
    }
    for env, row in table.items():
        s = settings(env, "fastap", "paper")
        assert (s.local, s.team, s.gce, s.lce, s.mi, s.rec, s.reveal) == row
        assert (s.rate, s.batch, s.hidden, s.embed) == (5e-4, 32, 64, 32)


class TestFiles:
    """What is read is what was written, or it is refused."""

    @pytest.fixture
    def folder(self, trained, tmp_path):
        source, *_ = trained
        (tmp_path / "checkpoint").mkdir()
        for name in (checkpoint.CHECKPOINT, checkpoint.POLICY):
            (tmp_path / name).write_bytes((source / name).read_bytes())
        return tmp_path

    def test_a_damaged_checkpoint_is_refused(self, ready, folder):
        path = folder / checkpoint.CHECKPOINT
        good = path.read_bytes()
        middle = len(good) // 2
        flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
        other = good.replace(b'\\"beats\\": 3', b'\\"beats\\": 4')
        assert other != good
        for bad in (b"", good[:100], good[:-1], b"x" * 500, flipped, other):
            path.write_bytes(bad)
            with pytest.raises(Mistake, match="damaged"):
                checkpoint.load(folder, ready)

    def test_a_foreign_one_too(self, ready, folder):
        path = folder / checkpoint.CHECKPOINT
        path.write_bytes((folder / checkpoint.POLICY).read_bytes())
        with pytest.raises(Mistake, match="does not fit"):
            checkpoint.load(folder, ready)
        tensors, _ = checkpoint.read(path)
        checkpoint.write(path, tensors, {"schema": 99})
        with pytest.raises(Mistake, match="schema 99"):
            checkpoint.load(folder, ready)

    def test_without_any_there_is_nothing_to_go_on_from(self, ready, folder):
        (folder / checkpoint.CHECKPOINT).unlink()
        with pytest.raises(Mistake, match="--checkpoint policy"):
            checkpoint.load(folder, ready)
        (folder / checkpoint.POLICY).unlink()
        assert checkpoint.load(folder, ready) is None

    def test_a_full_disk_costs_nothing(self, ready, trained, folder, monkeypatch):
        _, state, _ = trained
        path = folder / checkpoint.CHECKPOINT
        before = path.read_bytes()

        def full(self, data):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("pathlib.Path.write_bytes", full)
        with pytest.raises(Mistake, match="No space left"):
            checkpoint.save(folder, ready, state, full=True)
        assert path.read_bytes() == before
        assert not list(folder.rglob("*.part"))

    def test_space_is_checked_first(self, ready, folder, monkeypatch):
        need = checkpoint.needed(ready, full=True)
        written = (folder / checkpoint.CHECKPOINT).stat().st_size
        assert 2 * written < need < 2 * written + 2**21 + 2**18
        assert checkpoint.needed(ready, full=False) < need
        monkeypatch.setattr("shutil.disk_usage", lambda _: type("", (), {"free": 9})())
        with pytest.raises(Mistake, match="make room or add --checkpoint policy"):
            checkpoint.check_space(folder, ready, full=True)

    def test_settings_come_back_as_they_were(self, folder):
        checkpoint.write_config(folder, SMOKE, {"versions": {}})
        found, noted = checkpoint.read_config(folder)
        assert found == SMOKE and isinstance(found, Settings)
        assert noted["versions"] == {}

    @pytest.mark.parametrize(
        "change",
        [
            {"seeds": "two"},
            {"method": 3},
            {"rate": None},
            {"groups": [1, "x"]},
            {"groups": [1]},
            {"steps": -1},
            {"env": "chess"},
        ],
        ids=str,
    )
    def test_damaged_settings_are_refused(self, folder, change):
        checkpoint.write_config(folder, SMOKE, {})
        path = folder / checkpoint.CONFIG
        config = json.loads(path.read_text())
        config["settings"] |= change
        path.write_text(json.dumps(config))
        with pytest.raises(Mistake):
            checkpoint.read_config(folder)
        for text in ("", "[]", "{}", '{"settings": {}}', "{"):
            path.write_text(text)
            with pytest.raises(Mistake):
                checkpoint.read_config(folder)
        path.unlink()
        with pytest.raises(Mistake, match="is no run"):
            checkpoint.read_config(folder)


def test_what_a_row_lacks_is_blank():
    """Answers that an older version gave may know less than those given now."""
    text = checkpoint.table(({"method": "qmix"}, {"method": "liam", "told": 0.5}))
    assert text.splitlines() == ["method,told", "qmix,", "liam,0.5"]


def test_a_row_survives_csv_bit_for_bit():
    rows = ({"step": 1, "x": float(jnp.float32(0.1))}, {"step": 2, "x": 1 / 3})
    lines = checkpoint.table(rows).splitlines()
    assert lines[0] == "step,x"
    assert [float(line.split(",")[1]) for line in lines[1:]] == [r["x"] for r in rows]


def test_runs_of_before_a_setting_have_what_was_usual_then(tmp_path):
    late = settings("10m_vs_14m", "qmix", "smoke")
    assert (late.trace, late.standardise) == (0.9, False)
    for name, one in (("late", late), ("early", SMOKE)):
        (tmp_path / name).mkdir()
        checkpoint.write_config(tmp_path / name, one, {})
        assert checkpoint.read_config(tmp_path / name)[0] == one
    path = tmp_path / "late" / "config.json"
    config = json.loads(path.read_text())
    for added in ("trace", "standardise"):
        del config["settings"][added]
    path.write_text(json.dumps(config))
    found = checkpoint.read_config(path.parent)[0]
    assert found == dataclasses.replace(late, trace=0.0, standardise=True)


def test_configurations_stand_beside_a_method():
    names = ("odits", "fastap:lce=10,mi=0")
    ready = course(settings("lbf", "fastap", "smoke", beside=names))
    assert ready.names == [n for n in ("fastap", *names) for _ in range(2)]
    usual, odits, other = (variant.weights for variant in ready.variants)
    assert usual == (1.0, 1.0, 1e-3, 0.1) and other == (1.0, 10.0, 0.0, 0.1)
    assert odits == (0.0, 0.0, 5e-4, 0.0)


@pytest.mark.parametrize(
    "name", ["fastap:lce", "fastap:lce=-1", "fastap:lce=nan", "fastap:x=1", "nobody"]
)
def test_what_is_no_configuration_is_refused(name):
    with pytest.raises(Mistake):
        settings("lbf", "fastap", "smoke", beside=(name,))


def test_only_configurations_share_a_program():
    with pytest.raises(Mistake, match="no configuration"):
        course(settings("lbf", "fastap", "smoke", beside=("liam",)))
