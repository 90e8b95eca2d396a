"""Many groups behind one policy: networks, scripts, or your own function."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from fastap.methods.actor import Actor, Mind
from fastap.methods.networks import Values
from fastap.problem.rollout import AbstractPolicy, Glance
from fastap.problem.spec import Env
from fastap.teammates.scripted import AbstractScript


class Population(AbstractPolicy):
    """Learnt groups: the networks of all of them, chosen by group and slot."""

    env: Env
    agents: Values  # groups first, then all N slots
    groups: int = eqx.field(static=True)

    def start(self, slots: int) -> Mind:
        """Return an empty memory for each slot."""
        return Actor(env=self.env, agents=self.agents).start(slots)

    def luck(self, slots: int, key: PRNGKeyArray) -> None:
        """Leave nothing to chance."""

    def act(
        self, memory: Mind, glance: Glance, luck: None
    ) -> tuple[Mind, Int[Array, " P"]]:
        """Let the group that is there choose, without exploring."""
        agents = jax.tree.map(lambda x: x[glance.group, glance.slot], self.agents)
        team = Actor(env=self.env, agents=agents)
        return team.act(memory, glance, luck)


class Only(AbstractPolicy):
    """One group of many, whoever the schedule says is there."""

    policy: AbstractPolicy
    group: Int[Array, ""]
    groups: int = eqx.field(static=True, default=1)

    def start(self, slots: int) -> PyTree[Array]:
        """Return the group's empty memory."""
        return self.policy.start(slots)

    def luck(self, slots: int, key: PRNGKeyArray) -> Any:
        """Draw what the group leaves to chance."""
        return self.policy.luck(slots, key)

    def act(
        self, memory: PyTree[Array], glance: Glance, luck: Any
    ) -> tuple[PyTree[Array], Int[Array, " P"]]:
        """Let the group choose."""
        told = eqx.tree_at(lambda g: g.group, glance, self.group)
        return self.policy.act(memory, told, luck)


def only(policy: AbstractPolicy, group: Int[Array, ""], slots: slice) -> AbstractPolicy:
    """Take one group for some slots; networks are gathered once, not every step."""
    if not isinstance(policy, Population):
        return Only(policy=policy, group=group)
    agents = jax.tree.map(lambda x: x[group][slots], policy.agents)
    return Actor(env=policy.env, agents=agents)


class Mixed(AbstractPolicy):
    """Groups of several kinds; they are numbered through, part after part."""

    parts: tuple[AbstractPolicy, ...]
    groups: int = eqx.field(static=True)

    def start(self, slots: int) -> tuple[PyTree[Array], ...]:
        """Return the empty memories of every part."""
        return tuple(part.start(slots) for part in self.parts)

    def luck(self, slots: int, key: PRNGKeyArray) -> tuple[Any, ...]:
        """Draw what every part leaves to chance."""
        return tuple(part.luck(slots, key) for part in self.parts)

    def act(
        self, memory: tuple[PyTree[Array], ...], glance: Glance, luck: tuple[Any, ...]
    ) -> tuple[tuple[PyTree[Array], ...], Int[Array, " P"]]:
        """Let every part choose and take the choice of the group that is there."""
        first, chosen, memories = 0, jnp.zeros(len(glance.slot), int), []
        for part, old, drawn in zip(self.parts, memory, luck, strict=True):
            own = glance.group - first
            here = (own >= 0) & (own < part.groups)
            seen = eqx.tree_at(
                lambda g: g.group, glance, jnp.clip(own, 0, part.groups - 1)
            )
            new, action = part.act(old, seen, drawn)
            memories.append(new)
            chosen = jnp.where(here, action, chosen)
            first += part.groups
        return tuple(memories), chosen


def mix(*parts: AbstractPolicy) -> Mixed:
    """Put groups of several kinds into one population."""
    return Mixed(parts=parts, groups=sum(part.groups for part in parts))


class Own(AbstractScript):
    """A policy function of your own: a glance and a key in, actions out."""

    decide: Callable[[Glance, PRNGKeyArray], Int[Array, " P"]] = eqx.field(static=True)
    groups: int = eqx.field(static=True, default=1)

    def choose(self, glance: Glance, key: PRNGKeyArray) -> Int[Array, " P"]:
        """Ask the function."""
        return self.decide(glance, key)
