"""Level-based foraging: agents join their levels to load food from a board."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from fastap.envs.board import (
    Board,
    one_hot,
    one_hot_table,
    one_hot_width,
    pick,
    room_for_food,
    seen_by,
    unpack,
    whole,
)
from fastap.problem.spec import (
    Env,
    Mistake,
    Outcome,
    Scene,
    Shape,
    Spec,
    View,
    check_actions,
    check_sizes,
    check_team,
    draw_team,
)

NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
Luck = Float[Array, "arriving C"]  # the level, then a score for every cell


class Foraging(Env):
    """Level-based foraging as in lbforaging 2.0.0, with a team that may change."""

    winnable = True
    rows: int = eqx.field(static=True, default=6)
    columns: int = eqx.field(static=True, default=6)
    agents: int = eqx.field(static=True, default=4)
    controlled: int = eqx.field(static=True, default=2)
    least: int = eqx.field(static=True, default=1)
    foods: int = eqx.field(static=True, default=3)
    sight: int = eqx.field(static=True, default=1)
    horizon: int = eqx.field(static=True, default=25)
    highest: int = eqx.field(static=True, default=2)  # agents' levels are 1..highest
    coop: bool = eqx.field(static=True, default=True)  # no food for fewer than needed
    layout: Literal["slots", "compact"] = eqx.field(static=True, default="slots")
    state: Literal["full", "observations"] = eqx.field(static=True, default="full")
    encoding: Literal["one-hot", "raw"] = eqx.field(static=True, default="one-hot")
    limit: Literal["terminal", "truncated"] = eqx.field(static=True, default="terminal")

    def __check_init__(self):
        check_sizes("lbf", self, rows=3, columns=3, agents=1, foods=1)
        check_sizes("lbf", self, sight=1, horizon=1, highest=1)
        check_team("lbf", self.agents, self.controlled, self.least)
        if max(self.rows, self.columns, self.most_food_level) > 126:
            raise Mistake("lbf: rows, columns and food levels are stored up to 126.")
        room = room_for_food(self.rows, self.columns)
        if self.foods > room or self.agents + self.foods > self.rows * self.columns:
            raise Mistake(
                f"lbf: a {self.rows}x{self.columns} grid is too small for "
                f"{self.foods} foods and {self.agents} agents (foods keep off the "
                f"border and three steps apart, so it has room for {room})."
            )

    @property
    def most_food_level(self) -> int:
        """The highest level a food can have."""
        return min(3, self.agents) * self.highest

    @property
    def spec(self) -> Spec:
        """The sizes of the problem."""
        observation = 3 * (self.foods + self.agents)
        full = observation + self.agents
        state = full if self.state == "full" else self.agents * observation
        seen = one_hot_width(self._window, self._levels)
        every = one_hot_width(max(self._grid), self._levels)
        if self.encoding == "raw":
            inputs, state_inputs = observation, state
        else:
            inputs = seen
            joined = self.agents * seen
            state_inputs = every + self.agents if self.state == "full" else joined
        return Spec(
            name="lbf",
            slots=self.agents,
            controlled=self.controlled,
            least=self.least,
            actions=6,
            observation=observation,
            inputs=inputs,
            state=state,
            state_inputs=state_inputs,
            horizon=self.horizon,
            limit=self.limit,
        )

    def reset(self, present: Bool[Array, " N"], key: PRNGKeyArray) -> Board:
        """Place agents anywhere, then food away from the border."""
        k_place, k_level, k_food, k_food_level = jax.random.split(key, 4)
        position = self._spread(k_place)
        level = jax.random.randint(k_level, (self.agents,), 1, self.highest + 1)
        position = jnp.where(present[:, None], position, -1)
        level = jnp.where(present, level, 0)
        food = self._place_food(position, k_food)
        top = self._food_level(level, present)
        drawn = jax.random.randint(k_food_level, (self.foods,), 1, top + 1)
        food_level = jnp.where(food[:, 0] >= 0, top if self.coop else drawn, 0)
        return Board(position, level, present, food, food_level, food_level.sum())

    def luck(self, key: PRNGKeyArray) -> Luck:
        """Draw a number for the level of each arrival, and a score for each cell."""
        arriving = self.agents - self.spec.permanent
        return jax.random.uniform(key, (arriving, 1 + self.rows * self.columns))

    def swap(self, world: Board, present: Bool[Array, " N"], luck: Luck) -> Board:
        """Take who leaves off the board; put who arrives on an empty cell.

        Every cell has a score of its own, so that what the others did before
        moves an arrival only if one of them stands in its place.
        """
        level = 1 + jnp.floor(luck[:, 0] * self.highest).astype(int)
        score = luck[:, 1:]
        came = present & ~world.present
        position = jnp.where(present[:, None], world.position, -1)
        levels = jnp.where(present, world.level, 0)
        taken = self._occupied(world.food, world.food_level > 0)
        for i in range(len(luck)):
            slot = self.spec.permanent + i
            empty = ~(taken | self._occupied(position, present & ~came))
            cell = self._unflatten(jnp.argmax(jnp.where(empty, score[i], -1.0)))
            here = came & (jnp.arange(self.agents) == slot)
            position = jnp.where(here[:, None], cell[None], position)
            levels = jnp.where(here, level[i], levels)
            came = came & ~here
        return Board(
            position, levels, present, world.food, world.food_level, world.spawned
        )

    def step(
        self, world: Board, action: Int[Array, " N"], key: PRNGKeyArray
    ) -> tuple[Board, Outcome]:
        """Move all at once, then load."""
        del key
        action = check_actions(self.spec, action)
        target, loading = self._intend(world, action)
        position = self._move(world, target)
        near = self._touching(position, world.food) & loading[:, None]
        strength = jnp.sum(jnp.where(near, world.level[:, None], 0), axis=0)
        there = world.food_level > 0
        loaded = there & (strength >= world.food_level)
        gained = jnp.sum(jnp.where(loaded, world.food_level, 0))
        food_level = jnp.where(loaded, 0, world.food_level)
        done = ~jnp.any(food_level > 0)
        reward = gained / jnp.maximum(world.spawned, 1)
        after = Board(
            position, world.level, world.present, world.food, food_level, world.spawned
        )
        return after, Outcome(reward, done, done & (world.spawned > 0))

    def view(self, world: Board) -> View:
        """Look at the windows around the agents, and at the whole board."""
        # Scalars, agent by agent: under `vmap` each becomes one vector over the
        # episodes, which XLA's CPU code handles twice as fast as small tables.
        dense = self.layout == "compact"
        each = [seen_by(world, i, self.sight, dense) for i in range(self.agents)]
        seen = [code for codes in each for code in codes]
        observation = unpack(jnp.stack(seen)).reshape(self.agents, -1)
        state = observation if self.state == "observations" else whole(world)
        idle = jnp.arange(6) == NONE
        available = world.present[:, None] | idle[None]
        return View(observation, state.reshape(-1), available)

    def encode(self, observation: Num[Array, "*B O"]) -> Float[Array, "*B I"]:
        """Write coordinates and levels as one-hot vectors."""
        if self.encoding == "raw":
            return observation.astype(jnp.float32)
        return one_hot(observation, self._window, self._levels)

    def coding(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Say which number each input asks about, and for which value it is one."""
        if self.encoding == "raw":
            return None
        return one_hot_table(self._window, self._levels)

    def encode_state(self, state: Num[Array, "*B S"]) -> Float[Array, "*B J"]:
        """Write coordinates and levels as one-hot vectors."""
        if self.encoding == "raw":
            return state.astype(jnp.float32)
        if self.state == "observations":
            rows = state.reshape(*state.shape[:-1], self.agents, -1)
            return self.encode(rows).reshape(*state.shape[:-1], -1)
        things, present = state[..., : -self.agents], state[..., -self.agents :]
        coded = one_hot(things, max(self._grid), self._levels)
        return jnp.concatenate([coded, present.astype(jnp.float32)], axis=-1)

    def scene(self, world: Board) -> Scene:
        """Draw the board with row 0 on top."""
        at = lambda place: (place[1] + 0.5, self.rows - place[0] - 0.5)
        shapes = [
            Shape("food", float(at(place)[0]), float(at(place)[1]), 0.36, str(level))
            for place, level in zip(world.food, world.food_level, strict=True)
            if level > 0
        ]
        places = [at(place) for place in np.asarray(world.position)]
        team = draw_team(self.controlled, world.present, places, 0.36, world.level)
        extent = (0.0, self.columns, 0.0, self.rows)
        return Scene(extent, (*shapes, *team), cells=True)

    @property
    def _grid(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def _window(self) -> int:
        """How many values a coordinate in a window can take."""
        return min(2 * self.sight + 1, max(self._grid))

    @property
    def _levels(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """How many foods and agents there are, and their highest levels."""
        return (self.foods, self.most_food_level), (self.agents, self.highest)

    def _spread(self, key: PRNGKeyArray) -> Int[Array, "N 2"]:
        """Give every agent a cell of its own, each as likely."""
        cells = jnp.arange(self.rows * self.columns)
        score = jax.random.uniform(key, cells.shape)
        chosen = []
        for _ in range(self.agents):
            chosen.append(jnp.argmax(score))
            score = jnp.where(cells == chosen[-1], -1.0, score)
        return self._unflatten(jnp.stack(chosen))

    def _unflatten(self, cell: Int[Array, "*n"]) -> Int[Array, "*n 2"]:
        return jnp.stack([cell // self.columns, cell % self.columns], axis=-1)

    def _occupied(
        self, position: Int[Array, "n 2"], there: Bool[Array, " n"]
    ) -> Bool[Array, " cells"]:
        cell = jnp.where(there, position[:, 0] * self.columns + position[:, 1], -1)
        cells = jnp.arange(self.rows * self.columns)
        return jnp.any(cell[None] == cells[:, None], axis=1)

    def _food_level(
        self, level: Int[Array, " N"], present: Bool[Array, " N"]
    ) -> Int[Array, ""]:
        """Sum the three lowest levels there, so that no food needs more agents.

        Nor may it need agents that can leave: with the paper's team of three
        permanent bodies the minimum changes nothing.
        """
        lowest = jnp.sort(jnp.where(present, level, self.highest + 1))[:3]
        total = jnp.sum(jnp.where(lowest <= self.highest, lowest, 0))
        return jnp.minimum(total, level[: self.spec.permanent].sum())

    def _place_food(
        self, position: Int[Array, "N 2"], key: PRNGKeyArray
    ) -> Int[Array, "F 2"]:
        """Choose cells inside the border, three steps apart, as long as there are."""
        chance = jax.random.uniform(key, (self.foods,))
        cell = self._unflatten(jnp.arange(self.rows * self.columns))
        edge = jnp.array([self.rows - 1, self.columns - 1])
        inside = jnp.all((cell > 0) & (cell < edge[None]), axis=1)
        free = inside & ~self._occupied(position, position[:, 0] >= 0)
        placed = []
        for i in range(self.foods):
            chosen = self._unflatten(pick(free, chance[i]))
            placed.append(jnp.where(jnp.any(free), chosen, -1))
            apart = jnp.abs(cell - chosen[None]).sum(1) > 2
            free = free & apart
        food = jnp.stack(placed)
        order = jnp.argsort(food[:, 0] * self.columns + food[:, 1])
        return food[order]

    def _intend(
        self, world: Board, action: Int[Array, " N"]
    ) -> tuple[Int[Array, "N 2"], Bool[Array, " N"]]:
        """Say which cell each agent claims and who loads; what is invalid is NONE."""
        down = (action == SOUTH).astype(int) - (action == NORTH).astype(int)
        right = (action == EAST).astype(int) - (action == WEST).astype(int)
        goal = world.position + jnp.stack([down, right], axis=1)
        there = (world.food_level > 0)[None]
        onto_food = (self._cell(goal)[:, None] == self._cell(world.food)[None]) & there
        row, column = goal.T
        inside = (row >= 0) & (row < self.rows) & (column >= 0)
        inside = inside & (column < self.columns)
        able = inside & ~jnp.any(onto_food, axis=1) & world.present
        beside = jnp.any(self._touching(world.position, world.food) & there, axis=1)
        loading = (action == LOAD) & beside & world.present
        return jnp.where(able[:, None], goal, world.position), loading

    def _move(self, world: Board, target: Int[Array, "N 2"]) -> Int[Array, "N 2"]:
        """Move everybody who alone claims a cell."""
        cell = self._cell(target)
        same = (cell[:, None] == cell[None]) & world.present[None]
        alone = jnp.sum(same, axis=1) == 1
        return jnp.where(alone[:, None], target, world.position)

    def _cell(self, position: Int[Array, "n 2"]) -> Int[Array, " n"]:
        """Give every cell a number, with a gap at the end of each row.

        So a step to the side always changes the number by one, and no two
        cells on different rows are one apart.
        """
        return position[:, 0] * (self.columns + 2) + position[:, 1]

    def _touching(
        self, agents: Int[Array, "N 2"], foods: Int[Array, "F 2"]
    ) -> Bool[Array, "N F"]:
        """Say which agents stand beside which foods; a corner is not a side."""
        gap = jnp.abs(self._cell(agents)[:, None] - self._cell(foods)[None])
        return (gap == 1) | (gap == self.columns + 2)
