"""Policies to ship: as NumPy arrays, as an ONNX graph, as StableHLO.

State in, state out: whoever calls them, in whatever language, hands the memory of
the last step to the next. All formats are checked against the agents they came from.
"""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from fastap.deploy.agent import CARD, Agents, Numbers, decide, ready
from fastap.deploy.run import Arrays, Run
from fastap.methods.actor import act_by, best
from fastap.problem.rollout import Glance
from fastap.problem.spec import Mistake
from fastap.teammates.acceptance import SURE

STATE = ("memory", "doubt", "last")
CLOSE = 1e-5  # how far a format may be from the agents it came from
Card = dict[str, Any]
Step = Callable[..., tuple[Any, ...]]  # state and view to state, action, context


def write_npz(arrays: Arrays, card: Card) -> bytes:
    """Write agents for `agent.py`."""
    text = np.frombuffer(json.dumps(card).encode(), np.uint8)
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays, **{CARD: text})
    return file.getvalue()


def shapes(card: Card, blank: bool = False) -> dict[str, tuple[int, int]]:
    """Say how wide each input is: agents, and numbers of each; episodes come first.

    In the order of the arguments of a step; those of no width only if `blank`.
    """
    n, actions = card["agents"], card["actions"]
    widths = {
        "memory": card["memory"],
        "doubt": card["doubt"],
        "last": actions,
        "observation": card["observation"],
        "available": actions,
    }
    return {name: (n, width) for name, width in widths.items() if width or blank}


def step_of(run: Run, place: int) -> Step:
    """Return one step of a team's agents as a function of arrays, episodes first."""
    model = jax.tree.map(lambda x: x[place], run.model)
    actor = act_by(run.env, model)
    slots = jnp.arange(run.env.spec.controlled)
    there = jnp.ones(len(slots), bool)

    def one(memory, doubt, last, observation, available):
        done = jnp.where(last.sum(-1) > 0, jnp.argmax(last, -1), -1)
        view = (observation, available, done, slots, there, jnp.array(0), None)
        (memory, doubt), context, values = actor.look((memory, doubt), Glance(*view))
        action = best(values, available)
        last = jax.nn.one_hot(action, values.shape[-1])
        return memory, doubt, last, action.astype(jnp.int32), context

    def many(*given):
        with jax.default_matmul_precision(SURE):  # whatever the device
            return jax.vmap(one)(*given)

    return many


def write_stablehlo(run: Run, place: int, card: Card) -> bytes:
    """Write one step for XLA, for any number of episodes at once."""
    (episodes,) = jax_export.symbolic_shape("episodes")
    kinds = {"available": jnp.bool_}
    inputs = [
        jax.ShapeDtypeStruct((episodes, *size), kinds.get(name, jnp.float32))
        for name, size in shapes(card, blank=True).items()
    ]
    step = jax.jit(step_of(run, place))
    made = jax_export.export(step, platforms=("cpu", "cuda"))(*inputs)
    try:
        return bytes(made.serialize())
    except ImportError as error:
        words = "flatbuffers is not installed: pip install 'fastap[onnx]'."
        raise Mistake(words) from error


def read_stablehlo(data: bytes) -> Step:
    """Read such a step back."""
    return jax.jit(jax_export.deserialize(bytearray(data)).call)


class Tensor:
    """A value of an ONNX graph; arithmetic with it adds nodes."""

    def __init__(self, graph: "Graph", name: str, shape: tuple[int, ...] = ()):
        self.graph, self.name, self.shape = graph, name, shape

    def __add__(self, other: Any) -> "Tensor":
        return self.graph.node("Add", self, other)

    def __sub__(self, other: Any) -> "Tensor":
        return self.graph.node("Sub", self, other)

    def __mul__(self, other: Any) -> "Tensor":
        return self.graph.node("Mul", self, other)

    def __truediv__(self, other: Any) -> "Tensor":
        return self.graph.node("Div", self, other)

    def __matmul__(self, other: Any) -> "Tensor":
        return self.graph.node("MatMul", self, other)


