"""Every row of the table: what it believes, what moves it, and what does not."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fastap.envs.foraging import Foraging
from fastap.methods import replay
from fastap.methods.actor import act_by
from fastap.methods.learner import Dials, Given, begin, loss, norms, update
from fastap.methods.model import Learning, observe, watch
from fastap.methods.table import FASTAP, METHODS, ODITS, PAPER, find
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import parse
from fastap.problem.spec import Mistake
from fastap.teammates.scripted import Planner

ENV = Foraging(horizon=6)
TINY = Learning(hidden=8, embed=4, local=3, team=2)
KEY = jax.random.key(0)
GROUPS = jnp.array([0, 1, 2, 3])
CLUSTERS = jnp.array([0, 0, 1, 1])
LEARNT = [name for name in METHODS if name != "oracle"]
PARTS = ("agents", "mixer", "local", "team", "losses")


def learning(name):
    return dataclasses.replace(TINY, method=METHODS[name], labels=4)


def learner(name, key=KEY):
    known = jnp.eye(4)[:, :2] if METHODS[name].told else None
    return begin(ENV, 2, learning(name), key, known)


def dials(name, scale=1.0):
    method = METHODS[name]
    labels = {"none": 0 * GROUPS, "group": GROUPS, "cluster": CLUSTERS}
    weights = scale * jnp.ones(len(method.losses))
    mine = labels[method.labels]
    return Dials(jnp.float32(1e-3), weights, mine, mine)


@functools.cache
def batch():
    """Episodes beside planners whose group, and number, keeps changing."""
    players = Players(act_by(ENV, learner("qmix").model), Planner(env=ENV))

    def one(key):
        k_team, k_play = jax.random.split(key)
        team = parse("U[2,3]").draw(
            jnp.array([1, 2, 2, 1]), jnp.ones(4, bool), ENV.horizon, k_team
        )
        return replay.keep(play(ENV, players, team, k_play), 2)

    return jax.jit(jax.vmap(one))(jax.random.split(KEY, 8))


@functools.cache
def gradient(name, weights=None):
    """The gradient of a method on the batch; some weights may be other than 1."""
    start, how = learner(name), dials(name)
    if weights is not None:
        how = dataclasses.replace(how, weights=jnp.array(weights))
    given = Given(batch(), batch().reward, how, start.memories, KEY)
    slope = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))
    other = learner(name, jax.random.key(1)).model
    return slope(start.model, other, ENV, learning(name), given)[0]


def size(tree):
    return max((float(jnp.abs(x).max()) for x in jax.tree.leaves(tree)), default=0.0)


def gap(a, b):
    return size(jax.tree.map(lambda x, y: x - y, a, b))


KINDS = {(m.local, m.told): m.name for m in METHODS.values()}  # rows share beliefs


@pytest.mark.parametrize("name", KINDS.values())
def test_learning_sees_what_acting_saw(name):
    """Across changes of teammates too: the memory of agents is never cut."""
    start = learner(name)
    model = jax.tree.map(lambda x: 3 * x, start.model)
    if METHODS[name].told:
        model = dataclasses.replace(model, known=start.model.known)
    players = Players(act_by(ENV, model), Planner(env=ENV))

    @jax.jit
    def one(key):
        k_team, k_play = jax.random.split(key)
        sizes = jnp.array([1, 2, 2, 1])
        team = parse("U[2,3]").draw(sizes, jnp.ones(4, bool), ENV.horizon, k_team)
        return replay.keep(play(ENV, players, team, k_play), 2)

    lived = jax.vmap(one)(jax.random.split(KEY, 8))
    seen = observe(ENV, model.known, lived)
    belief, _ = model.local.watch(model.local, seen)
    inputs = jnp.concatenate([seen, belief.mean], axis=-1)
    values, _ = watch(model.agents, model.agents, inputs, inputs)
    values = jnp.where(lived.available, values, -jnp.inf)[:, :-1]
    assert np.array_equal(jnp.argmax(values, axis=-1), lived.action)
    assert len(np.unique(np.asarray(lived.action))) > 1


ROUTES = {  # which parts each of Fastap's losses moves
    "gce": {"team"},
    "lce": {"local"},
    "mi": {"local", "losses"},
    "rec": {"local", "losses"},
}


@pytest.mark.parametrize("term", ROUTES)
def test_gradients_go_where_they_should(term):
    names = [t.name for t in FASTAP.losses]
    none = gradient("fastap", (0.0,) * 4)
    some = gradient("fastap", tuple(float(n == term) for n in names))
    moved = {part for part in PARTS if gap(getattr(none, part), getattr(some, part))}
    assert moved == ROUTES[term]


def test_the_td_error_reaches_values_mixer_and_both_beliefs():
    plain = gradient("fastap", (0.0,) * 4)
    for part in ("agents", "mixer", "local", "team"):
        assert size(getattr(plain, part)) > 0
    assert size(plain.losses) == 0


@pytest.mark.parametrize("name", ["liam", "escp"])
def test_detached_beliefs_get_no_td_gradient(name):
    assert size(gradient(name, (0.0,)).local) == 0
    assert size(gradient(name, (1.0,)).local) > 0


@pytest.mark.parametrize("name", ["pearl", "odits"])
def test_other_beliefs_do(name):
    assert size(gradient(name, (0.0,)).local) > 0


def flat(name):
    """The gradient of what every method has, as one vector."""
    parts = gradient(name).agents, gradient(name).mixer, gradient(name).local
    leaves = jax.tree.leaves((*parts, gradient(name).team))
    return np.concatenate([np.asarray(x).ravel() for x in leaves])


def test_no_two_rows_are_the_same():
    """On one batch; `fastap-even` differs in which batches it draws."""
    rows = [name for name in LEARNT if not METHODS[name].even]
    vectors = {name: flat(name) for name in rows}
    for i, a in enumerate(rows):
        for b in rows[i + 1 :]:
            x, y = vectors[a], vectors[b]
            assert len(x) != len(y) or not np.allclose(x, y, atol=1e-7), (a, b)


def test_an_ablation_is_fastap_without_one_weight():
    names = [t.name for t in FASTAP.losses]
    for term in names:
        ablated = gradient(f"fastap-wo-{term}")
        weights = tuple(float(n != term) for n in names)
        whole = gradient("fastap", weights)
        assert gap(ablated.team, whole.team) < 1e-5
        assert gap(ablated.agents, whole.agents) < 1e-5
    assert METHODS["fastap-wo-crp"].labels == "group"
    assert METHODS["fastap-wo-crp"].losses == FASTAP.losses


def test_odits_is_fastap_with_one_loss_and_one_label():
    alone = dataclasses.replace(FASTAP, losses=ODITS.losses, labels="none")
    assert dataclasses.replace(alone, name="odits") == ODITS


def test_weights_are_the_papers_and_means_are_divided():
    lbf = PAPER["lbf"]
    assert lbf.of(find("fastap"), 2) == (1.0, 1.0, 1e-3, 0.1)
    assert lbf.of(find("odits"), 2) == (5e-4,)
    assert lbf.of(find("liam"), 2) == (0.5,)
    assert lbf.of(find("pearl"), 2) == (0.1,)
    assert PAPER["10m_vs_14m"].of(find("escp"), 7) == (10.0,)
    with pytest.raises(Mistake, match="'fastapp' is no method"):
        find("fastapp")


@pytest.mark.parametrize("name", ["fastap", "pearl", "escp", "escp-gated", "liam"])
def test_updates_bring_every_loss_down(name):
    how = dataclasses.replace(learning(name), standardise=False, target_every=10**6)
    start, method, lived = learner(name), METHODS[name], batch()

    @jax.jit
    def train(now, dials):
        step = lambda now, key: update(ENV, how, now, lived, dials, key)
        return jax.lax.scan(step, now, jax.random.split(KEY, 120))

    for i, term in enumerate(method.losses):
        alone = 3.0 * jnp.eye(len(method.losses))[i]
        after, notes = train(start, dataclasses.replace(dials(name), weights=alone))
        values = np.asarray(notes[term.name])
        assert values[-10:].mean() < values[:10].mean()
        assert np.isfinite(size(after.model))


def test_a_steep_part_does_not_slow_the_others():
    """Each part is clipped by itself: a context loss a thousand times as heavy
    leaves the first step of the values as it is, up to what beliefs add."""
    how = learning("fastap-wo-gce")
    start, lived = learner("fastap-wo-gce"), batch()
    step = jax.jit(lambda d: update(ENV, how, start, lived, d, KEY))
    light, _ = step(dials("fastap-wo-gce", 0.0))
    heavy, notes = step(dials("fastap-wo-gce", 1e4))
    assert float(notes["gradient local"]) > 100
    assert gap(light.model.agents, heavy.model.agents) < 1e-6


def test_batches_hold_as_many_of_every_label():
    one = jax.tree.map(lambda x: x[0], batch())
    memory = replay.empty(one, 12)
    group = jnp.array([0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 3, 3])
    column = jnp.broadcast_to(group[:, None], memory.group.shape)
    memory = dataclasses.replace(memory, group=column.astype(memory.group.dtype))
    draw = lambda labels, written: np.asarray(
        replay.sample(
            memory, replay.shelve(memory, jnp.array(written), labels), 400, KEY
        ).group[:, 0]
    )
    by_group = np.bincount(draw(GROUPS, 12), minlength=4)
    assert by_group.tolist() == [100, 100, 100, 100]
    by_cluster = np.bincount(draw(CLUSTERS, 12), minlength=4)
    assert by_cluster[:2].sum() == 200 and by_cluster[2:].sum() == 200
    early = np.bincount(draw(GROUPS, 8), minlength=4)
    assert early.tolist() == [200, 200, 0, 0]  # nothing of 2 and 3 is written yet
    uniform = np.bincount(draw(0 * GROUPS, 12), minlength=4) / 400
    assert np.allclose(uniform, [7 / 12, 1 / 12, 2 / 12, 2 / 12], atol=0.08)


def test_one_label_alone_can_be_drawn():
    lived = batch()
    memory = jax.tree.map(lambda x: jnp.concatenate([x, x]), lived)
    shelves = replay.shelve(memory, jnp.array(16), GROUPS)
    first = np.asarray(lived.group[:, 0])
    for label in np.unique(first):
        drawn = replay.sample(memory, shelves, 20, KEY, jnp.array(label))
        assert np.all(np.asarray(drawn.group[:, 0]) == label)


@pytest.mark.parametrize(
    ("moves", "moved"),
    [("values", {"agents", "mixer"}), ("beliefs", {"local", "team", "losses"})],
)
def test_a_step_may_move_values_or_beliefs_alone(moves, moved):
    """What Algorithm 2 asks for, taken literally."""
    how, start = dataclasses.replace(learning("fastap"), moves=moves), learner("fastap")
    step = jax.jit(lambda: update(ENV, how, start, batch(), dials("fastap"), KEY)[0])
    after = step()
    for part in PARTS:
        still = gap(getattr(after.model, part), getattr(start.model, part)) == 0
        assert still == (part not in moved), part
        mean = after.optimiser.mu
        assert (size(getattr(mean, part)) == 0) == (part not in moved), part
    assert int(after.updates) == 1


def test_fastap_works_on_vdn_whose_mixer_sees_no_context():
    how = dataclasses.replace(learning("fastap"), mixer="vdn")
    start = begin(ENV, 2, how, KEY)
    given = Given(batch(), batch().reward, dials("fastap"), start.memories, KEY)
    sizes = jax.jit(lambda: norms(ENV, how, start, given))()
    assert (
        float(sizes["gradient team of td"]) == 0 < float(sizes["gradient team of gce"])
    )
    assert float(sizes["gradient local of td"]) > 0


def test_norms_by_term_are_those_of_each_term_alone():
    how, start = learning("fastap"), learner("fastap")
    numbers = dials("fastap", 2.0)
    given = Given(batch(), batch().reward, numbers, start.memories, KEY)
    sizes = jax.jit(lambda: norms(ENV, how, start, given))()

    def rec(model):
        _, (_, notes) = loss(model, start.target, ENV, how, given)
        return 2.0 * notes["rec"]

    slope = eqx.filter_jit(eqx.filter_grad(rec))(start.model)
    alone = optax.tree.norm((slope.local, slope.losses))
    assert float(sizes["gradient local of rec"]) == pytest.approx(
        float(alone), rel=1e-4
    )
    assert float(sizes["gradient values of rec"]) == 0
