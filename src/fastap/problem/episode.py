"""What is kept of one episode."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num


class Episode(eqx.Module):
    """One episode of all slots; `[t]` is at step t, after any swap, before acting."""

    present: Bool[Array, "*B T N"]
    group: Int[Array, "*B T"]
    swap: Bool[Array, "*B T"]
    action: Int[Array, "*B T N"]
    observation: Num[Array, "*B T+1 N O"]  # one more: after the last action
    state: Num[Array, "*B T+1 S"]
    available: Bool[Array, "*B T+1 N A"]
    reward: Float[Array, "*B T"]  # of the transition t -> t+1; zero on the padding
    terminal: Bool[Array, "*B T"]  # the transition t -> t+1 ended the task
    won: Bool[Array, "*B T"]  # and the goal was reached
    valid: Bool[Array, "*B T"]  # false on the padding after the end

    @property
    def total(self) -> Float[Array, "*B"]:
        """The undiscounted return."""
        return self.reward.sum(-1)

    @property
    def length(self) -> Int[Array, "*B"]:
        """How many steps were played."""
        return self.valid.sum(-1)

    @property
    def success(self) -> Bool[Array, "*B"]:
        """Whether the goal was reached."""
        return (self.won & self.valid).any(-1)


def still_running(ended: Bool[Array, " T"]) -> Bool[Array, " T"]:
    """Mark the steps up to and including the one that ends the task."""
    return jnp.cumsum(ended) - ended == 0
