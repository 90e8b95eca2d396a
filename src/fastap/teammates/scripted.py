"""Teams that follow a script: yardsticks, controls, and the first teammates."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fastap.envs.board import Board
from fastap.envs.combat import DIRECTIONS, MOVES, STOP, Combat
from fastap.envs.foraging import LOAD, Foraging
from fastap.envs.particles import Arena
from fastap.envs.smax import between
from fastap.problem.rollout import AbstractPolicy, Glance
from fastap.problem.spec import Env, Mistake

CLOSE, NEAR = 3.0, 10.0  # a gathered team's radius, an enemy worth fighting now
FAR = 1000  # more than any way on a board
STEPS = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])  # by number of action


class AbstractScript(AbstractPolicy):
    """A policy without a memory."""

    def start(self, slots: int) -> None:
        """Remember nothing."""
        del slots

    def act(
        self, memory: None, glance: Glance, luck: PRNGKeyArray
    ) -> tuple[None, Int[Array, " P"]]:
        """Choose by what is seen now."""
        return memory, self.choose(glance, luck)

    @abc.abstractmethod
    def choose(self, glance: Glance, key: PRNGKeyArray) -> Int[Array, " P"]:
        """Choose an action for every slot."""


class Random(AbstractScript):
    """Any available action, each as likely."""

    groups: int = eqx.field(static=True, default=1)

    def choose(self, glance: Glance, key: PRNGKeyArray) -> Int[Array, " P"]:
        """Draw one action for every slot."""
        logits = jnp.where(glance.available, 0.0, -jnp.inf)
        return jax.random.categorical(key, logits, axis=1)


class Still(AbstractScript):
    """The first available action, always: in most worlds, to stay."""

    groups: int = eqx.field(static=True, default=1)

    def choose(self, glance: Glance, key: PRNGKeyArray) -> Int[Array, " P"]:
        """Choose the lowest number."""
        del key
        return jnp.argmax(glance.available, axis=1)


class Chaser(AbstractScript):
    """Predators that run to where the prey will soon be."""

    lead: float = eqx.field(static=True, default=0.3)  # seconds
    groups: int = eqx.field(static=True, default=1)

    def choose(self, glance: Glance, key: PRNGKeyArray) -> Int[Array, " P"]:
        """Push towards the prey."""
        del key
        arena = glance.world
        goal = arena.position[-1] + self.lead * arena.velocity[-1]
        return push_to(arena, jnp.broadcast_to(goal, (len(glance.slot), 2)), glance)


class Goer(AbstractScript):
    """Navigators that divide the landmarks among them, the nearest first."""

    groups: int = eqx.field(static=True, default=1)

    def choose(self, glance: Glance, key: PRNGKeyArray) -> Int[Array, " P"]:
        """Push towards one's own landmark; stay where there is none."""
        del key
        arena = glance.world
        gap = jnp.where(
            arena.present[:, None], between(arena.position, arena.mark), jnp.inf
        )
        mine = assign(gap)
        goal = jnp.where((mine >= 0)[:, None], arena.mark[mine], arena.position)
        return push_to(arena, goal[glance.slot], glance)


def push_to(
    arena: Arena, goal: Float[Array, "P 2"], glance: Glance
) -> Int[Array, " P"]:
    """Take the axis on which one is farthest off, allowing for one's speed."""
    place, speed = arena.position[glance.slot], arena.velocity[glance.slot]
    gap = goal - place - 0.3 * speed
    way = jnp.stack([-gap[:, 0], gap[:, 0], -gap[:, 1], gap[:, 1]], axis=1)
    return jnp.where(jnp.max(way, axis=1) > 0.03, 1 + jnp.argmax(way, axis=1), 0)


