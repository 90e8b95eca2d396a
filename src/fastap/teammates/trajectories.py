"""What an observer of a group keeps of its episodes, and a model of its behaviour."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num, PRNGKeyArray

from fastap.methods.networks import GRU, Linear
from fastap.problem.rollout import AbstractPolicy, Players, play
from fastap.problem.schedule import unchanging
from fastap.problem.spec import Env
from fastap.teammates.population import only

WIDTH, HEADS, LAYERS = 16, 3, 8
Likelihood = Literal["categorical", "gaussian"]


class Trajectories(eqx.Module):
    """What whole teams did in some episodes."""

    state: Num[Array, "*B T S"]
    action: Int[Array, "*B T N"]
    available: Bool[Array, "*B T N A"]
    present: Bool[Array, "*B T N"]
    valid: Bool[Array, "*B T"]


def collect(
    env: Env,
    policy: AbstractPolicy,
    group: Int[Array, ""],
    size: Int[Array, ""],
    keys: Key[Array, " E"],
) -> Trajectories:
    """Watch a group play with itself."""
    n = env.spec.controlled
    team = Players(only(policy, group, np.s_[:n]), only(policy, group, np.s_[n:]))
    schedule = unchanging(env.spec.horizon, size)
    seen = jax.vmap(lambda key: play(env, team, schedule, key))(keys)
    return Trajectories(
        seen.state[:, :-1],
        seen.action.astype(jnp.int8),
        seen.available[:, :-1],
        seen.present,
        seen.valid,
    )


class Block(eqx.Module):
    """One layer of a transformer: everybody looks at everybody, then thinks."""

    look: Linear
    gather: Linear
    think: Linear
    conclude: Linear

    def __init__(self, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.look = Linear(WIDTH, 3 * HEADS * WIDTH, keys[0])
        self.gather = Linear(HEADS * WIDTH, WIDTH, keys[1])
        self.think = Linear(WIDTH, 4 * WIDTH, keys[2])
        self.conclude = Linear(4 * WIDTH, WIDTH, keys[3])

    def __call__(
        self, x: Float[Array, "T D"], valid: Bool[Array, " T"]
    ) -> Float[Array, "T D"]:
        """Mix the steps of one trajectory."""
        parts = self.look(normal(x)).reshape(len(x), 3, HEADS, WIDTH)
        query, key, value = (parts[:, i] for i in range(3))
        match = jnp.einsum("shd,thd->hst", query, key) / WIDTH**0.5
        weight = jax.nn.softmax(jnp.where(valid[None, None], match, -1e9), axis=-1)
        seen = jnp.einsum("hst,thd->shd", weight, value).reshape(len(x), -1)
        x = x + self.gather(seen)
        return x + self.conclude(jax.nn.relu(self.think(normal(x))))


def normal(x: Float[Array, "T D"]) -> Float[Array, "T D"]:
    """Centre and scale every row."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)


class Behaviour(eqx.Module):
    """An encoder of trajectories and a decoder that predicts actions from its code.

    The encoder is a transformer without positions, normalised before each layer:
    sixteen wide and eight deep, the other way round hardly trains.
    """

    enter: Linear
    blocks: Block  # all layers, stacked
    leave: Linear
    see: Linear
    gru: GRU
    join: Linear
    head: Linear
    likelihood: Likelihood = eqx.field(static=True)

    def __init__(
        self, env: Env, likelihood: Likelihood, hidden: int, key: PRNGKeyArray
    ):
        spec, keys = env.spec, jax.random.split(key, 7)
        actions = spec.slots * spec.actions
        outputs = actions * (2 if likelihood == "gaussian" else 1)
        self.enter = Linear(spec.state_inputs + actions, WIDTH, keys[0])
        self.blocks = jax.vmap(Block)(jax.random.split(keys[1], LAYERS))
        self.leave = Linear(WIDTH, WIDTH, keys[2])
        self.see = Linear(spec.state_inputs, hidden, keys[3])
        self.gru = GRU(hidden, hidden, keys[4])
        self.join = Linear(hidden + WIDTH, hidden, keys[5])
        self.head = Linear(hidden, outputs, keys[6])
        self.likelihood = likelihood

    def encode(self, env: Env, seen: Trajectories) -> Float[Array, " D"]:
        """Describe one trajectory by a vector; what follows its end does not count."""
        done = jax.nn.one_hot(seen.action, env.spec.actions) * seen.present[..., None]
        done = done.reshape(len(done), -1)
        x = self.enter(jnp.concatenate([env.encode_state(seen.state), done], axis=-1))
        step = lambda x, block: (block(x, seen.valid), None)
        x, _ = jax.lax.scan(step, x, self.blocks)
        x = self.leave(x) * seen.valid[:, None]
        return x.sum(0) / jnp.maximum(seen.valid.sum(), 1)

    def follow(self, env: Env, seen: Trajectories) -> Float[Array, "T H"]:
        """Follow the states of one trajectory; the code comes in only later."""
        inputs = self.gru.prepare(jax.nn.relu(self.see(env.encode_state(seen.state))))

        def step(memory, now):
            memory = self.gru.step(memory, now)
            return memory, memory

        return jax.lax.scan(step, jnp.zeros(self.gru.width), inputs)[1]

    def log_likelihood(
        self,
        seen: Trajectories,
        followed: Float[Array, "T H"],
        code: Float[Array, " D"],
    ) -> Float[Array, ""]:
        """Return the log-probability of one trajectory's actions, summed."""
        steps = len(followed)
        both = jnp.concatenate(
            [followed, jnp.broadcast_to(code, (steps, len(code)))], axis=-1
        )
        out = self.head(jax.nn.relu(self.join(both)))
        shape = seen.available.shape
        action = seen.action.astype(int)
        if self.likelihood == "gaussian":
            mean, spread = jnp.split(out, 2, axis=-1)
            spread = jnp.clip(spread, -10.0, 0.5).reshape(shape)
            error = jax.nn.one_hot(action, shape[-1]) - mean.reshape(shape)
            terms = -0.5 * (error**2 * jnp.exp(-spread) + spread + jnp.log(2 * jnp.pi))
            row = jnp.minimum(terms.sum(-1), 0.0)  # densities may exceed one
        else:
            logits = jnp.where(seen.available, out.reshape(shape), -1e9)
            row = jnp.take_along_axis(
                jax.nn.log_softmax(logits), action[..., None], axis=-1
            )[..., 0]
        return jnp.sum(row * seen.present * seen.valid[:, None])