class Graph:
    """An ONNX graph in the making; its operations are those of `agent.Numbers`."""

    def __init__(self, helper: Any):
        self.helper = helper
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, value: Any, name: str = "") -> Tensor:
        """Put an array into the graph."""
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype.kind == "f" else array
        name = name or f"constant.{len(self.constants)}"
        self.constants[name] = array
        return Tensor(self, name, array.shape)

    def node(self, kind: str, *inputs: Any, **how: Any) -> Tensor:
        """Add an operation."""
        given = [x if isinstance(x, Tensor) else self.constant(x) for x in inputs]
        out = Tensor(self, f"{kind}.{len(self.nodes)}")
        names = [x.name for x in given]
        self.nodes.append(self.helper.make_node(kind, names, [out.name], **how))
        return out

    def call(self, x: Tensor, name: str) -> None:
        """Make a value an output, under a name."""
        self.nodes.append(self.helper.make_node("Identity", [x.name], [name]))

    def swap(self, x: Tensor) -> Tensor:
        """Exchange agents and episodes."""
        return self.node("Transpose", x, perm=[1, 0, 2])

    def tanh(self, x: Tensor) -> Tensor:
        return self.node("Tanh", x)

    def exp(self, x: Tensor) -> Tensor:
        return self.node("Exp", x)

    def sigmoid(self, x: Tensor) -> Tensor:
        return self.node("Sigmoid", x)

    def leaky(self, x: Tensor, slope: float) -> Tensor:
        return self.node("LeakyRelu", x, alpha=slope)

    def clip(self, x: Tensor, low: float, high: float) -> Tensor:
        return self.node("Clip", x, np.float32(low), np.float32(high))

    def join(self, *parts: Tensor) -> Tensor:
        return self.node("Concat", *parts, axis=-1)

    def cut(self, x: Tensor, start: int, stop: int) -> Tensor:
        edges = ([start], [stop], [-1])
        return self.node("Slice", x, *(np.array(edge, np.int64) for edge in edges))

    def asks(self, x: Tensor, source: Tensor, value: Tensor) -> Tensor:
        taken = self.node("Gather", x, source, axis=-1)
        return self.node("Cast", self.node("Equal", taken, value), to=1)

    def best(self, values: Tensor, available: Tensor) -> tuple[Tensor, Tensor]:
        allowed = self.node("Where", available, values, np.float32(-np.inf))
        action = self.node("ArgMax", allowed, axis=-1, keepdims=0)
        count = self.constants["values.leave.bias"].shape[-1]
        ends = np.array([0, 1], np.float32)
        return action, self.node("OneHot", action, np.array(count), ends, axis=-1)


