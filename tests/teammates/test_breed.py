"""The prey: what it fears, that it learns, and its file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fastap.envs.particles import Arena
from fastap.envs.prey import Fleeing, Nerves, load_prey, save_prey
from fastap.envs.pursuit import Pursuit
from fastap.methods.model import Learning
from fastap.methods.practice import Practice
from fastap.problem.spec import Mistake
from fastap.teammates.breed import Breeding, fear, flee, hunt, learn, newborn, touches
from fastap.teammates.scripted import Chaser

ENV = Pursuit(prey=Fleeing())
KEY = jax.random.key(0)


def arena(*places):
    """Predators and, last, a prey, all at rest."""
    there = jnp.ones(len(places), bool)
    place = jnp.array(places, float)
    return Arena(place, jnp.zeros_like(place), there, jnp.zeros((0, 2)))


@pytest.mark.parametrize(
    ("prey", "worth"),
    [
        ((0.0, 0.0), 0.0),
        ((0.95, 0.0), -0.05),  # a tenth of 10 (0.95 - 0.9)
        ((1.5, -1.2), -0.1 * (np.exp(1.0) + np.exp(0.4))),
        ((9.0, 0.0), -1.0),  # never more than 10
    ],
)
def test_prey_fear_the_border_as_in_mpe2(prey, worth):
    far = (-0.5, 0.5)
    assert float(fear(arena(far, far, prey))) == pytest.approx(worth, abs=1e-6)


def test_every_touch_hurts():
    world = arena((0.1, 0.0), (0.0, 0.12), (0.13, 0.0), (0.0, 0.0))
    assert int(touches(world)) == 2  # they touch within 0.125
    assert float(fear(world)) == pytest.approx(-2.0)


def test_a_prey_learns_to_be_touched_less():
    small = Breeding(rounds=600, hidden=16, capacity=512, updates=8, rate=2e-3)
    young = newborn(ENV, 16, KEY)
    old = learn(ENV, Chaser(), young, small, KEY)
    suffer = jax.jit(
        lambda prey, keys: jax.vmap(
            lambda key: flee(ENV, Chaser(), prey, jnp.float32(0), key).reward.sum()
        )(keys).mean()
    )
    keys = jax.random.split(jax.random.key(5), 500)
    assert suffer(old, keys) > suffer(young, keys) + 2.0


def test_a_prey_survives_its_file(tmp_path):
    prey, path = newborn(ENV, 8, KEY), tmp_path / "prey.safetensors"
    save_prey(prey, path)
    again, seen = load_prey(path), jnp.linspace(-1, 1, 14)
    assert isinstance(again, Nerves)
    assert np.array_equal(again.values(seen), prey.values(seen))
    data = path.read_bytes()
    for bad in (data[: len(data) // 2], b"", b"{}"):
        path.write_bytes(bad)
        with pytest.raises(Mistake, match="cannot be read"):
            load_prey(path)
    save_prey(Nerves(prey.layers[:2]), path)
    with pytest.raises(Mistake, match="five moves"):
        load_prey(path)
    with pytest.raises(Mistake, match="Could not write"):
        save_prey(prey, tmp_path / "nowhere" / "prey.safetensors")


def test_predators_learn_against_the_prey_that_there_is():
    small = {"episodes": 4, "updates": 1, "batch": 4, "capacity": 16}
    tiny = Learning(mixer="vdn", hidden=8)
    hunts = Practice(steps=24, learning=tiny, **small)
    env = Pursuit(prey=Fleeing(), horizon=3)
    teams = hunt(env, newborn(env, 8, KEY), Breeding(hunts=hunts), 0)
    assert teams.groups == 2 and teams.env.prey == Fleeing()
    assert teams.agents.leave.bias.shape == (2, 3, 5)
