"""Environment steps per second, ours and the peers' under the same load."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fastap.envs import ENVIRONMENTS, make
from fastap.envs.combat import Combat
from fastap.envs.smax import import_smax, lenient, silence
from fastap.problem.spec import Env, Mistake

STEPS = 25  # per call; every call begins with a reset
Load = Callable[[], int]  # does some joint steps, and says how many


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement, as `fastap bench --json` prints it."""

    env: str
    parallel: int
    rate: float
    memory_mib: float
    compile_s: float
    peer: str | None = None
    peer_rate: float | None = None
    kind: str = "env"
    method: str | None = None
    unit: str = "joint steps/s"
    device: str = dataclasses.field(default_factory=lambda: str(jax.devices()[0]))


def measure(
    names: tuple[str, ...] = tuple(ENVIRONMENTS),
    parallel: tuple[int, ...] = (1, 64, 1024),
    seconds: float = 1.0,
) -> Iterator[Row]:
    """Time every environment at every width, each beside its peers."""
    for name in names:
        env = make(name)
        for count in parallel:
            ours = compiled(env, count)
            peers = dict(find_peers(env, count))
            rates = race({"": ours.load, **peers}, seconds)
            row = Row(name, count, rates[""], ours.memory_mib, ours.seconds)
            if not peers:
                yield row
            for peer in peers:
                yield dataclasses.replace(row, peer=peer, peer_rate=rates[peer])


def race(loads: dict[str, Load], seconds: float) -> dict[str, float]:
    """Run the loads in turns, so that a busy moment hits all; take the medians."""
    rates: dict[str, list[float]] = {name: [] for name in loads}
    for load in loads.values():
        load()
    while any(len(seen) < 5 for seen in rates.values()):
        for name, load in loads.items():
            begin, steps = time.perf_counter(), 0
            while time.perf_counter() - begin < seconds / 5:
                steps += load()
            rates[name].append(steps / (time.perf_counter() - begin))
    return {name: float(np.median(seen)) for name, seen in rates.items()}


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled load, and what it cost."""

    load: Load
    memory_mib: float
    seconds: float


def compile_load(play: Callable, actions: jax.Array, key: Any) -> Program:
    """Compile many episodes at once; the last view is kept, so none is skipped."""
    keys = jax.random.split(key, len(actions))
    begin = time.perf_counter()
    with lenient():
        program = jax.jit(jax.vmap(play)).lower(keys, actions).compile()
    seconds = time.perf_counter() - begin
    plan = program.memory_analysis()
    sizes = ("temp", "argument", "output")
    total = sum(getattr(plan, f"{size}_size_in_bytes", 0) for size in sizes)

    def load() -> int:
        jax.block_until_ready(program(keys, actions))
        return len(actions) * STEPS

    return Program(load, total / 2**20, seconds)


def compiled(env: Env, count: int) -> Program:
    """Build our load: reset, then act at random and look after every step."""
    spec = env.spec
    k_action, k_play = jax.random.split(jax.random.key(0))
    shape = (count, STEPS, spec.slots)
    actions = jax.random.randint(k_action, shape, 0, spec.actions)

    def play(key, actions):
        k_reset, k_steps = jax.random.split(key)
        world = env.reset(jnp.ones(spec.slots, bool), k_reset)

        def step(carry, now):
            action, key = now
            world, outcome = env.step(carry[0], action, key)
            return (world, env.view(world)), outcome

        start = (world, env.view(world))
        return jax.lax.scan(step, start, (actions, jax.random.split(k_steps, STEPS)))

    return compile_load(play, actions, k_play)


def find_peers(env: Env, count: int) -> Iterator[tuple[str, Load]]:
    """List the installed packages that play the same game."""
    build = {
        "lbf": (("lbforaging", lbforaging),),
        "pp": (("mpe2", mpe2_tag), ("jaxmarl", jaxmarl_tag)),
        "cn": (("mpe2", mpe2_spread), ("jaxmarl", jaxmarl_spread)),
        "10m_vs_14m": (("jaxmarl", jaxmarl_smax),),
    }
    for peer, load in build[env.spec.name]:
        try:
            yield peer, load(env, count)
        except (ImportError, Mistake):
            continue


def lbforaging(env: Any, count: int) -> Load:
    """Step the package's environment, one after another, as it can."""
    del count
    import gymnasium
    import lbforaging  # noqa: F401 registers its games

    name = f"Foraging-{env.rows}x{env.columns}-{env.agents}p-{env.foods}f-coop-v3"
    game = gymnasium.make(name, sight=env.sight, max_episode_steps=env.horizon)
    game = game.unwrapped
    game.reset(seed=0)
    draw = np.random.default_rng(0)

    def load() -> int:
        game.reset()
        for action in draw.integers(0, 6, (STEPS, env.agents)).tolist():
            game.step(action)
        return STEPS

    return load


