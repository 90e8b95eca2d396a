"""Loops of play and learning per second, for one run and for many at once."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from fastap.benchmarks.environments import Row
from fastap.envs import make
from fastap.evaluation.evaluate import Judge
from fastap.methods import replay
from fastap.methods.actor import Actor, act_by
from fastap.methods.learner import begin, plain, update
from fastap.methods.model import Learning, Model
from fastap.methods.networks import Values
from fastap.methods.practice import Drill, Moment, Practice, Run
from fastap.problem.episode import Episode
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import Change
from fastap.problem.spec import Env
from fastap.teammates.conventions import no_conventions
from fastap.teammates.grow import Lesson, lesson, seats
from fastap.training.settings import settings
from fastap.training.train import course

LOOP = Practice(episodes=8, updates=1, capacity=4992)
TURNS = 50  # loops in one compiled call
EPISODES = 2_000  # judged at once
JOINT = "joint steps/s"


def measure(name: str, runs: tuple[int, ...], seconds: float) -> Iterator[Row]:
    """Time a loop (8 new episodes, then one gradient step) and its gradient step."""
    env = make(name)
    for agents in (env.spec.controlled, env.spec.slots):
        for count in runs:
            yield from time_loop(env, agents, count, seconds)
    for count in runs:
        yield time_training(name, "fastap", count, seconds)
        yield time_evaluation(name, "fastap", count, seconds)


def time_training(name: str, method: str, seeds: int, seconds: float) -> Row:
    """Time the loop of a real training, beside the groups of the shipped zoo."""
    small = {"episodes": LOOP.episodes, "updates": 1, "points": 1}
    turns = TURNS * LOOP.episodes * make(name).spec.horizon
    ready = course(settings(name, method, "paper", seeds=seeds, steps=turns, **small))
    state, rounds = ready.start().runs, jnp.arange(TURNS)
    loop = lambda state: ready.programs.drill.improve(state, rounds)[0]
    clock = time.perf_counter()
    program = jax.jit(loop, donate_argnums=0).lower(state).compile()
    took = time.perf_counter() - clock
    _, rate = spin(program, state, TURNS * seeds, seconds)
    how = f"{method}, all of it"
    return Row(name, seeds, rate, 0.0, took, kind="loop", method=how, unit="loops/s")


def time_evaluation(name: str, method: str, seeds: int, seconds: float) -> Row:
    """Time how a run is judged, beside the shipped zoo's groups as they change."""
    ready = course(settings(name, method, "paper", seeds=seeds))
    model, members = ready.start().runs.learner.model, ready.members["validation"]
    judge = Judge(ready.zoo, EPISODES)
    work = EPISODES * seeds * ready.zoo.env.spec.horizon
    once = lambda state: (judge(model, members, "U[5,8]").returns, state)[1]
    clock = time.perf_counter()
    once(None)
    took = time.perf_counter() - clock
    _, rate = spin(once, None, work, seconds)
    how = f"{method}, U[5,8]"
    return Row(name, seeds, rate, 0.0, took, kind="eval", method=how, unit=JOINT)


def time_loop(env: Env, agents: int, runs: int, seconds: float) -> Iterator[Row]:
    """Time some runs side by side: as the learners of a team, or all of a team."""
    drill = Drill(env, agents, LOOP, functools.partial(lesson, env))
    if agents < env.spec.slots:
        mates = begin(env, env.spec.slots, Learning(), jax.random.key(1)).model.agents
        others = seats(mates, slice(agents, None))
        drill = dataclasses.replace(drill, play=functools.partial(beside, env, others))
    tasks = Lesson(jnp.ones(runs), no_conventions(runs))
    keys = jax.random.split(jax.random.key(0), runs)
    state = jax.jit(jax.vmap(drill.start))(tasks, plain(jnp.full(runs, 5e-4)), keys)
    steps = jnp.arange(TURNS)
    loop = lambda state: drill.improve(state, steps)[0]
    loads = (
        ("loop", "loops/s", 1, loop),
        ("update", "gradient steps/s", 1, functools.partial(only_learn, drill)),
        ("play", "episodes/s", LOOP.episodes, functools.partial(only_play, drill)),
    )
    for kind, unit, each, load in loads:
        clock = time.perf_counter()
        program = jax.jit(load, donate_argnums=0).lower(state).compile()
        took = time.perf_counter() - clock
        state, rate = spin(program, state, TURNS * runs * each, seconds)
        name, method = env.spec.name, f"qmix, {agents} learn"
        yield Row(name, runs, rate, 0.0, took, kind=kind, method=method, unit=unit)


def only_learn(drill: Drill, state: Run) -> Run:
    """Take gradient steps on what was played before."""

    def one(run, key):
        k_sample, k_update = jax.random.split(key)
        shelves = replay.shelve(run.memory, jnp.array(LOOP.capacity), run.dials.drawn)
        batch = replay.sample(run.memory, shelves, LOOP.batch, k_sample)
        how = (drill.env, LOOP.learning)
        after, _ = update(*how, run.learner, batch, run.dials, k_update)
        return dataclasses.replace(run, learner=after)

    def turn(state, key):
        return jax.vmap(one)(state, jax.random.split(key, len(state.dials.rate))), None

    return jax.lax.scan(turn, state, jax.random.split(jax.random.key(2), TURNS))[0]


def only_play(drill: Drill, state: Run) -> Run:
    """Play new episodes and remember them."""

    def one(run, now):
        moment = Moment(jnp.float32(0.05), jnp.float32(0))
        keys = jax.random.split(jax.random.fold_in(run.key, now), LOOP.episodes)
        play = lambda key: drill.play(run.task, run.learner.model, moment, key)
        fresh = replay.keep(jax.vmap(play)(keys), drill.agents)
        memory = replay.add(run.memory, fresh, now * LOOP.episodes)
        return dataclasses.replace(run, memory=memory), None

    return jax.lax.scan(jax.vmap(one, (0, None)), state, jnp.arange(TURNS))[0]


def beside(
    env: Env, mates: Values, task: Lesson, model: Model, now: Moment, key: jax.Array
) -> Episode:
    """Play beside a team that does not learn."""
    del task
    spec = env.spec
    first = act_by(env, model, now.epsilon)
    rest = Actor(env=env, agents=mates)
    sizes = jnp.array([spec.mates])
    k_draw, k_play = jax.random.split(key)
    schedule = Change().draw(sizes, jnp.ones(1, bool), spec.horizon, k_draw)
    return play(env, Players(first, rest), schedule, k_play)


def spin(
    program: Callable[[Any], Any], state: Any, work: int, seconds: float
) -> tuple[Any, float]:
    """Repeat a program for a while, after a first time; return its rate too."""
    state = jax.block_until_ready(program(state))
    clock, done = time.perf_counter(), 0
    while time.perf_counter() - clock < seconds:
        state = jax.block_until_ready(program(state))
        done += work
    return state, done / (time.perf_counter() - clock)
