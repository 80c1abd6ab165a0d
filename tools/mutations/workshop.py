"""A temporary copy of the project in which bugs are put, tests are run, and bugs are taken out again."""

import importlib
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn

import jax
import pytest

from .finding import find
from .mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
LARGE = ("jax", "jax.numpy", "optax", "equinox", "beartype", "scipy.stats", "rich.console")
# Bugs can make a loop endless; a selection takes seconds of computing. What waits for much longer than
# that without computing says nothing: the machine may be busy, or asleep.
CPU_SECONDS, PATIENCE = 300, 3600
# Times of change that no file had before.
SECONDS = itertools.count(int(time.time()) + 1)


def inside(path: str, folder: Path) -> bool:
    """Whether a path of Python's is that folder or below it; the empty one is where we are."""
    return not path or Path(path).resolve().is_relative_to(folder)


def copy(root: Path) -> None:
    """Copy the project there: all files that git knows or would take, so that no room is forgotten."""
    listing = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)


def _prepare() -> None:
    """Import once what every run needs; the package itself must stay out, and jax unused."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for name in LARGE:
        importlib.import_module(name)
    assert "quietgrad" not in sys.modules


class Tested(NamedTuple):
    """pytest's exit code (-1 if it never ended), its last line, and the tests that failed."""

    code: int
    said: str
    failed: tuple[str, ...]


class Workshop:
    """Use as a context; the copy is deleted at the end. The project itself is only read."""

    def __enter__(self) -> "Workshop":
        _prepare()
        self.root = Path(tempfile.mkdtemp(prefix="quietgrad-mutations-"))
        copy(self.root)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def tested(self, selection: Sequence[str]) -> Tested:
        """What pytest says of a selection; it stops at the first test that fails.

        It runs in a fork of this process, which has imported what is large and does not change.
        """
        output = self.root / "output.txt"
        child = os.fork()
        if child == 0:
            self._child(output, selection)
        deadline = time.monotonic() + PATIENCE
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return Tested(-2, f"not done after {PATIENCE} s, of which most was waiting", ())
            time.sleep(0.1)
        text = output.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        failed = [line.split(" ", 1)[1].split(" - ")[0] for line in lines if line.startswith("FAILED ")]
        # A crash in compiled code is no exit code of pytest's, and a failure all the same.
        code = os.waitstatus_to_exitcode(done[1])
        if code == -signal.SIGXCPU:
            return Tested(-1, f"not done after {CPU_SECONDS} s of computing", ())
        return Tested(1 if code < 0 else code, lines[-1] if lines else "", tuple(failed))

    def _child(self, output: Path, selection: Sequence[str]) -> NoReturn:
        """Run pytest in the copy and end this process with its exit code, whatever happens."""
        code = 3
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 10))
        try:
            with output.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.chdir(self.root)
            # jax, which is imported, reads no variables any more. Most programs do not have the bug.
            jax.config.update("jax_compilation_cache_dir", str(self.root / ".programs"))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            # Nothing of the project itself, but its virtual environment, which may be in its folder.
            kept = [p for p in sys.path if not inside(p, ROOT) or inside(p, Path(sys.prefix))]
            sys.path[:] = [str(self.root / "src"), *kept]
            arguments = ["-n", "0", "-q", "-x", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
            # Plugins that are imported already cannot have their asserts rewritten; they have none.
            arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
            code = int(pytest.main([*arguments, "-rfE", *selection]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def broken(self, mutant: Mutant) -> "Broken":
        """A context in which the bug is in the copy."""
        return Broken(self.root, mutant)


class Broken:
    """Puts a bug into a file on entering and takes it out on leaving."""

    def __init__(self, root: Path, mutant: Mutant):
        self.place, self.new = find(root, mutant), mutant.new

    def __enter__(self) -> None:
        self._write(self.place.broken(self.new))

    def __exit__(self, *_: object) -> None:
        self._write(self.place.text)

    def _write(self, text: str) -> None:
        """With a second of its own: a bug may keep a file's size, and compiled files know no more."""
        self.place.path.write_text(text, encoding="utf-8")
        os.utime(self.place.path, (second := next(SECONDS), second))
