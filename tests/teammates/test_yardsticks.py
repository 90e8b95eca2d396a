"""Teams that know: who is trained for what, what comes back, and what they earn."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.cli import main
from fastap.evaluation.evaluate import Judge
from fastap.experiments.yardsticks import Spot, floor, seal, switching, told
from fastap.methods.actor import act_by
from fastap.methods.model import Learning
from fastap.methods.practice import Practice
from fastap.problem.spec import Mistake
from fastap.teammates import yardsticks
from fastap.teammates import zoo as store
from fastap.teammates.yardsticks import Task, Yardsticks, respond

ROWS = (16, 18, 24, 26)  # two groups for validation, two held out
TINY = Practice(steps=100, learning=Learning(hidden=8, embed=4))
PAIR = (16, 18)  # groups of lbf, of two types


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A zoo of planners without yardsticks."""
    out = tmp_path_factory.mktemp("zoos") / "few"
    whole = store.load("lbf-conventions").manifest
    kept = ("schema", "name", "env", "kind", "layout", "parameters", "best_selfplay")
    rows = [whole["groups"][row] for row in ROWS]
    store.save(out, {name: whole[name] for name in kept} | {"groups": rows})
    return out


@pytest.fixture(scope="module")
def measured(folder, tmp_path_factory):
    """The same with untrained ones, as the command leaves it."""
    out = tmp_path_factory.mktemp("zoos") / "measured"
    store.save(out, store.load(folder).manifest)
    small = ("--preset", "smoke", "--seeds", "2", "--steps", "100")
    main(("zoo", "yardsticks", "--zoo", str(out), *small))
    return out


def test_each_group_has_a_team_and_each_pool_some_that_are_told(folder):
    zoo = store.load(folder)
    tasks = yardsticks.planned(zoo, seeds=2)
    assert tasks[:4] == [Task((group,)) for group in range(4)]
    ways = [(task.groups, task.trained) for task in tasks[4:]]
    assert all(task.told for task in tasks[4:])
    pools, changes = ((0, 1), (2, 3)), ("stationary", "U[5,8]")
    assert ways == [(p, way) for p in pools for way in changes for _ in range(2)]


def test_teams_come_back(folder, tmp_path):
    zoo = store.load(folder)
    tasks = yardsticks.planned(zoo, seeds=1)
    models, curves = yardsticks.train_all(zoo, TINY, tasks, lambda *_: None)
    teams = Yardsticks(zoo, tuple(tasks), models.agents)
    facts = yardsticks.describe(teams, TINY, curves)
    kinds = ["alone", "told, stationary", "told, U[5,8]"]
    assert {pool: list(facts[pool]["curves"]) for pool in facts} == {
        "validation": kinds,
        "held-out": kinds,
    }
    own = curves[:, [task == Task((2,)) or task == Task((3,)) for task in tasks]]
    found = facts["held-out"]["curves"]["alone"]
    assert np.allclose(found, own.mean(1), atol=1e-4)
    store.save(tmp_path / "zoo", zoo.manifest)
    yardsticks.save(tmp_path / "zoo", teams, facts)
    kept = yardsticks.load(tmp_path / "zoo")
    assert kept and kept.tasks == tuple(tasks)
    half = lambda x: np.asarray(x).astype(np.float16)
    same = lambda made, found: np.array_equal(half(made), found)
    assert jax.tree.all(jax.tree.map(same, models.agents, kept.agents))
    assert np.array_equal(kept.told((2, 3), "U[5,8]").known[0], models.known[-1])
    assert not np.any(kept.switching((0, 1))[0].known)


def test_the_command_writes_what_it_made(measured, capsys):
    noted = json.loads((measured / "manifest.json").read_text())["yardsticks"]
    assert len(noted["teams"]) == 4 + 2 * 2 * 2
    assert list(noted["trained"]) == ["validation", "held-out"]
    for facts in noted["trained"].values():
        assert facts["command"].startswith("fastap zoo yardsticks")
        assert facts["steps"] == 100 and facts["device"]
    with pytest.raises(SystemExit) as stopped:
        main(("zoo", "yardsticks", "--zoo", str(measured), "--preset", "smoke"))
    assert stopped.value.code == 2
    assert "has yardsticks already" in capsys.readouterr().err


