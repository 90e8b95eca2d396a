"""Files of a run: written whole or not at all, read with suspicion, never unpickled."""

import csv
import dataclasses
import functools
import hashlib
import io
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

from fastap.methods.beliefs import Silent
from fastap.methods.model import Model
from fastap.methods.networks import Sum
from fastap.methods.practice import Run
from fastap.methods.table import PAPER
from fastap.problem.spec import Mistake, check_kind
from fastap.teammates.tensors import flat
from fastap.teammates.zoo import remove, replace
from fastap.training.settings import ADDED, Settings
from fastap.training.train import POOLS, Course, Row, State, course

SCHEMA = 1
CLOCK = "clock.csv"  # when each point of the curve was reached
RESULTS = "results.json"  # what judges have found
CONFIG, METRICS, POLICY = "config.json", "metrics.csv", "policy.safetensors"
CHECKPOINT = Path("checkpoint") / "state.safetensors"
Tensors = dict[str, np.ndarray]


name_all = functools.partial(flat, between=".")


def is_key(x: Any) -> bool:
    """Say whether these are keys of chance, which files know as plain numbers."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def plain(tree: PyTree) -> Tensors:
    """Bring a tree to the host, as named arrays."""
    data = lambda x: jax.random.key_data(x) if is_key(x) else x
    return {name: np.asarray(data(x)) for name, x in name_all(tree).items()}


def restore(shapes: PyTree, tensors: Tensors, path: Path) -> PyTree:
    """Put named arrays back into a tree of these shapes, or refuse them."""
    data = lambda x: jax.eval_shape(jax.random.key_data, x) if is_key(x) else x
    want = {name: data(x) for name, x in name_all(shapes).items()}
    kinds = lambda xs: {name: (x.shape, str(x.dtype)) for name, x in xs.items()}
    if kinds(want) != kinds(tensors):
        raise Mistake(f"{path} does not fit its {CONFIG}: other arrays are in it.")

    def again(name, x):
        found = jnp.asarray(tensors[name])
        return jax.random.wrap_key_data(found) if is_key(x) else found

    leaves = [again(name, x) for name, x in name_all(shapes).items()]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def write(path: Path, tensors: Tensors, facts: dict[str, Any]) -> None:
    """Write arrays and facts as one file, with a sum to know damage by."""
    facts = {"schema": SCHEMA, **facts}
    facts["sum"] = checksum(tensors, facts)
    data = write_tensors(tensors, metadata={"fastap": json.dumps(facts)})
    replace(path, data)


def read(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Read such a file, refusing what is damaged, foreign or of another version."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror}.") from error
    try:
        tensors = read_tensors(data)
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        facts = json.loads(header["__metadata__"]["fastap"])
        schema = facts["schema"]
    except (SafetensorError, ValueError, KeyError, TypeError, struct.error) as error:
        raise Mistake(
            f"{path} is no file of a run, or it is damaged; go back to a copy of it."
        ) from error
    if schema != SCHEMA:
        raise Mistake(f"{path} has schema {schema}; this fastap reads {SCHEMA}.")
    if facts.pop("sum", None) != checksum(tensors, facts):
        raise Mistake(f"{path} is damaged: its content does not add up.")
    return tensors, facts


def checksum(tensors: Tensors, facts: dict[str, Any]) -> str:
    """Hash names, shapes and content, and the facts beside them."""
    total = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        x = tensors[name]
        total.update(f"{name} {x.dtype} {x.shape}".encode())
        total.update(np.ascontiguousarray(x).data if x.size else b"")
    return total.hexdigest()


def save(folder: Path, course: Course, state: State, full: bool) -> None:
    """Write where a training is: all of it, or just what acting and judging need."""
    if full:
        facts = {"beats": state.beats, "rows": state.rows}
        write(folder / CHECKPOINT, plain(state.runs), facts)
    publish(folder, course, state)


def publish(folder: Path, course: Course, state: State) -> None:
    """Write what people read of a training: its agents and its curve."""
    step = course.steps(state.beats)
    write(folder / POLICY, plain(acting(state.runs)), {"step": step})
    replace(folder / METRICS, table(state.rows).encode())


def acting(runs: Run) -> dict[str, PyTree]:
    """Take what agents need to act, and the centres of what they believe."""
    model = runs.learner.model
    parts = {"agents": model.agents, "local": model.local, "known": model.known}
    return parts | {"centres": runs.learner.memories}


def read_agents(folder: Path) -> tuple[Course, Model, int]:
    """Read the trained agents of a run, one for each seed, and their steps so far."""
    settings, noted = read_config(folder)
    ready = course(settings)
    check_zoo(ready, noted, folder)
    path = folder / POLICY
    if not path.is_file():
        raise Mistake(f"{folder} holds no agents yet; go on with it: --resume.")
    tensors, facts = read(path)
    parts = restore(acting(ready.shapes()), tensors, path)
    step = facts.get("step")
    if not isinstance(step, int):
        raise Mistake(f"{path} does not say how long its agents were trained.")
    silent = (Silent(), Sum(), ())  # what only learning needs
    return ready, Model(parts["agents"], parts["local"], *silent, parts["known"]), step


def read_start(folder: Path, ready: Course) -> State:
    """Begin a training, with untrained agents or with those of another run.

    The other run is named from the folder of this one, so that both can be moved.
    """
    state = ready.start()
    if not ready.settings.start:
        return state
    origin = Path(os.path.normpath(folder / ready.settings.start))
    if origin.resolve() == folder.resolve():
        raise Mistake(f"{folder} cannot begin with its own agents; --resume goes on.")
    if (origin / POLICY).is_file() and not (origin / CHECKPOINT).is_file():
        raise Mistake(
            f"{origin} was trained with --checkpoint policy, which keeps too little to "
            "begin with; train it anew without."
        )
    before = load(origin, course(read_config(origin)[0]))
    if before is None:
        raise Mistake(f"{origin} holds no agents yet to begin with.")
    model, ours = before.runs.learner.model, state.runs.learner.model
    sizes = lambda tree: {name: x.shape for name, x in name_all(tree).items()}
    if sizes(model) != sizes(ours):
        raise Mistake(f"The agents of {origin} are of another make than these.")
    places = lambda runs: (runs.learner.model, runs.learner.target)
    twin = jax.tree.map(jnp.copy, model)  # a buffer is given away only once
    return State(eqx.tree_at(places, state.runs, (model, twin)), 0, ())


def check_zoo(ready: Course, noted: dict[str, Any], folder: Path) -> None:
    """Refuse a zoo that is not the one a run was begun with."""
    zoo = ready.zoo.fingerprint()
    if noted.get("zoo", zoo) != zoo:
        name = ready.settings.zoo
        raise Mistake(f"The zoo '{name}' is not the one that {folder} was begun with.")


def clear(folder: Path) -> None:
    """Take away what an earlier run has left."""
    for old in (CHECKPOINT, POLICY, METRICS, CLOCK, RESULTS):
        remove(folder / old)


def load(folder: Path, course: Course) -> State | None:
    """Read where a training was; nothing, if it was stopped before its first save."""
    path = folder / CHECKPOINT
    if not path.is_file():
        if (folder / POLICY).is_file():
            raise Mistake(
                f"{folder} was trained with --checkpoint policy, so it cannot go on; "
                "begin it anew with --force."
            )
        return None
    tensors, facts = read(path)
    runs = restore(course.shapes(), tensors, path)
    beats, rows = facts.get("beats"), facts.get("rows")
    if not isinstance(beats, int) or not 0 <= beats <= course.beats:
        raise Mistake(f"{path} is no checkpoint of this training.")
    if not isinstance(rows, list):
        raise Mistake(f"{path} is no checkpoint of a training.")
    return State(runs, beats, tuple(rows))


def table(rows: tuple[Row, ...]) -> str:
    """Write rows as CSV; numbers survive it bit for bit, what is missing is blank."""
    text = io.StringIO()
    if rows:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        lines = csv.DictWriter(text, columns, lineterminator="\n")
        lines.writeheader()
        lines.writerows(rows)
    return text.getvalue()


def write_config(folder: Path, settings: Settings, facts: dict[str, Any]) -> None:
    """Write everything needed to repeat a run."""
    config = {"schema": SCHEMA, "settings": dataclasses.asdict(settings), **facts}
    replace(folder / CONFIG, (json.dumps(config, indent=1) + "\n").encode())


def read_clock(folder: Path) -> float | None:
    """Return the seconds a run took to its last point, all its parts together."""
    try:
        last = (folder / CLOCK).read_text().splitlines()[-1]
        return float(last.split(",")[1])
    except (OSError, ValueError, IndexError):
        return None


def read_config(folder: Path) -> tuple[Settings, dict[str, Any]]:
    """Read the settings of a run and what is noted beside, refusing what is none."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise Mistake(f"{folder} is no run: there is no {CONFIG} in it.") from error
    except ValueError as error:
        raise Mistake(f"{path} is damaged: {error}.") from error
    kinds = get_type_hints(Settings)
    found = config.get("settings") if isinstance(config, dict) else None
    found = ADDED | found if isinstance(found, dict) else {}
    if found.keys() != kinds.keys():
        raise Mistake(f"{path} does not hold the settings of a run.")
    if config.get("schema") != SCHEMA:
        raise Mistake(
            f"{path} has schema {config.get('schema')}; this fastap reads {SCHEMA}."
        )
    for name, kind in kinds.items():
        if kind is str and not isinstance(found[name], str):
            raise Mistake(f"{path}: {name} must be a word.")
        check_kind(f"{path}: {name}", found[name], kind)
    groups = found["groups"]
    numbers = isinstance(groups, list) and all(type(n) is int for n in groups)
    if not numbers or len(groups) != len(POOLS) or found["env"] not in PAPER:
        raise Mistake(f"{path} does not hold the settings of a run.")
    names = found["beside"]
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise Mistake(f"{path} does not hold the settings of a run.")
    lists = {"groups": tuple(groups), "beside": tuple(names)}
    settings: dict[str, Any] = found | lists
    return Settings(**settings), config


def needed(course: Course, full: bool) -> int:
    """Count the bytes that the files of a run will take, drafts included."""
    size = lambda tree: sum(
        x.size * (8 if is_key(x) else x.dtype.itemsize) for x in jax.tree.leaves(tree)
    )
    runs = course.shapes()
    return 2 * (size(runs) * full + size(acting(runs))) + 2**20


def free_space(folder: Path) -> int:
    """Count the bytes free where a folder is, or would be."""
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(there).free


def check_space(folder: Path, course: Course, full: bool) -> None:
    """Refuse to begin what the disk has no room for."""
    want, free = needed(course, full), free_space(folder)
    if want > free:
        raise Mistake(
            f"{folder} has {free / 2**20:,.0f} MiB free and the run writes "
            f"{want / 2**20:,.0f} MiB; make room or add --checkpoint policy."
        )
