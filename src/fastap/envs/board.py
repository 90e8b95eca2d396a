"""A board of foragers and food, and how to write down what is on it."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, Num

Levels = tuple[tuple[int, int], ...]  # for each kind: how many, highest level
NOTHING = 0x0000FFFF  # (-1, -1, 0), packed


class Board(eqx.Module):
    """A world of foraging; positions are (row, column)."""

    position: Int[Array, "N 2"]  # -1 where absent
    level: Int[Array, " N"]  # 0 where absent
    present: Bool[Array, " N"]
    food: Int[Array, "F 2"]  # in reading order; -1 where never placed
    food_level: Int[Array, " F"]  # 0 once loaded
    spawned: Int[Array, ""]  # the sum of all food levels at the beginning


def seen_by(world: Board, me: int, sight: int, dense: bool) -> list[Int[Array, ""]]:
    """List the foods in an agent's window, itself, and the others it sees.

    As in lbforaging, near the top and the left border an agent sees other
    agents twice as far down and right, because the window is cut off there.
    """
    row, column = world.position[me, 0], world.position[me, 1]
    top = row - jnp.minimum(row, sight)
    left = column - jnp.minimum(column, sight)
    foods, others = [], []
    for i in range(len(world.food)):
        r, c, level = world.food[i, 0], world.food[i, 1], world.food_level[i]
        near = within(r, row, sight) & within(c, column, sight)
        code = pack(r - top, c - left, level)
        foods.append(jnp.where(near & (level > 0), code, NOTHING))
    for i in range(len(world.level)):
        r, c = world.position[i, 0] - top, world.position[i, 1] - left
        inside = (r >= 0) & (c >= 0) & (jnp.maximum(r, c) <= 2 * sight)
        code = pack(r, c, world.level[i])
        others.append(jnp.where(inside & world.present[i], code, NOTHING))
    myself = others.pop(me)
    if dense:
        others = compact(others)
    listed = [*compact(foods), myself, *others]
    return [jnp.where(world.present[me], code, -1) for code in listed]


def within(a: Int[Array, ""], b: Int[Array, ""], reach: int) -> Bool[Array, ""]:
    """Say whether two coordinates are close.

    Not by `abs(a - b) <= reach`: XLA for GPUs compiles that, in the midst of
    this module's selections, to code that takes every negative gap for a small
    one (seen with jax 0.11.2 on an H200).
    """
    return (a - b <= reach) & (b - a <= reach)


def whole(world: Board) -> Int8[Array, " S"]:
    """Write down the board: foods, agents, who is there."""
    food = pack(world.food[:, 0], world.food[:, 1], world.food_level)
    food = jnp.where(world.food_level > 0, food, NOTHING)
    agents = pack(world.position[:, 0], world.position[:, 1], world.level)
    things = unpack(jnp.concatenate([food, agents])).reshape(-1)
    return jnp.concatenate([things, world.present.astype(jnp.int8)])


def pack(
    row: Int[Array, "*n"], column: Int[Array, "*n"], level: Int[Array, "*n"]
) -> Int[Array, "*n"]:
    """Write (row, column, level) into the lowest bytes of one number."""
    return (row & 255) | ((column & 255) << 8) | (level << 16)


def unpack(code: Int[Array, "*n"]) -> Int8[Array, "*n 3"]:
    """Read (row, column, level) out of one number."""
    return jax.lax.bitcast_convert_type(code.astype(jnp.int32), jnp.int8)[..., :3]


def compact(codes: list[Int[Array, ""]]) -> list[Int[Array, ""]]:
    """Move what is seen to the front, keeping its order."""
    codes = list(codes)
    for end in range(len(codes) - 1, 0, -1):
        for i in range(end):
            gap = codes[i] == NOTHING
            codes[i], codes[i + 1] = (
                jnp.where(gap, codes[i + 1], codes[i]),
                jnp.where(gap, NOTHING, codes[i + 1]),
            )
    return codes


def one_hot(
    triples: Num[Array, "*B O"], window: int, levels: Levels
) -> Float[Array, "*B I"]:
    """Write every coordinate and level of a list of things as a one-hot vector.

    A coordinate is -1 or one of `window` values; what is out of range is zeros.
    """
    source, value = one_hot_table(window, levels)
    asked = triples[..., source]
    return (asked == jnp.broadcast_to(value, asked.shape)).astype(jnp.float32)


def one_hot_width(window: int, levels: Levels) -> int:
    """Count the entries of those vectors."""
    return len(one_hot_table(window, levels)[0])


@functools.cache
def one_hot_table(window: int, levels: Levels) -> tuple[np.ndarray, np.ndarray]:
    """Say which number each entry asks about, and for which value it is one.

    All rows of the things of one kind come first, then columns, then levels.
    """
    entries, first = [], 0
    for count, highest in levels:
        ranges = (range(-1, window), range(-1, window), range(highest + 1))
        entries += [
            (3 * thing + i, value)
            for i, values in enumerate(ranges)
            for thing in range(first, first + count)
            for value in values
        ]
        first += count
    source, value = np.array(entries, np.int32).T
    return source, value


def pick(free: Bool[Array, " cells"], chance: Float[Array, ""]) -> Int[Array, ""]:
    """Choose one of the free cells, uniformly."""
    count = jnp.cumsum(free)
    rank = jnp.floor(chance * count[-1]).astype(int)
    return jnp.argmax(count > rank)


def room_for_food(rows: int, columns: int) -> int:
    """Count the foods that fit inside the border, all three steps apart.

    Exact up to nine cells across; beyond, the densest regular pattern.
    """
    tall, wide = sorted((rows - 2, columns - 2))[::-1]
    if wide > 9:
        return max(
            sum((r + step * c) % 5 == shift for r in range(tall) for c in range(wide))
            for step in (2, 3)
            for shift in range(5)
        )
    lines = [m for m in range(1 << wide) if not m & (m << 1 | m << 2)]
    best = {(0, 0): 0}  # by the last two lines: the most foods so far
    for _ in range(tall):
        after: dict[tuple[int, int], int] = {}
        for (above, before), count in best.items():
            near = above | above << 1 | above >> 1 | before
            for line in lines:
                if not line & near:
                    total = count + line.bit_count()
                    after[line, above] = max(after.get((line, above), 0), total)
        best = after
    return max(best.values())
