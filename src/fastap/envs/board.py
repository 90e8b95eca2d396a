"""A board of foragers and food, and how to write down what is on it."""

import equinox as eqx
import jax
import jax.numpy as jnp
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
    things = triples.reshape(*triples.shape[:-1], -1, 3)
    coded, first = [], 0
    for count, highest in levels:
        part, first = things[..., first : first + count, :], first + count
        for i, width in enumerate((window, window, highest)):
            shifted = part[..., i] + (i < 2)
            coded.append(jax.nn.one_hot(shifted, width + 1))
    flat = [code.reshape(*triples.shape[:-1], -1) for code in coded]
    return jnp.concatenate(flat, axis=-1)


def one_hot_width(window: int, levels: Levels) -> int:
    """Count the entries of those vectors."""
    return sum(count * (2 * window + 2 + highest + 1) for count, highest in levels)


def pick(free: Bool[Array, " cells"], chance: Float[Array, ""]) -> Int[Array, ""]:
    """Choose one of the free cells, uniformly."""
    count = jnp.cumsum(free)
    rank = jnp.floor(chance * count[-1]).astype(int)
    return jnp.argmax(count > rank)


def room_for_food(rows: int, columns: int) -> int:
    """Count the foods of the densest regular pattern with distance three."""
    inside = [(r, c) for r in range(1, rows - 1) for c in range(1, columns - 1)]
    patterns = [
        sum((r + step * c) % 5 == shift for r, c in inside)
        for step in (2, 3)
        for shift in range(5)
    ]
    return max(patterns)