class Planner(AbstractScript):
    """Foragers that see everything: all go for the food nearest to the team.

    Everybody works out the same plan, so that no word needs to be spoken.
    """

    env: Foraging
    groups: int = eqx.field(static=True, default=1)

    def choose(self, glance: Glance, key: PRNGKeyArray) -> Int[Array, " P"]:
        """Play one's part in the common plan."""
        del key
        return self.plan(glance.world)[glance.slot]

    def plan(self, board: Board) -> Int[Array, " N"]:
        """Go for the nearest food."""
        return self.lead(board, self._nearest_food(board))

    def lead(self, board: Board, food: Int[Array, " 2"]) -> Int[Array, " N"]:
        """Give each agent a side of a food, and lead them there."""
        sides = food[None] + jnp.asarray(STEPS[1:])
        gap = jnp.abs(board.position[:, None] - sides[None]).sum(2)
        gap = jnp.where(board.present[:, None], gap, jnp.inf)
        post = assign(gap)
        mine = sides[jnp.maximum(post, 0)]
        at_post = (post >= 0) & jnp.all(board.position == mine, axis=1)
        ways = self._ways(board, sides, at_post)
        way = jnp.where((post >= 0)[:, None, None], ways[post], FAR)
        steps = self._steps(board, way, at_post)
        return jnp.where(at_post, LOAD, steps)

    def _nearest_food(self, board: Board) -> Int[Array, " 2"]:
        """Take the food for which three agents have the shortest way in all."""
        gap = jnp.abs(board.position[:, None] - board.food[None]).sum(2)
        gap = jnp.sort(jnp.where(board.present[:, None], gap, FAR), axis=0)[:3]
        cost = jnp.where(board.food_level > 0, gap.sum(0), 9 * FAR)
        return board.food[jnp.argmin(cost)]

    def _ways(
        self, board: Board, sides: Int[Array, "4 2"], at_post: Bool[Array, " N"]
    ) -> Int[Array, "4 R C"]:
        """Measure the way to each side around food and who already stands."""
        rows, columns = self.env.rows, self.env.columns
        grid = jnp.stack(jnp.mgrid[:rows, :columns], axis=-1)
        on = lambda place: jnp.all(grid[None] == place[:, None, None], axis=-1)
        wall = jnp.any(on(board.food) & (board.food_level > 0)[:, None, None], axis=0)
        wall = wall | jnp.any(on(board.position) & at_post[:, None, None], axis=0)
        way = jnp.where(on(sides), 0, FAR)

        def widen(way, _):
            edge = jnp.pad(way, ((0, 0), (1, 1), (1, 1)), constant_values=FAR)
            beside = jnp.minimum(edge[:, :-2, 1:-1], edge[:, 2:, 1:-1])
            beside = jnp.minimum(beside, edge[:, 1:-1, :-2])
            beside = jnp.minimum(beside, edge[:, 1:-1, 2:])
            through = jnp.where(wall[None], FAR, beside + 1)
            return jnp.minimum(jnp.minimum(way, through), FAR), None

        return jax.lax.scan(widen, way, length=rows + columns)[0]

    def _steps(
        self, board: Board, way: Int[Array, "N R C"], at_post: Bool[Array, " N"]
    ) -> Int[Array, " N"]:
        """Let each agent take the best step to a cell that nobody before it took."""
        size = jnp.array([self.env.rows, self.env.columns])
        taken = jnp.where(at_post[:, None], board.position, -FAR)
        chosen = []
        for i in range(self.env.agents):
            cells = board.position[i][None] + jnp.asarray(STEPS)
            inside = jnp.all((cells >= 0) & (cells < size[None]), axis=1)
            row, column = jnp.clip(cells, 0, size[None] - 1).T
            free = ~jnp.any(jnp.all(cells[:, None] == taken[None], axis=2), axis=1)
            cost = jnp.where(inside & free, way[i, row, column], 2 * FAR)
            step = jnp.argmin(cost)
            here = jnp.where(board.present[i], cells[step], -FAR)
            taken = taken.at[i].set(jnp.where(at_post[i], taken[i], here))
            chosen.append(step)
        return jnp.stack(chosen)


class Habitual(AbstractScript):
    """Planners of K groups, each with an order of its own among the foods.

    A group goes for the food that is first along its `order`, a direction over
    the board (rows down, columns right), among the foods within `sight` of one
    of the team if there are any; now and then, by `noise`, somebody errs.
    """

    planner: Planner
    order: Float[Array, "K 2"]
    noise: Float[Array, " K"]
    sight: Int[Array, " K"]
    groups: int = eqx.field(static=True)

    def choose(self, glance: Glance, key: PRNGKeyArray) -> Int[Array, " P"]:
        """Play one's part in the group's plan, or err."""
        k_whether, k_which = jax.random.split(key)
        wild = jax.random.uniform(k_whether, (len(glance.slot),))
        food = self._first_food(glance.world, glance.group)
        right = self.planner.lead(glance.world, food)[glance.slot]
        wrong = Random().choose(glance, k_which)
        return jnp.where(wild < self.noise[glance.group], wrong, right)

    def _first_food(self, board: Board, group: Int[Array, ""]) -> Int[Array, " 2"]:
        along = jnp.sum(board.food * self.order[group][None], axis=1)
        gap = jnp.abs(board.position[:, None] - board.food[None]).max(2)
        gap = jnp.where(board.present[:, None], gap, FAR).min(0)
        unseen = jnp.where(gap > self.sight[group], FAR, 0)
        gone = jnp.where(board.food_level > 0, 0, 9 * FAR)
        return board.food[jnp.argmin(along + unseen + gone)]


