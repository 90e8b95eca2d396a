"""LBF is lbforaging 2.0.0: every state, view, reward and end, without a difference.

The reference plays episodes under five kinds of play; ours starts from the same
boards, takes the same actions, and must arrive at the same boards throughout.
"""

import gymnasium
import jax
import jax.numpy as jnp
import lbforaging
import numpy as np
import pytest

from fastap.envs.board import Board
from fastap.envs.foraging import Foraging

assert lbforaging  # importing it registers its games
KINDS = ("random", "crowd", "border", "forage", "meet")
MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])


def reference(rows, columns, players, foods, sight, coop=True):
    kind = "-coop" if coop else ""
    name = f"Foraging-{rows}x{columns}-{players}p-{foods}f{kind}-v3"
    return gymnasium.make(name, sight=sight, max_episode_steps=25).unwrapped


def towards(place, goal, draw):
    """One of the moves that come nearer to a goal."""
    gap = np.abs(place + MOVES - goal).sum(1)
    return draw.choice(np.flatnonzero(gap == gap.min()))


def adversary(kind, game, draw):
    """Joint actions that look for trouble: crowds, borders, meetings, loading."""
    place = np.array([player.position for player in game.players])
    foods = np.argwhere(game.field > 0)
    actions = draw.integers(0, 6, len(place))
    for i, here in enumerate(place):
        if kind == "random" or draw.random() < 0.15:
            continue
        if kind == "border":
            actions[i] = draw.choice([1, 3]) if i % 2 else draw.choice([2, 4])
        elif kind == "crowd":
            actions[i] = towards(here, place[0], draw)
        elif kind == "meet":
            others = np.delete(place, i, axis=0)
            near = others[np.abs(others - here).sum(1).argmin()]
            actions[i] = towards(here, near, draw)
        elif len(foods):
            target = foods[np.abs(foods - place.mean(0)).sum(1).argmin()]
            beside = np.abs(target - here).sum() == 1
            actions[i] = 5 if beside else towards(here, target, draw)
    return actions


def snapshot(game, foods):
    place = [player.position for player in game.players]
    food = np.argwhere(game.field > 0)
    level = game.field[game.field > 0]
    missing = foods - len(food)
    return dict(
        position=np.array(place),
        level=np.array([player.level for player in game.players]),
        food=np.pad(food, ((0, missing), (0, 0)), constant_values=-1),
        food_level=np.pad(level, (0, missing)),
        spawned=np.array(int(game._food_spawned)),
    )


def play_reference(game, foods, episodes, seed):
    """Record episodes of 25 steps; a finished game simply stops earning."""
    draw = np.random.default_rng(seed)
    game.reset(seed=seed)
    tape = []
    for episode in range(episodes):
        seen, _ = game.reset()
        states, views = [snapshot(game, foods)], [np.stack(seen)]
        actions, rewards, fields, ends = [], [], [game.field.copy()], []
        for _ in range(25):
            action = adversary(KINDS[episode % len(KINDS)], game, draw)
            seen, reward, _, _, _ = game.step(action.tolist())
            actions.append(action)
            rewards.append(sum(reward))
            ends.append(game.field.sum() == 0)
            states.append(snapshot(game, foods))
            views.append(np.stack(seen))
            fields.append(game.field.copy())
        tape.append((states, views, actions, rewards, fields, ends))
    return [list(column) for column in zip(*tape, strict=True)]


def boards(states, absent):
    """Stack recorded boards, with `absent` empty slots behind the players."""
    stacked = {k: np.stack([s[k] for s in states]) for k in states[0]}
    count = stacked["level"].shape[1]
    pad = lambda x, value: np.concatenate(
        [x, np.full((len(x), absent, *x.shape[2:]), value)], axis=1
    )
    present = np.arange(count + absent) < count
    present = jnp.broadcast_to(jnp.asarray(present), (len(states), count + absent))
    return jax.vmap(Board)(
        jnp.asarray(pad(stacked["position"], -1)),
        jnp.asarray(pad(stacked["level"], 0)),
        present,
        jnp.asarray(stacked["food"]),
        jnp.asarray(stacked["food_level"]),
        jnp.asarray(stacked["spawned"]),
    )


def run_ours(env, start, actions):
    """Play whole episodes from the reference's first boards."""

    def episode(world, actions):
        def step(world, action):
            after, outcome = env.step(world, action, jax.random.key(0))
            return after, (after, env.view(after), outcome)

        return env.view(world), jax.lax.scan(step, world, actions)[1]

    return jax.jit(jax.vmap(episode))(start, actions)


