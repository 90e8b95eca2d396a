"""The memory of a learner: whole episodes, the oldest overwritten first."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from fastap.problem.episode import Episode


class Experience(eqx.Module):
    """What a learner keeps of an episode, for the n slots that it trains."""

    present: Bool[Array, "*B T n"]
    action: Int[Array, "*B T n"]
    group: Int[Array, "*B T"]
    observation: Num[Array, "*B T+1 n O"]
    available: Bool[Array, "*B T+1 n A"]
    state: Num[Array, "*B T+1 S"]
    reward: Float[Array, "*B T"]
    terminal: Bool[Array, "*B T"]
    valid: Bool[Array, "*B T"]
    mate_seen: Num[Array, "*B T m O"]  # of the slots that it does not train
    mate_action: Int[Array, "*B T m"]
    mate_present: Bool[Array, "*B T m"]

    @property
    def last(self) -> Int[Array, "*B T1 n"]:
        """The previous action of each slot, -1 where there was none."""
        return before(self.action, self.present)

    @property
    def mate_last(self) -> Int[Array, "*B T1 m"]:
        """The previous action of each mate, -1 where there was none."""
        return before(self.mate_action, self.mate_present)


def before(
    action: Int[Array, "*B T n"], present: Bool[Array, "*B T n"]
) -> Int[Array, "*B T1 n"]:
    """Move actions one step on; -1 at the start and for who was not there."""
    last = jnp.where(present, action.astype(int), -1)
    width = [(0, 0)] * (last.ndim - 2) + [(1, 0), (0, 0)]
    return jnp.pad(last, width, constant_values=-1)


def keep(episode: Episode, slots: int) -> Experience:
    """Cut an episode down to what its first slots have lived through."""
    return Experience(
        present=episode.present[..., :slots],
        action=episode.action[..., :slots].astype(jnp.int8),
        group=episode.group.astype(jnp.int16),
        observation=episode.observation[..., :slots, :],
        available=episode.available[..., :slots, :],
        state=episode.state,
        reward=episode.reward,
        terminal=episode.terminal,
        valid=episode.valid,
        mate_seen=episode.observation[..., :-1, slots:, :],
        mate_action=episode.action[..., slots:].astype(jnp.int8),
        mate_present=episode.present[..., slots:],
    )


def empty(example: Experience, capacity: int) -> Experience:
    """Make room for episodes like the example."""
    blank = lambda x: jnp.zeros((capacity, *x.shape), x.dtype)
    return jax.tree.map(blank, example)


def add(
    replay: Experience, episodes: Experience, written: Int[Array, ""]
) -> Experience:
    """Write a batch of episodes behind the `written` ones; it never wraps around.

    The capacity must be a multiple of the batch.
    """
    capacity = replay.reward.shape[0]
    start = written % capacity
    put = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, start, 0)
    return jax.tree.map(put, replay, episodes)


class Shelves(eqx.Module):
    """The remembered episodes in the order of their labels."""

    order: Int[Array, " C"]
    first: Int[Array, " K"]  # where each label begins
    count: Int[Array, " K"]


def shelve(
    replay: Experience, written: Int[Array, ""], labels: Int[Array, " K"]
) -> Shelves:
    """Sort episodes by the label of the group they began with."""
    capacity, kinds = replay.reward.shape[0], len(labels)
    there = jnp.arange(capacity) < written
    own = jnp.take(labels, replay.group[:, 0].astype(int), mode="clip")
    label = jnp.where(there, own, kinds)
    count = jnp.sum(label[:, None] == jnp.arange(kinds)[None], axis=0)
    # Numbers that carry their place are sorted several times faster than pairs.
    order = jnp.sort(label * capacity + jnp.arange(capacity)) % capacity
    return Shelves(order, jnp.cumsum(count) - count, count)


def sample(
    replay: Experience,
    shelves: Shelves,
    size: int,
    key: PRNGKeyArray,
    label: Int[Array, ""] | None = None,
) -> Experience:
    """Draw episodes: of one label, or as many of every label that there is."""
    k_label, k_episode = jax.random.split(key)
    there = shelves.count > 0
    if label is not None:
        there = there & (jnp.arange(len(there)) == label)
    luck = jax.random.uniform(k_label, there.shape)
    turn = jnp.argsort(jnp.where(there, luck, 2.0))  # labels that exist come first
    drawn = turn[jnp.arange(size) % jnp.maximum(there.sum(), 1)]
    dice = jax.random.uniform(k_episode, (size,))
    rank = jnp.floor(dice * shelves.count[drawn]).astype(int)
    index = shelves.order[shelves.first[drawn] + rank]
    return jax.tree.map(lambda x: x[index], replay)
