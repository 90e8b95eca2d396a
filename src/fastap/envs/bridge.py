"""Other people's environments: any JaxMARL game, any PettingZoo parallel game.

Both have fixed teams, so nobody comes or goes; policies still change.
"""

import functools
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from fastap.envs.smax import lenient
from fastap.problem.episode import Episode
from fastap.problem.rollout import Minds, Players, look, record
from fastap.problem.schedule import Schedule, check_schedule
from fastap.problem.spec import (
    Env,
    Mistake,
    Outcome,
    Scene,
    Spec,
    View,
    check_actions,
    check_kind,
    check_team,
)

Pay = Literal["sum", "mean"]  # how the agents' rewards make the team's


class Borrowed(eqx.Module):
    """A world of somebody else's game, with what it last showed."""

    state: Any
    seen: dict[str, Array]


class FromJaxMARL(Env):
    """A JaxMARL game with discrete actions and one vector per agent, compiled."""

    game: Any = eqx.field(static=True)
    controlled: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    pay: Pay = eqx.field(static=True, default="sum")
    limit: Literal["terminal", "truncated"] = eqx.field(static=True, default="terminal")

    def __check_init__(self):
        check_bridge(self.game, self.game.agents, self.controlled, self.horizon)
        check_kind("bridge: pay", self.pay, Pay)

    @property
    def spec(self) -> Spec:
        """The sizes of the problem, read off the game."""
        with lenient():
            seen, _ = jax.eval_shape(self.game.reset, jax.random.key(0))
        agents = self.game.agents
        width = max(seen[agent].size for agent in agents)
        whole = seen["world_state"].size if "world_state" in seen else 0
        return bridge_spec(self, agents, width, whole or len(agents) * width)

    def reset(self, present: Bool[Array, " N"], key: PRNGKeyArray) -> Borrowed:
        """Begin the game; its team is always complete."""
        del present
        with lenient():
            seen, state = self.game.reset(key)
        return Borrowed(state, seen)

    def swap(
        self, world: Borrowed, present: Bool[Array, " N"], luck: PRNGKeyArray
    ) -> Borrowed:
        """Change nothing: bodies stay, only policies change."""
        del present, luck
        return world

    def step(
        self, world: Borrowed, action: Int[Array, " N"], key: PRNGKeyArray
    ) -> tuple[Borrowed, Outcome]:
        """Step the game without its automatic reset."""
        action = check_actions(self.spec, action)
        chosen = {agent: action[i] for i, agent in enumerate(self.game.agents)}
        with lenient():
            stepped = self.game.step_env(key, world.state, chosen)
        seen, state, rewards, done, _ = stepped
        earned = jnp.stack([rewards[agent] for agent in self.game.agents])
        reward = earned.sum() if self.pay == "sum" else earned.mean()
        never = jnp.array(False)
        return Borrowed(state, seen), Outcome(reward, done["__all__"], never)

    def view(self, world: Borrowed) -> View:
        """Pad the observations to one width; ask the game what is available."""
        spec = self.spec
        seen = [world.seen[agent].reshape(-1) for agent in self.game.agents]
        rows = [row.astype(float) for row in seen]
        padded = [jnp.pad(row, (0, spec.observation - len(row))) for row in rows]
        observation = jnp.stack(padded)
        state = world.seen.get("world_state", observation).reshape(-1)
        return View(observation, state, self._available(world))

    def encode(self, observation: Num[Array, "*B O"]) -> Float[Array, "*B O"]:
        """Pass on what is already a vector."""
        return observation

    def encode_state(self, state: Num[Array, "*B S"]) -> Float[Array, "*B S"]:
        """Pass on what is already a vector."""
        return state

    def scene(self, world: Borrowed) -> Scene:
        """Refuse: how a borrowed game looks is not known here."""
        raise Mistake(f"A bridged {self.spec.name} is drawn by its own package.")

    def _available(self, world: Borrowed) -> Bool[Array, "N A"]:
        owned = [self.game.action_space(agent).n for agent in self.game.agents]
        legal = np.arange(max(owned))[None] < np.array(owned)[:, None]
        try:
            with lenient():
                masks = self.game.get_avail_actions(world.state)
        except NotImplementedError:
            return jnp.asarray(legal)
        rows = [masks[agent].astype(bool) for agent in self.game.agents]
        padded = [jnp.pad(row, (0, max(owned) - len(row))) for row in rows]
        return jnp.stack(padded)


