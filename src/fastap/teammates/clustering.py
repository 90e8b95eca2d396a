"""Algorithm 1: groups come one by one, are described by a code, and find a cluster."""

import copy
import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from safetensors.numpy import load_file, save_file

from fastap.problem.spec import Env
from fastap.teammates.crp import RULES, Choice, Restaurant, null_gap
from fastap.teammates.trajectories import WIDTH, Behaviour, Likelihood, Trajectories

RESTAURANTS = tuple(Restaurant(a, rule) for a in (0.5, 2.5) for rule in RULES)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the model of behaviour learns."""

    first: int = 2000  # gradient steps after the first group
    later: int = 1000  # after every other
    groups: int = 8  # in a batch
    each: int = 8  # trajectories of a group in a batch
    peer: float = 0.5  # how often a code is made of other trajectories of the group
    rate: float = 5e-4
    clip: float = 10.0
    likelihood: Likelihood = "categorical"
    hidden: int = 16  # of the decoder
    piece: int = 100  # gradient steps in one compiled call


class Progress(eqx.Module):
    """The model on its way."""

    model: Behaviour
    optimiser: optax.OptState
    key: PRNGKeyArray


class Clusterer:
    """Takes in groups as a stream; keeps every assignment and what decided it."""

    def __init__(
        self,
        env: Env,
        example: Trajectories,
        capacity: int,
        settings: Settings | None = None,
        seed: int = 0,
    ):
        self.env, self.settings = env, settings or Settings()
        blank = lambda x: jnp.zeros((capacity, *x.shape), x.dtype)
        self.seen: Trajectories = jax.tree.map(blank, example)
        self._forget(seed)
        self._train = jax.jit(self._steps)
        self._codes = jax.jit(jax.vmap(jax.vmap(self._code, (None, 0)), (None, 0)))
        self._evidence = jax.jit(self._judge)

    def _forget(self, seed: int) -> None:
        self.count = 0
        self.choices: dict[Restaurant, list[Choice]] = {r: [] for r in RESTAURANTS}
        self.progress = self._begin(jax.random.key(seed))

    def afresh(self, seed: int) -> "Clusterer":
        """Begin another stream, with what is compiled already."""
        other = copy.copy(self)
        other._forget(seed)
        return other

    def add(self, group: Trajectories, pairs: Trajectories | None = None) -> None:
        """Take in one more group: learn, describe all anew, and assign it.

        `pairs` are groups known to be of one type, two by two, that are not
        themselves clustered; they say what gap means nothing.
        """
        put = lambda all_, new: all_.at[self.count].set(new)
        self.seen = jax.tree.map(put, self.seen, group)
        self.count += 1
        steps = self.settings.first if self.count == 1 else self.settings.later
        for _ in range(max(1, steps // self.settings.piece)):
            self.progress = self._train(self.progress, self.seen, jnp.array(self.count))
        codes = self.codes()
        null = null_gap(self._null(codes, pairs))
        for restaurant, past in self.choices.items():
            past.append(self._assign(restaurant, codes, null))

    def codes(self) -> Float[np.ndarray, "K E D"]:
        """Describe every trajectory seen so far with the model as it is now."""
        return np.asarray(self._codes(self.progress.model, self.seen))[: self.count]

    def labels(self, restaurant: Restaurant) -> Int[np.ndarray, " K"]:
        """Say which cluster each group is in."""
        return np.array([choice.cluster for choice in self.choices[restaurant]], int)

    def evidence(self, group: int, codes: Any) -> Float[np.ndarray, " C"]:
        """Judge codes by a group: mean log-likelihood, nats per trajectory."""
        own = jax.tree.map(lambda x: x[group], self.seen)
        return self._evidences(own, codes)

    def _assign(self, restaurant: Restaurant, codes: Any, null: float) -> Choice:
        last, label = self.count - 1, self.labels(restaurant)
        counts = np.bincount(label) if len(label) else np.zeros(0, int)
        mine = codes[last]
        if restaurant.rule == "loo":
            mine = (mine.sum(0, keepdims=True) - mine) / (len(mine) - 1)
        else:
            mine = np.broadcast_to(mine.mean(0, keepdims=True), mine.shape)
        means = codes.mean(1)
        candidates = [
            (n * means[:last][label == m].mean(0) + mine) / (n + 1)
            for m, n in enumerate(counts)
        ]
        evidence = self.evidence(last, np.stack([*candidates, mine]))
        return restaurant.choose(last, counts, evidence, null, len(mine))

    def _evidences(self, group: Trajectories, codes: Any) -> Float[np.ndarray, " C"]:
        """Judge candidate codes, padded to one shape so that nothing recompiles."""
        room = len(self.seen.valid) + 1 - len(codes)
        padded = np.pad(codes, ((0, room), (0, 0), (0, 0)))
        out = np.asarray(self._evidence(self.progress.model, group, padded), float)
        return out[: len(codes)]

    def _null(self, codes: Any, pairs: Trajectories | None) -> Float[np.ndarray, " P"]:
        """Measure the gap between halves of groups, and between pairs of one type."""
        gaps = []
        half = codes.shape[1] // 2

        def gap(group: Trajectories, own: Any, other: Any) -> None:
            merged = np.stack([(own + other) / 2, own])[:, None]
            spread = np.broadcast_to(merged, (2, codes.shape[1], WIDTH))
            joined, alone = self._evidences(group, spread)
            gaps.append(alone - joined)

        for k in range(self.count):
            group = jax.tree.map(lambda x, k=k: x[k], self.seen)
            first = jax.tree.map(lambda x: _repeat(x[:half], len(x)), group)
            gap(first, codes[k, :half].mean(0), codes[k, half:].mean(0))
        if pairs is not None:
            for a, b in _both(np.asarray(self._pair_codes(pairs)).mean(2), pairs):
                gap(a[0], a[1], b[1])
                gap(b[0], b[1], a[1])
        return np.array(gaps)

    def _pair_codes(self, pairs: Trajectories) -> Array:
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), pairs)
        flat = self._codes(self.progress.model, rows)
        return flat.reshape(-1, 2, *flat.shape[1:])

    def _begin(self, key: PRNGKeyArray) -> Progress:
        k_model, k_run = jax.random.split(key)
        model = Behaviour(
            self.env, self.settings.likelihood, self.settings.hidden, k_model
        )
        return Progress(
            model, self._optimiser.init(eqx.filter(model, eqx.is_array)), k_run
        )

    @functools.cached_property
    def _optimiser(self) -> optax.GradientTransformation:
        clip = optax.clip_by_global_norm(self.settings.clip)
        return optax.chain(clip, optax.adam(self.settings.rate))

    def _code(self, model: Behaviour, one: Trajectories) -> Float[Array, " D"]:
        return model.encode(self.env, one)

    def _judge(
        self, model: Behaviour, group: Trajectories, codes: Float[Array, "C E D"]
    ) -> Float[Array, " C"]:
        """Return the mean log-likelihood of a group's trajectories for each code."""
        followed = jax.vmap(lambda one: model.follow(self.env, one))(group)
        each = jax.vmap(model.log_likelihood)
        return jax.lax.map(lambda code: each(group, followed, code).mean(), codes)

    def _steps(
        self, progress: Progress, seen: Trajectories, count: Int[Array, ""]
    ) -> Progress:
        """Take some gradient steps on batches from all groups so far."""

        def step(now, _):
            key, k_batch, k_loss = jax.random.split(now.key, 3)
            batch = self._batch(seen, count, k_batch)
            slope = eqx.filter_grad(self.loss)(now.model, batch, k_loss)
            change, state = self._optimiser.update(slope, now.optimiser)
            return Progress(eqx.apply_updates(now.model, change), state, key), None

        return jax.lax.scan(step, progress, length=self.settings.piece)[0]

    def _batch(
        self, seen: Trajectories, count: Array, key: PRNGKeyArray
    ) -> Trajectories:
        """Take turns among the groups, and any trajectories of each."""
        k_turn, k_which = jax.random.split(key)
        rows = (self.settings.groups, self.settings.each)
        turn = jax.random.randint(k_turn, (), 0, count)
        group = (turn + jnp.arange(rows[0])) % count
        which = jax.random.randint(k_which, rows, 0, seen.valid.shape[1])
        return jax.tree.map(lambda x: x[group[:, None], which], seen)

    def loss(
        self, model: Behaviour, batch: Trajectories, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Return L_model: nats per action, under own codes or those of peers."""
        codes = jax.vmap(jax.vmap(self._code, (None, 0)), (None, 0))(model, batch)
        others = (codes.sum(1, keepdims=True) - codes) / (codes.shape[1] - 1)
        swap = jax.random.uniform(key, (*codes.shape[:2], 1)) < self.settings.peer
        codes = jnp.where(swap, others, codes)

        def one(seen, code):
            return model.log_likelihood(seen, model.follow(self.env, seen), code)

        total = jax.vmap(jax.vmap(one))(batch, codes).sum()
        actions = jnp.sum(batch.present & batch.valid[..., None])
        return -total / jnp.maximum(actions, 1)

    def save(self, folder: Path) -> None:
        """Write down everything, so that the stream can go on."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(_named((self.progress, self.seen)), folder / "stream.safetensors")
        past = [
            {**dataclasses.asdict(r), "choices": [dataclasses.asdict(c) for c in rows]}
            for r, rows in self.choices.items()
        ]
        (folder / "stream.json").write_text(
            json.dumps({"count": self.count, "past": past})
        )

    def restore(self, folder: Path) -> None:
        """Go on from what was written down."""
        tensors = load_file(folder / "stream.safetensors")
        self.progress, self.seen = _filled((self.progress, self.seen), tensors)
        said = json.loads((folder / "stream.json").read_text())
        self.count = said["count"]
        self.choices = {
            Restaurant(row["alpha"], row["rule"]): [Choice(**c) for c in row["choices"]]
            for row in said["past"]
        }


def _repeat(x: Array, count: int) -> Array:
    """Fill up to a length by starting over."""
    return x[jnp.arange(count) % len(x)]


def _both(codes: Any, pairs: Trajectories) -> Any:
    take = lambda i, j: jax.tree.map(lambda x: x[i, j], pairs)
    for i, (first, second) in enumerate(codes):
        yield (take(i, 0), first), (take(i, 1), second)


def _named(tree: Any) -> dict[str, np.ndarray]:
    plain = lambda x: jax.random.key_data(x) if _is_key(x) else x
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(plain(x)) for path, x in leaves}


def _filled(tree: Any, tensors: dict[str, np.ndarray]) -> Any:
    def fill(path, old):
        new = jnp.asarray(tensors[jax.tree_util.keystr(path)])
        return jax.random.wrap_key_data(new) if _is_key(old) else new

    return jax.tree_util.tree_map_with_path(fill, tree)


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
