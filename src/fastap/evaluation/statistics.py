"""What a few seeds tell: means that outliers do not rule, and how sure they are.

Scores come as one array for each task (an environment, or a cell of a table):
one number for every seed. Seeds are the unit: an interval says what other seeds
would give, however many episodes stand behind each number.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

Scores = Float[np.ndarray, "_"]  # of the seeds of one task
Statistic = Callable[[list[Float[np.ndarray, "reps _"]]], Float[np.ndarray, "..."]]
LEVEL = 0.95
REPS = 10_000


def iqm(scores: Float[np.ndarray, "*reps n"]) -> Float[np.ndarray, "*reps"]:
    """Return the mean of the middle half: the interquartile mean."""
    count = scores.shape[-1]
    cut = count // 4
    return np.asarray(np.sort(scores, axis=-1)[..., cut : count - cut].mean(-1))


def pooled(
    tasks: Sequence[Float[np.ndarray, "*reps _"]],
) -> Float[np.ndarray, "*reps"]:
    """Return the interquartile mean over the seeds of all tasks together."""
    return iqm(np.concatenate(list(tasks), axis=-1))


def spread(scores: Scores) -> tuple[float, float]:
    """Return mean and standard deviation (of the population), as papers print them."""
    return float(scores.mean()), float(scores.std())


def interval(
    tasks: Sequence[Scores],
    statistic: Statistic = pooled,
    reps: int = REPS,
    seed: int = 0,
    agents: Sequence[int] | None = None,
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Return a 95 % interval by a stratified bootstrap: seeds redrawn in each task.

    Tasks that name the same `agents` are judgements of the same seeds, as the rows
    of a table are. These are redrawn together: six rows of five seeds are not thirty.
    """
    luck, lots = np.random.default_rng(seed), {}
    names = list(range(len(tasks)) if agents is None else agents)
    for name, scores in zip(names, tasks, strict=True):
        if name not in lots:
            lots[name] = luck.integers(len(scores), size=(reps, len(scores)))
    draw = lambda name, scores: np.asarray(scores, float)[lots[name]]
    values = statistic([draw(*pair) for pair in zip(names, tasks, strict=True)])
    edges = (100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2)
    low, high = np.percentile(values, edges, axis=0)
    return np.asarray(low), np.asarray(high)


def wins(
    ours: Float[np.ndarray, "*reps n"], theirs: Float[np.ndarray, "*reps m"]
) -> Float[np.ndarray, "*reps"]:
    """Return how often a seed of ours beats one of theirs; a tie is half a win."""
    gap = ours[..., :, None] - theirs[..., None, :]
    return np.asarray((np.sign(gap).mean((-2, -1)) + 1) / 2)


def improvement(
    ours: Sequence[Scores],
    theirs: Sequence[Scores],
    reps: int = REPS,
    seed: int = 0,
    same: bool = False,
) -> tuple[float, float, float]:
    """Return the probability of improvement over tasks, and its interval.

    If `same`, all tasks are judgements of the same seeds of ours, and of theirs.
    """
    count = len(ours)
    agents = [0] * count + [1] * count if same else None
    both = [np.asarray(scores, float) for scores in (*ours, *theirs)]

    def mean(tasks):
        pairs = zip(tasks[:count], tasks[count:], strict=True)
        return np.mean([wins(x, y) for x, y in pairs], axis=0)

    low, high = interval(both, mean, reps, seed, agents)
    return float(mean(both)), float(low), float(high)


def profile(
    tasks: Sequence[Float[np.ndarray, "*reps _"]], levels: Float[np.ndarray, " L"]
) -> Float[np.ndarray, "*reps L"]:
    """Return the share of seeds above each level, every task weighing the same."""
    above = [(scores[..., None] > levels).mean(-2) for scores in tasks]
    return np.mean(above, axis=0)


def summary(scores: Scores) -> dict[str, float | list[float]]:
    """Say all that is said about one number in a table."""
    mean, deviation = spread(scores)
    low, high = interval([scores])
    return {
        "iqm": float(iqm(scores)),
        "ci95": [float(low), float(high)],
        "mean": mean,
        "std": deviation,
    }
