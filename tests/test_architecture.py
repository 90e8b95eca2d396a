"""The shape of the code: layers, sizes, and what may not be said in it."""

import ast
import tomllib
from pathlib import Path

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from fastap.methods.losses import log_det

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "fastap").rglob("*.py"))
LAYERS = (
    *("problem", "envs", "methods", "teammates", "evaluation", "training"),
    *("experiments", "report", "deploy", "benchmarks", "commands", "cli", "__main__"),
)


def layer(path):
    part = path.relative_to(ROOT / "src" / "fastap").parts[0]
    return part.removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_only_down(path):
    if layer(path) == "__init__":
        return
    mine = LAYERS.index(layer(path))
    for module in imports(path):
        if module.startswith("fastap."):
            assert LAYERS.index(module.split(".")[1]) <= mine, module


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_can_be_read_in_one_sitting(path):
    text = path.read_text()
    assert text.count("\n") <= 320
    assert ast.get_docstring(ast.parse(text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name


def test_no_drawer_for_odds_and_ends():
    names = {path.stem for path in SOURCES}
    assert not names & {"utils", "common", "misc", "base", "core", "helpers"}


def test_runtime_dependencies_are_the_nine():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {line.split(">")[0] for line in project["dependencies"]}
    assert names == {
        *("jax", "equinox", "optax", "jaxtyping", "tyro"),
        *("safetensors", "numpy", "rich", "matplotlib"),
    }
    extras = project["optional-dependencies"]
    assert set(extras) == {"smax", "onnx", "bridge", "log", "dev"}


def test_constraints_hold_names_and_versions_only():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, version = line.split("==")
        assert name and version and "/" not in line and "@" not in line


def test_shapes_are_checked_while_testing():
    """Nothing may import fastap before the hook that checks its arguments is there."""
    with pytest.raises(TypeCheckError):
        log_det(jnp.zeros(2), jnp.zeros(3, bool))