def test_teams_of_other_pools_are_kept(measured, tmp_path, capsys):
    copy, before = tmp_path / "copy", yardsticks.load(measured)
    shutil.copytree(measured, copy)
    again = ("zoo", "yardsticks", "--zoo", str(copy), "--preset", "smoke")
    again = (*again, "--pools", "held-out", "--seeds", "1", "--steps", "50")
    with pytest.raises(SystemExit):
        main(again)
    assert "has yardsticks already" in capsys.readouterr().err
    main((*again, "--force"))
    after, noted = yardsticks.load(copy), store.load(copy).manifest["yardsticks"]
    kept = before.without(("held-out",))
    assert {kept.pool(row) for row in range(len(kept.tasks))} == {"validation"}
    assert after.tasks[: len(kept.tasks)] == kept.tasks
    assert after.tasks[len(kept.tasks) :] == tuple(
        yardsticks.planned(after.zoo, 1, ("held-out",))
    )
    same = lambda old, new: np.array_equal(old, new[: len(old)])
    assert jax.tree.all(jax.tree.map(same, kept.agents, after.agents))
    steps = {pool: facts["steps"] for pool, facts in noted["trained"].items()}
    assert steps == {"validation": 100, "held-out": 50}
    (copy / yardsticks.FILE).write_bytes(b"damaged")
    both = ("--pools", "validation", "held-out", "held-out", "--steps", "50")
    main((*again[:6], *both, "--force"))
    whole = yardsticks.planned(after.zoo, 3, ("validation", "held-out"))
    assert yardsticks.load(copy).tasks == tuple(whole)
    with pytest.raises(SystemExit):
        main((*again[:6], "--pools", "train"))
    assert "has no groups for train" in capsys.readouterr().err


def test_teams_of_other_widths_are_not_joined(measured, capsys):
    again = ("zoo", "yardsticks", "--zoo", str(measured), "--force")
    with pytest.raises(SystemExit):
        main((*again, "--pools", "held-out"))
    assert "8 wide, new ones would be 64" in capsys.readouterr().err


def test_what_others_made_of_other_pools_meanwhile_is_kept(folder, tmp_path):
    """Two commands side by side, each for one pool."""
    zoo = store.load(folder)
    store.save(tmp_path / "zoo", zoo.manifest)
    for pool in ("validation", "held-out"):
        tasks = yardsticks.planned(zoo, 1, (pool,))
        models, _ = yardsticks.train_all(zoo, TINY, tasks, lambda *_: None)
        teams = Yardsticks(zoo, tuple(tasks), models.agents)
        yardsticks.save(tmp_path / "zoo", teams, {pool: {"steps": 100}})
    both = yardsticks.load(tmp_path / "zoo")
    found = [both.pool(row) for row in range(len(both.tasks))]
    assert found == ["validation"] * 4 + ["held-out"] * 4
    noted = both.zoo.manifest["yardsticks"]
    assert list(noted["trained"]) == ["validation", "held-out"]


def test_only_teams_for_all_the_groups_are_taken(measured):
    kept = yardsticks.load(measured)
    assert kept.told((0,), "stationary").known.shape == (2, 4, 3)
    assert kept.told((0, 2), "stationary") is None  # no one was trained beside both
    assert kept.switching((1, 2))[1].tolist() == [[0, 0, 1, 0]]
    without = Yardsticks(kept.zoo, kept.tasks[1:4], kept.agents)
    assert without.switching((0, 1)) is None


def test_equal_teams_that_take_turns_earn_what_one_of_them_does():
    """Nobody can tell whose turn it is."""
    kept = yardsticks.load("lbf")
    same = jax.tree.map(lambda x: x[:1].repeat(len(x), 0), kept.agents)
    twins = Yardsticks(kept.zoo, kept.tasks, same)
    play = lambda work: Judge(kept.zoo, 60, work=work)
    turns = play(respond)(twins.switching(PAIR), np.array(PAIR), "U[3,3]").reward
    alone = play(act_by)(twins.models([0]), np.array(PAIR), "U[3,3]").reward
    assert np.any(alone) and np.array_equal(turns, alone)


def test_the_team_of_the_present_group_acts():
    """With one group there, only the team that was trained for it counts."""
    kept = yardsticks.load("lbf")
    play = lambda work, model, one: (
        Judge(kept.zoo, 60, work=work)(model, np.array([one]), "stationary").reward
    )
    both, own = kept.switching(PAIR), dict(zip(PAIR, (0, 2), strict=True))
    assert all(kept.tasks[row] == Task((one,)) for one, row in own.items())
    found = [play(respond, both, one) for one in PAIR]
    want = [play(act_by, kept.models([row]), one) for one, row in own.items()]
    assert np.array_equal(found, want)
    assert not np.array_equal(found[1], play(act_by, kept.models([0]), PAIR[1]))


