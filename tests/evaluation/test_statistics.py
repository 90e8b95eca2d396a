"""Statistics against worked numbers, SciPy, and the coverage they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fastap.evaluation.statistics import (
    improvement,
    interval,
    iqm,
    pooled,
    profile,
    spread,
    summary,
    wins,
)

numbers = arrays(float, st.integers(1, 12), elements=st.floats(-5, 5, width=32))


@given(numbers)
def test_the_interquartile_mean_is_scipys_trimmed_mean(scores):
    assert np.isclose(iqm(scores), stats.trim_mean(scores, 0.25))


@given(numbers, numbers)
def test_wins_are_the_mann_whitney_statistic(ours, theirs):
    u = stats.mannwhitneyu(ours, theirs).statistic
    assert np.isclose(wins(ours, theirs), u / (len(ours) * len(theirs)))


def test_an_outlier_moves_the_mean_and_not_the_interquartile_mean():
    scores = np.array([0.1, 0.2, 0.3, 9.9])
    assert iqm(scores) == pytest.approx(0.25)
    assert spread(np.array([1.0, 3.0])) == (2.0, 1.0)


def test_the_bootstrap_of_two_seeds_is_known():
    """Four draws are as likely: both low, both high, and two that are mixed."""
    low, high = interval([np.array([0.0, 1.0])], lambda tasks: tasks[0].mean(-1))
    assert (low, high) == (0.0, 1.0)
    middle = interval([np.array([0.0, 1.0])] * 8, lambda t: np.mean(t, (0, 2)))
    # the sum of 16 coins: 2.5 % are below 4, 2.5 % above 12
    assert middle == pytest.approx((4 / 16, 12 / 16), abs=1 / 16)


def test_seeds_are_redrawn_within_their_task():
    """Tasks of very different scores, each without spread: nothing to be unsure of."""
    tasks = [np.full(5, 0.0), np.full(5, 100.0)]
    low, high = interval(tasks, lambda tasks: np.mean(tasks, (0, 2)))
    assert low == high == 50.0


def test_intervals_agree_with_scipys():
    scores = np.random.default_rng(3).normal(size=10)
    mean = lambda tasks: tasks[0].mean(-1)
    ours = np.array(interval([scores], mean, reps=100_000))
    theirs = stats.bootstrap(
        (scores,), np.mean, method="percentile", n_resamples=100_000, rng=1
    ).confidence_interval
    assert np.allclose(ours, theirs, atol=0.02)  # chance: 0.006


def test_intervals_cover_what_they_promise():
    """Of 200 worlds with 20 seeds each about 95 % hold the truth (fewer: 20 is few)."""
    luck = np.random.default_rng(5)
    worlds = luck.normal(size=(200, 20))
    edges = [interval([w], lambda t: t[0].mean(-1), 500) for w in worlds]
    held = np.mean([low <= 0 <= high for low, high in edges])
    assert 0.88 <= held <= 0.98


def test_probability_of_improvement_by_hand():
    ours, theirs = [np.array([1.0, 2.0])], [np.array([1.0, 0.0])]
    value, low, high = improvement(ours, theirs)
    assert value == pytest.approx((0.5 + 1 + 1 + 1) / 4)
    assert 0 <= low <= value <= high <= 1
    assert improvement(ours, ours)[0] == 0.5


def test_rows_of_the_same_seeds_are_no_more_than_one():
    luck = np.random.default_rng(0)
    ours, theirs = luck.normal(0.3, 1, 5), luck.normal(0, 1, 5)
    one = improvement([ours], [theirs], same=True)
    assert improvement([ours] * 6, [theirs] * 6, same=True) == one
    wide, narrow = one, improvement([ours] * 6, [theirs] * 6)
    assert wide[0] == pytest.approx(narrow[0])
    assert wide[2] - wide[1] > 1.5 * (narrow[2] - narrow[1])


def test_to_be_better_always_is_certain():
    sure = improvement([np.ones(3)], [np.zeros(3)])
    assert sure == (1.0, 1.0, 1.0)


def test_profiles_fall_from_one_to_nothing_and_weigh_tasks_alike():
    tasks = [np.array([0.0, 1.0]), np.full(10, 2.0)]
    levels = np.array([-1.0, 0.0, 0.5, 1.5, 2.0])
    assert profile(tasks, levels).tolist() == [1.0, 0.75, 0.75, 0.5, 0.0]


@given(arrays(float, (3, 4), elements=st.floats(0, 1)))
def test_more_repetitions_of_a_draw_give_more_rows(scores):
    assert pooled([scores, scores]).shape == (3,)
    assert profile([scores], np.linspace(0, 1, 5)).shape == (3, 5)


def test_a_summary_holds_all_that_is_printed():
    one = summary(np.array([0.5]))
    assert one == {"iqm": 0.5, "ci95": [0.5, 0.5], "mean": 0.5, "std": 0.0}
