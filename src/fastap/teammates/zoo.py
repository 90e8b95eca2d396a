"""A zoo: teammates made once, stored small, and the same for everybody."""

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import weakref
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from fastap import __version__
from fastap.envs import make
from fastap.envs.prey import AbstractPrey
from fastap.methods.learner import begin
from fastap.methods.model import Learning
from fastap.methods.networks import Values
from fastap.problem.rollout import AbstractPolicy
from fastap.problem.spec import Env, Mistake
from fastap.teammates.grow import Group
from fastap.teammates.population import Population
from fastap.teammates.scripted import habits
from fastap.teammates.tensors import ANEW, pack, read_stack, seal

SCHEMA = 1
POOLS = ("train", "validation", "held-out")
SHIPPED = Path(__file__).parent / "zoo"
MANIFEST, TENSORS = "manifest.json", "groups.safetensors"
Manifest = dict[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Zoo:
    """Groups of teammates, and everything known about them."""

    manifest: Manifest
    env: Env
    policy: AbstractPolicy  # holds all groups, in the order of the manifest

    @property
    def groups(self) -> list[dict[str, Any]]:
        """One row for each group."""
        return self.manifest["groups"]

    @property
    def sizes(self) -> Int[np.ndarray, " K"]:
        """How many teammates each group has."""
        return np.array([group["size"] for group in self.groups])

    @property
    def types(self) -> Int[np.ndarray, " K"]:
        """The planted type of each group, as a number."""
        names = sorted({group["type"] for group in self.groups})
        return np.array([names.index(group["type"]) for group in self.groups])

    @property
    def clusters(self) -> Int[np.ndarray, " K"]:
        """The cluster of each group, -1 where none is known."""
        known = [group.get("cluster") for group in self.groups]
        return np.array([-1 if label is None else label for label in known])

    def fingerprint(self) -> str:
        """Tell this zoo from every other: its groups, networks and labels."""
        parts = ("env", "layout", "parameters", "groups", "sha256", "order")
        facts = {name: self.manifest.get(name) for name in parts}
        text = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def members(self, pool: str) -> Int[np.ndarray, " k"]:
        """List the groups of a pool."""
        if pool not in POOLS:
            raise Mistake(f"'{pool}' is no pool; there are {', '.join(POOLS)}.")
        rows = [i for i, group in enumerate(self.groups) if group["pool"] == pool]
        return np.array(rows, int)


def layout(env: Env) -> str:
    """Hash what a network must know of an environment to read its observations."""
    facts = {**dataclasses.asdict(env.spec), **parameters(env), **learnt(env)}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def parameters(env: Env) -> dict[str, Any]:
    """List what an environment was made with."""
    fields = {f.name: getattr(env, f.name) for f in dataclasses.fields(env)}
    plain = int | float | str | bool | tuple
    return {k: v for k, v in fields.items() if isinstance(v, plain)}


def as_tuples(parameters: dict[str, Any]) -> dict[str, Any]:
    """Undo what JSON makes of tuples."""
    fixed = lambda v: tuple(map(fixed, v)) if isinstance(v, list) else v
    return {name: fixed(value) for name, value in parameters.items()}


def learnt(env: Env) -> dict[str, str]:
    """Tell apart what an environment has learnt itself: the prey of predator-prey."""
    fields = {f.name: getattr(env, f.name) for f in dataclasses.fields(env)}
    parts = {k: v for k, v in fields.items() if isinstance(v, AbstractPrey)}
    read = lambda tree: b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(tree))
    digest = lambda part: seal(read(part.learnt()))[:16]
    return {k: f"{type(v).__name__} {digest(v)}" for k, v in parts.items()}


def describe(env: Env, name: str, command: str) -> dict[str, Any]:
    """Begin a manifest."""
    return {
        "schema": SCHEMA,
        "name": name,
        "env": env.spec.name,
        "parameters": parameters(env),
        "learnt": learnt(env),
        "layout": layout(env),
        **made_with(),
        "command": command,
    }


def made_with() -> dict[str, Any]:
    """Say by which software and on which machine something is made."""
    packages = ("jax", "equinox", "optax", "numpy")
    versions = {"fastap": __version__, "python": platform.python_version()}
    return {
        "versions": versions | {package: version(package) for package in packages},
        "device": jax.devices()[0].device_kind,
    }


def of_groups(
    env: Env, groups: Sequence[Group], name: str, command: str
) -> tuple[dict[str, Any], Values]:
    """Write down grown groups: a manifest without measurements, and networks."""
    rows = []
    for group in groups:
        trunk, member = group.trunk, group.member
        number = sum(row["type"] == trunk.type for row in rows)
        rows.append(
            {
                "name": f"{trunk.type} {number + 1}",
                "pool": trunk.pool,
                "type": trunk.type,
                "size": member.size,
                "skill": member.skill,
                "algorithm": trunk.algorithm,
                "habit": list(trunk.habit),
                "seed": trunk.seed,
                "steps": group.steps,
            }
        )
    stacked = jax.tree.map(lambda *x: np.stack(x), *(group.agents for group in groups))
    return {**describe(env, name, command), "kind": "learnt", "groups": rows}, stacked