@pytest.mark.parametrize("change", ["stationary", "U[5,8]"])
def test_shipped_yardsticks_are_above_chance(change):
    zoo = store.load("lbf")
    where = (seal(zoo), tuple(zoo.members("held-out").tolist()), 200, "fresh")
    spot = Spot("lbf", *where)
    low, high = floor(spot, change), switching(spot, change)
    oracle = told(spot, change, change)
    assert low + 0.3 < min(oracle, high)
    assert change != "stationary" or oracle < high  # they never met a change


def test_own_teams_earn_what_groups_earn_in_self_play():
    """Scores that were measured when the zoo was made, on other episodes."""
    zoo = store.load("lbf")
    both, judge = yardsticks.own_teams(zoo, PAIR), Judge(zoo, 400, work=respond)
    for one in PAIR:
        found = np.asarray(judge(both, np.array([one]), "stationary").reward).sum(-1)
        bodies = str(2 + zoo.sizes[one])
        error = found.std() / 20
        assert abs(found.mean() - zoo.groups[one]["selfplay"][bodies]) < 4 * error


def test_planners_have_no_own_team_but_every_learnt_zoo_has():
    assert yardsticks.own_teams(store.load("lbf-conventions"), (0, 1)) is None
    zoo = store.load("10m_vs_14m")
    teams, response = yardsticks.own_teams(zoo, (24, 31))
    want = zoo.policy.agents.leave.bias[np.array([24, 31]), :7]
    assert np.array_equal(teams.agents.leave.bias[0], want)
    assert response[0, [24, 31]].tolist() == [0, 1]


def test_damage_is_noticed(measured, tmp_path):
    copy = tmp_path / "copy"
    store.save(copy, store.load(measured).manifest)
    data = (measured / yardsticks.FILE).read_bytes()
    with pytest.raises(Mistake, match="cannot be read"):
        yardsticks.load(copy)
    (copy / yardsticks.FILE).write_bytes(data[:-1])
    with pytest.raises(Mistake, match="damaged, cut short or changed"):
        yardsticks.load(copy)
    (copy / yardsticks.FILE).write_bytes(data)
    noted = store.load(copy).manifest
    assert yardsticks.load(copy)
    odd_teams = (3, [], {}, [None], [{"groups": [9]}])
    odds = [{"teams": teams} for teams in odd_teams]
    for odd in (*odds, {"groups": "others"}, {"trained": []}):
        store.save(copy, noted | {"yardsticks": noted["yardsticks"] | odd})
        with pytest.raises(Mistake, match="yardsticks is damaged"):
            yardsticks.load(copy)
    for odd in ([], "x", 1):
        store.save(copy, noted | {"yardsticks": odd})
        with pytest.raises(Mistake, match="yardsticks is damaged"):
            yardsticks.load(copy)
        assert str(odd) in seal(store.load(copy))


def test_teams_are_of_the_groups_they_were_trained_for(measured, tmp_path):
    copy = tmp_path / "copy"
    noted = store.load(measured).manifest
    (copy / yardsticks.FILE).parent.mkdir()
    (copy / yardsticks.FILE).write_bytes((measured / yardsticks.FILE).read_bytes())
    relabelled = [row | {"cluster": 3} for row in noted["groups"]]
    store.save(copy, noted | {"groups": relabelled})
    assert yardsticks.load(copy)
    swapped = [noted["groups"][i] for i in (1, 0, 2, 3)]
    store.save(copy, noted | {"groups": swapped})
    with pytest.raises(Mistake, match="or of other groups; make them anew"):
        yardsticks.load(copy)


def test_what_others_wrote_meanwhile_is_kept(folder, tmp_path):
    zoo = store.load(folder)
    store.save(tmp_path / "zoo", zoo.manifest | {"identifiability": 2.5})
    tasks = [Task((0,))]
    models, _ = yardsticks.train_all(zoo, TINY, tasks, lambda *_: None)
    teams = Yardsticks(zoo, tuple(tasks), models.agents)
    yardsticks.save(tmp_path / "zoo", teams, {})
    assert store.load(tmp_path / "zoo").manifest["identifiability"] == 2.5
    assert yardsticks.load(tmp_path / "zoo")


def test_a_zoo_without_them_has_none(folder):
    assert yardsticks.load(folder) is None
    zoo = store.load(folder)
    spot = Spot(str(folder), seal(zoo), (0, 1), 20, "fresh")
    assert switching(spot, "stationary") is None
    assert told(spot, "stationary", "stationary") is None
    assert jnp.isfinite(floor(spot, "stationary"))
