"""How long one decision of a shipped team takes, in NumPy and in ONNX Runtime."""

import dataclasses
import time
from collections.abc import Callable, Iterator

import numpy as np

from fastap.benchmarks.environments import Row
from fastap.deploy.agent import Agents
from fastap.deploy.export import beginning, read_onnx, write_onnx
from fastap.deploy.run import load, shipped
from fastap.problem.spec import Mistake

METHODS = ("qmix", "fastap")


def measure(seconds: float) -> Iterator[Row]:
    """Time decisions one by one, as a robot would make them; take the median."""
    for method in METHODS:
        yield time_decisions(method, seconds)


def time_decisions(method: str, seconds: float) -> Row:
    """Time one shipped team, with ONNX Runtime beside it where that is installed."""
    arrays, card = load(shipped(method)).pack()
    agents = Agents(arrays, card)
    shape = (card["agents"], card["observation"])
    seen = np.random.default_rng(0).integers(-1, 3, shape).astype(np.float32)
    free = np.ones((card["agents"], card["actions"]), bool)
    rate = per_second(lambda: agents.act(seen, free), seconds)
    row = Row("lbf", 1, rate, 0.0, 0.0, method=f"{method}, NumPy", kind="decide")
    row = dataclasses.replace(row, unit="decisions/s", device="NumPy, 1 core")
    try:
        step = read_onnx(write_onnx(arrays, card), card)
    except Mistake:  # it is not installed
        return row
    state, view = beginning(card, 1), (seen[None], free[None])
    theirs = per_second(lambda: step(*state, *view), seconds)
    return dataclasses.replace(row, peer="onnxruntime", peer_rate=theirs)


def per_second(decide: Callable[[], object], seconds: float) -> float:
    """Return one over the median time of a decision."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 20 or time.perf_counter() < end:
        clock = time.perf_counter()
        decide()
        times.append(time.perf_counter() - clock)
    return 1 / float(np.median(times))
