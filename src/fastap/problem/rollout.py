"""One episode is one scan: the same for training, evaluation and self-play."""

import abc
import functools
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Num, PRNGKeyArray, PyTree

from fastap.problem.episode import Episode, still_running
from fastap.problem.schedule import Schedule, check_schedule
from fastap.problem.spec import Env, Spec, View, check_kind

Memory = Literal["fresh", "watched"]  # of a policy that takes over an occupied body


class Glance(eqx.Module):
    """What a policy may look at when it chooses actions for P slots."""

    observation: Num[Array, "P O"]
    available: Bool[Array, "P A"]
    last: Int[Array, " P"]  # the slot's previous action, -1 where there is none
    slot: Int[Array, " P"]
    present: Bool[Array, " P"]
    group: Int[Array, ""]  # for teammates, and for oracles that are told
    world: Any  # for scripted policies that may see everything


class AbstractPolicy(eqx.Module):
    """Chooses actions for some slots; may hold many groups of policies at once."""

    groups: eqx.AbstractVar[int]

    @abc.abstractmethod
    def start(self, slots: int) -> PyTree[Array]:
        """Return the empty memory of each slot, slots first."""

    def luck(self, slots: int, key: PRNGKeyArray) -> Any:
        """Draw what `act` leaves to chance: by default, the key to draw it with.

        It is called for all steps at once, before the episode, which is much
        faster than to draw a few numbers in every step.
        """
        del slots
        return key

    @abc.abstractmethod
    def act(
        self, memory: PyTree[Array], glance: Glance, luck: Any
    ) -> tuple[PyTree[Array], Int[Array, " P"]]:
        """Look once, remember, and choose."""


class Minds(eqx.Module):
    """What everybody remembers between two steps."""

    controlled: PyTree[Array]  # never reset inside an episode
    mates: PyTree[Array]  # slots first; under `watched`, groups before them
    last: Int[Array, " N"]


