"""A study in one file: what another machine needs to go on with it."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from fastap.problem.spec import Mistake
from fastap.teammates.zoo import replace


def contents(out: Path) -> Iterator[Path]:
    """List what is packed: all but the checkpoints of runs that are done.

    Runs that others begin with keep theirs.
    """
    from fastap.experiments.measure import status
    from fastap.experiments.study import EXPERIMENTS

    origins = {
        cohort.start
        for experiment in EXPERIMENTS.values()
        for env in experiment.envs
        for cohort in experiment.cohorts(env)
        if cohort.start
    }
    for path in sorted(out.rglob("*")):
        if not path.is_file() or path.name.endswith(".part"):
            continue
        if path.parent.name == "checkpoint":
            run = path.parent.parent
            needed = any(run.name.endswith(f"-{name}") for name in origins)
            if status(run).done and not needed:
                continue
        yield path


def pack(out: Path, archive: Path) -> Path:
    """Write a study into one archive."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for path in contents(out):
            if path.resolve() != archive.resolve():
                tar.add(path, arcname=str(path.relative_to(out)))
    replace(archive, data.getvalue())
    return archive


def unpack(archive: Path, out: Path, force: bool) -> None:
    """Read such an archive into a folder, refusing all that is none."""
    if out.is_dir() and any(out.iterdir()) and not force:
        raise Mistake(f"{out} is not empty; name another --out or add --force.")
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            found = [(member, tar.extractfile(member)) for member in tar.getmembers()]
            files = {m.name: f.read() for m, f in found if f is not None and m.isreg()}
            strange = [m.name for m, _ in found if not m.isreg()]
    except (OSError, tarfile.TarError, EOFError, ValueError) as error:
        raise Mistake(f"{archive} cannot be read as an archive: {error}.") from error
    for name in (*files, *strange):
        parts = PurePosixPath(name).parts
        if name in strange or name.startswith("/") or ".." in parts:
            raise Mistake(f"{archive} is no study: '{name}' has no place in it.")
    for name, data in files.items():
        replace(out / name, data)
