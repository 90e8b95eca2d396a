"""A study in one file: what another machine needs to go on with it."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from fastap.problem.spec import Mistake
from fastap.teammates.zoo import replace

LEVEL = 3  # of compression, of 9


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
    # A run that is half done brings its whole memory: little is lost, much time won.
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=LEVEL) as tar:
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
        whole = gzip.decompress(archive.read_bytes())  # which checks its sum
        with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as tar:
            members = tar.getmembers()
            strange = [m.name for m in members if not m.isreg()]
            opened = {m.name: tar.extractfile(m) for m in members if m.isreg()}
            files = {name: file.read() for name, file in opened.items() if file}
    except (OSError, tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        raise Mistake(f"{archive} cannot be read as an archive: {error}.") from error
    for name in (*files, *strange):
        parts = PurePosixPath(name).parts
        if name in strange or name.startswith("/") or ".." in parts:
            raise Mistake(f"{archive} is no study: '{name}' has no place in it.")
    for name, data in files.items():
        replace(out / name, data)
