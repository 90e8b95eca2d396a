"""What shapes a belief: every loss of the paper and of its baselines."""

import abc
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from fastap.methods.beliefs import Gaussian, gaussian
from fastap.methods.networks import MLP

KAPPA, ETA, JITTER = 80.0, 0.01, 1e-3  # the paper's kernel and moving average
SLOW, TO_AGREE, TO_DIFFER = 0.995, 50.0, 0.025  # ESCP's own average and weights,
NEAR, AGREED = 0.1, 1e-3  # and the spreads from which and until which each counts


class Sizes(eqx.Module):
    """The widths that the heads of losses are built for."""

    agents: int = eqx.field(static=True)
    inputs: int = eqx.field(static=True)  # of an agent: what it saw and did
    local: int = eqx.field(static=True)
    team: int = eqx.field(static=True)
    hidden: int = eqx.field(static=True)
    mates: int = eqx.field(static=True)
    seen: int = eqx.field(static=True)  # what a mate saw
    actions: int = eqx.field(static=True)
    labels: int = eqx.field(static=True)


class Context(eqx.Module):
    """What losses may look at: a batch of episodes, steps first, and all beliefs."""

    local: Gaussian  # T n B D
    e: Float[Array, "T n B D"]  # drawn from it
    z: Float[Array, "T B Z"]
    inputs: Float[Array, "T n B I"]
    label: Int[Array, "T B"]
    valid: Bool[Array, "T B"]
    mate_seen: Float[Array, "T m B O"]
    mate_action: Int[Array, "T m B"]
    mate_present: Bool[Array, "T m B"]

    def fair(self, labels: int, things: Int[Array, "T B"]) -> Float[Array, "T B"]:
        """Weigh every thing of a step so that all labels of the batch count alike.

        The mean over labels of the mean over the label's things.
        """
        member = jax.nn.one_hot(self.label, labels) * self.valid[..., None]
        count = jnp.sum(member * things[..., None], (0, 1))
        share = jnp.where(count > 0, 1 / jnp.maximum(count, 1), 0.0)
        return (member @ share) / jnp.maximum((count > 0).sum(), 1)


class AbstractLoss(eqx.Module):
    """One term: it owns its heads; what it remembers comes in and goes out."""

    def start(self) -> PyTree[Array]:
        """Return what is remembered before the first update."""
        return None

    @abc.abstractmethod
    def __call__(
        self, memory: PyTree[Array], context: Context
    ) -> tuple[Float[Array, ""], PyTree[Array]]:
        """Return the loss, and what to remember."""


class Centres(eqx.Module):
    """The moving averages of the contexts of each label, for each believer."""

    place: Float[Array, "V K D"]
    seen: Bool[Array, " K"]


class Separate(AbstractLoss):
    """ESCP, Fastap: beliefs about one label agree; beliefs about two differ."""

    belief: Literal["local", "team"] = eqx.field(static=True)
    believers: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    labels: int = eqx.field(static=True)

    def __init__(self, belief: Literal["local", "team"], sizes: Sizes, key: Array):
        del key
        self.belief = belief
        self.believers = sizes.agents if belief == "local" else 1
        self.width = sizes.local if belief == "local" else sizes.team
        self.labels = sizes.labels

    def start(self) -> Centres:
        """Return averages of nothing."""
        place = jnp.zeros((self.believers, self.labels, self.width))
        return Centres(place, jnp.zeros(self.labels, bool))

    def __call__(
        self, memory: Centres, context: Context
    ) -> tuple[Float[Array, ""], Centres]:
        """Sum over believers: the spread within labels, less that of the centres."""
        beliefs = context.e if self.belief == "local" else context.z[:, None]
        member = jax.nn.one_hot(context.label, self.labels)
        member = member * context.valid[..., None]
        each = jax.vmap(self.apart, in_axes=(1, None, 0, None))
        loss, place = each(beliefs, member, memory.place, memory.seen)
        seen = memory.seen | (member.sum((0, 1)) > 0)
        return loss.sum(), Centres(jax.lax.stop_gradient(place), seen)

    def apart(self, *beliefs: Array) -> tuple[Float[Array, ""], Float[Array, "K D"]]:
        """Return one believer's loss, and its new centres."""
        return separation(*beliefs)


