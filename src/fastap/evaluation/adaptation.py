"""What a sudden change costs: how deep, how long, and how much in all.

Every measure compares the same episodes with and without one change, at a fixed
step: the same first team, the same chance. Rewards are in units of what there is
to win (`scale`: ceiling minus floor), so that environments can be compared.
"""

import dataclasses

import numpy as np
from jaxtyping import Float

WINDOW = 3  # steps that a lag is averaged over
NEAR = 0.1  # of what a step usually brings beyond chance: so close is recovered
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
    floor: float = 0.0,
) -> Adaptation:
    """Measure a change at step `at` from the rewards of paired episodes.

    What a step usually brings is counted from what it brings to random agents,
    `floor`: a tenth of costs, most of which nobody could spare, would forgive
    everything. It is the mean of the whole episode, since late in it there may be
    nothing left to earn.
    """
    regret = (stay - change)[:, at:].mean(0) / scale
    level = smooth(regret)
    usual = (stay.mean() - floor) / scale
    near = np.abs(level) <= NEAR * abs(usual)
    recovered = [
        k for k in range(len(near) - PATIENCE + 1) if near[k:][:PATIENCE].all()
    ]
    first = float(recovered[0]) if recovered else float("inf")
    return Adaptation(regret, float(level.max()), first, float(regret.sum()))


def smooth(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Average every value with those after it, so that no lag is blamed for earlier."""
    return np.array([values[k : k + WINDOW].mean() for k in range(len(values))])
