"""Commands that read and check everything and then do not begin to work."""

import pytest

# Nothing of fastap is imported before the checks of shapes are in place.


class Began(Exception):
    """A command found nothing wrong and begins its work."""


WORK = (  # where commands stop reading and begin to compute
    "fastap.commands.train.drive",
    "fastap.training.train.Course.start",
    "fastap.experiments.environments.example",
    "fastap.evaluation.evaluate.Judge.__call__",
    "fastap.experiments.thoughts.film_all",
    "fastap.benchmarks.environments.measure",
    "fastap.benchmarks.learning.measure",
    "fastap.commands.reproduce.learn",
    "fastap.report.film.save_figure",
    "fastap.teammates.labels.watch",
    "fastap.teammates.grow.grow_together",
    "fastap.teammates.acceptance.accept",
    "fastap.teammates.acceptance.skills",
    "fastap.teammates.yardsticks.train_all",
    "fastap.teammates.breed.breed",
    "fastap.training.forecast.forecast",
    "fastap.deploy.export.check",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose agents have learnt nothing."""
    from fastap.training import checkpoint
    from fastap.training import settings as training
    from fastap.training.train import State, course

    folder = tmp_path_factory.mktemp("fuzz") / "run"
    ready = course(
        training.settings("lbf", "fastap", "smoke", zoo="lbf-conventions", seeds=1)
    )
    checkpoint.write_config(folder, ready.settings, {})
    row = {"step": 1600, "seed": 0, "variant": "fastap", "U[5,8] train": 0.25}
    checkpoint.save(folder, ready, State(ready.start().runs, ready.beats, (row,)), True)
    return folder


@pytest.fixture
def idle(monkeypatch):
    """Let nobody begin to work."""
    import fastap

    fastap.make("10m_vs_14m")  # what it imports takes stderr to itself, once

    def begin(*_, **__):
        raise Began

    for place in WORK:
        monkeypatch.setattr(place, begin)
