"""Cooperative navigation: cover every landmark without bumping into each other."""

import functools
import itertools
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
from fastap.problem.spec import (
    Env,
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

AGENT = Body(radius=0.15, push=5.0)


class Navigation(Env):
    """mpe2's simple_spread with a team that may change."""

    agents: int = eqx.field(static=True, default=4)
    controlled: int = eqx.field(static=True, default=2)
    least: int = eqx.field(static=True, default=1)
    landmarks: int = eqx.field(static=True, default=4)
    horizon: int = eqx.field(static=True, default=25)
    layout: Literal["presence", "mpe2"] = eqx.field(static=True, default="presence")
    reward: Literal["shared", "mpe2"] = eqx.field(static=True, default="shared")
    state: Literal["full", "observations"] = eqx.field(static=True, default="full")
    limit: Literal["terminal", "truncated"] = eqx.field(static=True, default="terminal")

    def __check_init__(self):
        check_sizes("cn", self, agents=1, landmarks=1, horizon=1)
        check_team("cn", self.agents, self.controlled, self.least)

    @property
    def spec(self) -> Spec:
        """The sizes of the problem."""
        others = self.agents - 1
        extra = others if self.layout == "presence" else 2 * others
        observation = 4 + 2 * self.landmarks + 2 * others + extra
        full = 5 * self.agents + 2 * self.landmarks
        state = full if self.state == "full" else self.agents * observation
        return Spec(
            name="cn",
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
        """Place agents and landmarks at random."""
        return settle(present, self.landmarks, 1.0, key)

    def luck(self, key: PRNGKeyArray) -> Float[Array, "n 2"]:
        """Draw a place for everybody who can arrive."""
        return anywhere(self.spec.slots - self.spec.permanent, key)

    def swap(
        self, world: Arena, present: Bool[Array, " N"], luck: Float[Array, "n 2"]
    ) -> Arena:
        """Remove who leaves; put who arrives at its place."""
        return arrive(world, present, luck)

    def step(
        self, world: Arena, action: Int[Array, " N"], key: PRNGKeyArray
    ) -> tuple[Arena, Outcome]:
        """Move, then count what is uncovered and who collides."""
        del key
        action = check_actions(self.spec, action)
        after = advance(world, [AGENT] * self.agents, None, action)
        never = jnp.array(False)
        return after, Outcome(self._reward(after), never, never)

    def view(self, world: Arena) -> View:
        """See one's own motion, the landmarks and the others, from where one is."""
        rows = [seen for i in range(self.agents) for seen in self._seen_by(world, i)]
        observation = jnp.stack(rows).reshape(self.agents, -1)
        observation = jnp.where(world.present[:, None], observation, 0.0)
        full = self.state == "full"
        state = everything(world) if full else observation.reshape(-1)
        available = world.present[:, None] | (jnp.arange(5) == 0)[None]
        return View(observation, state, available)

    def encode(self, observation: Num[Array, "*B O"]) -> Float[Array, "*B O"]:
        """Pass on what is already a vector."""
        return observation

    def encode_state(self, state: Num[Array, "*B S"]) -> Float[Array, "*B S"]:
        """Pass on what is already a vector."""
        return state

    def scene(self, world: Arena) -> Scene:
        """Draw landmarks below agents."""
        shapes = [Shape("goal", float(x), float(y), 0.05) for x, y in world.mark]
        place, radius = world.position, AGENT.radius
        team = draw_team(self.controlled, world.present, place, radius)
        return Scene((-1.4, 1.4, -1.4, 1.4), (*shapes, *team))

    def _seen_by(self, world: Arena, me: int) -> list[Float[Array, ""]]:
        place = points(world.position)
        others = [i for i in range(self.agents) if i != me]
        there = [world.present[i] for i in others]
        marks = seen_from(place[me], points(world.mark), [True] * self.landmarks)
        seen = seen_from(place[me], [place[i] for i in others], there)
        bits = [t.astype(float) for t in there]
        silence = [jnp.zeros(())] * (2 * len(others))
        extra = bits if self.layout == "presence" else silence
        velocity = [world.velocity[me, 0], world.velocity[me, 1]]
        return [*velocity, *place[me], *marks, *seen, *extra]

    def _reward(self, world: Arena) -> Float[Array, ""]:
        """Lose the distance from each landmark to its nearest agent, and collisions.

        `mpe2` is what its agents get in sum: half of the first for each agent,
        half of the second for both who collide.
        """
        place = points(world.position)
        uncovered, collisions = jnp.zeros(()), jnp.zeros(())
        for mark in points(world.mark):
            reach = [
                jnp.where(world.present[i], between(place[i], mark), jnp.inf)
                for i in range(self.agents)
            ]
            uncovered = uncovered + functools.reduce(jnp.minimum, reach)
        for i, j in itertools.combinations(range(self.agents), 2):
            close = between(place[i], place[j]) < 2 * AGENT.radius
            collisions = collisions + (close & world.present[i] & world.present[j])
        if self.reward == "shared":
            return -uncovered - collisions
        return -0.5 * uncovered * world.present.sum() - collisions
