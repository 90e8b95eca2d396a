import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastap.problem.schedule import After, At, Change, Never, parse
from fastap.problem.spec import Mistake

HORIZON, EPISODES = 25, 100_000
SIZES = jnp.array([1, 2, 1, 2])
ALL = jnp.ones(4, bool)

# The number of swaps at steps 1..24 and its probability, from the paper's process.
SWAPS = {
    "U[5,8]": {3: 0.7422, 4: 0.2578},
    "U[6,7]": {3: 0.9375, 4: 0.0625},
    "U[2,9]": {
        2: 0.0195,
        3: 0.2795,
        4: 0.4166,
        5: 0.2184,
        6: 0.0569,
        7: 0.0084,
        8: 0.0007,
    },
    "U[3,6]": {4: 0.2168, 5: 0.5986, 6: 0.1772, 7: 0.0073},
    "U[3,3]": {8: 1.0},
}


def draw(text, count, seed=0, sizes=SIZES, allowed=ALL, horizon=HORIZON):
    change = parse(text)
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.jit(jax.vmap(lambda k: change.draw(sizes, allowed, horizon, k)))(keys)


def exact_swaps(low, high):
    """Work out P(number of swaps) and P(swap at t) by enumerating waits."""
    at, count = np.zeros(HORIZON), {}

    def walk(t, swaps, weight):
        for wait in range(low, high + 1):
            if t + wait < HORIZON:
                at[t + wait] += weight / (high - low + 1)
                walk(t + wait, swaps + 1, weight / (high - low + 1))
            else:
                share = weight / (high - low + 1)
                count[swaps] = count.get(swaps, 0.0) + share

    walk(0, 0, 1.0)
    return count, at


def within_three_errors(seen, exact):
    error = 3 * np.sqrt(exact * (1 - exact) / EPISODES)
    return abs(seen - exact) <= error + 1e-12


@pytest.mark.parametrize("text", SWAPS)
def test_swaps_come_as_often_as_the_process_says(text):
    change = parse(text).when
    swap = np.asarray(draw(text, EPISODES).swap)
    count, at = exact_swaps(change.low, change.high)
    for swaps, printed in SWAPS[text].items():
        assert count[swaps] == pytest.approx(printed, abs=6e-5)
    number = swap.sum(1)
    for swaps, exact in count.items():
        assert within_three_errors((number == swaps).mean(), exact), swaps
    # Of 25 steps one may lie outside three errors by chance: bound them jointly.
    scale = np.sqrt(np.maximum(at * (1 - at), 1e-12) / EPISODES)
    distance = np.abs(swap.mean(0) - at) / scale
    assert np.all(distance[at == 0] == 0)
    assert distance.max() < 4 and (distance <= 3).mean() >= 0.95


def test_every_group_is_drawn_as_often_and_again_as_often():
    schedule = draw("U[3,3]", 40_000)
    group = np.asarray(schedule.group)
    first, second = group[:, 0], group[:, 3]
    for g in range(4):
        assert (first == g).mean() == pytest.approx(0.25, abs=0.01)
    assert (first == second).mean() == pytest.approx(1 / 4, abs=0.01)


def test_a_group_lasts_until_the_next_swap():
    schedule = draw("U[2,9]", 500)
    group, swap = np.asarray(schedule.group), np.asarray(schedule.swap)
    changed = group[:, 1:] != group[:, :-1]
    assert not np.any(changed & ~swap[:, 1:])
    assert not swap[:, 0].any()


def test_the_size_is_the_groups():
    schedule = draw("U[5,8]", 200)
    assert np.array_equal(schedule.size, np.asarray(SIZES)[np.asarray(schedule.group)])


def test_stationary_never_swaps_and_keeps_one_group():
    schedule = draw("stationary", 100)
    assert not np.asarray(schedule.swap).any()
    assert np.ptp(np.asarray(schedule.group), axis=1).max() == 0


