"""Strict arithmetic for every test, and a cache that outlives the run."""

import os
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from tests.idle import idle, run  # noqa: F401, for many files

# Most tests compile for longer than they run: let LLVM not try too hard.
HASTE = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", HASTE)

CACHE = Path(__file__).parent.parent / ".cache" / "xla"

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True, scope="session")
def compilation_cache():
    """Compile each program once for all runs of the suite."""
    CACHE.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(CACHE))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


@pytest.fixture
def key():
    return jax.random.key(0)


settings.register_profile("fastap", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("fastap")
