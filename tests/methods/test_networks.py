import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastap.methods.networks import GRU, Linear, Monotone, Sum, gates, recur

SEEDS = st.integers(0, 2**31 - 1)
MIXER = jax.jit(lambda m, q, s: m(q, s))


def test_linear_layers_begin_within_one_over_root_fan_in(key):
    layer = Linear(16, 400, key)
    assert float(jnp.abs(layer.weight).max()) <= 0.25
    assert float(jnp.abs(layer.weight).max()) > 0.24
    assert np.allclose(layer(jnp.ones(16)), layer.weight.sum(0) + layer.bias, atol=1e-6)


def test_a_gru_step_by_hand(key):
    """One input, one memory: gates worked out with plain arithmetic."""
    cell = GRU(1, 1, key)
    set_to = lambda cell, w, b: eqx.tree_at(
        lambda c: (c.inputs.weight, c.inputs.bias, c.memory.weight, c.memory.bias),
        cell,
        (jnp.array([w]), jnp.array(b), jnp.array([[0.5, -1.0, 2.0]]), jnp.zeros(3)),
    )
    cell = set_to(cell, [1.0, 2.0, -1.0], [0.0, 0.1, 0.2])
    h, x = 0.3, 0.7
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    reset = sigmoid(x + 0.5 * h)
    keep = sigmoid(2 * x + 0.1 - h)
    fresh = np.tanh(-x + 0.2 + reset * 2 * h)
    expected = (1 - keep) * fresh + keep * h
    step = cell.step(jnp.array([h]), cell.prepare(jnp.array([x])))
    assert float(step[0]) == pytest.approx(expected, abs=1e-6)


def test_the_gru_is_equinoxs(key):
    ours, theirs = GRU(5, 4, key), eqx.nn.GRUCell(5, 4, key=key)
    fields = lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n)
    bias = ours.inputs.bias.at[:8].add(ours.memory.bias[:8])
    values = (ours.inputs.weight.T, ours.memory.weight.T, bias, ours.memory.bias[8:])
    theirs = eqx.tree_at(fields, theirs, values)
    k_memory, k_input = jax.random.split(key)
    memory, x = jax.random.normal(k_memory, (4,)), jax.random.normal(k_input, (5,))
    expected = theirs(x, memory)
    # equinox weighs the old memory by the update gate, as PyTorch does
    assert np.allclose(ours.step(memory, ours.prepare(x)), expected, atol=1e-6)


def stepwise(weight, bias, prepared):
    """What `recur` computes, as the obvious loop."""
    cell = jax.vmap(lambda w, b, h, p: h @ w + jnp.broadcast_to(b, p.shape))
    memory = jnp.zeros((*prepared.shape[1:3], weight.shape[1]))
    rows = []
    for new in prepared:
        old = cell(weight, bias, memory, new)
        memory = gates(memory, jnp.split(new, 3, axis=-1), old)[0]
        rows.append(memory)
    return jnp.stack(rows)


def test_unrolling_is_stepping_and_so_are_its_gradients(key):
    """The hand-written backward pass, and none for the frozen ones."""
    keys = jax.random.split(key, 4)
    draw = lambda k, *shape: jax.random.normal(k, shape)
    args = (draw(keys[0], 3, 4, 12), draw(keys[1], 3, 12), draw(keys[2], 5, 3, 2, 12))
    assert np.allclose(recur(2, *args), stepwise(*args), atol=1e-6)
    weigh = draw(keys[3], 5, 3, 2, 4)
    slopes = lambda f: jax.grad(lambda *x: jnp.sum(weigh * f(*x)), (0, 1, 2))(*args)
    ours, theirs = slopes(functools.partial(recur, 2)), slopes(stepwise)
    for i, axis in enumerate((0, 0, 1)):
        mine, plain = np.moveaxis(ours[i], axis, 0), np.moveaxis(theirs[i], axis, 0)
        assert np.allclose(mine[:2], plain[:2], atol=1e-5)
        assert np.abs(plain[2]).max() > 1e-3
        assert np.all(mine[2] == 0)


@given(SEEDS)
def test_the_mixed_value_never_falls_when_an_agents_value_rises(seed):
    k_mixer, k_values, k_state = jax.random.split(jax.random.key(seed), 3)
    mixer = Monotone(3, 5, 8, k_mixer)
    values = 3 * jax.random.normal(k_values, (3,))
    state = jax.random.normal(k_state, (5,))
    assert np.all(np.asarray(jax.grad(mixer)(values, state)) >= 0)
    base = float(MIXER(mixer, values, state))
    for i in range(3):
        assert float(MIXER(mixer, values.at[i].add(0.5), state)) >= base


def test_the_best_joint_action_is_everybodys_best(key):
    k_mixer, k_values = jax.random.split(key)
    mixer = Monotone(2, 4, 8, k_mixer)
    for k in jax.random.split(k_values, 20):
        values = jax.random.normal(k, (2, 5))
        joint = jax.vmap(
            lambda a, v=values: jax.vmap(
                lambda b: mixer(jnp.stack([v[0, a], v[1, b]]), jnp.ones(4))
            )(jnp.arange(5))
        )(jnp.arange(5))
        best = np.unravel_index(np.argmax(joint), (5, 5))
        assert best == tuple(np.argmax(values, axis=1))


def test_the_state_changes_the_mix():
    mixer = Monotone(2, 4, 8, jax.random.key(3))
    values = jnp.array([1.0, -1.0])
    assert float(mixer(values, jnp.zeros(4))) != float(mixer(values, jnp.ones(4)))


def test_vdn_is_the_sum():
    assert float(Sum()(jnp.array([1.0, 2.5]), jnp.ones(3))) == 3.5
