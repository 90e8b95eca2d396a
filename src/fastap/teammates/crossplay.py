"""Cross-play: what half of one team earns with the other half of another."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from fastap.problem.rollout import AbstractPolicy, Players, play
from fastap.problem.schedule import unchanging
from fastap.problem.spec import Env
from fastap.teammates.population import only


def cross_play(
    env: Env, groups: AbstractPolicy, sizes: Int[Array, " K"], keys: Key[Array, " E"]
) -> Float[Array, "K K"]:
    """Play every group's controlled agents beside every group's mates.

    Row i, column j: the mean return with group i in the controlled slots and
    group j, with as many mates as `sizes` says, in the others.
    """
    every = jnp.arange(groups.groups)

    def row(i):
        first = only(groups, i, np.s_[: env.spec.controlled])
        return beside_all(env, first, groups, sizes, keys)

    return jax.lax.map(row, every)


def beside_all(
    env: Env, policy: AbstractPolicy, groups: AbstractPolicy, sizes: Array, keys: Array
) -> Float[Array, " K"]:
    """Play one policy in the controlled slots beside every group, unchanging."""

    def pair(group, size):
        mates = only(groups, group, np.s_[env.spec.controlled :])
        return mean_return(env, Players(policy, mates), size, keys)

    return jax.vmap(pair)(jnp.arange(groups.groups), sizes)


def mean_return(
    env: Env, players: Players, size: Int[Array, ""], keys: Key[Array, " E"]
) -> Float[Array, ""]:
    """Play stationary episodes beside one group."""
    schedule = unchanging(env.spec.horizon, size)
    return jax.vmap(lambda key: play(env, players, schedule, key))(keys).total.mean()


@dataclasses.dataclass(frozen=True)
class Summary:
    """A cross-play matrix in two numbers, and how alike the types are."""

    diagonal: float
    off_diagonal: float
    within: float  # other members of one's own type or cluster
    between: float


def summarise(
    matrix: Float[np.ndarray, "K K"], label: Int[np.ndarray, " K"]
) -> Summary:
    """Compare playing with oneself, with one's kind, and with all others."""
    self_play = np.eye(len(matrix), dtype=bool)
    kin = (label[:, None] == label[None]) & ~self_play
    mean = lambda mask: float(matrix[mask].mean()) if mask.any() else float("nan")
    others = ~self_play & ~kin
    return Summary(mean(self_play), mean(~self_play), mean(kin), mean(others))


def by_label(
    matrix: Float[np.ndarray, "K K"], label: Int[np.ndarray, " K"]
) -> Float[np.ndarray, "M M"]:
    """Average a matrix over the pairs of members of any two clusters."""
    names = np.unique(label)
    return np.array(
        [[matrix[label == a][:, label == b].mean() for b in names] for a in names]
    )
