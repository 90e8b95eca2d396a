"""What a run will take: measured on a piece of it, not guessed."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

from fastap.training.checkpoint import needed
from fastap.training.train import Course


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The needs of a run."""

    memory: int  # bytes on the device, at the peak of a beat
    disk: int  # bytes
    compilation: float  # seconds
    training: float  # seconds, without compilation
    steps_per_second: float  # joint steps, of all seeds together


def forecast(course: Course, full: bool) -> Forecast:
    """Compile a run, play its first beats and its first point, and multiply."""
    clock = time.monotonic()
    rounds = jnp.arange(course.pulse[0])
    beat = course.programs.improve.lower(course.shapes(), rounds).compile()
    needs = beat.memory_analysis()
    runs, noted = jax.block_until_ready(beat(course.start().runs, rounds))
    noted = jax.tree.map(np.asarray, noted)
    course.point(runs, noted, 1)
    compiled = time.monotonic() - clock

    clock = time.monotonic()
    runs, _ = jax.block_until_ready(beat(runs, rounds))
    each = time.monotonic() - clock
    clock = time.monotonic()
    course.point(runs, noted, 2)
    point = time.monotonic() - clock
    peak = needs.argument_size_in_bytes + needs.temp_size_in_bytes
    return Forecast(
        memory=peak + needs.output_size_in_bytes - needs.alias_size_in_bytes,
        disk=needed(course, full),
        compilation=compiled,
        training=each * course.beats + point * course.settings.points,
        steps_per_second=len(course.seeds) * course.steps(1) / each,
    )
