"""Beliefs: what a method thinks of its teammates, as a Gaussian at every step."""

import abc
from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fastap.methods.networks import GRU, AbstractMind, Linear, Pair, unroll

LOWEST, HIGHEST = -10.0, 0.5  # of a log-variance
NOISE = 0.01  # the deviation of a squashed belief while training
Certainty = Literal["learnt", "none", "squashed"]


class Gaussian(eqx.Module):
    """A diagonal normal distribution."""

    mean: Float[Array, "*n D"]
    log_var: Float[Array, "*n D"]

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*n D"]:
        """Draw one vector from each."""
        return self.at(jax.random.normal(key, self.mean.shape))

    def at(self, noise: Float[Array, "*n D"]) -> Float[Array, "*n D"]:
        """Go so many deviations away from the means."""
        return self.mean + jnp.exp(0.5 * self.log_var) * noise

    def kl(self, other: "Gaussian") -> Float[Array, "*n D"]:
        """Return KL(self || other), dimension by dimension."""
        gap = jnp.square(self.mean - other.mean) + jnp.exp(self.log_var)
        spread = other.log_var - self.log_var
        return 0.5 * (spread + gap * jnp.exp(-other.log_var) - 1)


def gaussian(out: Float[Array, "*n W"]) -> Gaussian:
    """Read a mean and a log-variance from the two halves of an output."""
    mean, log_var = jnp.split(out, 2, axis=-1)
    return Gaussian(mean, jnp.clip(log_var, LOWEST, HIGHEST))


class AbstractBelief(eqx.Module):
    """Has a memory, and turns each new input into a Gaussian."""

    width: eqx.AbstractVar[int]

    @abc.abstractmethod
    def start(self) -> Float[Array, " H"]:
        """Return the empty memory."""

    @abc.abstractmethod
    def __call__(
        self, memory: Float[Array, " H"], x: Float[Array, " I"]
    ) -> tuple[Float[Array, " H"], Gaussian]:
        """Look once: remember, and believe."""

    @abc.abstractmethod
    def watch(
        self, frozen: "AbstractBelief", xs: Float[Array, "T m B I"]
    ) -> tuple[Gaussian, Gaussian]:
        """Believe over whole episodes: m of these, stacked, and their doubles."""


Build = Callable[..., AbstractBelief]  # from inputs, hidden and own width, and a key


class Silent(AbstractBelief):
    """The belief of a method that keeps none: zero wide, nothing to learn."""

    width: int = eqx.field(static=True)

    def __init__(self, *sizes: int | PRNGKeyArray):
        del sizes
        self.width = 0

    def start(self) -> Float[Array, " H"]:
        """Return nothing."""
        return jnp.zeros(0)

    def __call__(
        self, memory: Float[Array, " H"], x: Float[Array, " I"]
    ) -> tuple[Float[Array, " H"], Gaussian]:
        """Say nothing."""
        return memory, Gaussian(jnp.zeros(0), jnp.zeros(0))

    def watch(
        self, frozen: AbstractBelief, xs: Float[Array, "T m B I"]
    ) -> tuple[Gaussian, Gaussian]:
        """Say nothing, all the time."""
        nothing = jnp.zeros((*xs.shape[:-1], 0))
        return Gaussian(nothing, nothing), Gaussian(nothing, nothing)


class Recurrent(AbstractBelief, AbstractMind):
    """Two layers, a GRU, and a Gaussian whose variance is learnt, small or none."""

    enter: Linear
    deeper: Linear
    gru: GRU
    leave: Linear
    width: int = eqx.field(static=True)
    certainty: Certainty = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        hidden: int,
        width: int,
        key: PRNGKeyArray,
        certainty: Certainty = "learnt",
    ):
        k_enter, k_deeper, k_gru, k_leave = jax.random.split(key, 4)
        self.enter = Linear(inputs, hidden, k_enter)
        self.deeper = Linear(hidden, hidden, k_deeper)
        self.gru = GRU(hidden, hidden, k_gru)
        outputs = 2 * width if certainty == "learnt" else width
        self.leave = Linear(hidden, outputs, k_leave)
        self.width = width
        self.certainty = certainty

    def start(self) -> Float[Array, " H"]:
        """Return the empty memory."""
        return jnp.zeros(self.gru.width)

    def prepare(self, x: Float[Array, "*n I"]) -> Float[Array, "*n G"]:
        """Compute all that does not depend on the memory."""
        entered = jax.nn.leaky_relu(self.enter(x))
        return self.gru.prepare(jax.nn.leaky_relu(self.deeper(entered)))

    def __call__(
        self, memory: Float[Array, " H"], x: Float[Array, " I"]
    ) -> tuple[Float[Array, " H"], Gaussian]:
        """Look once: remember, and believe."""
        memory = self.gru.step(memory, self.prepare(x))
        return memory, self.finish(memory)

    def finish(self, memory: Float[Array, "*n H"]) -> Gaussian:
        """Say what is believed."""
        out = self.leave(memory)
        if self.certainty == "learnt":
            return gaussian(out)
        if self.certainty == "squashed":
            return Gaussian(jnp.tanh(out), jnp.full_like(out, 2 * jnp.log(NOISE)))
        return Gaussian(out, jnp.full_like(out, -jnp.inf))

    def watch(
        self, frozen: AbstractBelief, xs: Float[Array, "T m B I"]
    ) -> tuple[Gaussian, Gaussian]:
        """Believe over whole episodes: m of these, stacked, and their doubles."""
        return watch_together([(self, frozen, xs)])[0]


