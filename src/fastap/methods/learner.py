"""One learner for every method: QMIX, beliefs beside it, and the method's losses."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from fastap.methods.beliefs import watch_together
from fastap.methods.losses import Context
from fastap.methods.model import (
    Known,
    Learning,
    Model,
    Part,
    build,
    observe,
    pick,
    share,
    survey,
    watch,
)
from fastap.methods.replay import Experience
from fastap.problem.spec import Env


class Dials(eqx.Module):
    """What may differ between runs of one compiled program."""

    rate: Float[Array, "*R"]
    weights: Float[Array, "*R W"]  # of the method's losses
    labels: Int[Array, "*R K"]  # of the groups: which are the same to the losses
    drawn: Int[Array, "*R K"]  # and which to the batches, that hold as many of each


def plain(rate: Float[Array, "*R"]) -> Dials:
    """Return the dials of a method without losses."""
    alike = lambda: jnp.zeros((*rate.shape, 1), int)
    return Dials(rate, jnp.zeros((*rate.shape, 0)), alike(), alike())


class Rewards(eqx.Module):
    """The running mean and variance of the rewards in the sampled batches."""

    count: Float[Array, ""]
    mean: Float[Array, ""]
    variance: Float[Array, ""]

    def see(self, reward: Float[Array, "B T"]) -> "Rewards":
        """Take in one more batch (padding included, as in EPyMARL)."""
        count = self.count + reward.size
        gap = reward.mean() - self.mean
        squares = self.variance * self.count + reward.var() * reward.size
        squares = squares + gap**2 * self.count * reward.size / count
        return Rewards(count, self.mean + gap * reward.size / count, squares / count)

    def scale(self, reward: Float[Array, "B T"]) -> Float[Array, "B T"]:
        """Centre and scale; rewards that never vary become zeros."""
        return (reward - self.mean) / jnp.sqrt(self.variance + 1e-6)


class Learner(eqx.Module):
    """A model on its way, with all that the next update needs."""

    model: Model
    target: Model
    optimiser: optax.OptState
    updates: Int[Array, ""]
    rewards: Rewards
    memories: tuple[PyTree[Array], ...]  # of the losses


class Given(eqx.Module):
    """What one update works with, beside the model."""

    batch: Experience
    reward: Float[Array, "B T"]
    dials: Dials
    memories: tuple[PyTree[Array], ...]
    key: PRNGKeyArray


def begin(
    env: Env,
    agents: int,
    learning: Learning,
    key: PRNGKeyArray,
    known: Known = None,
) -> Learner:
    """Initialise a learner for the first `agents` slots of an environment."""
    model = build(env, agents, learning, key, known)
    nothing = Rewards(jnp.float32(1e-4), jnp.zeros(()), jnp.ones(()))
    state = optax.scale_by_adam().init(eqx.filter(model, eqx.is_array))
    memories = tuple(term.start() for term in model.losses)
    return Learner(model, model, state, jnp.array(0), nothing, memories)


def update(
    env: Env,
    learning: Learning,
    learner: Learner,
    batch: Experience,
    dials: Dials,
    key: PRNGKeyArray,
) -> tuple[Learner, dict[str, Float[Array, ""]]]:
    """Take one gradient step on a batch of episodes."""
    rewards = learner.rewards.see(batch.reward) if learning.standardise else None
    reward = rewards.scale(batch.reward) if rewards else batch.reward
    given = Given(batch, reward, dials, learner.memories, key)
    slope = eqx.filter_value_and_grad(loss, has_aux=True)
    (_, (memories, notes)), gradient = slope(
        learner.model, learner.target, env, learning, given
    )
    gradient, norms = clip(pooled(gradient) if env.alike else gradient, learning.clip)
    change, state = optax.scale_by_adam().update(gradient, learner.optimiser)
    change = jax.tree.map(lambda x: -dials.rate * x, change)
    model = eqx.apply_updates(learner.model, paced(change, learning.method.pace))
    if learning.moves != "all":
        model = moved(learning.moves, model, learner.model)
        state = jax.tree.map(
            functools.partial(moved, learning.moves),
            *(state, learner.optimiser),
            is_leaf=lambda x: isinstance(x, Model),
        )
    updates = learner.updates + 1
    copy = updates % learning.target_every == 0
    follow = lambda new, old: jnp.where(copy, new, old)
    target = jax.tree.map(follow, model, learner.target)
    rewards = rewards or learner.rewards
    after = Learner(model, target, state, updates, rewards, memories)
    return after, notes | norms


def pooled(gradient: Model) -> Model:
    """Give the copies of a shared network one gradient, as long as that of the one."""
    one = lambda x: jnp.broadcast_to(x.sum(0) / len(x) ** 0.5, x.shape)
    agents, local = share(gradient.agents, one), share(gradient.local, one)
    parts = (gradient.team, gradient.mixer, gradient.losses, gradient.known)
    return Model(agents, local, *parts)


def clip(gradient: Model, limit: float) -> tuple[PyTree, dict[str, Float[Array, ""]]]:
    """Limit the gradients of values, team belief and local beliefs, each by itself.

    A new cluster's repulsion is steep, and would leave nothing to the others.
    """
    part = {
        "values": (gradient.agents, gradient.mixer),
        "team": gradient.team,
        "local": (gradient.local, gradient.losses),
    }
    norms = {name: optax.tree.norm(some) for name, some in part.items()}

    def small(name):
        scale = jnp.minimum(1.0, limit / jnp.maximum(norms[name], 1e-12))
        return jax.tree.map(lambda x: scale * x, part[name])

    (agents, mixer), team, (local, losses) = map(small, part)
    clipped = Model(agents, local, team, mixer, losses, gradient.known)
    return clipped, {f"gradient {name}": norm for name, norm in norms.items()}


def moved(part: Part, new: Any, old: Any) -> Any:
    """Take the values or the beliefs of a model from the new, the rest from the old."""
    if not (isinstance(new, Model) and isinstance(old, Model)):
        return new
    one, two = (new, old) if part == "values" else (old, new)
    beliefs = (two.local, two.team, one.mixer, two.losses)
    return Model(one.agents, *beliefs, old.known)


def paced(change: PyTree[Array], pace: float) -> PyTree[Array]:
    """Let local beliefs learn at a pace of their own."""
    local, losses = jax.tree.map(lambda x: pace * x, (change.local, change.losses))
    parts = (change.agents, local, change.team, change.mixer, losses, change.known)
    return Model(*parts)


def loss(
    model: Model, target: Model, env: Env, learning: Learning, given: Given
) -> tuple[Float[Array, ""], tuple]:
    """Return the TD error plus the method's own terms, each with its weight."""
    td, context = temporal(model, target, env, learning, given)
    total, memories, notes = td, [], {"td": td}
    rows = zip(learning.method.losses, model.losses, given.memories, strict=True)
    for i, (row, term, memory) in enumerate(rows):
        value, after = term(memory, context)
        total = total + given.dials.weights[i] * value
        memories.append(after)
        notes[row.name] = value
    return total, (tuple(memories), notes)


