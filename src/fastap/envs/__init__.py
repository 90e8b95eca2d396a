"""The environments, by the names of the contract."""

import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fastap.envs.combat import Combat
from fastap.envs.foraging import Foraging
from fastap.envs.navigation import Navigation
from fastap.envs.pursuit import Pursuit
from fastap.problem.spec import Env, Mistake

ENVIRONMENTS = {
    "lbf": Foraging,
    "pp": Pursuit,
    "cn": Navigation,
    "10m_vs_14m": Combat,
}


def make(name: str, **parameters: Any) -> Env:
    """Build an environment: `make("lbf", rows=8, columns=8)`."""
    if name not in ENVIRONMENTS:
        known = ", ".join(ENVIRONMENTS)
        raise Mistake(f"'{name}' is no environment; there are {known}.")
    build = ENVIRONMENTS[name]
    fields = {field.name for field in dataclasses.fields(build)}
    for unknown in parameters.keys() - fields:
        listed = ", ".join(sorted(fields))
        raise Mistake(f"{name} has no parameter '{unknown}'; it has {listed}.")
    kinds = get_type_hints(build)
    for field, value in parameters.items():
        check_kind(f"{name}: {field}", value, kinds[field])
    return build(**parameters)


def check_kind(what: str, value: Any, kind: Any) -> None:
    """Refuse a word that is no choice, and what is no number where one is due."""
    if get_origin(kind) is Literal and value not in get_args(kind):
        choices = " or ".join(f"'{choice}'" for choice in get_args(kind))
        raise Mistake(f"{what} must be {choices}, not {value!r}.")
    numbers = {int: (int,), float: (int, float), bool: (bool,)}
    right = numbers.get(kind)
    truth = isinstance(value, bool) and kind is not bool
    if right and (truth or not isinstance(value, right)):
        raise Mistake(f"{what} must be of type {kind.__name__}, not {value!r}.")
