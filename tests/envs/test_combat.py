"""10m_vs_14m is SMAX where it says so, and gathering decides it."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.combat import MOVES, Combat, check_points
from fastap.envs.smax import RADIUS, RANGE, SIGHT, import_smax, push_apart
from fastap.problem.rollout import Players, film, play
from fastap.problem.schedule import parse
from fastap.problem.spec import Mistake
from fastap.teammates.scripted import Gatherer, Random

ENV = Combat()
GAME = ENV.game
EVERYBODY = jnp.ones(10, bool)
RESET = jax.jit(ENV.reset)


@pytest.fixture(scope="module")
def battles():
    """Worlds from the middle of fights, with the wounded and the dead."""
    plan = parse("stationary").draw(jnp.array([3]), jnp.ones(1, bool), 100, KEY)
    teams = (Gatherer(env=ENV, gather=False), Random())
    keys = jax.random.split(KEY, 6)
    run = lambda team: jax.jit(
        jax.vmap(lambda k: film(ENV, Players(team, team), plan, k)[1])
    )(keys)
    worlds = [jax.tree.map(lambda x: x[:, :30:3], run(team)) for team in teams]
    flat = lambda *x: jnp.concatenate([y.reshape(-1, *y.shape[2:]) for y in x])
    return jax.tree.map(flat, *worlds)


KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("the_packages_shapes")


@pytest.fixture
def the_packages_shapes():
    """Let the tests call the package, which promotes ranks."""
    with jax.numpy_rank_promotion("allow"):
        yield


def largest(a, b):
    return np.abs(np.asarray(a, float) - np.asarray(b, float)).max()


def test_marines_are_the_packages():
    assert float(GAME.unit_type_radiuses[0]) == RADIUS
    assert float(GAME.unit_type_sight_ranges[0]) == SIGHT == 9
    assert float(GAME.unit_type_attack_ranges[0]) == RANGE


def test_there_were_fights(battles):
    alive = np.asarray(battles.units.unit_alive)
    assert 0.2 < alive.mean() < 0.95
    assert np.asarray(jax.vmap(ENV.available)(battles))[:, :, MOVES:].any()


def test_observations_are_the_packages(battles):
    theirs = jax.jit(jax.vmap(GAME.get_obs))(battles.units)
    ours = jax.jit(jax.vmap(ENV.observe))(battles)
    for i in range(10):
        assert largest(ours[:, i], theirs[f"ally_{i}"]) < 1e-5
    stored = jax.jit(jax.vmap(ENV.view))(battles).observation
    assert stored.dtype == jnp.float16 and largest(stored, ours) < 1e-3


def test_availability_and_state_are_the_packages(battles):
    theirs = jax.vmap(GAME.get_avail_actions)(battles.units)
    view = jax.jit(jax.vmap(ENV.view))(battles)
    for i in range(10):
        assert np.array_equal(view.available[:, i], theirs[f"ally_{i}"])
    assert largest(view.state, jax.vmap(GAME.get_world_state)(battles.units)) == 0


def test_networks_see_units_on_one_scale(battles):
    """Health, place and cooldown of the living; nothing of the dead."""
    state = jax.jit(jax.vmap(ENV.view))(battles).state
    unit = np.asarray(ENV.encode_state(state)).reshape(len(state), 24, 4)
    assert unit.shape[1] * unit.shape[2] == ENV.spec.state_inputs
    alive = np.asarray(battles.units.unit_alive)
    assert not unit[~alive].any() and (~alive).any()
    assert np.abs(unit).max() <= 1
    place = (unit[..., 1:3] + 1) * np.array([ENV.width, ENV.height]) / 2
    assert largest(place[alive], battles.units.unit_positions[alive]) < 1e-4
    assert largest(unit[alive][:, 0], battles.units.unit_health[alive] / 45) < 1e-6
    cooldown = np.asarray(battles.units.unit_weapon_cooldowns[alive])
    assert np.any(cooldown < -1) and np.any(cooldown > 0)
    assert largest(unit[alive][:, 3], np.maximum(cooldown, 0)) == 0


def test_pushing_apart_is_the_packages(battles):
    units = battles.units
    ours = jax.vmap(push_apart, in_axes=(0, 0, None))(
        units.unit_positions, units.unit_alive, 0.375
    )
    theirs = jax.vmap(GAME._push_units_away)(units).unit_positions
    crowded = jax.random.uniform(KEY, (50, 24, 2), minval=10, maxval=14)
    alive = jax.random.bernoulli(KEY, 0.8, (50, 24))
    assert largest(ours, theirs) < 1e-5
    first = jax.tree.map(lambda x: x[0], units)
    theirs = jax.vmap(
        lambda p, a: (
            GAME._push_units_away(
                first.replace(unit_positions=p, unit_alive=a)
            ).unit_positions
        )
    )(crowded, alive)
    ours = jax.vmap(push_apart, in_axes=(0, 0, None))(crowded, alive, 0.375)
    assert largest(ours, theirs) < 1e-5 and largest(ours, crowded) > 0.01


def test_the_enemy_is_the_packages(battles):
    """Same targets always; same way wherever it follows nobody at random."""
    import_smax()
    from jaxmarl.environments.smax.heuristic_enemy import (
        HeuristicPolicyState,
        create_heuristic_policy,
    )

    policy = create_heuristic_policy(GAME, 1)

    def theirs(world):
        seen = GAME.get_obs(world.units)
        seen = jnp.stack([seen[f"enemy_{i}"] for i in range(14)])
        reversed_prey = jnp.where(world.prey >= 0, 9 - world.prey, -1)
        memory = HeuristicPolicyState(world.goal, reversed_prey)
        keys = jax.random.split(KEY, 14)
        action, memory = jax.vmap(policy)(keys, memory, seen)
        return action, memory.last_attacked_enemy

    action, prey = jax.jit(jax.vmap(ENV._enemy, in_axes=(0, None)))(battles, KEY)
    expected, target = jax.jit(jax.vmap(theirs))(battles)
    alive = np.asarray(battles.units.unit_alive[:, 10:])
    shoots = np.asarray(expected) >= MOVES
    assert (shoots & alive).sum() > 100
    assert np.array_equal(np.asarray(action)[shoots & alive], expected[shoots & alive])
    assert np.array_equal(np.asarray(action >= MOVES)[alive], shoots[alive])
    target = np.where(np.asarray(target) >= 0, 9 - np.asarray(target), -1)
    assert np.array_equal(np.asarray(prey)[alive], target[alive])
    gap = jnp.linalg.norm(
        battles.units.unit_positions[:, 10:, None]
        - battles.units.unit_positions[:, None, :10],
        axis=-1,
    )
    visible = (gap < 9) & battles.units.unit_alive[:, None, :10]
    certain = alive & ~shoots & (np.asarray(visible.sum(2)) <= 1)
    assert certain.sum() > 100
    assert np.array_equal(np.asarray(action)[certain], np.asarray(expected)[certain])


def test_a_step_is_the_packages(battles):
    """With the enemy's choice given and the same dice, nothing else differs."""
    actions = jax.random.randint(KEY, (10,), 0, ENV.spec.actions)

    def both(world):
        after, _ = ENV.step(world, actions, KEY)
        k_enemy, k_game = jax.random.split(KEY)
        enemy, _ = ENV._enemy(world, k_enemy)
        moves = GAME._decode_discrete_actions(jnp.append(actions, enemy))
        units = world.units
        for key in jax.random.split(k_game, GAME.world_steps_per_env_step):
            units = GAME._world_step(key, units, moves)
            units = GAME._kill_agents_touching_walls(units)
            units = GAME._update_dead_agents(units)
            units = GAME._push_units_away(units)
        return after.units, units

    ours, theirs = jax.jit(jax.vmap(both))(battles)
    assert largest(ours.unit_positions, theirs.unit_positions) < 1e-4
    assert largest(ours.unit_health, theirs.unit_health) == 0
    assert largest(ours.unit_alive, theirs.unit_alive) == 0
    assert largest(ours.unit_weapon_cooldowns, theirs.unit_weapon_cooldowns) < 1e-5


