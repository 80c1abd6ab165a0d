"""Studies and fits again and again in one process: does memory grow, is anything left behind?

    python -m tools.soak                    30 minutes
    python -m tools.soak --minutes 2        shorter, for a first look

A round is `study smoke` with its page and four fits: new data each time, as a user's session has, one of
them with a checkpoint. Most rounds run the study in this process, every fifth in processes of its own or
on a local Dask cluster, in turns. After each round it prints resident memory, open files, threads, child
processes and temporary files. Rounds before a third of the time are warm-up. Exit code 0 if memory after
it grows by less than 2 % and nothing is left behind.
"""

import argparse
import ctypes
import gc
import os
import shutil
import sys
import tempfile
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np

CYCLE = (*["inprocess"] * 4, "processes", *["inprocess"] * 4, "dask")
GROWTH, WARM_UP = 0.02, 1 / 3
# Memory is compared between the first and the last of so many parts of the time after warm-up.
PARTS = 4


class Look(NamedTuple):
    """What the process holds after a round."""

    minutes: float
    resident: float
    files: int
    threads: int
    children: int
    temporary: int

    def __str__(self) -> str:
        return (
            f"{self.minutes:6.1f} min  {self.resident:8.1f} MB  {self.files:3} open files  "
            f"{self.threads:3} threads  {self.children} children  {self.temporary} temporary files"
        )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes = parser.parse_args().minutes
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    # All that is written on the way is below one folder: temporary files, locks, compiled programs.
    programs, temporary = folder / "programs", folder / "temporary"
    temporary.mkdir()
    os.environ |= {"TMPDIR": str(temporary), "QUIETGRAD_COMPILED": str(programs)}
    tempfile.tempdir = str(temporary)
    looks, began = [], time.monotonic()
    try:
        while not looks or looks[-1].minutes < minutes:
            engine = CYCLE[len(looks) % len(CYCLE)]
            work(folder / "out", engine, len(looks))
            looks.append(look((time.monotonic() - began) / 60, temporary))
            print(looks[-1], f" {engine}", flush=True)
        return verdict(looks, minutes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def work(out: Path, engine: str, number: int) -> None:
    """A study and four fits; what they write is removed, for it is theirs to leave."""
    from quietgrad.cli.commands import study

    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        code = study.run("smoke", {}, out=out, only=(), engine=engine, fresh=False, report=True)
    if code != 0:
        raise RuntimeError(f"study smoke by {engine} ended with exit code {code}")
    fits(out / "checkpoint", number)
    shutil.rmtree(out)


def fits(checkpoint: Path, number: int) -> None:
    """Fits by four methods to data that nobody has seen, by functions made anew."""
    import jax.numpy as jnp
    import jax.random as jr

    import quietgrad as qg

    rng = np.random.default_rng(number)
    x = rng.normal(size=(60, 3))
    y = (x @ rng.normal(size=3) + rng.logistic(size=60) > 0).astype(float)

    def log_likelihood(z, data):
        x, y = data
        return y * (x @ z) - jnp.logaddexp(x @ z, 0.0)

    def target() -> qg.Target:
        return qg.Target(lambda z: -0.5 * z @ z, log_likelihood, (x, y), dim=3)

    key = jr.key(number)
    qg.fit(target(), key=key)
    qg.fit(target(), "full-rank", key=key).diagnose()
    qg.fit(target(), method=qg.Saa(), key=key)
    sgd = qg.Sgd("quiet", steps=300, evaluate_every=100)
    qg.fit(target(), method=sgd, batch_size=20, checkpoint=checkpoint, key=key)


def look(minutes: float, temporary: Path) -> Look:
    """The process as it is, after it has given back what it can."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    children = [len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children")]
    left = [path for path in temporary.rglob("*") if not path.name.startswith("quietgrad-timing-")]
    files = len(os.listdir("/proc/self/fd"))
    return Look(minutes, resident / 2**20, files, threading.active_count(), sum(children), len(left))


def verdict(looks: list[Look], minutes: float) -> int:
    """Say whether memory grew after warm-up, and whether files, threads or processes are left."""
    settled = [each for each in looks if each.minutes >= WARM_UP * minutes]
    part = max(1, len(settled) // PARTS)
    before, after = settled[:part], settled[-part:]
    first = np.median([each.resident for each in before])
    growth = float(np.median([each.resident for each in after]) / first - 1)
    more = {
        name: max(getattr(e, name) for e in after) - max(getattr(e, name) for e in before)
        for name in ("files", "threads", "children", "temporary")
    }
    held = growth < GROWTH and not any(count > 0 for count in more.values())
    left = ", ".join(f"{name} {count:+d}" for name, count in more.items())
    warm = len(looks) - len(settled)
    print(
        f"{len(looks)} rounds of a study and four fits in {looks[-1].minutes:.1f} minutes; after {warm} "
        f"rounds of warm-up resident memory {growth:+.2%}, {left}: "
        f"{'flat, nothing leaked' if held else 'NOT flat'}"
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