def parallel_load(game: Any) -> Load:
    """Step a PettingZoo parallel game at random."""
    draw = np.random.default_rng(0)

    def load() -> int:
        game.reset(seed=0)
        for row in draw.integers(0, 5, (STEPS, len(game.possible_agents))):
            game.step(dict(zip(game.possible_agents, row, strict=True)))
        return STEPS

    return load


def mpe2_tag(env: Any, count: int) -> Load:
    """Step mpe2's simple_tag."""
    del env, count
    from mpe2 import simple_tag_v3

    return parallel_load(simple_tag_v3.parallel_env(max_cycles=STEPS))


def mpe2_spread(env: Any, count: int) -> Load:
    """Step mpe2's simple_spread."""
    del count
    from mpe2 import simple_spread_v3

    return parallel_load(simple_spread_v3.parallel_env(N=env.agents, max_cycles=STEPS))


def jaxmarl_tag(env: Any, count: int) -> Load:
    """Step jaxmarl's simple_tag."""
    del env
    with silence():
        from jaxmarl.environments.mpe.simple_tag import SimpleTagMPE
    return jaxmarl_load(SimpleTagMPE(), count, 5)


def jaxmarl_spread(env: Any, count: int) -> Load:
    """Step jaxmarl's simple_spread."""
    with silence():
        from jaxmarl.environments.mpe.simple_spread import SimpleSpreadMPE
    game = SimpleSpreadMPE(num_agents=env.agents, num_landmarks=env.landmarks)
    return jaxmarl_load(game, count, 5)


def jaxmarl_smax(env: Combat, count: int) -> Load:
    """Step jaxmarl's own game of the same numbers of marines."""
    smax = import_smax()
    from jaxmarl.environments.smax.heuristic_enemy_smax_env import HeuristicEnemySMAX

    marines = jnp.zeros(env.agents + env.enemies, jnp.uint8)
    scenario = smax.Scenario(marines, env.agents, env.enemies, False, False)
    return jaxmarl_load(HeuristicEnemySMAX(scenario=scenario), count, env.spec.actions)


def jaxmarl_load(game: Any, count: int, choices: int) -> Load:
    """Step a JaxMARL game as its users do: with the step that resets itself."""
    k_action, k_play = jax.random.split(jax.random.key(0))
    shape = (count, STEPS, len(game.agents))
    actions = jax.random.randint(k_action, shape, 0, choices)

    def play(key, actions):
        def step(carry, now):
            action, key = now
            chosen = {agent: action[i] for i, agent in enumerate(game.agents)}
            seen, state, reward, done, _ = game.step(key, carry[1], chosen)
            return (seen, state), (reward, done)

        k_reset, k_steps = jax.random.split(key)
        keys = jax.random.split(k_steps, STEPS)
        return jax.lax.scan(step, game.reset(k_reset), (actions, keys))

    return compile_load(play, actions, k_play).load
