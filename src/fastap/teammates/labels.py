"""Labels for a zoo: Algorithm 1 once, in one recorded order, for everybody to read."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fastap.teammates.clustering import RESTAURANTS, Clusterer, Settings
from fastap.teammates.crossplay import summarise
from fastap.teammates.crp import Restaurant, adjusted_rand, silhouette
from fastap.teammates.trajectories import Trajectories, collect
from fastap.teammates.zoo import Zoo

ALPHA = {"lbf": 0.5, "pp": 2.5, "cn": 2.5, "10m_vs_14m": 0.5}  # the paper's
Bodies = Literal["own", "all"]


@dataclasses.dataclass(frozen=True)
class Watching:
    """How groups are watched before they are clustered."""

    trajectories: int = 64  # of each group
    bodies: Bodies = "own"  # who is there: the group's own number of mates, or all
    key: int = 0


@dataclasses.dataclass(frozen=True)
class Labelled:
    """What came of one order of groups."""

    order: Int[np.ndarray, " K"]
    clusterer: Clusterer

    def labels(self, restaurant: Restaurant) -> Int[np.ndarray, " K"]:
        """Say which cluster each group is in, in the order of the pool."""
        back = np.argsort(self.order)
        return self.clusterer.labels(restaurant)[back]


def watch(
    zoo: Zoo, watching: Watching
) -> tuple[list[Trajectories], Trajectories | None]:
    """Watch every group play with itself, and pairs of one type side by side.

    The pairs are from the validation pool, which is not clustered itself, and
    both of a pair have the same number of bodies: they differ in their seed alone.
    """
    count, pool = watching.trajectories, zoo.members("validation").tolist()

    @jax.jit
    def look(group, size, turn):
        key = jax.random.fold_in(jax.random.key(watching.key), turn)
        keys = jax.random.split(key, count)
        return collect(zoo.env, zoo.policy, group, size, keys)

    def see(group: int, size: int, turn: int) -> Trajectories:
        return look(jnp.array(group), jnp.array(size), jnp.array(turn))

    own = zoo.sizes if watching.bodies == "own" else zoo.sizes * 0 + zoo.env.spec.mates
    seen = [see(k, int(own[k]), k) for k in range(len(zoo.groups))]
    stack = lambda *xs: jnp.stack(xs)
    pairs = [
        jax.tree.map(stack, see(a, int(size), 1000 + a), see(b, int(size), 2000 + b))
        for i, a in enumerate(pool)
        for b in pool[i + 1 :]
        if same(zoo, a, b)
        for size in np.unique(own[[a, b]])
    ]
    return seen, jax.tree.map(stack, *pairs) if pairs else None


def same(zoo: Zoo, a: int, b: int) -> bool:
    """Say whether two groups are of one planted type."""
    return zoo.groups[a]["type"] == zoo.groups[b]["type"]


def recorded_order(zoo: Zoo, seed: int) -> Int[np.ndarray, " K"]:
    """Shuffle the training pool, the larger groups first."""
    pool = zoo.members("train")
    mixed = np.random.default_rng(seed).permutation(len(pool))
    return mixed[np.argsort(-zoo.sizes[pool][mixed], kind="stable")]


def label(
    zoo: Zoo,
    watched: tuple[list[Trajectories], Trajectories | None],
    settings: Settings,
    orders: int = 1,
    tell: Callable[[int], None] = lambda count: None,
) -> list[Labelled]:
    """Run Algorithm 1 over the training pool, in some orders one after another."""
    pool, (seen, pairs) = zoo.members("train"), watched
    empty = Clusterer(zoo.env, seen[0], len(pool), settings)
    results = []
    for seed in range(orders):
        order, clusterer = recorded_order(zoo, seed), empty.afresh(seed)
        for count, place in enumerate(order):
            clusterer.add(seen[pool[place]], pairs)
            tell(seed * len(pool) + count + 1)
        results.append(Labelled(order, clusterer))
    return results


def report(zoo: Zoo, labelled: Labelled) -> dict[str, Any]:
    """Write down what an order gave: for each rule, and in detail for the default."""
    pool = zoo.members("train")
    types = zoo.types[pool]
    contexts = np.unique(
        np.stack([types, zoo.sizes[pool]]), axis=1, return_inverse=True
    )
    clusterings = {}
    for restaurant in RESTAURANTS:
        labels = labelled.labels(restaurant)
        clusterings[f"{restaurant.rule} {restaurant.alpha}"] = {
            "labels": labels.tolist(),
            "clusters": len(np.unique(labels)),
            "ari": round(adjusted_rand(types, labels), 4),
            "ari_with_size": round(adjusted_rand(contexts[1].ravel(), labels), 4),
        }
    chosen = Restaurant(ALPHA[zoo.env.spec.name], "calibrated")
    labels = labelled.labels(chosen)
    facts = clusterings[f"{chosen.rule} {chosen.alpha}"]
    codes = in_pool_order(labelled)
    group = np.repeat(np.arange(len(pool)), codes.shape[1])
    flat = codes.reshape(-1, codes.shape[-1])
    found: dict[str, Any] = {
        "labels": labels.tolist(),
        "clusterings": clusterings,
        "ari": facts["ari"],
        "clusters": facts["clusters"],
        "silhouette": round(silhouette(flat, labels[group]), 4),
        "order": [zoo.groups[pool[place]]["name"] for place in labelled.order],
        **worth(labelled.clusterer),
    }
    if "matrix" in zoo.manifest:
        matrix = np.array(zoo.manifest["matrix"])[np.ix_(pool, pool)]
        facts = summarise(matrix, labels)
        found["crossplay_within_clusters"] = round(facts.within, 4)
        found["crossplay_between_clusters"] = round(facts.between, 4)
    return found


def in_pool_order(labelled: Labelled) -> Float[np.ndarray, "K E D"]:
    """Return the codes of all trajectories, groups in the order of the pool."""
    return labelled.clusterer.codes()[np.argsort(labelled.order)]


def worth(clusterer: Clusterer) -> dict[str, float]:
    """Say how well groups are described, and what is lost with the mean of all codes.

    Both in nats per trajectory; evidence is negative, and 0 if all can be foretold.
    """
    codes = clusterer.codes()
    grand = np.broadcast_to(codes.mean((0, 1)), codes.shape[1:])
    found = []
    for k in range(clusterer.count):
        mine = np.broadcast_to(codes[k].mean(0), codes.shape[1:])
        found.append(clusterer.evidence(k, np.stack([mine, grand])))
    own, other = np.mean(found, axis=0)
    return {
        "evidence": round(float(own), 4),
        "worth_of_the_code": round(float(own - other), 4),
    }
