"""The same game on every device: what an accelerator plays is what the CPU plays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs import make
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import parse
from fastap.teammates.scripted import Random

DEVICE = jax.devices()[0]


@pytest.mark.skipif(DEVICE.platform == "cpu", reason="needs an accelerator")
@pytest.mark.parametrize("name", ["lbf", "pp", "cn"])
def test_accelerator_plays_the_game_of_the_cpu(name):
    env = make(name)
    sizes = jnp.array([env.spec.least, env.spec.mates])
    random = Players(Random(), Random())

    def episode(key):
        k_draw, k_play = jax.random.split(key)
        draw = parse("U[5,8]").draw
        schedule = draw(sizes, jnp.ones(2, bool), env.spec.horizon, k_draw)
        return play(env, random, schedule, k_play)

    keys = jax.random.split(jax.random.key(7), 1000)
    here, there = (
        jax.jit(jax.vmap(episode))(jax.device_put(keys, device))
        for device in (jax.devices("cpu")[0], DEVICE)
    )
    for ours, theirs in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-3)
