"""Networks, for one agent and one moment; the caller adds axes with `vmap`."""

import abc
import functools
import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Linear(eqx.Module):
    """An affine map, initialised uniformly within one over the root of its fan-in."""

    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]

    def __init__(self, inputs: int, outputs: int, key: PRNGKeyArray):
        bound = max(inputs, 1) ** -0.5
        # One draw for both: chance is what takes longest to compile.
        drawn = jax.random.uniform(
            key, (inputs + 1, outputs), minval=-bound, maxval=bound
        )
        self.weight, self.bias = drawn[:-1], drawn[-1]

    def __call__(self, x: Float[Array, "*n I"]) -> Float[Array, "*n O"]:
        """Map the last axis."""
        out = x @ self.weight
        return out + jnp.broadcast_to(self.bias, out.shape)


class GRU(eqx.Module):
    """A gated recurrent unit, cut where its memory comes in.

    What depends on the inputs alone (`prepare`) can so be computed for a whole
    episode at once; `step` is all that must be done in order, one moment at a
    time when acting, in the scan of `recur` when learning.
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
        return gates(memory, jnp.split(prepared, 3, axis=-1), self.memory(memory))[0]


def gates(memory: Array, new: Sequence[Array], old: Array) -> tuple[Array, ...]:
    """Join what is new and what is remembered; return the next memory first."""
    to_reset, to_update, past = jnp.split(old, 3, axis=-1)
    reset = jax.nn.sigmoid(new[0] + to_reset)
    update = jax.nn.sigmoid(new[1] + to_update)
    fresh = jnp.tanh(new[2] + reset * past)
    return (1 - update) * fresh + update * memory, reset, update, past, fresh


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur(
    learning: int,
    weight: Float[Array, "m H G"],
    bias: Float[Array, "m G"],
    prepared: Float[Array, "T m B G"],
) -> Float[Array, "T m B H"]:
    """Run m GRUs side by side over whole episodes, from empty memories.

    Only the first `learning` of them get gradients. The others are targets:
    they share the scan forwards and are left out of the one backwards, which
    leaves the gradient of the weights to a single product at its end.
    """
    return _forwards(learning, weight, bias, prepared)[0]


def _forwards(learning, weight, bias, prepared):
    # Gates are cut apart before the scan: XLA does not vectorise slices inside.
    new = jnp.split(prepared, 3, axis=-1)
    shape = (*prepared.shape[1:3], weight.shape[1])
    wide = jnp.broadcast_to(bias[:, None], (*shape[:2], bias.shape[1]))

    def step(memory, new):
        steps = gates(memory, new, memory @ weight + wide)
        return steps[0], (steps[0], tuple(x[:learning] for x in steps))

    _, (memories, kept) = jax.lax.scan(step, jnp.zeros(shape), new, unroll=unrolled())
    return memories, (weight, kept)


def _backwards(learning, saved, slope):
    weight, (memories, *_) = saved
    before = jnp.concatenate([jnp.zeros_like(memories[:1]), memories[:-1]])
    back = weight[:learning].swapaxes(1, 2)

    def step(later, now):
        slope, before, (_, reset, update, past, fresh) = now
        slope = slope + later
        d_fresh = slope * (1 - update) * (1 - fresh**2)
        d_update = slope * (before - fresh) * update * (1 - update)
        d_reset = d_fresh * past * reset * (1 - reset)
        old = jnp.concatenate([d_reset, d_update, d_fresh * reset], axis=-1)
        return slope * update + old @ back, (old, d_fresh)

    rows = (slope[:, :learning], before, saved[1])
    start = jnp.zeros_like(memories[0])
    _, (old, d_fresh) = jax.lax.scan(step, start, rows, reverse=True, unroll=unrolled())
    new = jnp.concatenate([old[..., : -d_fresh.shape[-1]], d_fresh], axis=-1)
    flat = lambda x: x.swapaxes(0, 1).reshape(learning, -1, x.shape[-1])
    d_weight = flat(before).swapaxes(1, 2) @ flat(old)
    rest = len(weight) - learning
    pad = lambda x, axis: jnp.pad(x, [(0, rest * (i == axis)) for i in range(x.ndim)])
    return pad(d_weight, 0), pad(old.sum((0, 2)), 0), pad(new, 1)


recur.defvjp(_forwards, _backwards)


def unrolled() -> bool:
    """Say whether to unroll recurrent scans: on a GPU every turn costs a launch."""
    return jax.default_backend() == "gpu"


class AbstractMind(eqx.Module):
    """A network around one GRU, cut where its memory comes in."""

    gru: eqx.AbstractVar[GRU]

    @abc.abstractmethod
    def prepare(self, x: Float[Array, "*n I"]) -> Float[Array, "*n G"]:
        """Compute all that does not depend on the memory."""


class Pair(eqx.Module):
    """Some minds, stacked, with what they see; and their frozen doubles."""

    learning: AbstractMind
    frozen: AbstractMind
    xs: Float[Array, "T m B I"]
    ys: Float[Array, "T m B J"]  # what the doubles see

    def prepare(self) -> tuple[Float[Array, "T m B G"], Float[Array, "T m B G"]]:
        """Compute all that does not depend on memories."""
        each = jax.vmap(lambda mind, x: mind.prepare(x), in_axes=(0, 1), out_axes=1)
        frozen = jax.lax.stop_gradient(self.frozen)
        return each(self.learning, self.xs), each(frozen, self.ys)


Memories = tuple[Float[Array, "T m B H"], Float[Array, "T m B H"]]


def unroll(pairs: Sequence[Pair]) -> list[Memories]:
    """Return the memories of all minds and of their doubles over whole episodes.

    Only those that learn get gradients. On a GPU all of them run in one scan;
    on a CPU the copies that bring them together cost more than that saves.
    """
    learning = [pair.learning.gru.memory for pair in pairs]
    frozen = [jax.lax.stop_gradient(pair.frozen.gru.memory) for pair in pairs]
    prepared = [pair.prepare() for pair in pairs]
    ours, theirs = zip(*prepared, strict=True)
    if not unrolled():
        alone = lambda learn, gru, x: recur(learn, gru.weight, gru.bias, x)
        return [
            (alone(x.shape[1], mind, x), alone(0, double, y))
            for mind, double, (x, y) in zip(learning, frozen, prepared, strict=True)
        ]
    join = lambda name: jnp.concatenate([getattr(x, name) for x in learning + frozen])
    counts = [x.shape[1] for x in ours]
    joined = jnp.concatenate([*ours, *theirs], axis=1)
    total = sum(counts)
    memories = jnp.asarray(recur(total, join("weight"), join("bias"), joined))
    cuts = list(itertools.accumulate(counts))[:-1]
    first, second = (
        jnp.split(half, cuts, axis=1) for half in jnp.split(memories, [total], axis=1)
    )
    return list(zip(first, second, strict=True))


class MLP(eqx.Module):
    """Three layers, rectified between."""

    layers: tuple[Linear, Linear, Linear]

    def __init__(self, inputs: int, hidden: int, outputs: int, key: PRNGKeyArray):
        k_first, k_second, k_last = jax.random.split(key, 3)
        first, second = (
            Linear(inputs, hidden, k_first),
            Linear(hidden, hidden, k_second),
        )
        self.layers = (first, second, Linear(hidden, outputs, k_last))

    def __call__(self, x: Float[Array, "*n I"]) -> Float[Array, "*n O"]:
        """Map the last axis."""
        first, second, last = self.layers
        return last(jax.nn.relu(second(jax.nn.relu(first(x)))))


class Values(AbstractMind):
    """One agent's action values: a rectified layer, a GRU, a linear layer."""

    enter: Linear
    gru: GRU
    leave: Linear

    def __init__(self, inputs: int, hidden: int, actions: int, key: PRNGKeyArray):
        k_enter, k_gru, k_leave = jax.random.split(key, 3)
        self.enter = Linear(inputs, hidden, k_enter)
        self.gru = GRU(hidden, hidden, k_gru)
        self.leave = Linear(hidden, actions, k_leave)

    def prepare(self, x: Float[Array, "*n I"]) -> Float[Array, "*n G"]:
        """Compute all that does not depend on the memory."""
        return self.gru.prepare(jax.nn.relu(self.enter(x)))

    def __call__(
        self, memory: Float[Array, " H"], x: Float[Array, " I"]
    ) -> tuple[Float[Array, " H"], Float[Array, " A"]]:
        """Look once: remember, and value every action."""
        memory = self.gru.step(memory, self.prepare(x))
        return memory, self.leave(memory)


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

    enter: Linear  # the first layers of all that the state decides, side by side
    first: Linear
    last: Linear
    last_bias: Linear
    width: int = eqx.field(static=True)

    def __init__(self, agents: int, state: int, width: int, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.enter = Linear(state, 6 * width, keys[0])
        self.first = Linear(2 * width, agents * width, keys[1])
        self.last = Linear(2 * width, width, keys[2])
        self.last_bias = Linear(width, 1, keys[3])
        self.width = width

    def __call__(
        self, values: Float[Array, " n"], state: Float[Array, " S"]
    ) -> Float[Array, ""]:
        """Mix the chosen values."""
        entered = self.enter(state)
        rectified = jax.nn.relu(entered[: 5 * self.width])
        to_first, to_last, to_bias = jnp.split(
            rectified, [2 * self.width, 4 * self.width]
        )
        first = jnp.abs(self.first(to_first)).reshape(-1, self.width)
        # Agent by agent: products and sums of tiny tables are slow on a CPU.
        mixed = functools.reduce(jnp.add, map(jnp.multiply, values, first))
        hidden = jax.nn.elu(mixed + entered[5 * self.width :])
        last = jnp.abs(self.last(to_last))
        return jnp.sum(hidden * last) + self.last_bias(to_bias)[0]
