"""The restaurant process, held to its laws and to numbers worked out apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastap.teammates.crp import (
    LEAST,
    Restaurant,
    adjusted_rand,
    log_prior,
    null_gap,
    silhouette,
)

COUNTS = st.lists(st.integers(1, 30), max_size=6).map(lambda x: np.array(x, int))
ALPHAS = st.floats(0.01, 50)
RULE = st.sampled_from(["calibrated", "literal", "loo"])
BOTH = pytest.mark.parametrize("alpha", [0.5, 2.5])


def decide(rule, alpha, counts, evidence, null=1.0, trajectories=32):
    restaurant = Restaurant(alpha, rule)
    return restaurant.choose(
        0, np.array(counts, int), np.array(evidence), null, trajectories
    )


@given(COUNTS, ALPHAS)
def test_the_prior_sums_to_one(counts, alpha):
    prior = np.exp(log_prior(counts, alpha))
    assert prior.sum() == pytest.approx(1)
    assert prior[-1] == pytest.approx(alpha / (counts.sum() + alpha))


def test_the_first_guest_opens_a_table():
    assert np.exp(log_prior(np.zeros(0, int), 0.5)) == pytest.approx([1.0])
    assert decide("calibrated", 0.5, [], [-3.0]).cluster == 0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), ALPHAS, st.randoms())
def test_the_order_of_guests_does_not_change_the_probability_of_a_seating(
    seats, alpha, chance
):
    def log_probability(order):
        total, tables = 0.0, {}
        for name in order:
            prior = log_prior(np.array(list(tables.values()), int), alpha)
            total += prior[list(tables).index(name)] if name in tables else prior[-1]
            tables[name] = tables.get(name, 0) + 1
        return total

    other = list(seats)
    chance.shuffle(other)
    assert log_probability(seats) == pytest.approx(log_probability(other))


@given(RULE, ALPHAS, COUNTS, st.integers(0, 2**20), st.floats(-50, 50))
def test_a_constant_in_the_evidence_changes_nothing(rule, alpha, counts, seed, shift):
    evidence = np.random.default_rng(seed).normal(size=len(counts) + 1)
    a = decide(rule, alpha, counts, evidence)
    b = decide(rule, alpha, counts, evidence + shift)
    assert a.cluster == b.cluster
    assert np.allclose(a.posterior, b.posterior, atol=1e-6)
    assert sum(a.posterior) == pytest.approx(1)


def test_without_evidence_the_largest_table_wins_and_with_much_the_likeliest():
    flat = np.zeros(4)
    assert decide("literal", 0.5, [2, 5, 1], flat).cluster == 1
    assert decide("literal", 9.0, [2, 5, 1], flat).cluster == 3
    likeliest = np.array([0.0, -1.0, 0.5, 0.2])
    assert decide("loo", 0.5, [2, 5, 1], likeliest, trajectories=10**6).cluster == 2


@given(st.floats(1, 20), st.integers(0, 2**20))
def test_literally_nobody_joins_a_table_of_one_when_alpha_is_one_or_more(alpha, seed):
    gaps = np.random.default_rng(seed).exponential(size=5)  # own code explains best
    evidence = np.append(-gaps, 0.0)
    assert decide("literal", alpha, [1] * 5, evidence).cluster == 5


@BOTH
def test_a_twin_joins_its_twin_and_a_stranger_does_not(alpha):
    twin = decide("calibrated", alpha, [1, 1], [-0.5, -40.0, 0.0])
    assert twin.cluster == 0
    assert twin.gaps == pytest.approx([0.5, 40.0])
    assert decide("calibrated", alpha, [1, 1], [-30.0, -40.0, 0.0]).cluster == 2


@given(ALPHAS, COUNTS, st.integers(0, 2**20), st.floats(0.1, 100))
def test_the_calibrated_choice_knows_no_units(alpha, counts, seed, scale):
    evidence = np.random.default_rng(seed).normal(size=len(counts) + 1)
    a = decide("calibrated", alpha, counts, evidence, null=1.3)
    b = decide("calibrated", alpha, counts, scale * evidence, null=scale * 1.3)
    assert np.allclose(a.posterior, b.posterior, atol=1e-6)


def test_the_gap_of_joining_on_a_quadratic():
    """Half of (n / (n+1))^2 times the squared distance, in the metric of H."""
    draw = np.random.default_rng(0)
    root = draw.normal(size=(5, 5))
    metric = root @ root.T
    mine, mean, n = draw.normal(size=5), draw.normal(size=5), 3
    evidence = lambda v: -0.5 * (v - mine) @ metric @ (v - mine)
    gap = evidence(mine) - evidence((n * mean + mine) / (n + 1))
    exact = 0.5 * (n / (n + 1)) ** 2 * (mine - mean) @ metric @ (mine - mean)
    assert gap == pytest.approx(exact, abs=1e-6)


def test_leaving_a_trajectory_out_never_flatters():
    draw = np.random.default_rng(1)
    inside, outside = [], []
    for _ in range(200):
        x = draw.normal(size=(16, 4))
        left = (x.sum(0) - x) / 15
        inside.append(-0.5 * ((x - x.mean(0)) ** 2).sum(1).mean())
        outside.append(-0.5 * ((x - left) ** 2).sum(1).mean())
    assert np.mean(outside) < np.mean(inside)


def seat(count, alpha, draw):
    """Sample who sits at which table from the prior alone."""
    tables = []
    for _ in range(count):
        taken = np.bincount(tables) if tables else np.zeros(0, int)
        odds = np.exp(log_prior(taken, alpha))
        tables.append(int(draw.choice(len(odds), p=odds)))
    return np.array(tables)


@pytest.mark.parametrize(
    ("alpha", "guests", "tables"),
    [(0.5, 8, 2.0218), (0.5, 16, 2.3681), (2.5, 8, 3.9996), (2.5, 16, 5.4684)],
)
def test_as_many_tables_as_the_prior_expects(alpha, guests, tables):
    draw = np.random.default_rng(2)
    counts = np.array([seat(guests, alpha, draw).max() + 1 for _ in range(2000)])
    assert counts.mean() == pytest.approx(tables, abs=4 * counts.std() / 2000**0.5)
    assert sum(alpha / (alpha + i) for i in range(guests)) == pytest.approx(
        tables, abs=1e-4
    )


def stream(rule, alpha, kinds, draw, jitter=0.1):
    """Cluster groups whose trajectories are Gaussian around a mean of their type."""
    far, seen, width = 4.0, 32, 16
    centres = far / 2**0.5 * np.eye(max(kinds) + 1, width)
    make = lambda kind: (
        centres[kind]
        + jitter * draw.normal(size=width)
        + draw.normal(size=(seen, width))
    )
    judge = lambda data, code: -0.5 * ((data - code) ** 2).sum(1).mean()
    gaps = []
    for kind in set(kinds):
        for _ in range(4):
            a, b = make(kind), make(kind)
            alone = judge(a, a.mean(0))
            gaps.append(alone - judge(a, (a.mean(0) + b.mean(0)) / 2))
    null, labels, means = null_gap(np.array(gaps)), [], []
    for k, kind in enumerate(kinds):
        data = make(kind)
        mine = data.mean(0)
        counts = np.bincount(labels) if labels else np.zeros(0, int)
        assert counts.sum() == k
        codes = [
            (n * np.mean([means[j] for j in range(k) if labels[j] == m], 0) + mine)
            / (n + 1)
            for m, n in enumerate(counts)
        ]
        evidence = np.array([judge(data, code) for code in [*codes, mine]])
        choice = Restaurant(alpha, rule).choose(k, counts, evidence, null, seen)
        labels.append(choice.cluster)
        means.append(mine)
    return np.array(labels)


@BOTH
@pytest.mark.parametrize("jitter", [0.05, 0.3])
def test_calibrated_finds_synthetic_types(alpha, jitter):
    """16 groups of 4 types; the median of 20 orders."""
    scores = []
    for order in range(20):
        draw = np.random.default_rng(order)
        kinds = draw.permutation(np.repeat(np.arange(4), 4))
        labels = stream("calibrated", alpha, kinds.tolist(), draw, jitter)
        scores.append(adjusted_rand(kinds, labels))
    assert np.median(scores) >= 0.9


def test_literal_splits_everything_at_the_larger_alpha():
    kinds = np.repeat(np.arange(4), 4)
    labels = stream("literal", 2.5, kinds.tolist(), np.random.default_rng(0))
    assert len(set(labels.tolist())) == 16


def test_the_null_gap_has_a_floor():
    assert null_gap(np.zeros(10)) == LEAST
    assert null_gap(np.zeros(0)) == LEAST
    assert null_gap(np.arange(101.0)) == pytest.approx(95)


def test_alike_partitions_by_hand():
    """Six things, two pairs of them together in both partitions."""
    a, b = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
    pairs, chance, top = 2, 6 * 3 / 15, (6 + 3) / 2
    assert adjusted_rand(a, b) == pytest.approx((pairs - chance) / (top - chance))
    assert adjusted_rand(a, 1 - a) == 1.0
    assert adjusted_rand(a, np.zeros(6, int)) == 0.0


def test_silhouette_by_hand():
    """Two pairs on a line: own distance 1, the others' 10 and 11, or 9 and 10."""
    points, label = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([0, 0, 1, 1])
    outer, inner = (10 + 11) / 2, (9 + 10) / 2
    expected = ((outer - 1) / outer + (inner - 1) / inner) / 2
    assert silhouette(points, label) == pytest.approx(expected)
    assert silhouette(points, np.zeros(4, int)) == 0.0
