"""The physics that pursuit and navigation share: discs that push each other."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

STEP = 0.1  # seconds
DAMPING = 0.25  # the share of its speed that a body loses in a step
STIFFNESS = 100.0  # the force of a contact
MARGIN = 1e-3  # how softly a contact begins


Point = tuple[Float[Array, ""], Float[Array, ""]]


class Arena(eqx.Module):
    """A world of discs: bodies that move, and marks that stay."""

    position: Float[Array, "M 2"]
    velocity: Float[Array, "M 2"]
    present: Bool[Array, " M"]
    mark: Float[Array, "L 2"]


@dataclasses.dataclass(frozen=True)
class Body:
    """What a kind of body can do."""

    radius: float
    push: float  # the force of its own motor
    fastest: float = np.inf


def advance(
    world: Arena, bodies: Sequence[Body], solid: float | None, action: Int[Array, " M"]
) -> Arena:
    """Let every body act, push and coast for one step.

    Marks with a `solid` radius push back. Positions move by the old velocity,
    as in mpe2's third version of the worlds.
    """
    push = jnp.array([body.push for body in bodies])
    fastest = jnp.array([body.fastest for body in bodies])
    east = (action == 2).astype(float) - (action == 1)
    north = (action == 4).astype(float) - (action == 3)
    force = jnp.stack([east, north], axis=1) * push[:, None]
    force = force + contact(world, bodies, solid)
    velocity = world.velocity * (1 - DAMPING) + force * STEP
    speed = length(velocity)
    limit = jnp.where(speed > fastest, fastest / jnp.maximum(speed, 1e-12), 1.0)
    velocity = velocity * limit[:, None]
    position = world.position + world.velocity * STEP
    there = world.present[:, None]
    return Arena(
        jnp.where(there, position, 0.0),
        jnp.where(there, velocity, 0.0),
        world.present,
        world.mark,
    )


def contact(
    world: Arena, bodies: Sequence[Body], solid: float | None
) -> Float[Array, "M 2"]:
    """Sum the forces of all contacts on each body.

    Pair by pair, in scalars: under `vmap` each is one vector over the episodes,
    which XLA's CPU code handles twice as fast as tables of pairs.
    """
    place = points(world.position)
    there = [world.present[i] for i in range(len(bodies))]
    force = [(jnp.zeros(()), jnp.zeros(())) for _ in bodies]
    for i, body in enumerate(bodies):
        for j in range(i):
            reach = body.radius + bodies[j].radius
            x, y = repel(place[i], place[j], reach, there[i] & there[j])
            force[i] = (force[i][0] + x, force[i][1] + y)
            force[j] = (force[j][0] - x, force[j][1] - y)
        for mark in points(world.mark) if solid is not None else []:
            x, y = repel(place[i], mark, body.radius + (solid or 0.0), there[i])
            force[i] = (force[i][0] + x, force[i][1] + y)
    return jnp.stack([axis for pair in force for axis in pair]).reshape(-1, 2)


def repel(a: Point, b: Point, reach: float, real: Bool[Array, ""]) -> Point:
    """Return the force of b on a, which begins softly where they touch.

    Two bodies in the very same place do not push each other (mpe2 divides by
    zero there).
    """
    x, y = a[0] - b[0], a[1] - b[1]
    distance = between(a, b)
    depth = MARGIN * jax.nn.softplus((reach - distance) / MARGIN)
    strength = STIFFNESS * depth / jnp.maximum(distance, 1e-12)
    strength = jnp.where(real, strength, 0.0)
    return x * strength, y * strength


def between(a: Point, b: Point) -> Float[Array, ""]:
    """Measure the distance of two points."""
    return jnp.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2)


def points(position: Float[Array, "M 2"]) -> list[Point]:
    """Take a table of positions apart."""
    return [(position[i, 0], position[i, 1]) for i in range(position.shape[0])]


def seen_from(me: Point, others: Sequence[Point], there: Sequence) -> list[Array]:
    """List where others are, from where one is; zeros for who is not there."""
    gaps = [(x - me[0], y - me[1]) for x, y in others]
    pairs = zip(gaps, there, strict=True)
    return [jnp.where(is_there, axis, 0.0) for gap, is_there in pairs for axis in gap]


def length(vector: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
    """Measure vectors of the plane."""
    return jnp.sqrt(vector[..., 0] ** 2 + vector[..., 1] ** 2)


def anywhere(count: int, key: PRNGKeyArray) -> Float[Array, "n 2"]:
    """Draw places for some bodies."""
    return jax.random.uniform(key, (count, 2), minval=-1.0, maxval=1.0)


def arrive(
    world: Arena, present: Bool[Array, " M"], place: Float[Array, "n 2"]
) -> Arena:
    """Put arriving bodies in their places, at rest; remove who leaves.

    Only the last n bodies can come and go.
    """
    stay = jnp.zeros((len(present) - len(place), 2))
    place = jnp.concatenate([stay, place])
    stayed = (world.present & present)[:, None]
    position = jnp.where(stayed, world.position, place)
    return Arena(
        jnp.where(present[:, None], position, 0.0),
        jnp.where(stayed, world.velocity, 0.0),
        present,
        world.mark,
    )


def settle(
    present: Bool[Array, " M"], marks: int, spread: float, key: PRNGKeyArray
) -> Arena:
    """Place all bodies and marks at random, at rest."""
    k_body, k_mark = jax.random.split(key)
    position = anywhere(len(present), k_body)
    mark = jax.random.uniform(k_mark, (marks, 2), minval=-spread, maxval=spread)
    position = jnp.where(present[:, None], position, 0.0)
    return Arena(position, jnp.zeros_like(position), present, mark)


def everything(world: Arena) -> Float[Array, " S"]:
    """Write down the whole world: bodies, marks, who is there."""
    parts = (world.position, world.velocity, world.mark, world.present.astype(float))
    return jnp.concatenate([part.reshape(-1) for part in parts])
