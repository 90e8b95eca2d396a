"""Measures of adaptation on rewards whose answer is known."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Int
from tests.probes import MATES, Echo, Room

from fastap.evaluation.adaptation import adaptation, smooth
from fastap.problem.rollout import AbstractPolicy, Players, play
from fastap.problem.schedule import Schedule
from fastap.problem.spec import Outcome

HORIZON, WHEN = 20, 8


class Follow(Echo):
    """Paid at every step for doing what the teammate does."""

    @property
    def spec(self):
        return dataclasses.replace(super().spec, horizon=HORIZON)

    def step(self, world, action, key):
        after = Room(world.t + 1, world.present, action[1])
        never = jnp.array(False)
        return after, Outcome((action[0] == action[1]) * 1.0, never, never)

    def view(self, world):
        seen = super().view(world)
        return eqx.tree_at(lambda v: v.available, seen, jnp.ones((2, 3), bool))


class Late(AbstractPolicy):
    """Does what the teammate did so many steps ago."""

    lag: int = eqx.field(static=True)
    groups: int = eqx.field(static=True, default=1)

    def start(self, slots):
        return jnp.full((slots, self.lag + 1), -1)

    def act(self, memory: Int[Array, "P L"], glance, key):
        now = jnp.broadcast_to(glance.group, (len(memory), 1))
        memory = jnp.concatenate([now, memory[:, :-1]], axis=1)
        known = jnp.where(memory[:, -1] < 0, memory[:, 0], memory[:, -1])
        return memory, known


def rewards(policy, changes):
    """Play 4 episodes; in those with a change the other group comes."""
    group = (jnp.arange(HORIZON) >= WHEN) & changes
    ones = jnp.ones(HORIZON, int)
    team = Schedule(group.astype(int), ones, jnp.arange(HORIZON) == (WHEN * changes))
    one = lambda key: play(Follow(), Players(policy, MATES), team, key).reward
    keys = jax.random.split(jax.random.key(0), 4)
    return np.asarray(jax.vmap(one)(keys), float)


@pytest.mark.parametrize("lag", [0, 1, 4])
def test_a_planted_lag_is_found(lag):
    stay, change = (rewards(Late(lag=lag), changes) for changes in (False, True))
    assert (stay == 1).all()
    found = adaptation(stay, change, WHEN, scale=2.0)
    assert found.recovery == lag
    assert found.area == lag / 2
    assert found.dip == pytest.approx(min(lag, 3) / 3 / 2)
    assert found.regret.tolist() == [0.5] * lag + [0.0] * (HORIZON - WHEN - lag)


def test_costs_are_understood_as_rewards_are():
    """Where rewards are negative, no change is no regret all the same."""
    stay = -np.ones((2, 12))
    assert adaptation(stay, stay, 4).recovery == 0
    assert adaptation(np.zeros((2, 12)), np.zeros((2, 12)), 4).recovery == 0
    change = stay.copy()
    change[:, 4:6] = -2
    found = adaptation(stay, change, 4)
    assert found.recovery == 2 and found.area == 2 and found.dip == pytest.approx(2 / 3)


def test_recovery_is_a_share_of_what_is_earned_beyond_chance():
    """A twentieth of all costs is half of what agents spare, against random ones."""
    stay, floor = np.full((2, 12), -10.0), -11.0
    for lost, lag in ((0.05, 0), (0.5, math.inf)):
        found = adaptation(stay, stay - lost, 4, scale=2.0, floor=floor)
        assert found.recovery == lag and found.area == pytest.approx(8 * lost / 2)
    assert adaptation(stay, stay - 0.5, 4, scale=2.0).recovery == 0  # 5 % of 10
    stay[:, :4], stay[:, 4:] = 1.0, 0.0  # all is earned before the change
    assert adaptation(stay, stay - 0.01, 4).recovery == 0
    assert math.isinf(adaptation(stay, stay - 0.04, 4).recovery)


def test_a_team_that_never_recovers_has_no_lag():
    stay, change = np.ones((2, 12)), np.zeros((2, 12))
    found = adaptation(stay, change, 4)
    assert math.isinf(found.recovery) and found.area == 8 and found.dip == 1


def test_recovery_must_last_and_gains_are_no_recovery():
    stay, change = np.ones((1, 12)), np.ones((1, 12))
    change[0, [2, 6]] = 0  # lost at lags 0 and 4: neither 1 nor 2 begins 3 good ones
    assert adaptation(stay, change, 2).recovery == 5
    change[0, 2:] = 2.0
    better = adaptation(stay, change, 2)
    assert math.isinf(better.recovery) and better.area == -10 and better.dip == -1


def test_a_lag_is_averaged_with_those_after_it():
    assert smooth(np.array([3.0, 0.0, 0.0, 6.0])).tolist() == [1.0, 2.0, 3.0, 6.0]