Watched = tuple[AbstractBelief, AbstractBelief, Float[Array, "_ _ _ _"]]


def watch_together(watched: Sequence[Watched]) -> list[tuple[Gaussian, Gaussian]]:
    """Let several beliefs and their doubles watch whole episodes.

    Those that are recurrent share one scan.
    """
    finish = jax.vmap(Recurrent.finish, in_axes=(0, 1), out_axes=1)
    pairs = [
        (belief, frozen, Pair(belief, frozen, xs, xs))
        for belief, frozen, xs in watched
        if isinstance(belief, Recurrent) and isinstance(frozen, Recurrent)
    ]
    memories = unroll([pair for *_, pair in pairs]) if pairs else []
    recurrent = iter(
        (finish(belief, ours), finish(frozen, theirs))
        for (belief, frozen, _), (ours, theirs) in zip(pairs, memories, strict=True)
    )
    return [
        next(recurrent) if isinstance(belief, Recurrent) else belief.watch(frozen, xs)
        for belief, frozen, xs in watched
    ]


class Product(AbstractBelief):
    """PEARL: a product of one Gaussian per transition; nothing is forgotten.

    A factor comes from what was seen before, what was done and what is seen
    now. The prior N(0, I) is one more factor.
    """

    enter: Linear
    deeper: Linear
    leave: Linear
    width: int = eqx.field(static=True)
    inputs: int = eqx.field(static=True)

    def __init__(self, inputs: int, hidden: int, width: int, key: PRNGKeyArray):
        k_enter, k_deeper, k_leave = jax.random.split(key, 3)
        self.enter = Linear(2 * inputs, hidden, k_enter)
        self.deeper = Linear(hidden, hidden, k_deeper)
        self.leave = Linear(hidden, 2 * width, k_leave)
        self.width = width
        self.inputs = inputs

    def start(self) -> Float[Array, " H"]:
        """Return the prior, and that nothing was seen."""
        prior = (jnp.ones(self.width), jnp.zeros(self.width))
        return jnp.concatenate([*prior, jnp.zeros(1 + self.inputs)])

    def __call__(
        self, memory: Float[Array, " H"], x: Float[Array, " I"]
    ) -> tuple[Float[Array, " H"], Gaussian]:
        """Multiply one more factor in, if there was a step before."""
        d = self.width
        total, weighted, begun, before = jnp.split(memory, [d, 2 * d, 2 * d + 1])
        precision, pull = self.factor(before, x)
        total, weighted = total + begun * precision, weighted + begun * pull
        memory = jnp.concatenate([total, weighted, jnp.ones(1), x])
        return memory, Gaussian(weighted / total, -jnp.log(total))

    def factor(
        self, before: Float[Array, "*n I"], x: Float[Array, "*n I"]
    ) -> tuple[Float[Array, "*n D"], Float[Array, "*n D"]]:
        """Return the precision of a transition's factor, and that times its mean."""
        joined = jnp.concatenate([before, x], axis=-1)
        entered = jax.nn.leaky_relu(self.enter(joined))
        out = gaussian(self.leave(jax.nn.leaky_relu(self.deeper(entered))))
        precision = jnp.exp(-out.log_var)
        return precision, precision * out.mean

    def watch(
        self, frozen: AbstractBelief, xs: Float[Array, "T m B I"]
    ) -> tuple[Gaussian, Gaussian]:
        """Multiply all factors up to each step, by sums that run over the steps."""
        each = jax.vmap(Product.factor, in_axes=(0, 1, 1), out_axes=1)

        def multiply(belief):
            precision, pull = each(belief, xs[:-1], xs[1:])
            first = jnp.zeros_like(precision[:1])
            run = lambda x: jnp.cumsum(jnp.concatenate([first, x]), axis=0)
            total = 1 + run(precision)
            return Gaussian(run(pull) / total, -jnp.log(total))

        return multiply(self), multiply(frozen)
