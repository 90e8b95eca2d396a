"""The prey of predator-prey: trained by DQN against chasers and learnt predators."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from fastap.envs.particles import Arena, between, points
from fastap.envs.prey import Nerves, Trained
from fastap.envs.pursuit import PREDATOR, PREY, Pursuit
from fastap.methods.actor import explore
from fastap.methods.learner import plain
from fastap.methods.model import Learning, pick
from fastap.methods.networks import Linear
from fastap.methods.practice import Drill, Practice
from fastap.problem.rollout import AbstractPolicy, Glance
from fastap.teammates.conventions import no_conventions
from fastap.teammates.grow import Lesson, lesson
from fastap.teammates.population import Population, mix
from fastap.teammates.scripted import Chaser

DISCOUNT, TARGET_EVERY = 0.95, 200
PIECE = 25  # rounds in one compiled call, at most
HOME = 1.5  # farther out than this, a prey has left the arena


@dataclasses.dataclass(frozen=True)
class Breeding:
    """How long prey and predators learn, in turns."""

    rounds: int = 3000  # of the prey's learning, in every generation
    episodes: int = 32  # played in every round
    updates: int = 4
    batch: int = 10  # episodes of an update
    capacity: int = 2048  # episodes remembered
    hidden: int = 32
    rate: float = 5e-4
    generations: int = 3  # the first meets chasers alone
    hunts: Practice = dataclasses.field(
        default_factory=lambda: Practice(500_000, learning=Learning(mixer="vdn"))
    )
    teams: int = 2  # of predators, in every generation


class Flight(eqx.Module):
    """What a prey lives through in an episode."""

    action: Int[Array, "*E T"]
    reward: Float[Array, "*E T"]
    seen: Float[Array, "*E T+1 O"]  # one more: after the last action


def flee(
    env: Pursuit,
    hunters: AbstractPolicy,
    prey: Nerves,
    epsilon: Float[Array, ""],
    key: PRNGKeyArray,
) -> Flight:
    """Run from one of the hunting groups for an episode, exploring."""
    spec, there = env.spec, jnp.ones(env.agents, bool)
    k_reset, k_group, k_steps = jax.random.split(key, 3)
    group = jax.random.randint(k_group, (), 0, hunters.groups)
    slots, moves = jnp.arange(spec.slots), jnp.ones((1, spec.actions), bool)

    def step(carry, key):
        world, memory, last = carry
        k_hunt, k_flee = jax.random.split(key)
        luck = hunters.luck(spec.slots, k_hunt)
        view = env.view(world)
        now = (view.observation, view.available, last, slots, there, group, world)
        memory, action = hunters.act(memory, Glance(*now), luck)
        seen = env.prey_view(world)
        dice = jax.random.uniform(k_flee, (1, 1 + spec.actions))
        flight = explore(prey.values(seen)[None], moves, epsilon, dice)[0]
        after = env.advance(world, jnp.append(action, flight))
        return (after, memory, action), (seen, flight, fear(after))

    last = jnp.full(spec.slots, -1)
    start = (env.reset(there, k_reset), hunters.start(spec.slots), last)
    keys = jax.random.split(k_steps, spec.horizon)
    (end, _, _), (seen, action, reward) = jax.lax.scan(step, start, keys)
    seen = jnp.concatenate([seen, env.prey_view(end)[None]])
    return Flight(action, reward, seen)


def touches(world: Arena) -> Int[Array, ""]:
    """Count the predators that touch the prey."""
    *hunters, prey = points(world.position)
    reach = PREDATOR.radius + PREY.radius
    return sum((between(hunter, prey) < reach for hunter in hunters), jnp.array(0))


def fear(world: Arena) -> Float[Array, ""]:
    """Value a world as a prey does: mpe2's reward, a tenth of it."""
    out = jnp.abs(world.position[-1])
    near = jnp.where(out < 1.0, 10 * (out - 0.9), jnp.exp(2 * out - 2))
    wall = jnp.where(out < 0.9, 0.0, jnp.minimum(near, 10.0))
    return -1.0 * touches(world) - 0.1 * wall.sum()


def newborn(env: Pursuit, hidden: int, key: PRNGKeyArray) -> Nerves:
    """Make a prey that knows nothing."""
    sizes = (2 * (2 + env.obstacles + env.agents), hidden, hidden, 5)
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [Linear(a, b, k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False)]
    return Nerves(tuple((layer.weight, layer.bias) for layer in layers))


