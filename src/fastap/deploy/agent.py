"""Trained agents at work, with NumPy alone: copy this one file to wherever they act.

    agents = Agents.read("policy.npz")
    agents.reset()
    actions = agents.act(observations, available)

`fastap export DIR --format npz` writes the file that is read.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

CARD = "card"  # the entry that says what all others mean
FORMAT, SCHEMA = "fastap agents", 1
LOWEST, HIGHEST = -10.0, 0.5  # of a belief's log-variance
WARM = 3  # steps before a context is expected to know anything
SURE = 0.99  # share of the training episodes' moves or distances that are smaller
Arrays = Mapping[str, np.ndarray]


class Unreadable(ValueError):
    """A file that holds no agents, or observations that are none of theirs."""


class Numbers:
    """The operations a decision is made of.

    `fastap export` has another set, which write an ONNX graph instead.
    """

    tanh = staticmethod(np.tanh)
    exp = staticmethod(np.exp)

    @staticmethod
    def sigmoid(x: Any) -> Any:
        """Squash to between 0 and 1; tanh does not overflow where exp would."""
        return 0.5 * np.tanh(0.5 * x) + 0.5

    @staticmethod
    def leaky(x: Any, slope: float) -> Any:
        """Rectify, letting some of what is negative through."""
        return np.maximum(x, slope * x)

    @staticmethod
    def clip(x: Any, low: float, high: float) -> Any:
        """Keep within bounds."""
        return np.minimum(np.maximum(x, low), high)

    @staticmethod
    def join(*parts: Any) -> Any:
        """Put side by side."""
        return np.concatenate(parts, axis=-1)

    @staticmethod
    def cut(x: Any, start: int, stop: int) -> Any:
        """Take some of the numbers."""
        return x[..., start:stop]

    @staticmethod
    def asks(x: Any, source: np.ndarray, value: np.ndarray) -> Any:
        """Say of some numbers, again and again, whether they have a value."""
        return (x[..., source] == value).astype(np.float32)

    @staticmethod
    def best(values: Any, available: Any) -> tuple[Any, Any]:
        """Choose the best available action; return it, and one-hot too."""
        action = np.argmax(np.where(available, values, -np.inf), axis=-1)
        every = np.arange(values.shape[-1])
        return action, (action[..., None] == every).astype(np.float32)


def decide(ops: Any, weights: Any, card: Mapping[str, Any], state: Any, view: Any):
    """Look once: from a state and a view to the next state, actions and contexts.

    Everything has agents first, then episodes. A state is (memory, doubt, last).
    """
    memory, doubt, last = state
    observation, available = view
    if "encode.source" in weights:
        table = (weights["encode.source"], weights["encode.value"])
        observation = ops.asks(observation, *table)
    seen = ops.join(observation, last)
    doubt, context = believe(ops, weights, card, doubt, seen)
    told = seen if context is None else ops.join(seen, context)
    entered = ops.leaky(linear(weights, "values.enter", told), 0.0)
    memory = gru(ops, weights, "values.gru", memory, entered)
    values = linear(weights, "values.leave", memory)
    action, last = ops.best(values, available)
    return (memory, doubt, last), action, context


def believe(ops: Any, weights: Any, card: Mapping[str, Any], doubt: Any, seen: Any):
    """Return the next memory of the belief, and the mean of what is believed."""
    width = card["context"]
    if card["belief"] == "none":
        return doubt, None
    if card["belief"] == "product":
        return multiply(ops, weights, width, doubt, seen)
    deep = two_layers(ops, weights, seen)
    doubt = gru(ops, weights, "belief.gru", doubt, deep)
    out = linear(weights, "belief.leave", doubt)
    if card["belief"] == "squashed":
        return doubt, ops.tanh(out)
    return doubt, ops.cut(out, 0, width)


def multiply(ops: Any, weights: Any, width: int, doubt: Any, seen: Any):
    """Multiply one more Gaussian in, if there was a step before."""
    total, pulled = ops.cut(doubt, 0, width), ops.cut(doubt, width, 2 * width)
    begun = ops.cut(doubt, 2 * width, 2 * width + 1)
    before = ops.cut(doubt, 2 * width + 1, 2**31 - 1)
    deep = two_layers(ops, weights, ops.join(before, seen))
    out = linear(weights, "belief.leave", deep)
    log_var = ops.clip(ops.cut(out, width, 2 * width), LOWEST, HIGHEST)
    precision = begun * ops.exp(log_var * -1.0)
    total, pulled = total + precision, pulled + precision * ops.cut(out, 0, width)
    return ops.join(total, pulled, begun * 0.0 + 1.0, seen), pulled / total


def two_layers(ops: Any, weights: Any, x: Any) -> Any:
    """Pass the first two layers of a belief."""
    entered = ops.leaky(linear(weights, "belief.enter", x), 0.01)
    return ops.leaky(linear(weights, "belief.deeper", entered), 0.01)


def linear(weights: Any, name: str, x: Any) -> Any:
    """Map by the layer of that name, each agent by its own."""
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gru(ops: Any, weights: Any, name: str, memory: Any, x: Any) -> Any:
    """Take one step of a gated recurrent unit."""
    new, old = (
        linear(weights, f"{name}.{part}", y)
        for part, y in (("inputs", x), ("memory", memory))
    )
    width = weights[f"{name}.memory.weight"].shape[-2]
    gate = lambda y, i: ops.cut(y, i * width, (i + 1) * width)
    reset = ops.sigmoid(gate(new, 0) + gate(old, 0))
    update = ops.sigmoid(gate(new, 1) + gate(old, 1))
    fresh = ops.tanh(gate(new, 2) + reset * gate(old, 2))
    return fresh + update * (memory - fresh)


def ready(arrays: Arrays) -> Arrays:
    """Give biases an axis for episodes, behind that for agents."""
    wide = lambda name, x: x[:, None] if name.endswith(".bias") else x
    return {name: wide(name, array) for name, array in arrays.items()}


class Agents:
    """A team of trained agents that act and remember, in one episode or in many.

    After each look there is `context`, what each agent believes of its teammates
    (episodes, agents, numbers); `change`, how unusually far it has just moved, from
    0 to 1; and `alarm`, whether these teammates resemble none it was trained with.
    The last two need a file that was exported with what is usual.
    """

    def __init__(self, arrays: Arrays, card: Mapping[str, Any]):
        self.card = card
        self.weights = ready(arrays)
        self.usual = {k: v for k, v in arrays.items() if k.startswith("usual.")}
        self.reset()

    @classmethod
    def read(cls, path: str | Path) -> "Agents":
        """Read agents from an exported file."""
        try:
            data = io.BytesIO(Path(path).read_bytes())
            with np.load(data, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            card = json.loads(bytes(arrays.pop(CARD)))
            if (card["format"], card["schema"]) != (FORMAT, SCHEMA):
                raise Unreadable(f"{path} has another format than this file reads.")
            agents = cls(arrays, card)
            shape = (card["agents"], card["observation"])
            agents.act(np.zeros(shape), np.ones((shape[0], card["actions"]), bool))
        except Unreadable:
            raise
        except Exception as error:
            raise Unreadable(f"{path} holds no agents: {error}.") from error
        agents.reset()
        return agents

    def reset(self, episodes: int | None = None) -> None:
        """Forget everything: an episode begins, or several side by side."""
        card, n = self.card, self.card["agents"]
        many = episodes or 1
        self._single = episodes is None
        blank = lambda width: np.zeros((n, many, width), np.float32)
        memory = blank(card["memory"])
        doubt = blank(card["doubt"])
        if card["belief"] == "product":
            doubt[..., : card["context"]] = 1.0
        self.state = (memory, doubt, blank(card["actions"]))
        self._context: np.ndarray | None = None
        self._moved = np.zeros((many, n))
        self._looks = 0

    def act(
        self, observations: np.ndarray, available: np.ndarray | None = None
    ) -> np.ndarray:
        """Choose an action for every agent, from what each sees now.

        `observations` has shape (agents, numbers), or (episodes, agents, numbers)
        after `reset(episodes)`; `available` says which actions are allowed.
        """
        seen = np.asarray(observations, np.float32)
        seen = seen[None] if self._single else seen
        many = self.state[0].shape[1]
        n, actions = self.card["agents"], self.card["actions"]
        if seen.shape != (many, n, self.card["observation"]):
            raise Unreadable(
                f"These agents see {self.card['observation']} numbers each, {n} of "
                f"them; observations of shape {np.shape(observations)} are not that."
            )
        allowed = np.ones((many, n, actions), bool)
        if available is not None:
            given = np.asarray(available, bool)
            allowed = np.broadcast_to(given, allowed.shape)
        view = (seen.swapaxes(0, 1), allowed.swapaxes(0, 1))
        how = (Numbers, self.weights, self.card)
        self.state, action, context = decide(*how, self.state, view)
        self._see(context)
        return action[:, 0] if self._single else action.T

    @property
    def context(self) -> np.ndarray:
        """What each agent believes of its teammates."""
        if self._context is None:
            shape = (self.state[0].shape[1], self.card["agents"], self.card["context"])
            return self._out(np.zeros(shape, np.float32))
        return self._out(self._context)

    @property
    def change(self) -> np.ndarray:
        """How unusual the last move of each context was, from 0 to 1."""
        moves = self._needed("usual.moves")
        each = zip(moves, self._moved.T, strict=True)
        share = [np.searchsorted(known, moved) / len(known) for known, moved in each]
        return self._out(np.stack(share, axis=-1))

    @property
    def alarm(self) -> np.ndarray:
        """Whether the teammates resemble no cluster that was met in training.

        Never in the first steps, in which nobody is known yet.
        """
        limit = self._needed("usual.limit")
        apart = distance(self._needed("usual.centre"), self._needed("usual.spread"))
        seen = self.context[None] if self._single else self.context
        return self._out((apart(seen) > limit) & (self._looks > WARM))

    def _see(self, context: np.ndarray | None) -> None:
        if context is None:
            return
        self._looks += 1
        now = context.swapaxes(0, 1)
        if self._context is not None:
            self._moved = np.linalg.norm(now - self._context, axis=-1)
        self._context = now

    def _needed(self, name: str) -> np.ndarray:
        if name not in self.usual:
            raise Unreadable("Nothing is known here of what is usual for these agents.")
        return self.usual[name]

    def _out(self, value: np.ndarray) -> np.ndarray:
        return value[0] if self._single else value


def distance(centre: np.ndarray, spread: np.ndarray) -> Any:
    """Measure how far contexts are from the nearest cluster, in its deviations."""

    def apart(context: np.ndarray) -> np.ndarray:
        gap = (context[:, :, None] - centre[None]) / spread[None]  # E n K D
        return np.sqrt(np.square(gap).mean(-1)).min(-1)

    return apart
