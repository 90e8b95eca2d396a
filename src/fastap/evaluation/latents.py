"""What agents believed and remembered, step by step, and what can be read off it."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from fastap.methods.actor import act_by
from fastap.methods.model import Model
from fastap.problem.episode import Episode
from fastap.problem.rollout import Glance
from fastap.problem.spec import Env


class Thoughts(eqx.Module):
    """Of each controlled agent at each step, after looking."""

    context: Float[Array, "*B T n D"]
    memory: Float[Array, "*B T n M"]  # all that it carries to the next step


def recall(env: Env, model: Model, episode: Episode) -> Thoughts:
    """Let one run's agents look again at an episode of theirs."""
    n = env.spec.controlled
    actor = act_by(env, model)
    before = jnp.concatenate([jnp.full((1, n), -1), episode.action[:-1, :n]])

    def step(memory, now):
        observation, available, last, present, group = now
        slots = jnp.arange(n)
        glance = Glance(observation, available, last, slots, present, group, None)
        memory, e, _ = actor.look(memory, glance)
        return memory, (e, jnp.concatenate([e, *memory], axis=1))

    seen = (episode.observation[:-1, :n], episode.available[:-1, :n], before)
    rows = (*seen, episode.present[:, :n], episode.group)
    return Thoughts(*jax.lax.scan(step, actor.start(n), rows)[1])


def since(swap: np.ndarray) -> Int[np.ndarray, "E T"]:
    """Count the steps since the last change, or since the beginning."""
    steps = np.arange(swap.shape[1])
    return steps - np.maximum.accumulate(np.where(swap, steps, 0), axis=1)


class Steadiness(eqx.Module):
    """How a context moves: little between changes and much at them, one hopes."""

    within: float  # its variance inside a segment, as a share of all variance
    jump: float  # how far it moves in the 3 steps after a change, against before


def steadiness(
    context: Float[np.ndarray, "E T n D"],
    swap: np.ndarray,
    valid: np.ndarray,
) -> Steadiness:
    """Measure how a context moves between changes and at them."""
    episodes, steps = swap.shape
    segment = np.cumsum(swap, axis=1) + np.arange(episodes)[:, None] * (steps + 1)
    points, part = context[valid], segment[valid]
    if not len(points) or context.shape[-1] == 0:
        return Steadiness(float("nan"), float("nan"))
    _, index, count = np.unique(part, return_inverse=True, return_counts=True)
    total = np.zeros((len(count), *points.shape[1:]))
    np.add.at(total, index, points)
    centre = total / count[:, None, None]
    inside = np.square(points - centre[index]).sum(-1).mean()
    overall = np.square(points - points.mean(0)).sum(-1).mean()
    move = np.linalg.norm(np.diff(context, axis=1), axis=-1).mean(-1)
    late, alive = since(swap)[:, 1:], valid[:, 1:]
    mean = lambda mask: move[mask].mean() if mask.any() else float("nan")
    changed = (np.cumsum(swap, axis=1) > 0)[:, 1:]
    after = mean(alive & changed & (late < 3))
    quiet = mean(alive & (late >= 3))
    with np.errstate(divide="ignore", invalid="ignore"):  # no motion at all
        within, jump = np.float64(inside) / overall, np.float64(after) / quiet
    return Steadiness(float(within), float(jump))


def probe(
    memory: Float[np.ndarray, "N M"],
    target: Int[np.ndarray, " N"],
    kinds: int,
    steps: int = 300,
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, "M k"], Float[np.ndarray, " k"]]:
    """Fit a multinomial logistic reading of memories; return scale, weights, bias."""
    centre = memory.mean(0)
    spread = memory.std(0) + 1e-6
    x, y = jnp.asarray((memory - centre) / spread), jnp.asarray(target)
    weights, bias = fit(x, y, kinds, steps)
    scaled = np.asarray(weights) / spread[:, None]
    return centre, scaled, np.asarray(bias)


@functools.partial(jax.jit, static_argnums=(2, 3))
def fit(
    x: Float[Array, "N M"], y: Int[Array, " N"], kinds: int, steps: int
) -> tuple[Float[Array, "M k"], Float[Array, " k"]]:
    """Minimise the cross-entropy, with a little weight decay."""
    start = (jnp.zeros((x.shape[1], kinds)), jnp.zeros(kinds))
    rule = optax.adam(0.05)

    def loss(free):
        logits = x @ free[0] + free[1][None]
        miss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return miss + 1e-3 * jnp.square(free[0]).sum()

    def step(carry, _):
        free, state = carry
        change, state = rule.update(jax.grad(loss)(free), state)
        return (optax.apply_updates(free, change), state), None

    end: Any = jax.lax.scan(step, (start, rule.init(start)), length=steps)[0][0]
    return end


def named_by_lag(
    reading: tuple[np.ndarray, np.ndarray, np.ndarray],
    memory: Float[np.ndarray, "E T n M"],
    target: Int[np.ndarray, "E T"],
    lag: Int[np.ndarray, "E T"],
    longest: int,
) -> Float[np.ndarray, " L"]:
    """Return how often memories name the target, by steps since the change."""
    centre, weights, bias = reading
    guess = np.argmax((memory - centre) @ weights + bias, axis=-1)
    right = guess == target[..., None]
    share = [
        right[lag == k].mean() if (lag == k).any() else np.nan for k in range(longest)
    ]
    return np.array(share)
