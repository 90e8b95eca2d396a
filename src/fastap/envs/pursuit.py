"""Predator-prey: slow predators corner a fast prey between obstacles."""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from fastap.envs.particles import (
    Arena,
    Body,
    advance,
    anywhere,
    arrive,
    between,
    everything,
    points,
    seen_from,
    settle,
)
from fastap.envs.prey import OBSTACLE, AbstractPrey, Trained, shipped
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

PREDATOR = Body(radius=0.075, push=3.0, fastest=1.0)
PREY = Body(radius=0.05, push=4.0, fastest=1.3)
TOUCH = 10.0  # what each predator earns for each contact with the prey


class Pursuit(Env):
    """mpe2's simple_tag, played by the predators, with a team that may change."""

    prey: AbstractPrey = eqx.field(default_factory=shipped)
    agents: int = eqx.field(static=True, default=3)
    controlled: int = eqx.field(static=True, default=2)
    least: int = eqx.field(static=True, default=1)
    obstacles: int = eqx.field(static=True, default=2)
    horizon: int = eqx.field(static=True, default=25)
    layout: Literal["presence", "mpe2"] = eqx.field(static=True, default="mpe2")
    state: Literal["full", "observations"] = eqx.field(static=True, default="full")
    limit: Literal["terminal", "truncated"] = eqx.field(static=True, default="terminal")

    def __check_init__(self):
        check_sizes("pp", self, agents=1, obstacles=0, horizon=1)
        check_team("pp", self.agents, self.controlled, self.least)
        seen = 2 * (2 + self.obstacles + self.agents)
        if isinstance(self.prey, Trained) and self.prey.nerves.inputs != seen:
            raise Mistake(
                "pp: the trained prey knows 3 predators and 2 obstacles; for other "
                "numbers pass prey=Fleeing() from fastap.envs.prey."
            )

    @property
    def spec(self) -> Spec:
        """The sizes of the problem."""
        others = self.agents - 1
        bits = others if self.layout == "presence" else 0
        observation = 4 + 2 * self.obstacles + 2 * others + 4 + bits
        full = 5 * (self.agents + 1) + 2 * self.obstacles
        state = full if self.state == "full" else self.agents * observation
        return Spec(
            name="pp",
            slots=self.agents,
            controlled=self.controlled,
            least=self.least,
            actions=5,
            observation=observation,
            inputs=observation,
            state=state,
            state_inputs=state,
            horizon=self.horizon,
            limit=self.limit,
        )

    def reset(self, present: Bool[Array, " N"], key: PRNGKeyArray) -> Arena:
        """Place predators, prey and obstacles at random."""
        return settle(with_prey(present), self.obstacles, 0.9, key)

    def luck(self, key: PRNGKeyArray) -> Float[Array, "n 2"]:
        """Draw a place for everybody who can arrive."""
        return anywhere(1 + self.spec.slots - self.spec.permanent, key)

    def swap(
        self, world: Arena, present: Bool[Array, " N"], luck: Float[Array, "n 2"]
    ) -> Arena:
        """Remove who leaves; put who arrives at its place."""
        return arrive(world, with_prey(present), luck)

    def step(
        self, world: Arena, action: Int[Array, " N"], key: PRNGKeyArray
    ) -> tuple[Arena, Outcome]:
        """Move predators and prey; every touch pays every predator."""
        del key
        action = check_actions(self.spec, action)
        flight = self.prey(self.prey_view(world), self.obstacles)
        after = self.advance(world, jnp.append(action, flight))
        never = jnp.array(False)
        return after, Outcome(self._reward(after), never, never)

    def advance(self, world: Arena, action: Int[Array, " M"]) -> Arena:
        """Move everybody, the prey (last) by a given action too."""
        bodies = [PREDATOR] * self.agents + [PREY]
        return advance(world, bodies, OBSTACLE, action)

    def view(self, world: Arena) -> View:
        """See one's own motion, the obstacles, the others and how the prey runs."""
        there = world.present[:-1]
        rows = [seen for i in range(self.agents) for seen in self._seen_by(world, i)]
        observation = jnp.stack(rows).reshape(self.agents, -1)
        observation = jnp.where(there[:, None], observation, 0.0)
        full = self.state == "full"
        state = everything(world) if full else observation.reshape(-1)
        available = there[:, None] | (jnp.arange(5) == 0)[None]
        return View(observation, state, available)

    def prey_view(self, world: Arena) -> Float[Array, " O"]:
        """See what the prey sees: its motion, the obstacles, the predators."""
        return jnp.stack(self._seen_by(world, self.agents))

    def encode(self, observation: Num[Array, "*B O"]) -> Float[Array, "*B O"]:
        """Pass on what is already a vector."""
        return observation

    def encode_state(self, state: Num[Array, "*B S"]) -> Float[Array, "*B S"]:
        """Pass on what is already a vector."""
        return state

    def scene(self, world: Arena) -> Scene:
        """Draw obstacles below predators and prey."""
        shapes = [
            Shape("obstacle", float(x), float(y), OBSTACLE) for x, y in world.mark
        ]
        place, radius = world.position[:-1], PREDATOR.radius
        team = draw_team(self.controlled, world.present, place, radius)
        x, y = world.position[-1]
        prey = Shape("prey", float(x), float(y), PREY.radius)
        return Scene((-1.5, 1.5, -1.5, 1.5), (*shapes, *team, prey))

    def _seen_by(self, world: Arena, me: int) -> list[Float[Array, ""]]:
        place, prey = points(world.position), self.agents
        others = [i for i in range(self.agents + 1) if i != me]
        there = [world.present[i] for i in others]
        marks = seen_from(place[me], points(world.mark), [True] * self.obstacles)
        seen = seen_from(place[me], [place[i] for i in others], there)
        listed = [world.velocity[me, 0], world.velocity[me, 1], *place[me]]
        listed += marks + seen
        if me != prey:
            listed += [world.velocity[prey, 0], world.velocity[prey, 1]]
            if self.layout == "presence":
                listed += [t.astype(float) for t in there[:-1]]
        return listed

    def _reward(self, world: Arena) -> Float[Array, ""]:
        """Pay every predator that is there for every touch of one that is there."""
        *hunters, prey = points(world.position)
        touches = jnp.zeros(())
        for i, hunter in enumerate(hunters):
            close = between(hunter, prey) < PREDATOR.radius + PREY.radius
            touches = touches + (close & world.present[i])
        return TOUCH * touches * world.present[:-1].sum()


def with_prey(present: Bool[Array, " N"]) -> Bool[Array, " M"]:
    """Add the prey, which is always there."""
    return jnp.append(present, jnp.array(True))
