"""What an environment of the open Dec-POMDP is, and what it promises."""

import abc
import dataclasses
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray


class Mistake(ValueError):
    """Something the user can mend; its text is one sentence that says how."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """The sizes of a problem: N slots, the first n of them controlled."""

    name: str
    slots: int  # N: controlled agents first, then the teammates' slots
    controlled: int  # n
    least: int  # the smallest number of teammates
    actions: int  # A
    observation: int  # O, as stored
    inputs: int  # I, an observation as networks see it
    state: int  # S, as stored
    state_inputs: int  # the state as networks see it
    horizon: int  # T
    limit: Literal["terminal", "truncated"] = "terminal"  # what the horizon means

    @property
    def mates(self) -> int:
        """The largest number of teammates."""
        return self.slots - self.controlled

    @property
    def permanent(self) -> int:
        """How many slots are occupied whoever the teammates are."""
        return self.controlled + self.least

    def present(self, size: Int[Array, ""]) -> Bool[Array, " N"]:
        """Say who is there when the team has this many teammates."""
        return jnp.arange(self.slots) < self.controlled + size


class View(eqx.Module):
    """What can be seen of a world: by each agent, and by the trainer."""

    observation: Num[Array, "N O"]
    state: Num[Array, " S"]
    available: Bool[Array, "N A"]


class Outcome(eqx.Module):
    """What one joint action brought the team."""

    reward: Float[Array, ""]
    terminal: Bool[Array, ""]  # this transition ended the task
    won: Bool[Array, ""]  # the team has reached the goal, where there is one


@dataclasses.dataclass(frozen=True)
class Shape:
    """One thing to draw, in the world's own coordinates."""

    kind: Literal["controlled", "mate", "food", "goal", "obstacle", "prey", "enemy"]
    x: float
    y: float
    radius: float
    label: str = ""
    strength: float = 1.0  # health left, 0..1


@dataclasses.dataclass(frozen=True)
class Scene:
    """A world as a list of shapes: what every renderer draws."""

    extent: tuple[float, float, float, float]  # left, right, bottom, top
    shapes: tuple[Shape, ...]
    cells: bool = False  # whether the world is a board


def draw_team(
    controlled: int, present: Any, places: Any, radius: float, labels: Any = ()
) -> list[Shape]:
    """Draw the bodies that are there, by who moves them."""
    shapes = []
    for slot, (x, y) in enumerate(np.asarray(places, float)):
        if present[slot]:
            kind = "controlled" if slot < controlled else "mate"
            label = str(int(labels[slot])) if len(labels) else ""
            shapes.append(Shape(kind, float(x), float(y), radius, label))
    return shapes


class Env(eqx.Module):
    """A cooperative task whose team may change; every method is pure.

    A world knows who is present. An absent agent is invisible, intangible and
    earns nothing; a body whose policy changes stays where it is.
    """

    alike: ClassVar[bool] = False  # many bodies of one kind, that share their networks
    winnable: ClassVar[bool] = False  # there is a goal that a team can reach

    @property
    @abc.abstractmethod
    def spec(self) -> Spec:
        """The sizes of the problem."""

    @abc.abstractmethod
    def reset(self, present: Bool[Array, " N"], key: PRNGKeyArray) -> Any:
        """Begin an episode with these agents."""

    def luck(self, key: PRNGKeyArray) -> Any:
        """Draw what `swap` leaves to chance: by default, the key to draw it with.

        It is called for all steps at once, before the episode, which is much
        faster than to draw a few numbers in every step.
        """
        return key

    @abc.abstractmethod
    def swap(self, world: Any, present: Bool[Array, " N"], luck: Any) -> Any:
        """Let bodies leave and arrive until just these are there."""

    @abc.abstractmethod
    def step(
        self, world: Any, action: Int[Array, " N"], key: PRNGKeyArray
    ) -> tuple[Any, Outcome]:
        """Carry out one joint action."""

    @abc.abstractmethod
    def view(self, world: Any) -> View:
        """Look at a world through everybody's eyes."""

    @abc.abstractmethod
    def encode(self, observation: Num[Array, "*B O"]) -> Float[Array, "*B I"]:
        """Turn stored observations into the inputs of a network."""

    def coding(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Write `encode` as a table, so that agents can be shipped without it.

        For each input, which number it asks about and for which value it is one.
        By default nothing: the inputs are the numbers themselves.
        """
        return None

    @abc.abstractmethod
    def encode_state(self, state: Num[Array, "*B S"]) -> Float[Array, "*B J"]:
        """Turn stored states into the inputs of a network."""

    @abc.abstractmethod
    def scene(self, world: Any) -> Scene:
        """List what there is to draw (on the host)."""


def check_actions(spec: Spec, action: Any) -> Int[Array, " N"]:
    """Refuse joint actions of a wrong shape, type or, where known, range."""
    action = jnp.asarray(action)
    if action.shape != (spec.slots,) or not jnp.issubdtype(action.dtype, jnp.integer):
        raise Mistake(
            f"{spec.name} takes one whole-number action for each of its "
            f"{spec.slots} slots, shape ({spec.slots},), not {action.dtype} "
            f"{action.shape}."
        )
    if not isinstance(action, Tracer):
        wrong = [int(a) for a in np.asarray(action) if not 0 <= a < spec.actions]
        if wrong:
            raise Mistake(
                f"{spec.name} has the actions 0 to {spec.actions - 1}; "
                f"{wrong[0]} is not one of them."
            )
    return action


def check_kind(what: str, value: Any, kind: Any) -> None:
    """Refuse a word that is no choice, and what is no number where one is due."""
    if get_origin(kind) is Literal and value not in get_args(kind):
        choices = " or ".join(f"'{choice}'" for choice in get_args(kind))
        raise Mistake(f"{what} must be {choices}, not {value!r}.")
    right = {int: (int, np.integer), float: (int, float, np.number), bool: (bool,)}
    truth = isinstance(value, bool) and kind is not bool
    if kind in right and (truth or not isinstance(value, right[kind])):
        raise Mistake(f"{what} must be of type {kind.__name__}, not {value!r}.")


def check_sizes(name: str, holder: Any, **least: int) -> None:
    """Refuse fields of a wrong kind, and sizes that are too small to mean anything."""
    for field, kind in get_type_hints(type(holder)).items():
        check_kind(f"{name}: {field}", getattr(holder, field), kind)
    for field, bound in least.items():
        value = getattr(holder, field)
        if value < bound:
            raise Mistake(f"{name}: {field} must be at least {bound}, not {value}.")


def check_team(name: str, slots: int, controlled: int, least: int) -> None:
    """Refuse teams with nobody to control or more teammates than slots."""
    if controlled < 1 or least < 0:
        raise Mistake(
            f"{name}: a team has at least 1 controlled agent and 0 teammates, "
            f"not {controlled} and {least}."
        )
    if controlled + least > slots:
        raise Mistake(
            f"{name}: {slots} agents cannot be {controlled} controlled ones "
            f"and at least {least} teammates."
        )