def fields_of(worlds, rows, columns):
    """Draw the foods of many boards into fields of levels."""
    food, level = np.asarray(worlds.food), np.asarray(worlds.food_level)
    out = np.zeros((*level.shape[:-1], rows, columns), int)
    for index in np.argwhere(level > 0):
        row, column = food[tuple(index)]
        out[(*index[:-1], row, column)] = level[tuple(index)]
    return out


GAMES = [
    # rows, columns, players, foods, sight, absent slots, coop, episodes
    (6, 6, 4, 3, 1, 0, True, 1000),
    (6, 6, 3, 3, 1, 1, True, 300),
    (6, 6, 4, 3, 1, 0, False, 100),
    (8, 8, 5, 4, 2, 2, True, 100),
    (6, 6, 4, 3, 6, 0, True, 100),
]


@pytest.mark.parametrize("game", GAMES, ids=lambda g: "-".join(map(str, g)))
def test_every_step_is_the_references(game):
    rows, columns, players, foods, sight, absent, coop, episodes = game
    env = Foraging(
        rows=rows,
        columns=columns,
        agents=players + absent,
        least=1 if absent else players - 2,
        foods=foods,
        sight=sight,
        layout="compact",
    )
    recorded = play_reference(
        reference(rows, columns, players, foods, sight, coop), foods, episodes, seed=7
    )
    states, views, actions, rewards, fields, ends = recorded
    actions = np.pad(np.array(actions), ((0, 0), (0, 0), (0, absent)))
    first, (worlds, seen, outcome) = run_ours(
        env, boards([s[0] for s in states], absent), jnp.asarray(actions)
    )
    places = np.stack([[t["position"] for t in s] for s in states])
    assert np.array_equal(worlds.position[:, :, :players], places[:, 1:])
    assert np.array_equal(fields_of(worlds, rows, columns), np.array(fields)[:, 1:])
    assert np.array_equal(outcome.terminal, np.array(ends))
    rewards = np.array(rewards, np.float32)
    assert np.abs(np.asarray(outcome.reward) - rewards).max() < 1e-6
    ours = np.concatenate([first.observation[:, None], seen.observation], axis=1)
    theirs = np.array(views)
    if absent:  # an empty slot is one more unseen teammate, and sees nothing
        assert np.all(ours[:, :, players:] == -1)
        nobody = np.tile([-1, -1, 0], absent)
        assert np.all(ours[:, :, :players, -3 * absent :] == nobody)
        ours = ours[:, :, :players, : -3 * absent]
    assert np.array_equal(ours, theirs)
    if (players, sight, coop) == (4, 1, True):
        check_that_trouble_happened(places, actions, rewards)


def check_that_trouble_happened(places, actions, rewards):
    """The play was adversarial: each hard case occurred, many times over."""
    moves = np.concatenate([MOVES, [[0, 0]]])[actions]
    wished, before, after = places[:, :-1] + moves, places[:, :-1], places[:, 1:]
    stayed = np.all(after == before, axis=-1)
    moving = np.any(moves != 0, axis=-1)
    pair = np.triu(np.ones((4, 4), bool), 1)
    same = lambda a, b: np.all(a[:, :, :, None] == b[:, :, None], axis=-1)
    both = moving[:, :, :, None] & moving[:, :, None]
    collided = same(wished, wished) & both & stayed[:, :, :, None] & pair
    swapped = same(after, before) & same(before, after) & both & pair
    shared = same(after, after) & pair
    blocked_by_border = np.any((wished < 0) | (wished > 5), axis=-1)
    assert collided.sum() > 500
    assert (swapped & ~shared).sum() > 100
    assert shared.sum() > 20
    assert blocked_by_border.sum() > 2000
    assert (rewards > 0).sum() > 100


def test_the_default_layout_tells_the_same_in_fixed_slots():
    """Taking the unseen out of our slots gives lbforaging's compact view."""
    keys = jax.random.split(jax.random.key(0), 500)
    slots, compact = Foraging(), Foraging(layout="compact")
    everybody = jnp.ones(4, bool)
    worlds = jax.jit(jax.vmap(slots.reset, in_axes=(None, 0)))(everybody, keys)
    look = lambda env: np.asarray(jax.jit(jax.vmap(env.view))(worlds).observation)
    ours, theirs = (look(env).reshape(-1, 7, 3) for env in (slots, compact))
    assert np.array_equal(ours[:, :4], theirs[:, :4])
    for a, b in zip(ours[:, 4:], theirs[:, 4:], strict=True):
        seen = a[a[:, 2] > 0]
        assert np.array_equal(seen, b[: len(seen)])
        assert np.all(b[len(seen) :, 2] == 0)
