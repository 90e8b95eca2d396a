"""Whom learning agents meet: groups revealed in turn, that change or stay."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from fastap.methods.actor import act_by
from fastap.methods.model import Model
from fastap.methods.practice import Moment
from fastap.problem.episode import Episode
from fastap.problem.rollout import Memory, Players, play
from fastap.problem.schedule import Change, Never, Schedule, parse
from fastap.problem.spec import Mistake
from fastap.teammates.population import only
from fastap.teammates.zoo import Zoo

STATIONARY = Change()
NEVER = -1  # the turn of a group that is not met
SHARE = 0.5  # of the training episodes in which teammates change, where they do


class Company(eqx.Module):
    """The groups that a run of agents is trained beside, and how often they change."""

    turn: Int[Array, "*R K"]  # in which part of training each group is revealed
    share: Float[Array, "*R"]  # of the episodes in which teammates change
    change: Change  # how they change there; its numbers may differ between runs

    def met(self, progress: Float[Array, ""]) -> Bool[Array, " K"]:
        """List the groups revealed so far; all parts of training are as long."""
        now = jnp.floor(progress * (self.turn.max() + 1))
        return (self.turn >= 0) & (self.turn <= now)


def all_at_once(met: Bool[Array, "*R K"]) -> Int[Array, "*R K"]:
    """Reveal some groups from the start, and no others."""
    return jnp.where(met, 0, NEVER)


@dataclasses.dataclass(frozen=True)
class Beside:
    """Plays the episodes that agents learn from, beside the groups of a zoo."""

    zoo: Zoo
    memory: Memory = "fresh"

    def __call__(
        self, task: Company, model: Model, now: Moment, key: PRNGKeyArray
    ) -> Episode:
        """Play one episode beside one of the revealed groups, or several in turn."""
        env, sizes = self.zoo.env, jnp.asarray(self.zoo.sizes)
        k_draw, k_share, k_play = jax.random.split(key, 3)
        draw = (sizes, task.met(now.progress), env.spec.horizon, k_draw)
        schedule = STATIONARY.draw(*draw)
        mates = self.zoo.policy
        if isinstance(task.change.when, Never):  # networks are gathered once
            mates = only(mates, schedule.group[0], np.s_[env.spec.controlled :])
        else:
            changes = jax.random.uniform(k_share) < task.share
            choose = lambda some, none: jnp.where(changes, some, none)
            schedule = jax.tree.map(choose, task.change.draw(*draw), schedule)
        mine = act_by(env, model, now.epsilon)
        return play(env, Players(mine, mates, self.memory), schedule, k_play)


def episodes_of(
    zoo: Zoo, members: Int[np.ndarray, " k"], change: str, count: int, seed: int = 2
) -> tuple[Schedule, Key[Array, " E"]]:
    """Draw the teams and the chance of episodes beside some groups of a zoo.

    The same for everybody who is judged by them, so that scores are paired.
    """
    if not len(members):
        raise Mistake(f"The zoo '{zoo.manifest['name']}' has no such groups.")
    sizes, horizon = jnp.asarray(zoo.sizes), zoo.env.spec.horizon
    allowed = jnp.asarray(np.isin(np.arange(len(zoo.groups)), members))
    keys = jax.vmap(jax.random.split)(jax.random.split(jax.random.key(seed), count))
    return draw_all(parse(change), horizon, sizes, allowed, keys[:, 0]), keys[:, 1]


@functools.partial(jax.jit, static_argnums=1)
def draw_all(
    change: Change,
    horizon: int,
    sizes: Int[Array, " K"],
    allowed: Bool[Array, " K"],
    keys: Key[Array, " E"],
) -> Schedule:
    """Draw the teams of many episodes."""
    return jax.vmap(lambda key: change.draw(sizes, allowed, horizon, key))(keys)
