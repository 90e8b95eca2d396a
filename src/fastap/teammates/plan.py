"""Which groups a zoo is to have: pools, planted types, and the members of each."""

from collections.abc import Callable, Sequence
from typing import Any

from fastap.problem.spec import Mistake
from fastap.teammates.conventions import CORNERS, FIRST_HALF, PLACES, POSTS, SIDES
from fastap.teammates.grow import Habit, Member, Pool, Trunk

Name = Callable[[int, int], str]


def zoo_of(
    name: Name, seen: Sequence[Habit], unseen: Sequence[Habit], large: int, small: int
) -> tuple[Trunk, ...]:
    """Plan 16, 8 and 8 groups: six types to learn beside, two to be met at last.

    Every trunk is one type's run by QMIX, from which its members branch; those of
    validation and half of those held out are new runs of types that were seen.
    """
    big, few, weak = Member(large), Member(small), Member(large, "half")

    def trunk(pool: Pool, habit: Habit, seed: int, *members: Member) -> Trunk:
        return Trunk(name(*habit), pool, habit, seed, members)

    return (
        trunk("train", seen[0], 100, big, few, weak),
        trunk("train", seen[1], 101, big, few, big),
        trunk("train", seen[2], 102, big, few, few),
        trunk("train", seen[3], 103, big, few, weak),
        trunk("train", seen[4], 104, big, few),
        trunk("train", seen[5], 105, big, few),
        *(trunk("validation", seen[i], 200 + i, big, few) for i in range(4)),
        trunk("held-out", seen[0], 300, big, few),
        trunk("held-out", seen[3], 301, big, few),
        trunk("held-out", unseen[0], 302, big, few),
        trunk("held-out", unseen[1], 303, big, few),
    )


PLANS = {
    "lbf": zoo_of(
        lambda corner, side: f"{CORNERS[corner]}, {SIDES[side]} free",
        ((0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 3)),
        ((1, 0), (2, 1)),
        large=2,
        small=1,
    ),
    "pp": zoo_of(
        lambda turn, order: f"turned by {turn}{', mirrored' * order}",
        [(turn, 0) for turn in range(6)],
        ((1, 1), (4, 1)),
        large=1,
        small=1,
    ),
    "cn": zoo_of(
        lambda row, _: "posts " + " ".join(map(str, POSTS[row])),
        [(row, 0) for row in range(6)],
        ((6, 0), (7, 0)),
        large=2,
        small=1,
    ),
    "10m_vs_14m": zoo_of(
        lambda place, half: f"meet {PLACES[place]}, {FIRST_HALF[half]} first",
        ((0, 0), (1, 1), (2, 0), (3, 1), (0, 1), (1, 0)),
        ((2, 1), (3, 0)),
        large=3,
        small=3,
    ),
}

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