class Players(eqx.Module):
    """The two sides of a team, and what a policy that takes over a body knows.

    `fresh`: nothing. `watched`: what it would remember had it been in the body
    since the body arrived, so that swapping a group for itself changes nothing.
    """

    controlled: AbstractPolicy
    mates: AbstractPolicy
    memory: Memory = eqx.field(static=True, default="fresh")

    def __check_init__(self):
        check_kind("memory", self.memory, Memory)

    def start(self, spec: Spec) -> Minds:
        """Return everybody's empty memory."""
        mates = self.mates.start(spec.mates)
        if self.memory == "watched":
            mates = jax.tree.map(
                lambda x: jnp.broadcast_to(x, (self.mates.groups, *x.shape)), mates
            )
        last = jnp.full(spec.slots, -1)
        return Minds(self.controlled.start(spec.controlled), mates, last)

    def change(
        self, minds: Minds, spec: Spec, swap: Bool[Array, ""], new: Bool[Array, " N"]
    ) -> Minds:
        """Forget what the teammates' new policies cannot know."""
        forget = new if self.memory == "watched" else new | swap
        forget = forget & (jnp.arange(spec.slots) >= spec.controlled)
        axis = 1 if self.memory == "watched" else 0
        blank = self.start(spec)

        def wipe(now, then):
            shape = [1] * now.ndim
            shape[axis] = spec.mates
            return jnp.where(forget[spec.controlled :].reshape(shape), then, now)

        mates = jax.tree.map(wipe, minds.mates, blank.mates)
        return Minds(minds.controlled, mates, jnp.where(forget, -1, minds.last))

    def luck(self, spec: Spec, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Draw what both sides leave to chance in one step."""
        k_controlled, k_mates = jax.random.split(key)
        mine = self.controlled.luck(spec.controlled, k_controlled)
        return mine, self.mates.luck(spec.mates, k_mates)

    def act(
        self, minds: Minds, spec: Spec, glance: Glance, luck: tuple[Any, Any]
    ) -> tuple[Minds, Int[Array, " N"]]:
        """Let every slot choose its action from a glance of all slots."""
        n = spec.controlled
        mine, ours = self.controlled.act(
            minds.controlled, _slots(glance, 0, n), luck[0]
        )
        theirs = _slots(glance, n, spec.slots)
        if self.memory == "watched":

            def watch(memory, group):
                seen = eqx.tree_at(lambda g: g.group, theirs, group)
                return self.mates.act(memory, seen, luck[1])

            groups = jnp.arange(self.mates.groups)
            mates, chosen = jax.vmap(watch)(minds.mates, groups)
            other = chosen[glance.group]
        else:
            mates, other = self.mates.act(minds.mates, theirs, luck[1])
        action = jnp.where(glance.present, jnp.concatenate([ours, other]), 0)
        return Minds(mine, mates, jnp.where(glance.present, action, -1)), action


def play(env: Env, players: Players, schedule: Schedule, key: PRNGKeyArray) -> Episode:
    """Play one episode with the teammates that the schedule names."""
    return film(env, players, schedule, key)[0]


def film(
    env: Env, players: Players, schedule: Schedule, key: PRNGKeyArray
) -> tuple[Episode, Any]:
    """Play one episode and keep every world, the last one included.

    The chance of the world (where bodies begin and arrive, what the game rolls)
    and that of the policies come from separate keys, one per step, so that two
    policies can be compared on the same episodes.
    """
    spec = env.spec
    schedule = check_schedule(spec, schedule, players.mates.groups)
    k_reset, k_arrive, k_world, k_act = jax.random.split(key, 4)
    each = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    steps = jnp.arange(spec.horizon)
    arrivals = jax.vmap(env.luck)(each(k_arrive, steps))
    actions = jax.vmap(functools.partial(players.luck, spec))(each(k_act, steps))
    chance = (arrivals, each(k_world, steps), actions)
    present = jax.vmap(spec.present)(schedule.size)
    before = jnp.concatenate([present[:1], present[:-1]])

    def step(carry, now):
        world, minds = carry
        there, arrived, group, swap, (arrival, k_world, luck) = now
        if spec.least < spec.mates:  # otherwise nobody ever comes or goes
            world = env.swap(world, there, arrival)
        minds = players.change(minds, spec, swap, arrived)
        view = env.view(world)
        glance = look(view, minds, there, group, world)
        minds, action = players.act(minds, spec, glance, luck)
        after, outcome = env.step(world, action, k_world)
        return (after, minds), (view, action, outcome, world)

    start = (env.reset(present[0], k_reset), players.start(spec))
    when = (present, present & ~before, schedule.group, schedule.swap, chance)
    (end, _), (views, action, outcome, worlds) = jax.lax.scan(step, start, when)
    views, worlds = jax.tree.map(append, (views, worlds), (env.view(end), end))
    return record(spec, schedule, present, (views, action, outcome)), worlds


def look(
    view: View, minds: Minds, present: Bool[Array, " N"], group: Array, world: Any
) -> Glance:
    """Gather what all slots may look at."""
    slot = jnp.arange(len(present))
    return Glance(
        view.observation, view.available, minds.last, slot, present, group, world
    )


def record(spec: Spec, schedule: Schedule, present: Array, played: tuple) -> Episode:
    """Make an episode of what was played, padding what came after its end."""
    views, action, outcome = played
    valid = still_running(outcome.terminal)
    last = jnp.arange(spec.horizon) == spec.horizon - 1
    limit = last & (spec.limit == "terminal")
    return Episode(
        observation=views.observation,
        state=views.state,
        available=views.available,
        present=present,
        group=schedule.group,
        swap=schedule.swap,
        action=action,
        reward=jnp.where(valid, outcome.reward, 0.0),
        terminal=outcome.terminal | limit,
        won=outcome.won & valid,
        valid=valid,
    )


def append(rows: Array, last: Array) -> Array:
    """Put one more row at the end."""
    return jnp.concatenate([rows, last[None]])


def _slots(glance: Glance, start: int, stop: int) -> Glance:
    part = lambda x: x[start:stop]
    fields = lambda g: (g.observation, g.available, g.last, g.slot, g.present)
    return eqx.tree_at(fields, glance, tuple(map(part, fields(glance))))
