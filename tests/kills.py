"""Kill a training ten times at random moments, resume it, and compare.

    python -m tests.kills fastap

The curve and all parameters must be those of a run that nobody disturbed.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fastap.training import checkpoint

KILLS = 10


def main(method: str, *more: str) -> None:
    """Train twice: once in peace, once not."""
    start = [sys.executable, "-m", "fastap", "train"]
    asked = ["--preset", "smoke", "--method", method, *more]
    quiet = {"stdout": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as place:
        whole, killed = Path(place) / "whole", Path(place) / "killed"
        for _ in range(2):  # the second time with everything compiled
            clock = time.monotonic()
            arguments = [*start, *asked, "--force", "--out", str(whole)]
            subprocess.run(arguments, check=True, **quiet)
            took = time.monotonic() - clock
        dice, kills = random.Random(0), 0
        while kills < KILLS:
            again = ["--resume"] if (killed / "config.json").exists() else asked
            run = subprocess.Popen([*start, *again, "--out", str(killed)], **quiet)
            try:
                run.wait(timeout=dice.uniform(0, 1) * took)
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.wait()
                kills += 1
                there = killed / checkpoint.CHECKPOINT
                step = checkpoint.read(there)[1]["beats"] if there.exists() else None
                print(f"kill {kills}: last saved beat {step}", flush=True)
            else:
                print("it came to its end; beginning anew", flush=True)
                compare(whole, killed)
                for path in sorted(killed.rglob("*"), reverse=True):
                    path.unlink() if path.is_file() else path.rmdir()
        again = ["--resume"] if (killed / "config.json").exists() else asked
        subprocess.run([*start, *again, "--out", str(killed)], check=True, **quiet)
        compare(whole, killed)
    print(f"{method}: after {KILLS} kills everything is the same bit for bit.")


def compare(one: Path, two: Path) -> None:
    """See that two runs left the same."""
    for name in (checkpoint.METRICS, checkpoint.POLICY):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    last = [checkpoint.read(run / checkpoint.CHECKPOINT)[0] for run in (one, two)]
    for name, x in last[0].items():
        assert np.array_equal(x, last[1][name]), name


if __name__ == "__main__":
    main(*sys.argv[1:])
