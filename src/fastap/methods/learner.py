"""QMIX: the learner that every method shares, for n agents that learn together."""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from fastap.methods.networks import AbstractMixer, Monotone, Sum, Values, recur
from fastap.methods.replay import Experience
from fastap.problem.rollout import AbstractPolicy, Glance
from fastap.problem.spec import Env


@dataclasses.dataclass(frozen=True)
class Learning:
    """The base learner's settings; the defaults are EPyMARL's, as in the paper."""

    mixer: Literal["qmix", "vdn"] = "qmix"
    hidden: int = 64  # of the agents' networks
    embed: int = 32  # of the mixer
    discount: float = 0.99
    clip: float = 10.0  # the largest norm of a gradient
    target_every: int = 200  # gradient steps between copies to the target
    standardise: bool = True  # rewards, by their running mean and variance


Known = Float[Array, "*R K C"] | None  # what is told of each group, if anything


class Model(eqx.Module):
    """All that is learnt: n agents with parameters of their own, and a mixer."""

    agents: Values  # n of them, stacked
    mixer: AbstractMixer
    known: Known = None  # given, not learnt


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


def begin(
    env: Env,
    agents: int,
    learning: Learning,
    key: PRNGKeyArray,
    known: Known = None,
) -> Learner:
    """Initialise a learner for the first `agents` slots of an environment."""
    spec = env.spec
    k_agents, k_mixer = jax.random.split(key)
    told = 0 if known is None else known.shape[1]
    width = spec.inputs + spec.actions + told
    build = lambda k: Values(width, learning.hidden, spec.actions, k)
    values = jax.vmap(build)(jax.random.split(k_agents, agents))
    mixer = Sum()
    if learning.mixer == "qmix":
        mixer = Monotone(agents, spec.state_inputs, learning.embed, k_mixer)
    model = Model(values, mixer, known)
    nothing = Rewards(jnp.float32(1e-4), jnp.zeros(()), jnp.ones(()))
    state = optimiser(learning).init(eqx.filter(model, eqx.is_array))
    return Learner(model, model, state, jnp.array(0), nothing)


def optimiser(learning: Learning) -> optax.GradientTransformation:
    """Clip, then Adam; the learning rate comes with each update."""
    return optax.chain(optax.clip_by_global_norm(learning.clip), optax.scale_by_adam())


def update(
    env: Env,
    learning: Learning,
    learner: Learner,
    batch: Experience,
    rate: Float[Array, ""],
) -> tuple[Learner, dict[str, Float[Array, ""]]]:
    """Take one gradient step on a batch of episodes."""
    rewards = learner.rewards.see(batch.reward) if learning.standardise else None
    reward = rewards.scale(batch.reward) if rewards else batch.reward
    value = eqx.filter_value_and_grad(loss)
    td, gradient = value(learner.model, learner.target, env, batch, reward, learning)
    change, state = optimiser(learning).update(gradient, learner.optimiser)
    change = jax.tree.map(lambda x: -rate * x, change)
    model = eqx.apply_updates(learner.model, change)
    updates = learner.updates + 1
    copy = updates % learning.target_every == 0
    target = jax.tree.map(
        lambda new, old: jnp.where(copy, new, old), model, learner.target
    )
    after = Learner(model, target, state, updates, rewards or learner.rewards)
    return after, {"td": td, "gradient": optax.tree.norm(gradient)}


def loss(
    model: Model,
    target: Model,
    env: Env,
    batch: Experience,
    reward: Float[Array, "B T"],
    learning: Learning,
) -> Float[Array, ""]:
    """Return the mean squared TD error of the mixed values over valid steps.

    The next action is the online network's choice, its value the target's.
    """
    seen = observe(env, model.known, batch)
    values, ahead = watch(model.agents, target.agents, seen)
    action = batch.action.astype(int)
    chosen = pick(values[:, :-1], action)
    greedy = jnp.argmax(jnp.where(batch.available, values, -jnp.inf), axis=-1)
    best = pick(ahead, greedy)[:, 1:]
    state = env.encode_state(batch.state)
    mix = lambda mixer, v, s: jax.vmap(jax.vmap(mixer))(v, s)
    total = mix(model.mixer, jnp.where(batch.present, chosen, 0.0), state[:, :-1])
    later = mix(target.mixer, jnp.where(batch.present, best, 0.0), state[:, 1:])
    goal = reward + learning.discount * jnp.where(batch.terminal, 0.0, later)
    error = jnp.square(total - jax.lax.stop_gradient(goal))
    return jnp.sum(error * batch.valid) / jnp.maximum(batch.valid.sum(), 1)


