"""Networks in files: at half precision, what is shared once, and sealed."""

import functools
import hashlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

from fastap.problem.spec import Mistake

ANEW = "build the zoo anew"


def read_stack(
    path: Path, digest: Any, shapes: PyTree, count: int, remedy: str = ANEW
) -> PyTree:
    """Read so many networks of these shapes, and see that they are the ones meant."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror}.") from error
    if seal(data) != digest:
        raise Mistake(
            f"{path} is not the file its manifest describes: damaged, cut short or "
            f"changed. Fetch it again or {remedy}."
        )
    try:
        tensors = read_tensors(data)
    except SafetensorError as error:
        raise Mistake(f"{path} is no safetensors file: {error}.") from error
    want = {k: (count, *x.shape) for k, x in flat(shapes).items()}
    once = {k: (count, 1, *shape[2:]) for k, shape in want.items()}  # shared
    found = {k: x.shape for k, x in tensors.items()}
    fit = all(found.get(k) in (want[k], once[k]) for k in want)
    if not fit or found.keys() != want.keys():
        raise Mistake(
            f"{path} does not hold the networks of {count} teams that fit its zoo."
        )
    wide = lambda k: jnp.broadcast_to(jnp.asarray(tensors[k], jnp.float32), want[k])
    leaves = [wide(k) for k in want]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def pack(teams: PyTree) -> bytes:
    """Write networks at half precision, and once what all of a team share."""

    def half(x):
        x = np.asarray(x).astype(np.float16)
        return x[:, :1].copy() if np.all(x == x[:, :1]) else x

    return write_tensors(flat(jax.tree.map(half, teams)))


def seal(data: bytes) -> str:
    """Tell a file from every other."""
    return hashlib.sha256(data).hexdigest()


def flat(tree: PyTree, between: str = "") -> dict[str, Any]:
    """Name every array of a tree by its place."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    name = functools.partial(jax.tree_util.keystr, simple=True, separator=between)
    return {name(path): x for path, x in leaves}
