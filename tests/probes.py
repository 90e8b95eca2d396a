"""Tasks whose answer is known, each asking for one ability.

An agent plays beside one teammate that always does the same thing, its group's
own action. It sees that action once, is made to do something else, and is then
paid for doing the same as the teammate, or for working alone if nobody is there.
What it saw must be remembered: neither the present observation nor its own last
action can tell.
"""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from fastap.methods.actor import act_by
from fastap.methods.learner import Dials
from fastap.methods.model import Learning
from fastap.methods.practice import Drill, Practice
from fastap.methods.table import PAPER, find
from fastap.problem.rollout import AbstractPolicy, Players, play
from fastap.problem.schedule import At, Change
from fastap.problem.spec import Env, Outcome, Scene, Spec, View
from fastap.teammates.population import Own

PHASE = 5  # a cue at its second step, a distraction at the third, then two pays
ALONE, BLANK = 2, 3  # what a cue says when nobody is there, and when there is none
SIZES = jnp.array([1, 1, 0])  # two groups of one teammate, one of nobody
HORIZON = 2 * PHASE


class Room(eqx.Module):
    """A world: the step, who is there, and what the teammate did last."""

    t: Int[Array, ""]
    present: Bool[Array, " N"]
    done: Int[Array, ""]


class Echo(Env):
    """The task."""

    @property
    def spec(self):
        return Spec(
            name="echo",
            slots=2,
            controlled=1,
            least=0,
            actions=3,
            observation=1,
            inputs=4,
            state=1,
            state_inputs=4,
            horizon=HORIZON,
        )

    def reset(self, present, key):
        return Room(jnp.array(0), present, jnp.array(BLANK))

    def swap(self, world, present, key):
        return Room(world.t, present, world.done)

    def step(self, world, action, key):
        wanted = jnp.where(world.present[1], action[1], ALONE)
        paid = world.t % PHASE >= 3
        reward = jnp.where(paid & (action[0] == wanted), 0.25, 0.0)
        after = Room(world.t + 1, world.present, wanted)
        never = jnp.array(False)
        return after, Outcome(reward, never, never)

    def view(self, world):
        cue = jnp.where(world.t % PHASE == 1, world.done, BLANK)
        free = (world.t % PHASE != 2) | (jnp.arange(3) == 0)
        free = jnp.stack([free, jnp.ones(3, bool)])
        return View(jnp.stack([cue, cue])[:, None], cue[None], free)

    def encode(self, observation):
        return jax.nn.one_hot(observation[..., 0], 4)

    def encode_state(self, state):
        return jax.nn.one_hot(state[..., 0], 4)

    def scene(self, world):
        return Scene((0.0, 1.0, 0.0, 1.0), ())


class Task(eqx.Module):
    """Which groups are met, and whether they change in the middle."""

    allowed: Bool[Array, "*R K"]
    changes: Bool[Array, "*R"]


TASKS = {
    "infer": ([True, True, False], False),
    "change": ([True, True, False], True),
    "absence": ([True, True, True], True),
}
MATES = Own(decide=lambda glance, key: jnp.broadcast_to(glance.group, (1,)), groups=3)


def schedule(task, key):
    """Draw the teammates of an episode."""
    draw = lambda change: change.draw(SIZES, task.allowed, HORIZON, key)
    both = draw(Change(At((PHASE,)))), draw(Change())
    return jax.tree.map(lambda x, y: jnp.where(task.changes, x, y), *both)


def lesson(task, model, now, key):
    """Play one episode to learn from."""
    k_team, k_play = jax.random.split(key)
    mine = act_by(Echo(), model, now.epsilon)
    return play(Echo(), Players(mine, MATES), schedule(task, k_team), k_play)


def tasks():
    """Put all tasks side by side."""
    allowed, changes = zip(*TASKS.values(), strict=True)
    return Task(jnp.array(allowed), jnp.array(changes))


def train(method, rounds, seed=0):
    """Train a method on all tasks at once, a run for each."""
    row = find(method)
    learning = Learning(method=row, local=2, team=2, labels=3, hidden=16, embed=8)
    practice = Practice(
        steps=rounds * 16 * HORIZON,
        episodes=16,
        updates=4,
        batch=16,
        capacity=1600,
        learning=dataclasses.replace(learning, target_every=50),
    )
    drill = Drill(Echo(), 1, practice, lesson)
    weights = PAPER["lbf"].of(row, 1)
    count = len(TASKS)
    wide = lambda x: jnp.broadcast_to(x, (count, *x.shape))
    numbers = (jnp.float32(2e-3), jnp.array(weights, jnp.float32))
    dials = Dials(*map(wide, (*numbers, jnp.arange(3), jnp.arange(3))))
    keys = jax.random.split(jax.random.key(seed), count)
    runs = jax.jit(jax.vmap(drill.start))(tasks(), dials, keys)
    improve = jax.jit(drill.improve, donate_argnums=0)
    return improve(runs, jnp.arange(rounds))[0].learner.model


def judge(policy, episodes=256):
    """Return what a policy earns in each task; `policy` makes one of a model."""

    @jax.jit
    def earn(models):
        def one(task, model):
            def episode(key):
                k_team, k_play = jax.random.split(key)
                players = Players(policy(model), MATES)
                return play(Echo(), players, schedule(task, k_team), k_play).total

            keys = jax.random.split(jax.random.key(1), episodes)
            return jax.vmap(episode)(keys).mean()

        return jax.vmap(one)(tasks(), models)

    return lambda models: dict(zip(TASKS, earn(models).tolist(), strict=True))


class Forgetful(AbstractPolicy):
    """A policy that forgets everything after every step."""

    policy: AbstractPolicy
    groups: int = eqx.field(static=True, default=1)

    def start(self, slots):
        return self.policy.start(slots)

    def luck(self, slots, key):
        return self.policy.luck(slots, key)

    def act(self, memory, glance, luck):
        return memory, self.policy.act(memory, glance, luck)[1]


def best_without_memory(task):
    """Try every rule from the last action to the next: the most that any earns."""
    allowed, changes = TASKS[task]
    wanted = [g if SIZES[g] else ALONE for g in range(3) if allowed[g]]
    seconds = lambda first: wanted if changes else [first]
    best = 0.0
    for rule in itertools.product(range(3), repeat=3):
        scores = []
        for first in wanted:
            for second in seconds(first):
                total = 0.0
                for goal in (first, second):
                    last = 0  # the distraction makes everybody do 0
                    for _ in range(2):
                        last = rule[last]
                        total += 0.25 * (last == goal)
                scores.append(total)
        best = max(best, sum(scores) / len(scores))
    return best