def observe(env: Env, known: Known, batch: Experience) -> Float[Array, "T1 n B I"]:
    """Make network inputs of whole episodes, as each agent had them."""
    seen = jnp.transpose(batch.observation, (1, 2, 0, 3))
    last = jnp.transpose(batch.last, (1, 2, 0))
    group = jnp.concatenate([batch.group, batch.group[:, -1:]], axis=1).astype(int)
    return inputs(env, known, seen, last, group.T[:, None])


def inputs(
    env: Env,
    known: Known,
    observation: Num[Array, "*n O"],
    last: Int[Array, "*n"],
    group: Int[Array, "*_"],
) -> Float[Array, "*n I"]:
    """Join what an agent sees, what it did before, and what it is told."""
    parts = [env.encode(observation), jax.nn.one_hot(last, env.spec.actions)]
    if known is not None:
        told = jax.lax.stop_gradient(known)[group]
        parts.append(jnp.broadcast_to(told, (*last.shape, known.shape[1])))
    return jnp.concatenate(parts, axis=-1)


def watch(
    agents: Values, frozen: Values, xs: Float[Array, "T1 n B I"]
) -> tuple[Float[Array, "B T1 n A"], Float[Array, "B T1 n A"]]:
    """Unroll every agent, and its frozen double, over every episode.

    Only the agents get gradients.
    """
    each = lambda f: jax.vmap(f, in_axes=(0, 1), out_axes=1)
    teams = (agents, jax.lax.stop_gradient(frozen))
    join = lambda xs, axis: jnp.concatenate(list(xs), axis=axis)
    prepared = join((each(Values.prepare)(team, xs) for team in teams), 1)
    weight = join((team.gru.memory.weight for team in teams), 0)
    bias = join((team.gru.memory.bias for team in teams), 0)
    memories = jnp.split(recur(xs.shape[1], weight, bias, prepared), 2, axis=1)
    value = each(lambda net, memory: net.leave(memory))
    back = lambda x: jnp.transpose(x, (2, 0, 1, 3))
    return back(value(agents, memories[0])), back(value(teams[1], memories[1]))


def pick(values: Float[Array, "*n A"], action: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Take the value of one action from each row."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]


class Actor(AbstractPolicy):
    """The learnt agents at work, exploring with probability epsilon."""

    env: Env
    agents: Values  # one for each of its slots, stacked
    known: Known = None
    epsilon: Float[Array, ""] | None = None  # none: greedy, and no dice are rolled
    groups: int = eqx.field(static=True, default=1)

    def start(self, slots: int) -> Float[Array, "P H"]:
        """Return an empty memory for each slot."""
        return jnp.zeros((slots, self.agents.gru.width))

    def act(
        self, memory: Float[Array, "P H"], glance: Glance, key: PRNGKeyArray
    ) -> tuple[Float[Array, "P H"], Int[Array, " P"]]:
        """Value the available actions and take the best, or any."""
        now = (glance.observation, glance.last, glance.group)
        seen = inputs(self.env, self.known, *now)
        memory, values = jax.vmap(lambda net, *x: net(*x))(self.agents, memory, seen)
        if self.epsilon is None:
            return memory, best(values, glance.available)
        return memory, explore(values, glance.available, self.epsilon, key)


def act_by(env: Env, model: Model, epsilon: Float[Array, ""] | None = None) -> Actor:
    """Put a model's agents to work, with all that they are told."""
    return Actor(env=env, agents=model.agents, known=model.known, epsilon=epsilon)


def explore(
    values: Float[Array, "P A"],
    available: Bool[Array, "P A"],
    epsilon: Float[Array, ""],
    key: PRNGKeyArray,
) -> Int[Array, " P"]:
    """Take the best available action or, with probability epsilon, any."""
    dice = jax.random.uniform(key, (len(values), 1 + values.shape[1]))
    return best(jnp.where(dice[:, :1] < epsilon, dice[:, 1:], values), available)


def best(worth: Float[Array, "P A"], available: Bool[Array, "P A"]) -> Int[Array, " P"]:
    """Take the best of the available actions."""
    return jnp.argmax(jnp.where(available, worth, -jnp.inf), axis=1)