def norms(
    env: Env, learning: Learning, learner: Learner, given: Given
) -> dict[str, Float[Array, ""]]:
    """Return the norm of each weighted term's gradient in each part of the model."""
    free, fixed = eqx.partition(learner.model, eqx.is_inexact_array)

    def terms(free):
        model = eqx.combine(free, fixed)
        _, (_, notes) = loss(model, learner.target, env, learning, given)
        weights = jnp.concatenate([jnp.ones(1), given.dials.weights])
        return weights * jnp.stack(list(notes.values()))

    _, back = jax.vjp(terms, free)
    names = ("td", *(term.name for term in learning.method.losses))
    slopes = jax.vmap(lambda one: back(one)[0])(jnp.eye(len(names)))
    joined = pooled if env.alike else lambda slope: slope
    size = jax.vmap(lambda slope: clip(joined(slope), jnp.inf)[1])(slopes)
    return {
        f"{part} of {name}": size[part][i]
        for part in size
        for i, name in enumerate(names)
    }


def goals(
    learning: Learning,
    reward: Float[Array, "B T"],
    terminal: Bool[Array, "B T"],
    later: Float[Array, "B T"],
) -> Float[Array, "B T"]:
    """Return what values should be: TD(lambda), one step ahead if that is 0.

    `later` are the values of what follows each step. Where episodes are long and
    agents many, the best of so many uncertain values is always too good, and step
    by step that adds up; a trace makes the way short.
    """
    onward = learning.discount * jnp.where(terminal, 0.0, 1.0)
    trace = learning.trace * jnp.ones_like(reward).at[:, -1].set(0.0)
    own, rest = reward + onward * (1 - trace) * later, onward * trace

    def join(after, before):
        return before[0] + before[1] * after[0], before[1] * after[1]

    return jax.lax.associative_scan(join, (own, rest), reverse=True, axis=1)[0]


def temporal(
    model: Model, target: Model, env: Env, learning: Learning, given: Given
) -> tuple[Float[Array, ""], Context]:
    """Return the mean squared TD error of the mixed values, and all beliefs.

    The next action is the online network's choice, its value the target's.
    """
    batch = given.batch
    k_local, k_team, k_later, k_last = jax.random.split(given.key, 4)
    seen, all_seen = observe(env, model.known, batch), survey(env, batch)
    beliefs = (model.local, target.local, seen), (model.team, target.team, all_seen)
    (local, local_then), (team, team_then) = watch_together(beliefs)
    e, z = local.sample(k_local), team.sample(k_team)[:, 0]
    acted = jax.lax.stop_gradient(e) if learning.method.detach else e
    join = lambda *parts: jnp.concatenate(parts, axis=-1)
    inputs = (join(seen, acted), join(seen, local_then.sample(k_later)))
    values, ahead = watch(model.agents, target.agents, *inputs)
    chosen = pick(values[:, :-1], batch.action.astype(int))
    greedy = jnp.argmax(jnp.where(batch.available, values, -jnp.inf), axis=-1)
    best = pick(ahead, greedy)[:, 1:]
    state = env.encode_state(batch.state)
    now = join(state, z.swapaxes(0, 1))
    then = join(state, team_then.sample(k_last)[:, 0].swapaxes(0, 1))
    mix = lambda mixer, v, s: jax.vmap(jax.vmap(mixer))(v, s)
    total = mix(model.mixer, jnp.where(batch.present, chosen, 0.0), now[:, :-1])
    later = mix(target.mixer, jnp.where(batch.present, best, 0.0), then[:, 1:])
    goal = goals(learning, given.reward, batch.terminal, later)
    error = jnp.square(total - jax.lax.stop_gradient(goal))
    td = jnp.sum(error * batch.valid) / jnp.maximum(batch.valid.sum(), 1)
    early = lambda x: x[:-1]
    move = lambda x: jnp.moveaxis(x, 0, 2)
    context = Context(
        local=jax.tree.map(early, local),
        e=early(e),
        z=early(z),
        inputs=early(seen),
        label=jnp.take(given.dials.labels, batch.group.astype(int), mode="clip").T,
        valid=batch.valid.T,
        mate_seen=env.encode(move(batch.mate_seen)),
        mate_action=move(batch.mate_action).astype(int),
        mate_present=move(batch.mate_present),
    )
    return td, context
