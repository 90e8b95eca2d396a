"""Beliefs and losses, by hand and by law."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastap.methods.beliefs import Gaussian, Product, Recurrent
from fastap.methods.losses import (
    Context,
    Distil,
    Reconstruct,
    Sizes,
    gated,
    log_det,
    mi_bound,
    separation,
)

KEY = jax.random.key(0)


def normal(mean, log_var=0.0):
    return Gaussian(jnp.array([mean]), jnp.array([log_var]))


def test_kl_by_hand():
    assert float(normal(1.0).kl(normal(0.0))[0]) == pytest.approx(0.5)
    assert float(normal(0.3, -1.0).kl(normal(0.3, -1.0))[0]) == pytest.approx(0)
    wide = normal(0.0, np.log(4.0)).kl(normal(0.0))
    assert float(wide[0]) == pytest.approx(0.5 * (4 - 1 - np.log(4)))


def test_kl_is_what_many_draws_say():
    wide = lambda mean, log_var: Gaussian(
        jnp.full((200_000, 1), mean), jnp.full((200_000, 1), log_var)
    )
    p, q = wide(0.5, -0.7), wide(-0.2, 0.3)
    drawn = p.sample(KEY)
    log = lambda g: (
        -0.5 * (jnp.square(drawn - g.mean) * jnp.exp(-g.log_var) + g.log_var)
    )
    estimate = float((log(p) - log(q)).mean())
    assert estimate == pytest.approx(float(p.kl(q)[0, 0]), abs=0.01)


@pytest.mark.parametrize(
    ("count", "worth"), [(2, 6.214), (4, 19.337), (8, 46.275), (16, 100.844)]
)
def test_centres_in_one_place_cost_what_the_jitter_says(count, worth):
    seen = jnp.ones(count, bool)
    assert -float(log_det(jnp.zeros((count, 3)), seen)) == pytest.approx(
        worth, abs=0.02
    )


def test_two_centres_by_hand():
    for gap in (0.05, 0.1, 0.2):
        rho = np.exp(-80 * gap**2)
        centres = jnp.array([[0.0, 0.0], [gap, 0.0]])
        ours = float(log_det(centres, jnp.ones(2, bool)))
        assert ours == pytest.approx(np.log(1.001**2 - rho**2), abs=1e-4)


def test_far_centres_and_slots_never_seen_add_next_to_nothing():
    far = jnp.arange(4)[:, None] * jnp.ones((1, 2))
    seen = jnp.array([True, True, True, True])
    assert float(log_det(far, seen)) == pytest.approx(4 * np.log(1.001), abs=1e-5)
    padded = jnp.concatenate([far, jnp.zeros((3, 2))])
    more = jnp.concatenate([seen, jnp.zeros(3, bool)])
    assert float(log_det(padded, more)) == pytest.approx(4 * np.log(1.001), abs=1e-5)
    slope = jax.grad(lambda x: log_det(x, more))(padded)
    assert np.all(np.asarray(slope)[4:] == 0)
    alone = jax.grad(lambda x: log_det(x, jnp.array([True])))(jnp.zeros((1, 2)))
    assert np.all(np.asarray(alone) == 0)


@given(seed=st.integers(0, 1000), order=st.permutations(range(6)))
def test_the_kernel_is_positive_and_order_does_not_matter(seed, order):
    draw = np.random.default_rng(seed).normal(0, 0.1, (6, 2)).astype(np.float32)
    draw[1] = draw[0]
    seen = jnp.ones(6, bool)
    first = float(log_det(jnp.asarray(draw), seen))
    again = float(log_det(jnp.asarray(draw[list(order)]), seen))
    assert np.isfinite(first) and first == pytest.approx(again, abs=2e-3)


def labelled(labels, kinds=3):
    return jax.nn.one_hot(jnp.asarray(labels), kinds)


def test_the_spread_is_nought_only_for_equal_contexts():
    member = labelled([[0, 0, 1, 1]])
    same = jnp.array([[[0.0], [0.0], [1.0], [1.0]]])
    old, seen = jnp.zeros((3, 1)), jnp.zeros(3, bool)
    value, centre = separation(same, member, old, seen)
    assert float(value) == pytest.approx(-2 * np.log(1.001), abs=1e-5)
    assert np.allclose(centre[:, 0], [0, 1, 0])
    apart, _ = separation(same.at[0, 0].set(0.2), member, old, seen)
    # within label 0 the mean is 0.1 and the mean square 0.01
    assert float(apart - value) == pytest.approx(0.01, abs=1e-4)


def test_the_old_average_weighs_a_hundredth_and_stops_its_gradient():
    member, belief = labelled([[0, 0]]), jnp.array([[[0.4], [0.6]]])
    old, seen = jnp.array([[-0.5], [0.1], [9.0]]), jnp.array([True, True, False])
    _, centre = separation(belief, member, old, seen)
    assert np.allclose(centre[:, 0], [0.01 * -0.5 + 0.99 * 0.5, 0.1, 9.0])
    through = jax.grad(lambda b: separation(b, member, old, seen)[1][0, 0])(belief)
    assert np.allclose(through, 0.99 / 2)
    stored = jax.grad(lambda o: separation(belief, member, o, seen)[0])(old)
    assert np.all(np.asarray(stored) == 0)  # centres that are absent do not move


def test_absent_labels_repel():
    member, belief = labelled([[0, 0]]), jnp.array([[[0.0], [0.0]]])
    seen = jnp.array([True, True, False])
    push = lambda where: jax.grad(
        lambda b: separation(b, member, jnp.array([[0.0], [where], [0.0]]), seen)[0]
    )(belief)
    assert float(push(0.1)[0, 0, 0]) > 0  # descending moves away, to the left
    assert float(push(-0.1)[0, 0, 0]) < 0
    assert np.allclose(push(5.0), 0, atol=1e-6)


def test_escp_asks_for_agreement_first_and_for_difference_then():
    member = labelled([[0, 0, 1, 1]])
    old, unseen = jnp.zeros((3, 1)), jnp.zeros(3, bool)
    at = lambda gap: jnp.array([[[0.0], [gap], [1.0], [1.0 + gap]]])
    value = lambda beliefs: gated(beliefs, member, old, unseen)[0]
    # half a gap from the centres: the root mean square, times 50
    apart = -2 * np.log(1.001)
    assert float(value(at(0.02))) == pytest.approx(0.5 + 0.025 * apart, abs=1e-4)
    assert float(value(at(0.4))) == pytest.approx(10.0, abs=1e-4)
    pull = jax.grad(value)
    assert float(pull(at(0.02))[0, 1, 0]) == pytest.approx(50 * 0.01 / 0.01 / 4)
    assert np.allclose(pull(at(0.0)), 0, atol=1e-6)  # far apart, and agreed
    near = jnp.array([[[0.0], [0.0], [0.1], [0.1]]])
    assert float(pull(near)[0, 0, 0]) > 0 > float(pull(near)[0, 2, 0])
    seen = jnp.array([True, True, False])
    _, centre = gated(at(0.0), member, old - 0.5, seen)
    assert np.allclose(centre[:, 0], [0.995 * -0.5, 0.995 * -0.5 + 0.005, -0.5])


def test_what_is_not_valid_does_not_count():
    belief = jnp.array([[[0.0], [1.0]], [[0.2], [7.0]]])
    member = labelled([[0, 1], [0, 1]], 2)
    cut = member * jnp.array([[1.0, 1.0], [1.0, 0.0]])[..., None]
    old, seen = jnp.zeros((2, 1)), jnp.zeros(2, bool)
    value = separation(belief, cut, old, seen)[0]
    other = separation(belief.at[1, 1].set(-3.0), cut, old, seen)[0]
    assert float(value) == float(other)


@pytest.mark.parametrize(("rho", "truth"), [(0.5, 0.1438), (0.9, 0.8304)])
def test_the_bound_of_mutual_information(rho, truth):
    """e = rho z + sqrt(1 - rho^2) noise: exact with the right q, never above."""
    k_z, k_noise = jax.random.split(KEY)
    z = jax.random.normal(k_z, (200_000, 1))
    noise = jax.random.normal(k_noise, z.shape)
    e = rho * z + np.sqrt(1 - rho**2) * noise
    entropy = jnp.float32(0.5 * np.log(2 * np.pi * np.e))
    flat = jnp.zeros_like(z)
    bound = lambda mean, log_var: float(
        mi_bound(e, Gaussian(mean, flat + log_var), entropy)
    )
    assert bound(rho * z, np.log(1 - rho**2)) == pytest.approx(truth, abs=0.01)
    assert bound(flat, 0.0) == pytest.approx(0, abs=0.01)
    assert bound(0.5 * rho * z, 0.0) <= truth
    if rho == 0.9:
        assert bound(0.5 * rho * z, 0.0) == pytest.approx(0.30, abs=0.01)


SIZES = Sizes(
    agents=2,
    inputs=5,
    local=3,
    team=2,
    hidden=4,
    mates=2,
    seen=4,
    actions=3,
    labels=2,
)


@functools.cache
def context():
    keys = iter(jax.random.split(KEY, 8))
    draw = lambda *shape: jax.random.normal(next(keys), shape)
    local = Gaussian(draw(4, 2, 6, 3), jnp.full((4, 2, 6, 3), -1.0))
    return Context(
        local=local,
        e=local.mean,
        z=draw(4, 6, 2),
        inputs=draw(4, 2, 6, 5),
        label=jnp.broadcast_to(jnp.array([0, 0, 0, 0, 1, 1])[None], (4, 6)),
        valid=jnp.ones((4, 6), bool).at[3, 0].set(False),
        mate_seen=draw(4, 2, 6, 4),
        mate_action=jnp.ones((4, 2, 6), int),
        mate_present=jnp.ones((4, 2, 6), bool).at[:, 1, :3].set(False),
    )


def changed(**fields):
    old = context()
    return Context(**({f: getattr(old, f) for f in old.__dataclass_fields__} | fields))


def test_every_label_counts_alike():
    weight = context().fair(2, jnp.ones((4, 6), int))
    assert float(weight[:, :4].sum()) == pytest.approx(0.5)
    assert float(weight[:, 4:].sum()) == pytest.approx(0.5)
    assert float(weight[3, 0]) == 0


def test_nothing_is_learnt_from_mates_that_are_not_there():
    term = Reconstruct(SIZES, KEY)
    there = context()
    wild = there.mate_seen.at[:, 1, :3].set(99.0)
    other = there.mate_action.at[:, 1, :3].set(2)
    a = term(None, there)[0]
    b = term(None, changed(mate_seen=wild, mate_action=other))[0]
    assert float(a) == float(b)
    seen = term(None, changed(mate_seen=there.mate_seen.at[:, 0].set(9.0)))[0]
    assert float(seen) > float(a)


def test_distilling_leaves_the_team_alone_and_pulls_the_agents():
    term = Distil(SIZES, KEY)
    value = lambda z, e: term(None, changed(z=z, local=Gaussian(e, 0 * e)))[0]
    to_team, to_agents = jax.grad(value, (0, 1))(context().z, context().local.mean)
    assert np.all(np.asarray(to_team) == 0)
    step = context().local.mean - 0.1 * to_agents
    assert value(context().z, step) < value(context().z, context().local.mean)
    assert float(value(context().z, context().local.mean)) >= 0


def test_the_product_of_equal_factors():
    """n equal factors of variance s and the prior: precision 1 + n / s."""
    belief = Product(3, 4, 2, KEY)
    same = jnp.broadcast_to(jnp.array([1.0, 2.0, 3.0]), (6, 3))
    precision, pull = belief.factor(same[0], same[0])
    memory, believed = belief.start(), []
    for x in same:
        memory, now = belief(memory, x)
        believed.append(now)
    assert np.allclose(believed[0].mean, 0) and np.allclose(believed[0].log_var, 0)
    for n, now in enumerate(believed):
        assert np.allclose(jnp.exp(-now.log_var), 1 + n * precision, rtol=1e-5)
        assert np.allclose(now.mean, n * pull / (1 + n * precision), rtol=1e-5)


@pytest.mark.parametrize("kind", [Product, Recurrent])
def test_whole_episodes_are_step_by_step_and_causal(kind):
    stack = jax.vmap(lambda k: kind(3, 4, 2, k))(jax.random.split(KEY, 2))
    xs = jax.random.normal(KEY, (5, 2, 3, 3))
    whole, _ = stack.watch(stack, xs)
    one = jax.tree.map(lambda x: x[1], stack)
    memory = one.start()
    for t in range(5):
        memory, now = one(memory, xs[t, 1, 2])
        assert np.allclose(now.mean, whole.mean[t, 1, 2], atol=1e-5)
        assert np.allclose(now.log_var, whole.log_var[t, 1, 2], atol=1e-5)
    later, _ = stack.watch(stack, xs.at[3:].set(7.0))
    assert np.allclose(later.mean[:3], whole.mean[:3], atol=1e-6)
    assert not np.allclose(later.mean[3:], whole.mean[3:], atol=1e-3)


def test_beliefs_without_doubt_always_say_the_same():
    sure = Recurrent(3, 4, 2, KEY, certainty="none")
    _, belief = sure(sure.start(), jnp.ones(3))
    assert np.array_equal(belief.sample(KEY), belief.mean)
    small = Recurrent(3, 4, 2, KEY, certainty="squashed")
    _, belief = small(small.start(), jnp.full(3, 1e6))
    assert np.all(np.abs(belief.mean) <= 1)
    assert np.allclose(jnp.exp(0.5 * belief.log_var), 0.01)