def test_both_sides_begin_in_two_groups_that_cannot_see_each_other(key):
    reset = jax.jit(jax.vmap(ENV.reset, in_axes=(None, 0)))
    worlds = reset(EVERYBODY, jax.random.split(key, 50))
    place = np.asarray(worlds.units.unit_positions)
    groups = np.concatenate([np.arange(10) % 2, 2 + np.arange(14) % 2])
    assert np.array_equal(np.bincount(groups), [5, 5, 7, 7])
    gap = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1)
    foes = (groups[:, None] < 2) & (groups[None] >= 2)
    assert gap[:, foes].min() > 9
    assert np.all((place > 0) & (place < [40, 32]))


def rewards(health_before, health_after, **parameters):
    env = Combat(**parameters)
    units = RESET(EVERYBODY, KEY).units
    full = lambda foes: jnp.concatenate([jnp.full(10, 45.0), jnp.array(foes)])
    make = lambda foes: units.replace(unit_health=full(foes), unit_alive=full(foes) > 0)
    return env._outcome(make(health_before), make(health_after))


def test_rewards_are_damage_kills_and_the_win():
    scale = 20 / (14 * 45 + 140 + 200)
    hurt = rewards([45.0] * 14, [36.0] * 2 + [45.0] * 12)
    assert float(hurt.reward) == pytest.approx(18 * scale) and not hurt.terminal
    kill = rewards([9.0] * 2 + [45.0] * 12, [0.0] + [9.0] + [45.0] * 12)
    assert float(kill.reward) == pytest.approx((9 + 10) * scale)
    win = rewards([9.0] + [0.0] * 13, [0.0] * 14)
    assert float(win.reward) == pytest.approx((9 + 10 + 200) * scale)
    assert win.terminal and win.won
    whole = rewards([45.0] * 14, [0.0] * 14)
    assert float(whole.reward) == pytest.approx(20)
    smax = rewards([45.0] * 14, [0.0] * 14, reward="smax")
    assert float(smax.reward) == pytest.approx(2)


