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

    @property
    def last(self) -> Int[Array, "*B T1 n"]:
        """The previous action of each slot, -1 where there was none."""
        before = jnp.where(self.present, self.action.astype(int), -1)
        width = [(0, 0)] * (before.ndim - 2) + [(1, 0), (0, 0)]
        return jnp.pad(before, width, constant_values=-1)


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


def sample(
    replay: Experience, written: Int[Array, ""], count: int, key: PRNGKeyArray
) -> Experience:
    """Draw episodes, each as likely, from those written so far."""
    filled = jnp.minimum(written, replay.reward.shape[0])
    index = jax.random.randint(key, (count,), 0, filled)
    return jax.tree.map(lambda x: x[index], replay)