def save(folder: Path, manifest: Manifest, teams: Values | None = None) -> None:
    """Write a zoo, each file under another name first, the manifest last."""
    manifest = dict(manifest)
    if teams is not None:
        data = pack(teams)
        manifest["sha256"] = seal(data)
        replace(folder / TENSORS, data)
    replace(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())


def replace(path: Path, data: bytes) -> None:
    """Write a whole file or none."""
    draft = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(data)
        with draft.open("rb+") as file:  # on the disk before it takes the name
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise Mistake(f"Could not write {path}: {error.strerror}.") from error


def remove(path: Path) -> None:
    """Take a file away, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise Mistake(f"Could not remove {path}: {error.strerror}.") from error


def find(name: str | Path) -> Path:
    """Find a zoo: a folder of yours, or one that comes with the package."""
    for folder in (Path(name), SHIPPED / str(name)):
        if (folder / MANIFEST).is_file():
            return folder
    shipped = sorted(p.parent.name for p in SHIPPED.glob(f"*/{MANIFEST}"))
    raise Mistake(
        f"'{name}' is no zoo: neither a folder with a {MANIFEST} nor one of those "
        f"that come with fastap ({', '.join(shipped)})."
    )


def load(name: str | Path) -> Zoo:
    """Read a zoo, refusing one that is damaged, foreign or not what it says."""
    folder = find(name)
    manifest = read_manifest(folder / MANIFEST)
    env = make(manifest["env"], **as_tuples(manifest["parameters"]))
    if layout(env) != manifest["layout"]:
        name = manifest["env"]
        raise Mistake(f"{folder} was made for another layout of {name}; {ANEW}.")
    rows = manifest["groups"]
    for row in rows:
        if not env.spec.least <= row["size"] <= env.spec.mates:
            raise Mistake(
                f"{folder}: '{row['name']}' has {row['size']} teammates, and "
                f"{manifest['env']} has room for {env.spec.least} to {env.spec.mates}."
            )
    if manifest["kind"] == "scripted":
        policy = habits(env, rows)
    else:
        agents = read_teams(folder / TENSORS, manifest, env)
        policy = Population(env=env, agents=agents, groups=len(rows))
    text = json.dumps(manifest, sort_keys=True)
    return IN_USE.setdefault(text, Zoo(manifest, env, policy))


# By what is in them: who reads a zoo twice gets the same, and what is compiled for it.
IN_USE: weakref.WeakValueDictionary[str, Zoo] = weakref.WeakValueDictionary()
NEEDED = {
    "schema": int,
    "name": str,
    "env": str,
    "kind": str,
    "layout": str,
    "parameters": dict,
    "groups": list,
}
IN_A_ROW = {"name": str, "pool": str, "type": str, "size": int, "skill": str}


def read_manifest(path: Path) -> Manifest:
    """Read a manifest and see that all that is needed is there."""
    try:
        manifest = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Mistake(f"{path} cannot be read as a manifest: {error}.") from error
    rows = manifest.get("groups") if isinstance(manifest, dict) else None
    lists = [(manifest, NEEDED), *((row, IN_A_ROW) for row in rows or ())]
    for holder, needed in lists:
        for field, kind in needed.items():
            if not isinstance(holder, dict) or not isinstance(holder.get(field), kind):
                raise Mistake(f"{path} is no manifest of a zoo: no '{field}' in it.")
    if manifest["schema"] != SCHEMA:
        raise Mistake(
            f"{path} has schema {manifest['schema']}; this fastap reads {SCHEMA}."
        )
    if not rows or any(row["pool"] not in POOLS for row in rows):
        raise Mistake(f"{path}: every group is in one of {', '.join(POOLS)}.")
    return manifest


def read_teams(path: Path, manifest: Manifest, env: Env) -> Values:
    """Read the networks of all groups."""
    how = width(manifest.get("hidden", Learning().hidden), path)
    build = lambda: begin(env, env.spec.slots, how, jax.random.key(0))
    shapes = jax.eval_shape(lambda: build().model.agents)
    return read_stack(path, manifest.get("sha256"), shapes, len(manifest["groups"]))


def width(hidden: Any, path: Path) -> Learning:
    """Read how wide networks are."""
    if type(hidden) is not int or not 1 <= hidden <= 100_000:
        raise Mistake(f"{path}: the manifest's 'hidden' is no width of a network.")
    return Learning(hidden=hidden)
