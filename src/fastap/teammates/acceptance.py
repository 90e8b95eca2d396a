"""Is a zoo worth training against? Measurements that decide before any method does."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from fastap.methods.learner import Actor
from fastap.methods.networks import Values
from fastap.methods.practice import Drill, Moment, Practice
from fastap.problem.episode import Episode
from fastap.problem.rollout import Players, play
from fastap.problem.schedule import Change
from fastap.problem.spec import Env
from fastap.teammates.crossplay import beside_all, cross_play, mean_return, summarise
from fastap.teammates.population import only
from fastap.teammates.scripted import Random
from fastap.teammates.zoo import Zoo

SURE = "highest"  # precision of products when judging, whatever the device


def skills(zoo: Zoo, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Measure every group with itself, and all with all.

    Returns what goes into the manifest; scores are normalised, so that the
    random team is 0 and the best self-play 1, for each number of bodies apart.
    """
    env, spec = zoo.env, zoo.env.spec
    keys = jax.random.split(jax.random.key(seed), episodes)
    cross = jax.jit(functools.partial(cross_play, env))
    floor = jax.jit(functools.partial(mean_return, env, Players(Random(), Random())))
    with jax.default_matmul_precision(SURE):
        matrices = {
            size: np.asarray(
                cross(zoo.policy, jnp.full(len(zoo.groups), size), keys), float
            )
            for size in range(spec.least, spec.mates + 1)
        }
        floors = {size: float(floor(jnp.array(size), keys)) for size in matrices}
    best = {size: float(matrix.diagonal().max()) for size, matrix in matrices.items()}
    place = np.arange(len(zoo.groups))
    own = np.stack([matrices[size][:, k] for k, size in enumerate(zoo.sizes)], axis=1)
    low = np.array([floors[size] for size in zoo.sizes])
    high = np.array([best[size] for size in zoo.sizes])
    better = np.where(high > low, high - low, np.inf)  # nobody better: all score 0
    normal = (own - low[None]) / better[None]
    bodies = lambda table: {str(spec.controlled + k): v for k, v in table.items()}
    rows = [
        {
            "selfplay": bodies(
                {s: round(float(m[k, k]), 4) for s, m in matrices.items()}
            ),
            "score": round(float(normal[k, k]), 4),
        }
        for k in place
    ]
    full = np.array([group["skill"] == "full" for group in zoo.groups])
    summary = summarise(normal[np.ix_(full, full)], zoo.types[full])
    return {
        "groups": rows,
        "floor": bodies(floors),
        "best_selfplay": bodies(best),
        **dataclasses.asdict(summary),
        "matrix": normal.round(4).tolist(),
    }


class Company(eqx.Module):
    """The groups that a run of agents is trained beside."""

    allowed: Bool[Array, "*R K"]


def beside(
    zoo: Zoo, task: Company, agents: Values, now: Moment, key: PRNGKeyArray
) -> Episode:
    """Play one episode beside one of the allowed groups, unchanging."""
    env, n = zoo.env, zoo.env.spec.controlled
    k_draw, k_play = jax.random.split(key)
    draw = Change().draw
    schedule = draw(jnp.asarray(zoo.sizes), task.allowed, env.spec.horizon, k_draw)
    mates = only(zoo.policy, schedule.group[0], np.s_[n:])
    mine = Actor(env=env, agents=agents, epsilon=now.epsilon)
    return play(env, Players(mine, mates), schedule, k_play)


def best_responses(
    zoo: Zoo, practice: Practice, pool: str, seeds: int, episodes: int
) -> tuple[dict[str, Any], Values]:
    """Train agents for each group of a pool alone, and some for all of them.

    The best-response gap is what knowing one's teammates in advance is worth:
    how much better the agents trained for a group are with it than those for all.
    Returns the facts, and one of the teams trained for all.
    """
    members, count = zoo.members(pool), len(zoo.groups)
    alone = np.eye(count, dtype=bool)[members]
    together = np.zeros((seeds, count), bool)
    together[:, members] = True
    allowed = np.concatenate([alone, together])
    play = functools.partial(beside, zoo)
    drill = Drill(zoo.env, zoo.env.spec.controlled, practice, play)
    agents = train_all(drill, Company(jnp.asarray(allowed)))
    earned = judge_all(zoo.env, zoo, agents, episodes)
    own = earned[np.arange(len(members)), members]
    general = earned[len(members) :, members].mean(0)
    facts = {
        "best_response_gap": round(float((own - general).mean()), 4),
        "best_responses": {
            "pool": pool,
            "alone": own.round(4).tolist(),
            "together": general.round(4).tolist(),
            "steps": practice.steps,
            "seeds": seeds,
        },
    }
    return facts, jax.tree.map(lambda x: x[-1], agents)


def train_all(drill: Drill, tasks: Company, rate: float = 5e-4) -> Values:
    """Train one run for each task, all side by side; return their agents."""
    runs = len(tasks.allowed)
    keys = jax.vmap(jax.random.key)(jnp.arange(runs))
    state = jax.jit(jax.vmap(drill.start))(tasks, jnp.full(runs, rate), keys)
    rounds = jnp.arange(drill.practice.rounds(drill.env.spec.horizon))
    train = jax.jit(drill.improve, donate_argnums=0)
    return train(state, rounds)[0].learner.model.agents


def judge_all(
    env: Env, zoo: Zoo, agents: Values, episodes: int, seed: int = 1
) -> Float[np.ndarray, "R K"]:
    """Play every run's agents beside every group, greedily, unchanging."""
    keys = jax.random.split(jax.random.key(seed), episodes)
    sizes = jnp.asarray(zoo.sizes)

    @jax.jit
    def test(agents):
        act = lambda part: Actor(env=env, agents=part)
        one = lambda part: beside_all(env, act(part), zoo.policy, sizes, keys)
        return jax.lax.map(one, agents)

    with jax.default_matmul_precision(SURE):
        return np.asarray(test(agents), float)