def write_onnx(arrays: Arrays, card: Card) -> bytes:
    """Write one step as an ONNX graph, by the very function that NumPy runs."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise Mistake("onnx is not installed: pip install 'fastap[onnx]'.") from error
    graph, sizes = Graph(helper), shapes(card)
    weights = {}
    for name, array in arrays.items():
        if not name.startswith("usual."):
            value = array.astype(np.float32) if name == "encode.value" else array
            value = value[:, None] if name.endswith(".bias") else value
            weights[name] = graph.constant(value, name)
    given = {name: graph.swap(Tensor(graph, name)) for name in sizes}
    state = tuple(given.get(name) for name in STATE)
    view = (given["observation"], given["available"])
    after, action, context = decide(graph, weights, card, state, view)
    outputs = {}
    for name, value in zip(STATE, after, strict=True):
        if value is not None:
            graph.call(graph.swap(value), f"next_{name}")
            outputs[f"next_{name}"] = (TensorProto.FLOAT, sizes[name])
    graph.call(graph.node("Transpose", action, perm=[1, 0]), "action")
    outputs["action"] = (TensorProto.INT64, (card["agents"],))
    if context is not None:
        graph.call(graph.swap(context), "context")
        outputs["context"] = (TensorProto.FLOAT, (card["agents"], card["context"]))
    kind = lambda name: TensorProto.BOOL if name == "available" else TensorProto.FLOAT
    info = helper.make_tensor_value_info
    made = helper.make_graph(
        graph.nodes,
        "fastap",
        [info(name, kind(name), ["episodes", *size]) for name, size in sizes.items()],
        [info(name, k, ["episodes", *size]) for name, (k, size) in outputs.items()],
        [numpy_helper.from_array(x, name) for name, x in graph.constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    entry = model.metadata_props.add()
    entry.key, entry.value = CARD, json.dumps(card)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def read_onnx(data: bytes, card: Card) -> Step:
    """Read such a graph back, as a step of NumPy arrays."""
    try:
        import onnxruntime as runtime
    except ImportError as error:
        words = "onnxruntime is not installed: pip install 'fastap[onnx]'."
        raise Mistake(words) from error
    how: Any = runtime.SessionOptions()  # type: ignore[attr-defined]
    how.intra_op_num_threads = how.inter_op_num_threads = 1
    session = runtime.InferenceSession(data, how, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    asked = [given.name for given in session.get_inputs()]

    def step(memory, doubt, last, observation, available):
        state = dict(zip(STATE, (memory, doubt, last), strict=True))
        view = {"observation": observation, "available": available}
        given = state | view
        found = session.run(names, {name: np.asarray(given[name]) for name in asked})
        after: Mapping[str, Any] = dict(zip(names, found, strict=True))
        blank = np.zeros((len(last), card["agents"], 0), np.float32)
        return (
            after["next_memory"],
            after.get("next_doubt", doubt),
            after["next_last"],
            after["action"],
            after.get("context", blank),
        )

    return step


def numpy_step(arrays: Arrays, card: Card) -> Step:
    """Return one step as NumPy does it, as a function of arrays."""
    weights = ready(arrays)
    turn = lambda x: np.asarray(x).swapaxes(0, 1)

    def step(memory, doubt, last, observation, available):
        state = tuple(turn(np.asarray(x, np.float32)) for x in (memory, doubt, last))
        view = (turn(np.asarray(observation, np.float32)), turn(available))
        after, action, context = decide(Numbers, weights, card, state, view)
        blank = np.zeros((*np.shape(last)[:2], 0), np.float32)
        believed = blank if context is None else turn(context)
        return (*map(turn, after), action.T, believed)

    return step


def check(run: Run, place: int, other: Step, card: Card, episodes: int = 8) -> float:
    """Return how far a format is from the agents it was made of, at the worst.

    Both look at the same boards, each with a memory of its own; a different action
    counts as infinitely far.
    """
    env, spec = run.env, run.env.spec
    there = jnp.ones(spec.slots, bool)

    @jax.jit
    def look(key):
        views = jax.vmap(lambda k: env.view(env.reset(there, k)))
        seen = views(jax.random.split(key, episodes))
        return seen.observation[:, : spec.controlled], seen.available

    ours = theirs = beginning(card, episodes)
    ahead, worst = jax.jit(step_of(run, place)), 0.0
    for t in range(12):
        observation, available = map(np.asarray, look(jax.random.key(t)))
        view = (observation.astype(np.float32), available[:, : spec.controlled])
        *ours, mine, context = map(np.asarray, ahead(*ours, *view))
        *theirs, action, belief = map(np.asarray, other(*theirs, *view))
        pairs = zip((*ours, context), (*theirs, belief), strict=True)
        gaps = [np.abs(x - y).max(initial=0.0) for x, y in pairs]
        worst = max(worst, *gaps, 0.0 if np.array_equal(mine, action) else np.inf)
    return float(worst)


def beginning(card: Card, episodes: int) -> list[np.ndarray]:
    """Return the state before the first look."""
    team = Agents({}, card)
    team.reset(episodes)
    return [x.swapaxes(0, 1) for x in team.state]
