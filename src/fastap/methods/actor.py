"""The learnt agents at work."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fastap.methods.beliefs import AbstractBelief, Silent
from fastap.methods.model import Known, Model, inputs
from fastap.methods.networks import Values
from fastap.problem.rollout import AbstractPolicy, Glance
from fastap.problem.spec import Env

Mind = tuple[Float[Array, "P H"], Float[Array, "P M"]]  # of values and beliefs
Luck = tuple[Float[Array, "P D"], Float[Array, "P _"]] | None  # noise and dice


class Actor(AbstractPolicy):
    """Agents that look, believe and act; they explore with probability epsilon.

    Without epsilon they are greedy and take the mean of what they believe.
    """

    env: Env
    agents: Values  # one for each of its slots, stacked
    local: AbstractBelief = Silent()
    known: Known = None
    epsilon: Float[Array, ""] | None = None
    groups: int = eqx.field(static=True, default=1)

    def start(self, slots: int) -> Mind:
        """Return an empty memory for each slot."""
        memory = jnp.zeros((slots, self.agents.gru.width))
        doubt = self.local.start()
        return memory, jnp.broadcast_to(doubt, (slots, *doubt.shape))

    def luck(self, slots: int, key: PRNGKeyArray) -> Luck:
        """Draw the noise of beliefs and the dice of exploration, if there are any."""
        if self.epsilon is None:
            return None
        k_belief, k_explore = jax.random.split(key)
        noise = jax.random.normal(k_belief, (slots, self.local.width))
        return noise, jax.random.uniform(k_explore, (slots, 1 + self.env.spec.actions))

    def act(
        self, memory: Mind, glance: Glance, luck: Luck
    ) -> tuple[Mind, Int[Array, " P"]]:
        """Value the available actions and take the best, or any."""
        if luck is None or self.epsilon is None:
            memory, _, values = self.look(memory, glance)
            return memory, best(values, glance.available)
        noise, dice = luck
        memory, _, values = self.look(memory, glance, noise)
        return memory, explore(values, glance.available, self.epsilon, dice)

    def look(
        self, memory: Mind, glance: Glance, noise: Float[Array, "P D"] | None = None
    ) -> tuple[Mind, Float[Array, "P D"], Float[Array, "P A"]]:
        """Look once and remember; say what is believed and what actions are worth."""
        now = (glance.observation, glance.last, glance.group)
        seen = inputs(self.env, self.known, *now)
        each = jax.vmap(lambda net, *x: net(*x))
        doubt, belief = each(self.local, memory[1], seen)
        e = belief.mean if noise is None else belief.at(noise)
        told = jnp.concatenate([seen, e], axis=1)
        past, values = each(self.agents, memory[0], told)
        return (past, doubt), e, values


def act_by(env: Env, model: Model, epsilon: Float[Array, ""] | None = None) -> Actor:
    """Put a model's agents to work, with all that they believe and are told."""
    return Actor(
        env=env,
        agents=model.agents,
        local=model.local,
        known=model.known,
        epsilon=epsilon,
    )


def explore(
    values: Float[Array, "P A"],
    available: Bool[Array, "P A"],
    epsilon: Float[Array, ""],
    dice: Float[Array, "P _"],
) -> Int[Array, " P"]:
    """Take the best available action or, with probability epsilon, any.

    The first of the dice says whether to explore, the others what to take.
    """
    return best(jnp.where(dice[:, :1] < epsilon, dice[:, 1:], values), available)


def best(worth: Float[Array, "P A"], available: Bool[Array, "P A"]) -> Int[Array, " P"]:
    """Take the best of the available actions."""
    return jnp.argmax(jnp.where(available, worth, -jnp.inf), axis=1)
