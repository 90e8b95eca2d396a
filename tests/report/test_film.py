"""Pictures: the right things in the right places, and files that are whole."""

from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from fastap import make
from fastap.experiments.environments import example
from fastap.problem.schedule import parse
from fastap.problem.spec import Mistake
from fastap.report import film as reel

NAMES = ("lbf", "pp", "cn", "10m_vs_14m")


@pytest.fixture(scope="module")
def clips():
    change = parse("at[2,5]")
    return {name: reel.clip(*example(name, change, seed=3)) for name in NAMES}


def has_colour(picture, colour):
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return bool((np.abs(picture.astype(int) - wanted).max(-1) <= 2).any())


@pytest.mark.parametrize("name", NAMES)
def test_a_scene_holds_who_and_what_is_there(name, clips):
    film = clips[name]
    count = lambda kind, t=0: sum(s.kind == kind for s in film.scenes[t].shapes)
    spec = make(name).spec
    assert count("controlled") == spec.controlled
    assert count("mate") == film.present[0].sum() - spec.controlled
    expected = {"lbf": "food", "pp": "prey", "cn": "goal", "10m_vs_14m": "enemy"}
    assert count(expected[name]) == {"pp": 1, "cn": 4, "10m_vs_14m": 14}.get(name, 3)
    for shape in film.scenes[0].shapes:
        left, right, bottom, top = film.scenes[0].extent
        assert left <= shape.x <= right and bottom <= shape.y <= top


def test_a_change_shows_in_the_picture_and_only_then(clips):
    film = clips["lbf"]
    on_board = lambda t: reel.pixels(reel.frame(film, t))[40:60]
    assert has_colour(on_board(2), reel.ALARM)
    assert not has_colour(on_board(3), reel.ALARM)


def test_teammates_wear_their_groups_colour(clips):
    film = clips["cn"]
    for t in (0, 6):
        picture = reel.pixels(reel.frame(film, t))[60:400]
        assert has_colour(picture, reel.colour_of(film.group[t]))
        assert has_colour(picture, reel.CONTROLLED)


def test_an_absent_teammate_is_not_drawn(key):
    env = make("cn")
    world = env.reset(env.spec.present(jnp.array(1)), key)
    mates = [s for s in env.scene(world).shapes if s.kind == "mate"]
    assert len(mates) == 1


@pytest.mark.parametrize("name", NAMES)
def test_frames_and_films_are_files_that_open(name, clips, tmp_path):
    film = clips[name]
    reel.save_frame(film, 2, tmp_path / "a.png")
    reel.save_frame(film, 2, tmp_path / "a.svg")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (400, 490)
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    if name == "lbf":
        reel.save_film(film, tmp_path / "a.gif")
        with Image.open(tmp_path / "a.gif") as gif:
            assert gif.n_frames == len(film)
    assert not list(tmp_path.glob("*.part"))


def test_a_film_ends_where_the_episode_ends(key):
    env, episode, worlds = example("lbf", parse("stationary"), seed=3)
    film = reel.clip(env, episode, worlds)
    assert len(film) == int(episode.length) + 1
    assert film.earned[-1] == pytest.approx(float(episode.total))


def test_wrong_pictures_are_refused_in_a_sentence(clips, tmp_path):
    with pytest.raises(Mistake, match="png"):
        reel.save_frame(clips["lbf"], 0, tmp_path / "a.bmp")
    with pytest.raises(Mistake, match="gif"):
        reel.save_film(clips["lbf"], tmp_path / "a.png")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Mistake, match="Could not write"):
        reel.save_frame(clips["lbf"], 0, tmp_path / "file" / "a.png")
    with pytest.raises(Mistake, match="steps 0 to"):
        reel.save_frame(clips["lbf"], 99, tmp_path / "a.png")


def test_a_full_disk_leaves_the_old_file_and_no_part(clips, tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(Mistake, match="No space left"):
        reel.save_frame(clips["lbf"], 0, path)
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_many_environments_stand_side_by_side(clips):
    figure = reel.contact_sheet(list(clips.values()), [1] * 4)
    assert [axes.get_title() for axes in figure.axes] == list(NAMES)