def learn(
    env: Pursuit,
    hunters: AbstractPolicy,
    prey: Nerves,
    breeding: Breeding,
    key: PRNGKeyArray,
) -> Nerves:
    """Let a prey learn from its flights: DQN with a double and a target network."""
    adam = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(breeding.rate))
    value = jax.vmap(jax.vmap(Nerves.values, (None, 0)), (None, 0))

    def loss(prey, target, flight):
        values, ahead = value(prey, flight.seen), value(target, flight.seen)
        best = pick(ahead, jnp.argmax(values, axis=-1))[:, 1:]
        goal = flight.reward + DISCOUNT * jax.lax.stop_gradient(best)
        return jnp.square(pick(values[:, :-1], flight.action) - goal).mean()

    def update(carry, key, memory, filled):
        prey, target, state, count = carry
        rows = jax.random.randint(key, (breeding.batch,), 0, filled)
        flight = jax.tree.map(lambda x: x[rows], memory)
        slope = jax.grad(loss)(prey, target, flight)
        change, state = adam.update(slope, state)
        prey = eqx.apply_updates(prey, change)
        copy = (count + 1) % TARGET_EVERY == 0
        target = jax.tree.map(lambda a, b: jnp.where(copy, a, b), prey, target)
        return (prey, target, state, count + 1), None

    def turn(carry, now):
        learner, memory, key = carry
        key, k_play, k_learn = jax.random.split(key, 3)
        epsilon = jnp.maximum(0.05, 1.0 - 2.0 * now / breeding.rounds)
        keys = jax.random.split(k_play, breeding.episodes)
        one = functools.partial(flee, env, hunters, learner[0], epsilon)
        at = (now * breeding.episodes) % breeding.capacity
        put = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, at, 0)
        memory = jax.tree.map(put, memory, jax.vmap(one)(keys))
        filled = jnp.minimum((now + 1) * breeding.episodes, breeding.capacity)
        step = functools.partial(update, memory=memory, filled=filled)
        learner, _ = jax.lax.scan(
            step, learner, jax.random.split(k_learn, breeding.updates)
        )
        return (learner, memory, key), None

    one = functools.partial(flee, env, hunters, prey, jnp.float32(1))
    room = lambda x: jnp.zeros((breeding.capacity, *x.shape), x.dtype)
    memory = jax.tree.map(room, jax.eval_shape(one, key))
    start = (
        (prey, prey, adam.init(eqx.filter(prey, eqx.is_array)), jnp.array(0)),
        memory,
        key,
    )
    learner, _, _ = in_pieces(
        functools.partial(jax.lax.scan, turn), start, breeding.rounds
    )
    return learner[0]


def in_pieces(train: Callable[..., Any], state: Any, rounds: int) -> Any:
    """Train in compiled calls of a few rounds, so that an interrupt is heard soon."""
    length = next(n for n in range(PIECE, 0, -1) if rounds % n == 0)
    program = jax.jit(train, donate_argnums=0)
    state = jax.tree.map(jnp.copy, state)  # what is given away is nobody else's
    for first in range(0, rounds, length):
        state, _ = program(state, first + jnp.arange(length))
        jax.block_until_ready(state)
    return state


def hunt(env: Pursuit, prey: Nerves, breeding: Breeding, seed: int) -> Population:
    """Train teams of predators in self-play against a prey."""
    against = dataclasses.replace(env, prey=Trained(prey))
    count, spec = breeding.teams, env.spec
    play = functools.partial(lesson, against)
    drill = Drill(against, spec.slots, breeding.hunts, play)
    tasks = Lesson(jnp.ones(count), no_conventions(count))
    keys = jax.vmap(jax.random.key)(seed + jnp.arange(count))
    runs = jax.jit(jax.vmap(drill.start))(tasks, plain(jnp.full(count, 5e-4)), keys)
    runs = in_pieces(drill.improve, runs, breeding.hunts.rounds(spec.horizon))
    return Population(env=env, agents=runs.learner.model.agents, groups=count)


def breed(
    env: Pursuit, breeding: Breeding, tell: Callable[[int, str], None], seed: int = 0
) -> Nerves:
    """Raise a prey: against chasers, then also against predators raised on it."""
    key = jax.random.key(seed)
    prey = newborn(env, breeding.hidden, key)
    hunters: list[AbstractPolicy] = [Chaser()]
    for generation in range(breeding.generations):
        if generation:
            hunters.append(hunt(env, prey, breeding, 100 * generation))
        chance = jax.random.fold_in(key, generation)
        prey = learn(env, mix(*hunters), prey, breeding, chance)
        facts = judge_prey(env, prey, jax.random.split(key, 500))
        words = ", ".join(f"{k} {v:.2f}" for k, v in facts.items())
        tell(generation + 1, words)
    return prey


def judge_prey(env: Pursuit, prey: Nerves, keys: Key[Array, " E"]) -> dict[str, float]:
    """Say how often chasers touch a prey, and how much of its time it stays home."""
    one = functools.partial(flee, env, Chaser(), prey, jnp.float32(0))
    seen = jax.jit(jax.vmap(one))(keys).seen[:, 1:]
    home = jnp.all(jnp.abs(seen[..., 2:4]) < HOME, axis=-1).mean()
    gaps = seen[..., -2 * env.agents :].reshape(*seen.shape[:2], -1, 2)
    close = jnp.sqrt(jnp.square(gaps).sum(-1)) < PREDATOR.radius + PREY.radius
    return {"touched": float(close.any((1, 2)).mean()), "home": float(home)}
