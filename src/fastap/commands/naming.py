"""What runs are called on one page: by game, method and folder."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fastap.envs import ENVIRONMENTS
from fastap.problem.spec import Mistake

OURS = "fastap"  # comes first
Places = dict[Path, str]  # of runs
Names = dict[tuple[Path, str], str]  # of a run and one of its methods


def runs_in(folder: Path) -> list[Path]:
    """Find the runs of a folder: itself, or those of a study."""
    from fastap.training.checkpoint import CONFIG, read_config

    if (folder / CONFIG).is_file():
        return [folder]
    found = [path.parent for path in folder.glob(f"runs/*/{CONFIG}")]
    if not found:
        raise Mistake(f"{folder} is no run, and no study that holds any.")
    order = {env: place for place, env in enumerate(ENVIRONMENTS)}
    game = lambda run: order.get(read_config(run)[0].env, len(order))
    return sorted(found, key=lambda run: (game(run), OURS not in run.name, run.name))


def places(runs: Sequence[Path]) -> Places:
    """Say where each run learnt: its zoo's name, which is mostly its game's too.

    Where two zoos have the same name, it is said where they are.
    """
    from fastap.teammates import zoo as store
    from fastap.training.checkpoint import read_config

    paths = {run: read_config(run)[0].zoo for run in runs}
    zoos = {run: store.load(path) for run, path in paths.items()}
    kinds = {(zoo.manifest["name"], zoo.fingerprint()) for zoo in zoos.values()}
    often = Counter(name for name, _ in kinds)

    def name(run: Path) -> str:
        called = zoos[run].manifest["name"]
        return called if often[called] == 1 else f"{called} ({paths[run]})"

    return {run: name(run) for run in runs}


def labels(runs: Sequence[Path], where: Places) -> Names:
    """Name every method of every run, by the run too where two of a place are alike.

    A run that is called after a method has its name even so, if it is the only one.
    """
    from fastap.training.checkpoint import read_config

    each = []
    for run in runs:
        settings = read_config(run)[0]
        each += [(run, name) for name in (settings.method, *settings.beside)]
    held = Counter(run for run, _ in each)
    often = Counter((where[run], method) for run, method in each)
    ours = lambda run, method: run.name in (method, f"{where[run]}-{method}")
    called = Counter((where[run], method) for run, method in each if ours(run, method))

    def own(run: Path, method: str) -> str:
        place = (where[run], method)
        if often[place] == 1 or (ours(run, method) and called[place] == 1):
            return method
        return run.name if held[run] == 1 else f"{run.name}: {method}"

    names = {(run, method): own(run, method) for run, method in each}
    alike = Counter((where[run], name) for (run, _), name in names.items())
    return {
        (run, method): name if alike[where[run], name] == 1 else f"{run}: {method}"
        for (run, method), name in names.items()
    }