def assign(way: Float[Array, "N G"]) -> Int[Array, " N"]:
    """Give every goal to one agent, the shortest way first; -1 for who has none."""
    goal = jnp.full(len(way), -1)
    for _ in range(min(way.shape)):
        agent, nearest = jnp.unravel_index(jnp.argmin(way), way.shape)
        found = jnp.isfinite(way[agent, nearest])
        goal = goal.at[agent].set(jnp.where(found, nearest, goal[agent]))
        way = way.at[agent].set(jnp.inf).at[:, nearest].set(jnp.inf)
    return goal


class Gatherer(AbstractPolicy):
    """Marines that shoot the weakest enemy in range, after gathering or at once.

    Those who gather meet at their first spawn point before they go to meet the
    enemy, and close ranks whenever none is near; the others just go.
    """

    env: Combat
    gather: bool = eqx.field(static=True, default=True)
    groups: int = eqx.field(static=True, default=1)

    def start(self, slots: int) -> Bool[Array, " P"]:
        """Remember whether the team has met."""
        return jnp.full(slots, not self.gather)

    def act(
        self, memory: Bool[Array, " P"], glance: Glance, luck: PRNGKeyArray
    ) -> tuple[Bool[Array, " P"], Int[Array, " P"]]:
        """Shoot if possible, else walk."""
        del luck
        n, units = self.env.agents, glance.world.units
        alive = units.unit_alive[:n]
        rally = jnp.asarray(self.env.ally_spawns[0])
        away = between(units.unit_positions[:n], rally[None])[:, 0]
        gathered = jnp.max(jnp.where(alive, away, 0.0)) < CLOSE
        fighting = jnp.any(units.unit_health[n:] < units.unit_health.max())
        here = away[glance.slot] < NEAR
        met = memory | gathered | (fighting & here)
        goal = jnp.where(met[:, None], self._target(glance)[glance.slot], rally[None])
        way = (goal - units.unit_positions[glance.slot]) @ jnp.asarray(DIRECTIONS.T)
        walk = jnp.where(jnp.max(way, axis=1) < 0.8, STOP, jnp.argmax(way, axis=1))
        health = units.unit_health[None, n:]
        health = jnp.where(glance.available[:, MOVES:], health, jnp.inf)
        shoot = jnp.isfinite(health).any(1)
        action = jnp.where(shoot, MOVES + jnp.argmin(health, axis=1), walk)
        return met, jnp.where(alive[glance.slot], action, STOP)

    def _target(self, glance: Glance) -> Float[Array, "N 2"]:
        """Head for the nearest enemy, or for each other if there is time."""
        n, units = self.env.agents, glance.world.units
        place, alive = units.unit_positions[:n], units.unit_alive[:n]
        foes, living = units.unit_positions[n:], units.unit_alive[n:]
        distance = between(place, foes)
        distance = jnp.where(alive[:, None] & living[None], distance, jnp.inf)
        nearest = foes[jnp.argmin(distance, axis=1)]
        if not self.gather:
            return nearest
        middle = jnp.sum(place * alive[:, None], 0) / jnp.maximum(alive.sum(), 1)
        spread = between(place, middle[None])[:, 0]
        loose = jnp.max(jnp.where(alive, spread, 0.0)) > CLOSE
        quiet = jnp.min(distance) > NEAR
        return jnp.where(loose & quiet, middle[None], nearest)


def habits(env: Env, rows: Sequence[dict[str, Any]]) -> Habitual:
    """Make the planners that the rows of a manifest describe."""
    if not isinstance(env, Foraging):
        raise Mistake(f"{env.spec.name} has no scripted zoo; lbf has.")
    try:
        column = lambda name, kind: np.array([row[name] for row in rows], kind)
        order, noise = column("order", np.float32), column("noise", np.float32)
        sight, count = column("sight", np.int32), len(rows)
        fit = order.shape == (count, 2) and noise.shape == sight.shape == (count,)
        if not fit or np.any((noise < 0) | (noise > 1) | (sight < 0)):
            raise ValueError("of another length, or out of bounds")
        return Habitual(
            planner=Planner(env=env),
            order=jnp.asarray(order),
            noise=jnp.asarray(noise),
            sight=jnp.asarray(sight),
            groups=count,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        words = "A scripted group lacks a proper order, noise or sight"
        raise Mistake(f"{words}: {str(error).splitlines()[0]}.") from error