def test_waits_longer_than_the_episode_never_swap():
    assert not np.asarray(draw("U[30,40]", 100).swap).any()


def test_same_swaps_a_group_for_itself():
    schedule = draw("U[5,8]-same", 200)
    assert np.asarray(schedule.swap).sum() > 0
    assert np.ptp(np.asarray(schedule.group), axis=1).max() == 0
    assert np.ptp(np.asarray(schedule.size), axis=1).max() == 0


def test_size_changes_the_number_of_one_policy():
    schedule = draw("U[5,8]-size", 200)
    size, swap = np.asarray(schedule.size), np.asarray(schedule.swap)
    assert np.ptp(np.asarray(schedule.group), axis=1).max() == 0
    assert np.ptp(size, axis=1).max() == 1
    assert not np.any((size[:, 1:] != size[:, :-1]) & ~swap[:, 1:])


def test_controls_swap_when_the_change_does_and_begin_alike():
    whole = draw("U[5,8]", 200)
    for control in ("U[5,8]-same", "U[5,8]-size", "stationary", "at[12]"):
        other = draw(control, 200)
        assert np.array_equal(whole.group[:, 0], other.group[:, 0])
        if control.startswith("U"):
            assert np.array_equal(whole.swap, other.swap)


def test_fixed_times_are_kept():
    swap = np.asarray(draw("at[8,16]", 10).swap)
    assert np.array_equal(np.flatnonzero(swap[0]), [8, 16])
    assert (swap == swap[:1]).all()


def test_only_allowed_groups_are_drawn():
    allowed = jnp.array([False, True, False, True])
    group = np.asarray(draw("U[2,3]", 500, allowed=allowed).group)
    assert set(np.unique(group)) == {1, 3}


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("stationary", Change()),
        ("U[5,8]", Change(After(5, 8))),
        (" U[5, 8] ", Change(After(5, 8))),
        ("U[3,3]-same", Change(After(3, 3), "same")),
        ("U[2,9]-size", Change(After(2, 9), "size")),
        ("at[12]", Change(At((12,)))),
        ("at[8,16]-same", Change(At((8, 16)), "same")),
    ],
)
def test_the_papers_notation_is_read(text, change):
    assert parse(text) == change
    assert isinstance(Change().when, Never)


@pytest.mark.parametrize(
    "text",
    [
        *("U[8,5]", "U[0,3]", "U[-1,3]", "U[5]", "U[5,8,9]", "U[]", "U[5,8]-sam"),
        *("u[5,8]", "U(5,8)", "", "always", "at[]", "at[0]", "at[8,8]", "at[9,8]"),
        *("stationary-same", "U[5,-]", "U[5,8", "U[5,99999999999]"),
    ],
)
def test_what_is_no_distribution_gets_one_sentence(text):
    with pytest.raises(Mistake) as mistake:
        parse(text)
    assert str(mistake.value).count("\n") == 0 and len(str(mistake.value)) < 200


def test_waits_beyond_the_episode_never_swap_however_long():
    assert not np.asarray(draw("U[1000000,1000000]", 20).swap).any()
    assert not np.asarray(draw("at[99999999999]", 5).swap).any()


def test_a_draw_from_no_group_is_refused():
    with pytest.raises(Mistake, match="at least one"):
        Change().draw(SIZES, jnp.zeros(4, bool), 25, jax.random.key(0))


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text):
    try:
        assert isinstance(parse(text), Change)
    except Mistake as mistake:
        assert str(mistake)


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 2**31 - 1))
def test_waits_lie_within_their_bounds(low, more, seed):
    swap = After(low, low + more).moments(60, jax.random.key(seed))
    times = np.concatenate([[0], np.flatnonzero(np.asarray(swap))])
    waits = np.diff(times)
    assert np.all((waits >= low) & (waits <= low + more))
    assert 60 - times[-1] <= low + more
