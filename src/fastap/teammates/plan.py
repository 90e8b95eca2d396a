"""Which groups a zoo is to have: pools, planted types, and the members of each."""

from typing import Any

from fastap.problem.spec import Mistake
from fastap.teammates.conventions import CORNERS, SIDES
from fastap.teammates.grow import Member, Pool, Trunk

ONE, TWO = Member(size=1), Member(size=2)
WEAK = Member(size=2, skill="half")
SEEN = ((0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 3))  # corner and free side
UNSEEN = ((1, 0), (2, 1))


def trunk(pool: Pool, habit: tuple[int, int], seed: int, *members: Member) -> Trunk:
    """Plan one type's run by QMIX and the members that branch from it."""
    corner, side = habit
    name = f"{CORNERS[corner]}, {SIDES[side]} free"
    return Trunk(name, pool, corner, side, seed, members)


LBF = (
    trunk("train", SEEN[0], 100, TWO, ONE, WEAK),
    trunk("train", SEEN[1], 101, TWO, ONE, TWO),
    trunk("train", SEEN[2], 102, TWO, ONE, ONE),
    trunk("train", SEEN[3], 103, TWO, ONE, WEAK),
    trunk("train", SEEN[4], 104, TWO, ONE),
    trunk("train", SEEN[5], 105, TWO, ONE),
    *(trunk("validation", SEEN[i], 200 + i, TWO, ONE) for i in range(4)),
    trunk("held-out", SEEN[0], 300, TWO, ONE),
    trunk("held-out", SEEN[3], 301, TWO, ONE),
    trunk("held-out", UNSEEN[0], 302, TWO, ONE),
    trunk("held-out", UNSEEN[1], 303, TWO, ONE),
)
PLANS = {"lbf": LBF}

ORDERS = {  # directions over the board: what comes first is smallest along them
    "top left": (1, 1),
    "top right": (1, -1),
    "bottom left": (-1, 1),
    "bottom right": (-1, -1),
    "left": (0, 1),
    "bottom": (-1, 0),
}
SIZES = dict(zip(ORDERS, (2, 1, 1, 1, 2, 1), strict=True))  # part of a type
NOISE = {  # of the members of a type; those of validation span what those of train do
    "train": (0.02, 0.03, 0.04, 0.05),
    "validation": (0.025, 0.055),
    "held-out": (0.03, 0.06),
}


def conventions() -> list[dict[str, Any]]:
    """Plan the scripted zoo: orders of food, in variants that err more or less."""
    corners, edges = list(ORDERS)[:4], list(ORDERS)[4:]
    plans = {
        "train": corners,
        "validation": corners,
        "held-out": (corners[0], corners[3], *edges),
    }
    return [
        {
            "name": f"{name} {i + 1}, {pool}",
            "pool": pool,
            "type": name,
            "size": SIZES[name],
            "skill": "full",
            "order": ORDERS[name],
            "noise": noise,
            "sight": 6,
        }
        for pool, names in plans.items()
        for name in names
        for i, noise in enumerate(NOISE[pool])
    ]


def plan(name: str) -> tuple[Trunk, ...]:
    """Look up the plan of an environment's zoo."""
    if name not in PLANS:
        known = ", ".join(PLANS)
        raise Mistake(f"There is no plan for a zoo of '{name}'; there is for {known}.")
    return PLANS[name]