def separation(
    belief: Float[Array, "T B D"],
    member: Float[Array, "T B K"],
    old: Float[Array, "K D"],
    seen: Bool[Array, " K"],
) -> tuple[Float[Array, ""], Float[Array, "K D"]]:
    """Return L_GCE or one agent's L_LCE, and the new centres (Eq. 5 and 8).

    The gradient of the determinant goes through the means of this batch; a
    label that is not in it keeps its centre and repels without being moved.
    """
    count, mean = averages(belief, member)
    present = (count > 0)[:, None]
    moved = ETA * jax.lax.stop_gradient(old) + (1 - ETA) * mean
    moved = jnp.where(seen[:, None], moved, mean)
    centre = jnp.where(present, moved, jax.lax.stop_gradient(old))
    own = member @ jax.lax.stop_gradient(centre)
    gap = jnp.square(belief - own).sum(-1)
    spread = jnp.sum(gap * (member @ (1 / jnp.maximum(count, 1))))
    return spread - log_det(centre, seen | (count > 0)), centre


def averages(
    belief: Float[Array, "T B D"], member: Float[Array, "T B K"]
) -> tuple[Float[Array, " K"], Float[Array, "K D"]]:
    """Count the beliefs about each label in a batch, and return their means."""
    count = member.sum((0, 1))
    total = jnp.einsum("tbk,tbd->kd", member, belief)
    return count, total / jnp.maximum(count, 1)[:, None]


def log_det(centre: Float[Array, "K D"], seen: Bool[Array, " K"]) -> Float[Array, ""]:
    """Return the log-determinant of the kernel of the centres that were seen.

    Rows of labels never seen are those of the identity, and add nothing.
    """
    gap = jnp.square(centre[:, None] - centre[None]).sum(-1)
    both = seen[:, None] & seen[None]
    eye = jnp.eye(len(centre), dtype=bool)
    kernel = jnp.where(both, jnp.exp(-KAPPA * gap), 0.0)
    kernel = kernel + jnp.where(eye, jnp.where(seen, JITTER, 1.0)[:, None], 0.0)
    return 2 * jnp.log(jnp.diagonal(jnp.linalg.cholesky(kernel))).sum()


class Gate(Separate):
    """ESCP as its authors train it: to agree comes first, to differ later.

    Agreement is a root mean square and weighs 50, difference 0.025, and only
    once beliefs agree; averages are slow.
    """

    def apart(self, *beliefs: Array) -> tuple[Float[Array, ""], Float[Array, "K D"]]:
        """Return one believer's loss, and its new centres."""
        return gated(*beliefs)


def gated(
    belief: Float[Array, "T B D"],
    member: Float[Array, "T B K"],
    old: Float[Array, "K D"],
    seen: Bool[Array, " K"],
) -> tuple[Float[Array, ""], Float[Array, "K D"]]:
    """Return one agent's loss, and the new centres."""
    count, mean = averages(belief, member)
    present = (count > 0)[:, None]
    slow = jnp.where(seen[:, None], SLOW * old + (1 - SLOW) * mean, mean)
    centre = jax.lax.stop_gradient(jnp.where(present, slow, old))
    gap = jnp.square(belief - member @ centre) * member.sum(-1, keepdims=True)
    spread = gap.sum((0, 1)) / jnp.maximum(count.sum(), 1)
    spread = jnp.sqrt(spread + 1e-12).mean()
    held = jnp.where(spread < AGREED, jax.lax.stop_gradient(spread), spread)
    known = seen | present[:, 0]
    apart = -log_det(jnp.where(present, mean, old), known)
    apart = jnp.where((spread < NEAR) & (known.sum() > 1), apart, 0.0)
    return TO_AGREE * held + TO_DIFFER * apart, centre


