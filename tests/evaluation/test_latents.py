"""What is recalled is what was thought; readings and measures on planted contexts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs import make
from fastap.evaluation.latents import named_by_lag, probe, recall, since, steadiness
from fastap.methods.actor import act_by, best
from fastap.methods.learner import begin
from fastap.methods.model import Learning
from fastap.methods.table import FASTAP
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import parse
from fastap.teammates.scripted import Random


def test_what_is_recalled_chose_the_actions():
    """From the recalled memories the next look gives the recorded actions."""
    env = make("lbf")
    learning = Learning(method=FASTAP, hidden=8, embed=4)
    model = begin(env, 2, learning, jax.random.key(0)).model

    @jax.jit
    def both(key):
        k_team, k_play = jax.random.split(key)
        team = parse("U[5,8]").draw(
            jnp.array([1, 2]), jnp.ones(2, bool), env.spec.horizon, k_team
        )
        episode = play(env, Players(act_by(env, model), Random()), team, k_play)
        thoughts = recall(env, model, episode)
        leave = jax.vmap(lambda net, h: net.leave(h), (0, 0))
        hidden = thoughts.memory[:, :, 4:12]  # after the context: the values' GRU
        values = jax.vmap(lambda h: leave(model.agents, h))(hidden)
        chosen = jax.vmap(best)(values, episode.available[:-1, :2])
        return chosen, episode, thoughts

    chosen, episode, thoughts = both(jax.random.key(3))
    valid = np.asarray(episode.valid)
    assert np.array_equal(chosen[valid], episode.action[:, :2][valid])
    assert episode.swap.any() and len(np.unique(chosen)) > 1
    assert thoughts.context.shape == (25, 2, 4)
    assert np.array_equal(thoughts.context, thoughts.memory[..., :4])


def test_lags_are_counted_from_the_last_change():
    swap = np.array([[0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]], bool)
    assert since(swap).tolist() == [[0, 1, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5]]


def test_a_context_that_names_the_group_is_steady_and_jumps():
    swap = np.zeros((3, 20), bool)
    swap[:, 10] = True
    valid = np.ones((3, 20), bool)
    context = np.zeros((3, 20, 1, 2))
    context[:, 10:] = 1.0
    named = steadiness(context, swap, valid)
    assert named.within == 0.0 and np.isinf(named.jump)
    noise = np.random.default_rng(0).normal(size=(3, 20, 1, 2))
    blind = steadiness(noise, swap, valid)
    assert blind.within > 0.8 and blind.jump == pytest.approx(1, abs=0.4)


def test_what_was_not_played_does_not_count():
    swap = np.zeros((1, 20), bool)
    swap[:, 10] = True
    valid = np.arange(20)[None] < 15
    context = np.zeros((1, 20, 1, 1))
    context[:, 10:] = 1.0
    wild = context.copy()
    wild[:, 15:] = 1e6
    assert steadiness(wild, swap, valid).within == 0.0


def test_methods_without_a_context_have_no_steadiness():
    empty = steadiness(
        np.zeros((1, 4, 2, 0)), np.zeros((1, 4), bool), np.ones((1, 4), bool)
    )
    assert np.isnan(empty.within) and np.isnan(empty.jump)


def test_a_probe_reads_what_can_be_read_and_nothing_else():
    luck = np.random.default_rng(1)
    target = luck.integers(0, 3, 600)
    centres = 4 * luck.normal(size=(3, 5))
    memory = centres[target] + luck.normal(size=(600, 5))
    found = probe(memory[:300], target[:300], 3)
    episodes = memory[300:].reshape(100, 3, 1, 5)
    lag = np.tile([0, 1, 2], (100, 1))
    shares = named_by_lag(found, episodes, target[300:].reshape(100, 3), lag, 4)
    assert (shares[:3] > 0.9).all() and np.isnan(shares[3])
    blind = probe(luck.normal(size=(300, 5)), target[:300], 3)
    guess = named_by_lag(blind, episodes, target[300:].reshape(100, 3), lag, 3)
    assert guess.mean() < 0.6
