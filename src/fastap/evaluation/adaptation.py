"""What a sudden change costs: how deep, how long, and how much in all.

Every measure compares the same episodes with and without one change, at a fixed
step: the same first team, the same chance. Rewards are in units of what there is
to win (`scale`: ceiling minus floor), so that environments can be compared.
"""

import dataclasses

import numpy as np
from jaxtyping import Float

WINDOW = 3  # steps that a lag is averaged over
NEAR = 0.1  # of what is usually earned beyond chance: so close counts as recovered
PATIENCE = 3  # lags in a row that must be so close


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """How a team fares after a change at a fixed step, against no change."""

    regret: Float[np.ndarray, " lags"]  # reward lost at each lag
    dip: float  # the most that is lost in a step
    recovery: float  # the lag at which losing ends; infinite where it does not
    area: float  # all that is lost


def adaptation(
    stay: Float[np.ndarray, "E T"],
    change: Float[np.ndarray, "E T"],
    at: int,
    scale: float = 1.0,
    floor: Float[np.ndarray, " T"] | float = 0.0,
) -> Adaptation:
    """Measure a change at step `at` from the rewards of paired episodes.

    What is usual is counted from what random agents are paid at each step, `floor`:
    a tenth of costs, most of which nobody could spare, would forgive everything.
    """
    beyond = lambda rewards: (rewards.mean(0) - floor)[at:] / scale
    usual = beyond(stay)
    regret = usual - beyond(change)
    level = smooth(regret)
    near = np.abs(level) <= NEAR * abs(usual.mean())
    recovered = [
        k for k in range(len(near) - PATIENCE + 1) if near[k:][:PATIENCE].all()
    ]
    first = float(recovered[0]) if recovered else float("inf")
    return Adaptation(regret, float(level.max()), first, float(regret.sum()))


def smooth(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Average every value with those after it, so that no lag is blamed for earlier."""
    return np.array([values[k : k + WINDOW].mean() for k in range(len(values))])
