"""The Chinese restaurant process, by which a new group finds its cluster.

Three rules share one score, `log n_m + lambda * (evidence for joining m)` against
`log alpha + lambda * (evidence for a cluster of its own)`; evidence is the mean
log-likelihood of the group's trajectories under an embedding.

`literal` takes the paper's formula as it stands. A group's own embedding nearly
always explains it best, so with alpha >= 1 nobody ever joins a cluster of one.
`calibrated` therefore counts evidence in units of `null`, the gap seen between
pairs known to be of one type, and forgives a gap of that size. `loo` instead
scores every trajectory with an embedding made of the other trajectories.
"""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

Rule = Literal["calibrated", "literal", "loo"]
RULES: tuple[Rule, ...] = ("calibrated", "literal", "loo")
# How many times the null gap the evidence counts. In simulation (16 groups of 4
# types) the adjusted Rand index at alpha 0.5 and 2.5 is 0.99 and 0.79 with 3, 0.98
# and 0.87 with 5, 0.96 and 0.92 with 10, and no better beyond.
FIRM = 10.0
LEAST = 0.05  # nats per trajectory; below, a gap says nothing
QUANTILE = 0.95


@dataclasses.dataclass(frozen=True)
class Choice:
    """One assignment, with everything that decided it."""

    group: int
    cluster: int
    scores: list[float]  # of every cluster, then of a new one
    posterior: list[float]
    gaps: list[float]  # evidence lost by joining each cluster, nats per trajectory
    null: float
    weight: float


def log_prior(counts: Int[np.ndarray, " M"], alpha: float) -> Float[np.ndarray, " M1"]:
    """Return the log-probability of every cluster, and of a new one at the end."""
    weights = np.append(np.asarray(counts, float), alpha)
    return np.log(weights) - np.log(weights.sum())


@dataclasses.dataclass(frozen=True)
class Restaurant:
    """A concentration and a rule."""

    alpha: float
    rule: Rule

    def choose(
        self,
        group: int,
        counts: Int[np.ndarray, " M"],
        evidence: Float[np.ndarray, " M1"],
        null: float,
        trajectories: int,
    ) -> Choice:
        """Assign a group where the score is highest; the last is a new cluster."""
        weight = {"calibrated": FIRM / null, "literal": 1.0, "loo": float(trajectories)}
        forgiven = np.zeros(len(counts) + 1)
        if self.rule == "calibrated":
            forgiven[:-1] = null * 2 * counts / (counts + 1)
        worth = weight[self.rule] * (np.asarray(evidence, float) + forgiven)
        scores = log_prior(counts, self.alpha) + worth
        if not np.isfinite(scores).all():
            raise ValueError(f"The scores of group {group} are not finite: {scores}.")
        shifted = np.exp(scores - scores.max())
        return Choice(
            group,
            int(np.argmax(scores)),
            scores.tolist(),
            (shifted / shifted.sum()).tolist(),
            (evidence[-1] - evidence[:-1]).tolist(),
            float(null),
            weight[self.rule],
        )


def null_gap(gaps: Float[np.ndarray, " P"]) -> float:
    """Return the gap that pairs of one type almost never exceed."""
    return max(LEAST, float(np.quantile(gaps, QUANTILE)) if len(gaps) else LEAST)


def adjusted_rand(a: Int[np.ndarray, " K"], b: Int[np.ndarray, " K"]) -> float:
    """Say how alike two partitions are: 1 the same, 0 as by chance."""
    pairs = lambda n: n * (n - 1) / 2
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    both, rows, columns = (pairs(x).sum() for x in (table, table.sum(1), table.sum(0)))
    chance = rows * columns / pairs(len(a))
    top = (rows + columns) / 2
    return 1.0 if top == chance else float((both - chance) / (top - chance))


def silhouette(points: Float[np.ndarray, "P D"], label: Int[np.ndarray, " P"]) -> float:
    """Say how much nearer points are to their own cluster than to the next one."""
    if len(np.unique(label)) < 2:
        return 0.0
    gap = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    names = np.unique(label)
    size = np.array([(label == name).sum() for name in names])
    total = np.stack([gap[:, label == name].sum(1) for name in names], axis=1)
    own = np.searchsorted(names, label)
    row = np.arange(len(points))
    inner = total[row, own] / np.maximum(size[own] - 1, 1)
    mean = total / size[None]
    mean[row, own] = np.inf
    outer = mean.min(1)
    worth = np.where(size[own] > 1, (outer - inner) / np.maximum(outer, inner), 0.0)
    return float(worth.mean())