class FromPettingZoo:
    """A PettingZoo parallel game with discrete actions, driven from the host.

    The game runs in Python; policies and episodes are the same as everywhere.
    """

    def __init__(self, game: Any, controlled: int, horizon: int, pay: Pay = "sum"):
        check_bridge(game, game.possible_agents, controlled, horizon)
        check_kind("bridge: pay", pay, Pay)
        self.game, self.controlled, self.horizon = game, controlled, horizon
        self.pay, self.limit = pay, "terminal"

    @functools.cached_property
    def spec(self) -> Spec:
        """The sizes of the problem, read off the game."""
        agents = self.game.possible_agents
        widths = [np.prod(self.game.observation_space(a).shape) for a in agents]
        width = int(max(widths))
        return bridge_spec(self, agents, width, len(agents) * width)

    def play(self, players: Players, schedule: Schedule, key: PRNGKeyArray) -> Episode:
        """Play one episode with the teammates that the schedule names."""
        schedule = check_schedule(self.spec, schedule, players.mates.groups)
        k_reset, k_act = jax.random.split(key)
        seed = int(jax.random.randint(k_reset, (), 0, 2**31 - 1))
        shown = self.game.reset(seed=seed)
        minds, views, played = players.start(self.spec), [self._view(*shown)], []
        for t in range(self.horizon):
            now = (views[-1], schedule.group[t], schedule.swap[t])
            k_step = jax.random.fold_in(k_act, t)
            minds, action = _decide(players, self.spec, minds, now, k_step)
            shown, outcome = self._step(np.asarray(action))
            views.append(self._view(*shown))
            played.append((action, outcome))
        actions, outcomes = jax.tree.map(lambda *rows: jnp.stack(rows), *played)
        views = jax.tree.map(lambda *rows: jnp.stack(rows), *views)
        present = jnp.ones((self.horizon, self.spec.slots), bool)
        return record(self.spec, schedule, present, (views, actions, outcomes))

    def _step(self, action: np.ndarray) -> tuple[tuple[dict, dict], Outcome]:
        """Step the game; when it is over, go on showing nothing."""
        playing = list(self.game.agents)
        if not playing:
            ended = Outcome(jnp.zeros(()), jnp.array(True), jnp.array(False))
            return ({}, {}), ended
        index = {a: i for i, a in enumerate(self.game.possible_agents)}
        chosen = {agent: int(action[index[agent]]) for agent in playing}
        seen, rewards, ended, _, infos = self.game.step(chosen)
        earned = np.array([rewards.get(a, 0.0) for a in self.game.possible_agents])
        reward = earned.sum() if self.pay == "sum" else earned.mean()
        over = not self.game.agents or all(ended.values())
        won = jnp.array(False)
        return (seen, infos), Outcome(jnp.float32(reward), jnp.array(over), won)

    def _view(self, seen: dict, infos: dict) -> View:
        agents, spec = self.game.possible_agents, self.spec
        observation = np.zeros((spec.slots, spec.observation), np.float32)
        available = np.zeros((spec.slots, spec.actions), bool)
        for i, agent in enumerate(agents):
            if agent in seen:
                flat = np.asarray(seen[agent], np.float32).reshape(-1)
                observation[i, : len(flat)] = flat
            mask = infos.get(agent, {}).get("action_mask")
            count = self.game.action_space(agent).n
            available[i, :count] = True if mask is None else mask
        state = jnp.asarray(observation.reshape(-1))
        return View(jnp.asarray(observation), state, jnp.asarray(available))


@functools.partial(jax.jit, static_argnums=1)
def _decide(
    players: Players, spec: Spec, minds: Minds, now: tuple, key: PRNGKeyArray
) -> tuple[Minds, Int[Array, " N"]]:
    view, group, swap = now
    there = jnp.ones(spec.slots, bool)
    minds = players.change(minds, spec, swap, ~there)
    glance = look(view, minds, there, group, None)
    return players.act(minds, spec, glance, players.luck(spec, key))


def check_bridge(game: Any, agents: list[str], controlled: int, horizon: int) -> None:
    """Refuse games with other than discrete actions, and impossible teams."""
    if horizon < 1:
        raise Mistake(f"bridge: horizon must be at least 1, not {horizon}.")
    if controlled >= len(agents):
        raise Mistake(
            f"bridge: a game of {len(agents)} agents can have 1 to "
            f"{len(agents) - 1} controlled ones, not {controlled}."
        )
    check_team("bridge", len(agents), controlled, 0)
    for agent in agents:
        if not hasattr(game.action_space(agent), "n"):
            raise Mistake(f"bridge: {agent} has no discrete actions, which it needs.")


def bridge_spec(bridge: Any, agents: list[str], width: int, state: int) -> Spec:
    """Write down the sizes of a borrowed game."""
    game = bridge.game
    return Spec(
        name=type(getattr(game, "unwrapped", game)).__name__,
        slots=len(agents),
        controlled=bridge.controlled,
        least=len(agents) - bridge.controlled,
        actions=max(int(game.action_space(agent).n) for agent in agents),
        observation=width,
        inputs=width,
        state=state,
        state_inputs=state,
        horizon=bridge.horizon,
        limit=bridge.limit,
    )
