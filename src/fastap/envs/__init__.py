"""The environments, by the names of the contract."""

import dataclasses
from typing import Any, get_type_hints

from fastap.envs.combat import Combat
from fastap.envs.foraging import Foraging
from fastap.envs.navigation import Navigation
from fastap.envs.pursuit import Pursuit
from fastap.problem.spec import Env, Mistake, check_kind

ENVIRONMENTS = {
    "lbf": Foraging,
    "pp": Pursuit,
    "cn": Navigation,
    "10m_vs_14m": Combat,
}


def check_name(name: Any) -> None:
    """See that there is such an environment."""
    if not isinstance(name, str) or name not in ENVIRONMENTS:
        known = ", ".join(ENVIRONMENTS)
        raise Mistake(f"'{name}' is no environment; there are {known}.")


def make(name: Any, **parameters: Any) -> Env:
    """Build an environment: `make("lbf", rows=8, columns=8)`."""
    check_name(name)
    build = ENVIRONMENTS[name]
    fields = {field.name for field in dataclasses.fields(build)}
    for unknown in parameters.keys() - fields:
        listed = ", ".join(sorted(fields))
        raise Mistake(f"{name} has no parameter '{unknown}'; it has {listed}.")
    kinds = get_type_hints(build)
    for field, value in parameters.items():
        check_kind(f"{name}: {field}", value, kinds[field])
    return build(**parameters)
