"""10m_vs_14m: ten marines in two groups against fourteen in two groups, on SMAX.

The game is jaxmarl's SMAX. What is slow there and needed at every step (pushing
units apart, the built-in enemy, observing) is written anew here, for arrays of
units, and held equal to the package by tests.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from fastap.envs.smax import (
    RADIUS,
    RANGE,
    SIGHT,
    between,
    import_smax,
    lenient,
    make_game,
    push_apart,
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
)

MOVES = 5  # north, east, south, west, stop; after them, one attack per enemy
STOP = 4
KILL, WIN, BEST = 10.0, 200.0, 20.0  # the paper's rewards, scaled to SMAC's best
DIRECTIONS = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]])


class Battle(eqx.Module):
    """A world of combat: allies first, then enemies."""

    units: Any  # SMAX's own state
    present: Bool[Array, " N"]
    goal: Float[Array, "E 2"]  # where an enemy heads that sees nobody
    prey: Int[Array, " E"]  # the ally that an enemy attacks, -1 for none


Points = tuple[tuple[float, float], ...]


def check_points(points: Any) -> Points:
    """Refuse what is no list of places."""
    try:
        return tuple((float(x), float(y)) for x, y in points)
    except (TypeError, ValueError):
        raise Mistake(
            "10m_vs_14m: spawn groups are pairs of numbers, such as "
            f"((6, 24), (6, 8)), not {points!r}."
        ) from None


class Combat(Env):
    """SMAX marines; both sides begin in groups that are far apart."""

    alike = True
    winnable = True
    agents: int = eqx.field(static=True, default=10)
    controlled: int = eqx.field(static=True, default=7)
    enemies: int = eqx.field(static=True, default=14)
    horizon: int = eqx.field(static=True, default=100)
    width: int = eqx.field(static=True, default=40)
    height: int = eqx.field(static=True, default=32)
    ally_spawns: Points = eqx.field(static=True, default=((6.0, 24.0), (6.0, 8.0)))
    enemy_spawns: Points = eqx.field(static=True, default=((34.0, 24.0), (34.0, 8.0)))
    jitter: float = eqx.field(static=True, default=4.0)
    reward: Literal["smac", "smax"] = eqx.field(static=True, default="smac")
    limit: Literal["terminal", "truncated"] = eqx.field(static=True, default="terminal")

    def __check_init__(self):
        check_sizes("10m_vs_14m", self, agents=1, enemies=1, horizon=1)
        check_sizes("10m_vs_14m", self, width=8, height=8, jitter=0)
        if not (self.ally_spawns and self.enemy_spawns):
            raise Mistake("10m_vs_14m: each side needs spawn groups, at least one.")
        check_team("10m_vs_14m", self.agents, self.controlled, 0)
        for x, y in check_points(self.ally_spawns) + check_points(self.enemy_spawns):
            inside = self.jitter < x < self.width - self.jitter
            if not (inside and self.jitter < y < self.height - self.jitter):
                raise Mistake(
                    f"10m_vs_14m: a group at ({x:g}, {y:g}) with jitter "
                    f"{self.jitter:g} can begin in the walls of a "
                    f"{self.width}x{self.height} map, which kill."
                )
        import_smax()

    @property
    def game(self) -> Any:
        """The SMAX game that is played."""
        return make_game(
            self.agents, self.enemies, self.width, self.height, self.horizon
        )

    @property
    def spec(self) -> Spec:
        """The sizes of the problem."""
        units = self.agents + self.enemies
        return Spec(
            name="10m_vs_14m",
            slots=self.agents,
            controlled=self.controlled,
            least=self.agents - self.controlled,
            actions=MOVES + self.enemies,
            observation=13 * (units - 1) + 10,
            inputs=13 * (units - 1) + 10,
            state=12 * units,
            state_inputs=4 * units,
            horizon=self.horizon,
            limit=self.limit,
        )

    def reset(self, present: Bool[Array, " N"], key: PRNGKeyArray) -> Battle:
        """Spread both sides over their spawn points."""
        k_game, k_jitter = jax.random.split(key)
        with lenient():
            _, units = self.game.reset(k_game)
        ally = np.array(self.ally_spawns)[np.arange(self.agents) % self._ally_groups]
        foe = np.arange(self.enemies) % len(self.enemy_spawns)
        spawn = jnp.asarray(np.concatenate([ally, np.array(self.enemy_spawns)[foe]]))
        noise = jax.random.uniform(k_jitter, spawn.shape, minval=-1.0, maxval=1.0)
        position = spawn + self.jitter * noise
        everybody = jnp.ones(len(spawn), bool)
        position = push_apart(position, everybody, RADIUS)
        goal = jnp.asarray(np.array(self.ally_spawns)[foe % self._ally_groups])
        nobody = jnp.full(self.enemies, -1)
        return Battle(units.replace(unit_positions=position), present, goal, nobody)

    def swap(
        self, world: Battle, present: Bool[Array, " N"], luck: PRNGKeyArray
    ) -> Battle:
        """Change nothing: the team's size is fixed, bodies keep their health."""
        del present, luck
        return world

    def step(
        self, world: Battle, action: Int[Array, " N"], key: PRNGKeyArray
    ) -> tuple[Battle, Outcome]:
        """Fight for half a second of game time."""
        action = check_actions(self.spec, action)
        k_enemy, k_game = jax.random.split(key)
        enemy, prey = self._enemy(world, k_enemy)
        with lenient():
            units = self._fight(world.units, jnp.append(action, enemy), k_game)
        after = Battle(units, world.present, world.goal, prey)
        return after, self._outcome(world.units, units)

    def view(self, world: Battle) -> View:
        """See the units within sight; know who can be shot."""
        with lenient():
            state = self.game.get_world_state(world.units)
        observation = self.observe(world).astype(jnp.float16)
        return View(observation, state, self.available(world))

    def observe(self, world: Battle) -> Float[Array, "N O"]:
        """Write down what each ally sees, in SMAX's layout."""
        units, n = world.units, self.agents
        kind = self.game
        gap = units.unit_positions[None] - units.unit_positions[:n, None]
        near = jnp.sqrt(gap[..., 0] ** 2 + gap[..., 1] ** 2) < SIGHT
        alive = units.unit_alive
        seen = near & alive[None] & alive[:n, None]
        health = units.unit_health / kind.unit_type_health[units.unit_types]
        cooldown = self._cooldown(units)
        top = jnp.where(jnp.arange(len(alive)) < n, MOVES + self.enemies, MOVES + n) - 1
        target = units.prev_attack_actions / top
        marine = jax.nn.one_hot(units.unit_types, kind.unit_type_bits)
        column = lambda x: x[:, None]
        own = [column(health), units.unit_positions / self._map[None], column(cooldown)]
        own = jnp.concatenate([*own, marine], axis=1)[:n] * alive[:n, None]
        moved = units.prev_movement_actions
        about = [column(x) for x in (health, target, cooldown)]
        shared = jnp.concatenate([about[0], moved, *about[1:], marine], axis=1)
        shared = jnp.broadcast_to(shared[None], (n, *shared.shape))
        parts = [shared[..., :1], gap / SIGHT, shared[..., 1:]]
        others = jnp.concatenate(parts, axis=2) * seen[..., None]
        earlier = np.arange(len(alive) - 1)[None, :, None] < np.arange(n)[:, None, None]
        others = jnp.where(earlier, others[:, :-1], others[:, 1:])
        return jnp.concatenate([others.reshape(n, -1), own], axis=1)

    def available(self, world: Battle) -> Bool[Array, "N A"]:
        """Say who can move, and shoot whom."""
        units, n = world.units, self.agents
        distance = between(units.unit_positions[:n], units.unit_positions[n:])
        alive = units.unit_alive[:n, None]
        shoot = (distance < RANGE) & alive & units.unit_alive[None, n:]
        stop = jnp.arange(MOVES) == STOP
        return jnp.concatenate([alive | stop[None], shoot], axis=1)

    def encode(self, observation: Num[Array, "*B O"]) -> Float[Array, "*B O"]:
        """Widen what is stored in half precision."""
        return observation.astype(jnp.float32)

    def encode_state(self, state: Num[Array, "*B S"]) -> Float[Array, "*B J"]:
        """Say of every living unit its health, place and cooldown.

        Places are counted from the middle and cooldowns end at 0, so that all is on
        one scale: SMAX lets them run on below it, half a unit in every step. What is
        the same for all marines is left out: weights that see a 1 move together.
        """
        units = state.astype(jnp.float32)[..., : 10 * (self.agents + self.enemies)]
        unit = units.reshape(*state.shape[:-1], -1, 10)
        middle = np.array([self.width, self.height], np.float32) / 2
        place = jnp.where(unit[..., :1] > 0, unit[..., 1:3] / middle - 1, 0.0)
        parts = [unit[..., :1], place, jnp.maximum(unit[..., 3:4], 0.0)]
        return jnp.concatenate(parts, axis=-1).reshape(*state.shape[:-1], -1)

    def scene(self, world: Battle) -> Scene:
        """Draw the living, with their health."""
        units, shapes = world.units, []
        health = (units.unit_health / self.game.unit_type_health[0]).tolist()
        for i, (x, y) in enumerate(np.asarray(units.unit_positions)):
            if units.unit_alive[i]:
                ours = "controlled" if i < self.controlled else "mate"
                kind = ours if i < self.agents else "enemy"
                shapes.append(
                    Shape(kind, float(x), float(y), 0.5, "", float(health[i]))
                )
        return Scene((0.0, self.width, 0.0, self.height), tuple(shapes))

    @property
    def _ally_groups(self) -> int:
        return len(self.ally_spawns)

    @property
    def _map(self) -> Float[Array, " 2"]:
        return jnp.array([float(self.width), float(self.height)])

    def _cooldown(self, units: Any) -> Float[Array, " U"]:
        whole = self.game.unit_type_weapon_cooldowns[units.unit_types]
        return jnp.clip(units.unit_weapon_cooldowns / whole, 0.0, 1.0)

    def _fight(self, units: Any, action: Int[Array, " U"], key: PRNGKeyArray) -> Any:
        """Let SMAX move and shoot, tick by tick."""
        game = self.game
        move, attack = game._decode_discrete_actions(action)

        def tick(units, k):
            units = game._world_step(k, units, (move, attack))
            units = game._kill_agents_touching_walls(units)
            units = game._update_dead_agents(units)
            position = push_apart(units.unit_positions, units.unit_alive, RADIUS)
            return units.replace(unit_positions=position), None

        keys = jax.random.split(key, game.world_steps_per_env_step)
        units, _ = jax.lax.scan(tick, units, keys)
        return units.replace(
            prev_movement_actions=move, prev_attack_actions=attack, step=units.step + 1
        )

    def _enemy(
        self, world: Battle, key: PRNGKeyArray
    ) -> tuple[Int[Array, " E"], Int[Array, " E"]]:
        """Play SMAX's built-in enemy: shoot the closest until it is dead.

        One that sees nobody in range follows somebody it sees, or else goes to
        where its opponents began. Its targets are numbered backwards.
        """
        units, n = world.units, self.agents
        mine, theirs = units.unit_positions[n:], units.unit_positions[:n]
        alive = units.unit_alive[None, :n] & units.unit_alive[n:, None]
        distance = between(mine, theirs)
        visible = alive & (distance < SIGHT)
        shootable = alive & (distance < RANGE)
        closest = jnp.argmin(jnp.where(shootable, distance, jnp.inf)[:, ::-1], axis=1)
        closest = n - 1 - closest
        hold = jnp.take_along_axis(shootable, jnp.maximum(world.prey, 0)[:, None], 1)
        hold = hold[:, 0] & (world.prey >= 0)
        target = jnp.where(hold, world.prey, closest)
        can_shoot = shootable.any(1)
        count = jnp.cumsum(visible, axis=1)
        rank = jnp.floor(jax.random.uniform(key, (self.enemies,)) * count[:, -1])
        followed = jnp.argmax(count > rank[:, None], axis=1)
        goal = jnp.where(visible.any(1)[:, None], theirs[followed], world.goal)
        way = (goal - mine) @ jnp.asarray(DIRECTIONS.T)
        action = jnp.where(can_shoot, MOVES + n - 1 - target, jnp.argmax(way, axis=1))
        return action, jnp.where(can_shoot, target, -1)

    def _outcome(self, before: Any, after: Any) -> Outcome:
        n = self.agents
        alive, foes = after.unit_alive[:n].any(), after.unit_alive[n:]
        won = alive & ~foes.any()
        terminal = ~alive | ~foes.any()
        damage = (before.unit_health[n:] - after.unit_health[n:]).sum()
        if self.reward == "smax":
            whole = self.game.unit_type_health[0] * self.enemies
            return Outcome(damage / whole + won, terminal, won)
        kills = (before.unit_alive[n:] & ~foes).sum()
        total = self.game.unit_type_health[0] * self.enemies
        scale = BEST / (total + KILL * self.enemies + WIN)
        reward = scale * (damage + KILL * kills + WIN * won)
        return Outcome(reward, terminal, won)
