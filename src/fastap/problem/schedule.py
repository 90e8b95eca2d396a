"""Who is on the team at each step."""

import re
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from fastap.problem.spec import Mistake, Spec, check_kind

Redraw = Literal["group", "same", "size"]  # what a change draws anew
LONGEST = 1_000_000  # steps that a wait may take
CONTROLS: dict[str | None, Redraw] = {None: "group", "same": "same", "size": "size"}


class Schedule(eqx.Module):
    """The teammates of one episode, drawn before it begins."""

    group: Int[Array, " T"]  # whose policies fill the teammates' slots at t
    size: Int[Array, " T"]  # how many of those slots are occupied
    swap: Bool[Array, " T"]  # the team is replaced before anyone acts at t


def unchanging(horizon: int, size: Int[Array, ""]) -> Schedule:
    """Return a whole episode beside group 0, with so many of it there."""
    alone = jnp.zeros(horizon, int)
    return Schedule(alone, jnp.full(horizon, size), jnp.zeros(horizon, bool))


def check_schedule(spec: Spec, schedule: Schedule, groups: int) -> Schedule:
    """Refuse a schedule that does not fit; where values are traced, keep sizes legal.

    Policies that say they hold one group do not look at its number.
    """
    steps = {len(x) for x in (schedule.group, schedule.size, schedule.swap)}
    if steps != {spec.horizon}:
        raise Mistake(
            f"{spec.name} needs a schedule of {spec.horizon} steps, not {steps}."
        )
    group, size = schedule.group, schedule.size
    if not isinstance(size, Tracer) and not isinstance(group, Tracer):
        lowest, highest = np.min(np.asarray(size)), np.max(np.asarray(size))
        if lowest < spec.least or highest > spec.mates:
            raise Mistake(
                f"{spec.name} has {spec.least} to {spec.mates} teammates; the "
                f"schedule has {lowest} to {highest}."
            )
        lowest, highest = np.min(np.asarray(group)), np.max(np.asarray(group))
        if lowest < 0 or (groups > 1 and highest >= groups):
            raise Mistake(
                f"The teammates' policy holds the groups 0 to {groups - 1}; the "
                f"schedule names {lowest} to {highest}."
            )
    return Schedule(group, jnp.clip(size, spec.least, spec.mates), schedule.swap)


class Never(eqx.Module):
    """No change: the paper's stationary setting."""

    def moments(self, horizon: int, key: PRNGKeyArray) -> Bool[Array, " T"]:
        """Mark the steps at which the team is replaced."""
        del key
        return jnp.zeros(horizon, bool)


class After(eqx.Module):
    """A change after each wait, the waits uniform on low..high inclusive.

    The bounds may be arrays: all such changes are one compiled program.
    """

    low: int | Int[Array, "*R"]
    high: int | Int[Array, "*R"]

    def __check_init__(self):
        if isinstance(self.low, Array) or isinstance(self.high, Array):
            return  # made of numbers that were looked at
        if not 1 <= self.low <= self.high <= LONGEST:
            raise Mistake(
                f"U[{self.low},{self.high}] is no distribution of waits: write "
                f"U[a,b] with whole numbers 1 <= a <= b <= {LONGEST}, such as U[5,8]."
            )

    def moments(self, horizon: int, key: PRNGKeyArray) -> Bool[Array, " T"]:
        """Mark the steps at which the team is replaced."""
        waits = jax.random.randint(key, (horizon,), self.low, self.high + 1)
        waits = jnp.minimum(waits, horizon)  # so that their sum stays a number
        return (jnp.cumsum(waits)[None] == jnp.arange(horizon)[:, None]).any(1)


class At(eqx.Module):
    """Changes at fixed steps."""

    times: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        rising = list(self.times) == sorted(set(self.times))
        if not self.times or self.times[0] < 1 or not rising:
            text = ",".join(map(str, self.times))
            raise Mistake(
                f"at[{text}] is no list of change times: write rising steps "
                "from 1 on, for example at[12] or at[8,16]."
            )

    def moments(self, horizon: int, key: PRNGKeyArray) -> Bool[Array, " T"]:
        """Mark the steps at which the team is replaced."""
        del key
        swap = np.zeros(horizon, bool)
        swap[[time for time in self.times if time < horizon]] = True
        return jnp.asarray(swap)


class Change(eqx.Module):
    """When the team changes, and what is redrawn each time."""

    when: Never | After | At = Never()
    redraw: Redraw = eqx.field(static=True, default="group")

    def __check_init__(self):
        check_kind("redraw", self.redraw, Redraw)

    def draw(
        self,
        sizes: Int[Array, " K"],
        allowed: Bool[Array, " K"],
        horizon: int,
        key: PRNGKeyArray,
    ) -> Schedule:
        """Draw one episode's team from the allowed groups, uniformly.

        `same` puts the first group in its own place at every change and `size`
        keeps its policy but takes over the number of a newly drawn group's
        teammates: the two controls that tell the mechanics of a change from
        the change of policy. The first group does not depend on the kind of
        change, so that episodes with and without one can be paired.
        """
        if not isinstance(allowed, Tracer) and not np.any(np.asarray(allowed)):
            raise Mistake("A team is drawn from groups; at least one must be allowed.")
        sizes, allowed = jnp.asarray(sizes), jnp.asarray(allowed)
        k_moments, k_group = jax.random.split(key)
        swap = self.when.moments(horizon, k_moments)
        rank = jax.random.randint(k_group, (horizon,), 0, jnp.sum(allowed))
        drawn = jnp.argmax(jnp.cumsum(allowed)[None] > rank[:, None], axis=1)
        latest = drawn[jnp.cumsum(swap)]
        first = jnp.full(horizon, drawn[0])
        group = latest if self.redraw == "group" else first
        size = sizes[first if self.redraw == "same" else latest]
        return Schedule(group, size, swap)


NOTATION = re.compile(r"(?:(U|at)\[([-\d,\s]*)\](?:-(same|size))?|stationary)")


def parse(text: str) -> Change:
    """Read the paper's notation: stationary, U[5,8], U[5,8]-same, at[12]-size."""
    match = NOTATION.fullmatch(str(text).strip())
    if match is None:
        raise Mistake(
            f"'{text}' is no change distribution: write stationary, U[5,8], "
            "U[5,8]-same, U[5,8]-size or, for fixed steps, at[8,16]."
        )
    kind, listed, control = match.groups()
    if kind is None:
        return Change()
    try:
        numbers = tuple(int(part) for part in listed.split(","))
    except ValueError:
        raise Mistake(f"'{text}': '{listed}' is no list of whole numbers.") from None
    if kind == "U" and len(numbers) != 2:
        raise Mistake(f"'{text}': U takes two numbers, as in U[5,8].")
    when = After(*numbers) if kind == "U" else At(numbers)
    return Change(when, CONTROLS[control])