def test_the_enemy_heads_for_where_its_opponents_began():
    world = RESET(EVERYBODY, KEY)
    spawns = np.array(ENV.ally_spawns)
    assert np.array_equal(world.goal, spawns[np.arange(14) % 2])
    mine = world.units.unit_positions[10:]
    action, _ = jax.jit(ENV._enemy)(world, KEY)
    assert np.all(np.asarray(action) == 3)  # nobody in sight: west, as far as can be
    assert np.all(np.asarray(mine[:, 0]) > 29)


def fight(team):
    plan = parse("stationary").draw(jnp.array([3]), jnp.ones(1, bool), 100, KEY)
    players = Players(team, team)
    one = lambda key: play(ENV, players, plan, key)
    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(11), 200))


def test_gathering_decides_the_battle_and_the_win_pays_once():
    gathered = fight(Gatherer(env=ENV))
    won = np.asarray(gathered.success)
    assert won.mean() >= 0.5
    assert np.asarray(fight(Gatherer(env=ENV, gather=False)).success).mean() <= 0.15
    assert np.asarray(gathered.total).max() <= 20 + 1e-3
    assert np.allclose(np.asarray(gathered.total)[won], 20, atol=1e-3)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        (dict(enemies=0), "enemies"),
        (dict(controlled=11), "controlled"),
        (dict(horizon=-1), "horizon"),
        (dict(ally_spawns=()), "spawn groups"),
        (dict(jitter=6.5), "walls"),
    ],
)
def test_impossible_battles_are_refused_in_a_sentence(parameters, word):
    with pytest.raises(Mistake, match=word):
        Combat(**parameters)


@pytest.mark.parametrize("points", [5, ((6.0, 24.0, 1.0),), (("a", "b"),)])
def test_spawn_groups_that_are_no_places_are_refused(points):
    with pytest.raises(Mistake, match="pairs of numbers"):
        check_points(points)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("jaxmarl")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    with pytest.raises(Mistake, match=r"pip install 'fastap\[smax\]'"):
        Combat()