class Distil(AbstractLoss):
    """ODITS, Fastap: a local belief must say what the team's would have said.

    The head sees the team's context and the present input alone: with the whole
    past of the agent it could ignore the team, and nothing would be distilled.
    """

    guess: MLP  # one for each agent
    labels: int = eqx.field(static=True)

    def __init__(self, sizes: Sizes, key: PRNGKeyArray):
        inputs, outputs = sizes.team + sizes.inputs, 2 * sizes.local
        build = lambda k: MLP(inputs, sizes.hidden, outputs, k)
        self.guess = jax.vmap(build)(jax.random.split(key, sizes.agents))
        self.labels = sizes.labels

    def __call__(self, memory: None, context: Context) -> tuple[Float[Array, ""], None]:
        """Sum over agents the KL of what is believed to what z lets guess."""
        z = jax.lax.stop_gradient(context.z)[:, None]
        z = jnp.broadcast_to(z, (*context.inputs.shape[:-1], z.shape[-1]))
        told = jnp.concatenate([z, context.inputs], axis=-1)
        guess = gaussian(jax.vmap(MLP.__call__, (0, 1), 1)(self.guess, told))
        apart = context.local.kl(guess).sum(-1)
        weight = context.fair(self.labels, jnp.ones_like(context.label))
        return jnp.sum(apart * weight[:, None]), memory


class Reconstruct(AbstractLoss):
    """LIAM, Fastap: a local belief must tell what the mates see and do."""

    see: MLP  # one for each agent
    act: MLP
    mates: int = eqx.field(static=True)
    labels: int = eqx.field(static=True)

    def __init__(self, sizes: Sizes, key: PRNGKeyArray):
        k_see, k_act = jax.random.split(key)
        each = lambda k, outputs: jax.vmap(
            lambda k: MLP(sizes.local, sizes.hidden, sizes.mates * outputs, k)
        )(jax.random.split(k, sizes.agents))
        self.see, self.act = each(k_see, sizes.seen), each(k_act, sizes.actions)
        self.mates, self.labels = sizes.mates, sizes.labels

    def __call__(self, memory: None, context: Context) -> tuple[Float[Array, ""], None]:
        """Sum over agents the errors about every mate that is there."""
        say = lambda head: jax.vmap(MLP.__call__, (0, 1), 1)(head, context.e)
        apart = lambda x: x.reshape(*x.shape[:-1], self.mates, -1)  # T n B m .
        seen, logits = apart(say(self.see)), apart(say(self.act))
        last = lambda x: jnp.moveaxis(x, 1, 2)[:, None]  # T 1 B m .
        target = jnp.broadcast_to(last(context.mate_seen), seen.shape)
        done = jnp.broadcast_to(last(context.mate_action), logits.shape[:-1])
        miss = optax.softmax_cross_entropy_with_integer_labels(logits, done)
        error = jnp.square(seen - target).mean(-1) + miss
        there = context.mate_present
        weight = context.fair(self.labels, there.sum(1))
        return jnp.sum(error * last(there * weight[:, None])), memory


class Compress(AbstractLoss):
    """PEARL: beliefs stay near the prior, as far as the evidence lets them."""

    def __init__(self, sizes: Sizes, key: PRNGKeyArray):
        del sizes, key

    def __call__(self, memory: None, context: Context) -> tuple[Float[Array, ""], None]:
        """Sum over agents the KL to N(0, I)."""
        blank = jnp.zeros_like(context.local.mean)
        apart = context.local.kl(Gaussian(blank, blank)).sum(-1)
        weight = context.valid / jnp.maximum(context.valid.sum(), 1)
        return jnp.sum(apart * weight[:, None]), memory


def mi_bound(
    e: Float[Array, " B D"], guess: Gaussian, entropy: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the lower bound E[log q(e|z)] + H(e) of the mutual information."""
    square = jnp.square(e - guess.mean) * jnp.exp(-guess.log_var)
    log_q = -0.5 * (square + guess.log_var + jnp.log(2 * jnp.pi)).sum(-1)
    return log_q.mean() + entropy
