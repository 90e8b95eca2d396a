"""Whether an agent can tell, from what it sees itself, whom it plays with."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fastap.methods import replay
from fastap.methods.actor import act_by
from fastap.methods.model import Model, observe
from fastap.methods.networks import Values, recur
from fastap.methods.replay import Experience
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import parse
from fastap.teammates.zoo import Zoo

LAGS = 8  # steps after a change that are looked at
BATCH, RATE = 64, 1e-3
MEASURED = 4  # the lag at which the answer counts


def identify(
    zoo: Zoo, model: Model, pool: str, episodes: int, steps: int
) -> dict[str, Any]:
    """Train a GRU to name the type of the group that is there; return how often.

    It sees what one controlled agent sees and does, in episodes with changing
    groups, and is tested on as many episodes again.
    """
    members = zoo.members(pool)
    names, types = np.unique(zoo.types[members], return_inverse=True)
    label = np.zeros(len(zoo.groups), int)
    label[members] = types
    live = jax.jit(functools.partial(_live, zoo, model, members))
    k_train, k_test, k_fit = jax.random.split(jax.random.key(11), 3)
    seen = [live(jax.random.split(k, episodes)) for k in (k_train, k_test)]
    net = fit(zoo, seen[0][0], jnp.asarray(label), len(names), (steps, k_fit))
    said = np.asarray(jnp.argmax(name(zoo, net, seen[1][0]), -1))  # T n B
    batch, lag = jax.tree.map(np.asarray, seen[1])
    truth = label[batch.group]
    right = said == truth.T[:, None]
    masks = [_at(batch.valid, lag, k, right.shape) for k in range(LAGS)]
    by_lag = [float(right[mask].mean()) for mask in masks if mask.any()]
    chance = float(np.bincount(truth[batch.valid]).max() / batch.valid.sum())
    return {
        "identifiability": round(by_lag[MEASURED] / chance, 4),
        "identification": {
            "accuracy_by_lag": [round(x, 4) for x in by_lag],
            "chance": round(chance, 4),
            "types": len(names),
            "episodes": episodes,
        },
    }


def _at(valid: Any, lag: Any, k: int, shape: tuple[int, ...]) -> Any:
    """Mark the steps so many after a change, for every agent."""
    return np.broadcast_to((valid & (lag == k)).T[:, None], shape)


def _live(
    zoo: Zoo, model: Model, members: Any, keys: Array
) -> tuple[Experience, Int[Array, "B T"]]:
    """Play episodes with changing groups; say how long ago the last change was."""
    env = zoo.env
    allowed = jnp.zeros(len(zoo.groups), bool).at[members].set(True)
    mine = act_by(env, model)

    def one(key):
        k_draw, k_play = jax.random.split(key)
        sizes, change = jnp.asarray(zoo.sizes), parse("U[5,8]")
        schedule = change.draw(sizes, allowed, env.spec.horizon, k_draw)
        episode = play(env, Players(mine, zoo.policy), schedule, k_play)
        when = jnp.arange(env.spec.horizon)
        last = jax.lax.cummax(jnp.where(schedule.swap, when, -1))
        lag = jnp.where(last >= 0, when - last, -1)  # -1: no change yet
        return replay.keep(episode, env.spec.controlled), lag

    return jax.vmap(one)(keys)


def fit(
    zoo: Zoo,
    seen: Experience,
    label: Int[Array, " K"],
    types: int,
    effort: tuple[int, PRNGKeyArray],
) -> Values:
    """Train the namer on recorded episodes."""
    steps, key = effort
    k_net, k_steps = jax.random.split(key)
    spec = zoo.env.spec
    net = Values(spec.inputs + spec.actions, 64, types, k_net)
    adam = optax.adam(RATE)

    def loss(net, batch):
        logits = name(zoo, net, batch)
        truth = label[batch.group.astype(int)].T[:, None]
        truth = jnp.broadcast_to(truth, logits.shape[:-1])
        wrong = optax.softmax_cross_entropy_with_integer_labels(logits, truth)
        weight = jnp.broadcast_to(batch.valid.T[:, None], wrong.shape)
        return jnp.sum(wrong * weight) / weight.sum()

    def step(carry, key):
        net, state = carry
        rows = jax.random.randint(key, (BATCH,), 0, len(seen.reward))
        slope = eqx.filter_grad(loss)(net, jax.tree.map(lambda x: x[rows], seen))
        change, state = adam.update(slope, state)
        return (eqx.apply_updates(net, change), state), None

    start = (net, adam.init(eqx.filter(net, eqx.is_array)))
    train = jax.jit(lambda start, keys: jax.lax.scan(step, start, keys)[0])
    return train(start, jax.random.split(k_steps, steps))[0]


def name(zoo: Zoo, net: Values, seen: Experience) -> Float[Array, "T n B C"]:
    """Give every type a score at every step, from the past of one agent."""
    xs = observe(zoo.env, None, seen)[:-1]
    steps, agents, count, _ = xs.shape
    flat = xs.reshape(steps, 1, agents * count, -1)
    memory = net.gru.memory
    weight, bias = memory.weight[None], memory.bias[None]
    memories = jnp.asarray(recur(1, weight, bias, net.prepare(flat)))
    return net.leave(memories).reshape(steps, agents, count, -1)
