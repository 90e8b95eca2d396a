"""Networks, for one agent and one moment; the caller adds axes with `vmap`."""

import abc
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Linear(eqx.Module):
    """An affine map, initialised uniformly within one over the root of its fan-in."""

    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]

    def __init__(self, inputs: int, outputs: int, key: PRNGKeyArray):
        k_weight, k_bias = jax.random.split(key)
        bound = max(inputs, 1) ** -0.5
        draw = functools.partial(jax.random.uniform, minval=-bound, maxval=bound)
        self.weight = draw(k_weight, (inputs, outputs))
        self.bias = draw(k_bias, (outputs,))

    def __call__(self, x: Float[Array, "*n I"]) -> Float[Array, "*n O"]:
        """Map the last axis."""
        out = x @ self.weight
        return out + jnp.broadcast_to(self.bias, out.shape)


class MLP(eqx.Module):
    """Two affine maps with a rectifier between them."""

    first: Linear
    last: Linear

    def __init__(self, inputs: int, hidden: int, outputs: int, key: PRNGKeyArray):
        k_first, k_last = jax.random.split(key)
        self.first = Linear(inputs, hidden, k_first)
        self.last = Linear(hidden, outputs, k_last)

    def __call__(self, x: Float[Array, "*n I"]) -> Float[Array, "*n O"]:
        """Map the last axis."""
        return self.last(jax.nn.relu(self.first(x)))


class GRU(eqx.Module):
    """A gated recurrent unit, cut where its memory comes in.

    What depends on the inputs alone (`prepare`) can so be computed for a whole
    episode at once; `step` is all that a scan must do in order.
    """

    inputs: Linear  # reset, update and candidate gates, side by side
    memory: Linear

    def __init__(self, inputs: int, hidden: int, key: PRNGKeyArray):
        k_inputs, k_memory = jax.random.split(key)
        self.inputs = Linear(inputs, 3 * hidden, k_inputs)
        self.memory = Linear(hidden, 3 * hidden, k_memory)

    @property
    def width(self) -> int:
        """The size of the memory."""
        return self.memory.weight.shape[-2]

    def prepare(self, x: Float[Array, "*n I"]) -> Float[Array, "*n G"]:
        """Compute what the inputs bring to the gates."""
        return self.inputs(x)

    def step(
        self, memory: Float[Array, "*n H"], prepared: Float[Array, "*n G"]
    ) -> Float[Array, "*n H"]:
        """Take one step from memory to memory."""
        new = jnp.split(prepared, 3, axis=-1)
        old = jnp.split(self.memory(memory), 3, axis=-1)
        reset = jax.nn.sigmoid(new[0] + old[0])
        update = jax.nn.sigmoid(new[1] + old[1])
        fresh = jnp.tanh(new[2] + reset * old[2])
        return (1 - update) * fresh + update * memory


class Values(eqx.Module):
    """One agent's action values: a rectified layer, a GRU, a linear layer."""

    enter: Linear
    gru: GRU
    leave: Linear

    def __init__(self, inputs: int, hidden: int, actions: int, key: PRNGKeyArray):
        k_enter, k_gru, k_leave = jax.random.split(key, 3)
        self.enter = Linear(inputs, hidden, k_enter)
        self.gru = GRU(hidden, hidden, k_gru)
        self.leave = Linear(hidden, actions, k_leave)

    def start(self) -> Float[Array, " H"]:
        """Return an empty memory."""
        return jnp.zeros(self.gru.width)

    def __call__(
        self, memory: Float[Array, " H"], x: Float[Array, " I"]
    ) -> tuple[Float[Array, " H"], Float[Array, " A"]]:
        """Look once: remember, and value every action."""
        memory = self.gru.step(memory, self.gru.prepare(self._enter(x)))
        return memory, self.leave(memory)

    def unroll(self, xs: Float[Array, "T I"]) -> Float[Array, "T A"]:
        """Value every action of a whole episode, from an empty memory."""
        prepared = self.gru.prepare(self._enter(xs))

        def step(memory, now):
            memory = self.gru.step(memory, now)
            return memory, memory

        _, memories = jax.lax.scan(step, self.start(), prepared, unroll=UNROLL)
        return self.leave(memories)

    def _enter(self, x: Float[Array, "*n I"]) -> Float[Array, "*n H"]:
        return jax.nn.relu(self.enter(x))


UNROLL = 1  # steps of a recurrent scan that are compiled together


class AbstractMixer(eqx.Module):
    """Joins the values of n agents into one, never falling when one rises."""

    @abc.abstractmethod
    def __call__(self, values: Float[Array, " n"], state: Float[Array, " S"]) -> Array:
        """Mix the chosen values."""


class Sum(AbstractMixer):
    """VDN: the plain sum."""

    def __call__(
        self, values: Float[Array, " n"], state: Float[Array, " S"]
    ) -> Float[Array, ""]:
        """Mix the chosen values."""
        return values.sum()


class Monotone(AbstractMixer):
    """QMIX: a small network whose positive weights come from the state."""

    first: MLP
    first_bias: Linear
    last: MLP
    last_bias: MLP
    width: int = eqx.field(static=True)

    def __init__(self, agents: int, state: int, width: int, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        hidden = 2 * width
        self.first = MLP(state, hidden, agents * width, keys[0])
        self.first_bias = Linear(state, width, keys[1])
        self.last = MLP(state, hidden, width, keys[2])
        self.last_bias = MLP(state, width, 1, keys[3])
        self.width = width

    def __call__(
        self, values: Float[Array, " n"], state: Float[Array, " S"]
    ) -> Float[Array, ""]:
        """Mix the chosen values."""
        weight = jnp.abs(self.first(state)).reshape(-1, self.width)
        hidden = jax.nn.elu(values @ weight + self.first_bias(state))
        return hidden @ jnp.abs(self.last(state)) + self.last_bias(state)[0]
