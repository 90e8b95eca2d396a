"""Other people's games give the same numbers through the bridge."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpe2 import simple_spread_v3

from fastap.envs.bridge import FromJaxMARL, FromPettingZoo
from fastap.envs.smax import import_smax, silence
from fastap.problem.rollout import AbstractPolicy, Players, play
from fastap.problem.schedule import parse
from fastap.problem.spec import Mistake
from fastap.teammates.scripted import Random, Still

with silence():
    import jaxmarl

PLAYERS = Players(Random(), Random())


def schedule(horizon, mates, text="U[5,8]"):
    sizes = jnp.full(3, mates)
    return parse(text).draw(sizes, jnp.ones(3, bool), horizon, jax.random.key(1))


@pytest.fixture(scope="module")
def spread():
    return jaxmarl.make("MPE_simple_spread_v3")


def test_a_jaxmarl_game_is_played_compiled_and_unchanged(spread, key):
    env = FromJaxMARL(spread, controlled=2, horizon=25)
    assert env.spec.slots == 3 and env.spec.observation == 18 and env.spec.actions == 5
    keys = jax.random.split(key, 8)
    many = jax.jit(jax.vmap(lambda k: play(env, PLAYERS, schedule(25, 1), k)))(keys)
    assert many.observation.shape == (8, 26, 3, 18)
    k_reset, _, k_world, _ = jax.random.split(keys[5], 4)
    with jax.numpy_rank_promotion("allow"):
        seen, state = spread.reset(k_reset)
        for t in range(25):
            rows = np.stack([seen[agent] for agent in spread.agents])
            assert np.allclose(rows, many.observation[5, t], atol=1e-5)
            action = {a: many.action[5, t, i] for i, a in enumerate(spread.agents)}
            k_step = jax.random.fold_in(k_world, t)
            seen, state, reward, _, _ = spread.step_env(k_step, state, action)
            team = sum(float(r) for r in reward.values())
            assert float(many.reward[5, t]) == pytest.approx(team, abs=1e-4)


def test_a_jaxmarl_game_with_uneven_agents_and_masks_is_padded(key):
    marines = import_smax().map_name_to_scenario("3m")
    smax = jaxmarl.make("HeuristicEnemySMAX", scenario=marines)
    env = FromJaxMARL(smax, controlled=2, horizon=10, pay="mean")
    assert env.spec.state == env.view(env.reset(jnp.ones(3, bool), key)).state.size
    episode = jax.jit(lambda k: play(env, PLAYERS, schedule(10, 1), k))(key)
    chosen = jnp.take_along_axis(
        episode.available[:-1], episode.action[..., None], axis=-1
    )
    assert np.asarray(chosen).all()
    tag = FromJaxMARL(jaxmarl.make("MPE_simple_tag_v3"), controlled=3, horizon=5)
    view = tag.view(tag.reset(jnp.ones(4, bool), key))
    assert view.observation.shape == (4, 16)
    assert np.all(np.asarray(view.observation[3, 14:]) == 0)


def test_the_end_of_a_jaxmarl_game_is_the_end_of_the_episode(key):
    """Three marines that only walk north are dead before long."""
    marines = import_smax().map_name_to_scenario("3m")
    smax = jaxmarl.make("HeuristicEnemySMAX", scenario=marines)
    env = FromJaxMARL(smax, controlled=2, horizon=60)
    episode = jax.jit(play)(env, Players(Still(), Still()), schedule(60, 1), key)
    assert int(episode.length) < 60
    assert bool(episode.terminal[int(episode.length) - 1])


@pytest.mark.filterwarnings("ignore:OvercookedV2:DeprecationWarning")
def test_a_game_of_pictures_is_flattened(key):
    env = FromJaxMARL(jaxmarl.make("overcooked"), controlled=1, horizon=4)
    episode = jax.jit(play)(env, PLAYERS, schedule(4, 1, "stationary"), key)
    assert episode.observation.shape == (5, 2, env.spec.observation)
    assert episode.state.shape == (5, env.spec.state)


class Clock(AbstractPolicy):
    """Acts by its age, so that a forgotten memory shows."""

    groups: int = eqx.field(static=True, default=3)

    def start(self, slots):
        return jnp.zeros(slots, int)

    def act(self, memory, glance, key):
        return memory + 1, memory % 5


def test_a_pettingzoo_game_gives_the_same_episode(key):
    game = simple_spread_v3.parallel_env(N=3, max_cycles=12)
    env = FromPettingZoo(game, controlled=2, horizon=12)
    plan = schedule(12, 1)
    episode = env.play(Players(Clock(), Clock()), plan, key)
    again = env.play(Players(Clock(), Clock()), plan, key)
    assert np.array_equal(episode.observation, again.observation)
    assert np.array_equal(episode.action[:, 0], np.arange(12) % 5)
    since = np.arange(12) - np.maximum.accumulate(
        np.where(np.asarray(plan.swap), np.arange(12), 0)
    )
    assert np.asarray(plan.swap).any()
    assert np.array_equal(episode.action[:, 2], since % 5)
    reference = simple_spread_v3.parallel_env(N=3, max_cycles=12)
    k_reset, _ = jax.random.split(key)
    seed = int(jax.random.randint(k_reset, (), 0, 2**31 - 1))
    seen, _ = reference.reset(seed=seed)
    for t in range(12):
        rows = np.stack([seen[a] for a in reference.possible_agents])
        assert np.allclose(rows, episode.observation[t], atol=1e-6)
        action = dict(zip(reference.possible_agents, episode.action[t], strict=True))
        seen, reward, _, _, _ = reference.step({a: int(x) for a, x in action.items()})
        team = sum(reward.values())
        assert float(episode.reward[t]) == pytest.approx(team, abs=1e-4)


def test_a_game_that_ends_early_is_padded(key):
    game = simple_spread_v3.parallel_env(N=3, max_cycles=5)
    env = FromPettingZoo(game, controlled=1, horizon=9)
    episode = env.play(PLAYERS, schedule(9, 2), key)
    assert int(episode.length) == 5 and bool(episode.terminal[4])
    assert np.all(np.asarray(episode.reward[5:]) == 0)


@pytest.mark.parametrize("controlled", [0, 3, -1])
def test_impossible_bridges_are_refused_in_a_sentence(controlled, spread):
    game = simple_spread_v3.parallel_env(N=3)
    with pytest.raises(Mistake, match="controlled"):
        FromPettingZoo(game, controlled=controlled, horizon=9)
    with pytest.raises(Mistake, match="controlled"):
        FromJaxMARL(spread, controlled=controlled, horizon=9)


def test_continuous_actions_are_refused_in_a_sentence():
    game = simple_spread_v3.parallel_env(N=3, continuous_actions=True)
    with pytest.raises(Mistake, match="discrete"):
        FromPettingZoo(game, controlled=2, horizon=9)


def test_a_bridged_game_is_drawn_by_its_own_package(spread, key):
    env = FromJaxMARL(spread, controlled=2, horizon=5)
    with pytest.raises(Mistake, match="own package"):
        env.scene(env.reset(jnp.ones(3, bool), key))
