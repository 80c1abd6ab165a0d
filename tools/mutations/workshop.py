"""A temporary copy of the project in which bugs are put, tests are run, and bugs are taken out again."""

import contextlib
import enum
import importlib
import itertools
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn

import jax
import pytest

from .finding import Place
from .preloaded import CHECKER, PACKAGE, preload, replace_code, revive
from .touched import (
    SOURCE,
    Recorder,
    Touched,
    Turns,
    innermost,
    instrument,
    instrumented,
    names_at,
    silent,
)

ROOT = Path(__file__).resolve().parents[2]
LARGE = (
    *(
        "jax",
        "jax.numpy",
        "optax",
        "equinox",
        "beartype",
        "scipy.stats",
        "scipy.integrate",
        "hypothesis",
    ),
    *("rich.console", "xdist.plugin", "numpyro"),
)
# They start a process that cannot import what a fork of this one has imported.
APART = (
    "tests/study/test_engines.py::test_timed_cells_wait_for_one_another_and_a_killed_holder_holds_nothing",
    "tests/test_security.py::test_a_local_dask_cluster_listens_on_loopback_only",
)
# In place of the options in pyproject.toml: the package is imported already, its annotations checked.
OPTIONS = (
    *("-o", "addopts=", "--strict-config", "--strict-markers", "-q", "--no-header", "--tb=line"),
    *("-m", "not slow and not chaos and not stress and not statistical", "-p", "no:cacheprovider"),
    *("-p", "no:xdist", "-p", "no:randomly", "-o", "tmp_path_retention_policy=none"),
    # Plugins that are imported already cannot have their asserts rewritten; they have none.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning", "-rfE"),
    *(f"--deselect={test}" for test in APART),
)
# Bugs can make a loop endless; a selection takes seconds of computing. What waits for much longer than
# that without computing says nothing: the machine may be busy, or asleep. Without a bug there are no
# endless loops, and several selections may be run together.
CPU_SECONDS, FINITE, PATIENCE = 30, 20, 3600
# What computes less than some for so many seconds waits for what never comes.
IDLE, SOME = 60, 1.0
# pytest's exit code where no test was run.
NONE = 5
# Compiled programs, for all mutants and later runs: most of them do not have the bug.
PROGRAMS = Path(tempfile.gettempdir()) / "quietgrad-mutations-programs"
FAILED = ("FAILED ", "ERROR ")
# A file that says that tests ran in a process of their own, all of the selection.
ALONE = "alone"
# How many files these are at most, where nothing but files was selected.
ALONE_FILES = 3
# How many files of tests are added to a selection because they pass through a block.
FURTHER = 3
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


def _prepare(root: Path) -> None:
    """Import once what every run needs, the package included; jax computes nothing."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for name in LARGE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Nothing of the project itself, but its virtual environment, which may be in its folder.
    kept = [p for p in sys.path if not inside(p, ROOT) or inside(p, Path(sys.prefix))]
    sys.path[:] = [str(root / "src"), *kept]
    os.environ["PYTHONPATH"] = str(root / "src")
    preload(root)


class Tested(NamedTuple):
    """pytest's exit code (-1 if it never ended), its last line, and the tests that failed."""

    code: int
    said: str
    failed: tuple[str, ...]


class Workshop:
    """Use as a context; the copy is deleted at the end. The project itself is only read.

    There is one of them in a process, because the package is imported in it. What tests pass through is
    learned on the way (`touched.py`).
    """

    def __enter__(self) -> "Workshop":
        self.root = Path(tempfile.mkdtemp(prefix="quietgrad-mutations-"))
        copy(self.root)
        self._blocks = instrument(self.root)
        self.touched = Touched()
        # Tests that have passed in this copy, without a bug or with another one than theirs.
        self._passed: set[str] = set()
        _prepare(self.root)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def tested(
        self,
        selection: Sequence[str],
        bug: "Bug | None" = None,
        *,
        seconds: float = math.inf,
        first_only: bool = True,
        without: bool = False,
    ) -> Tested:
        """What pytest says of a selection, with a bug or without; by default until the first failure.

        It runs in a fork of this process, which has imported what is large and the package itself. With
        a limit of seconds, tests that pass by the bug are left out, and none begins later; `without`
        runs the same ones without it.
        """
        output, lines = self.root / "output.txt", self.root / "touched.jsonl"
        lines.unlink(missing_ok=True)
        (self.root / ALONE).unlink(missing_ok=True)
        broken = None if bug is None or without else self._broken(bug)
        plugins: list[object] = [Revive(), Recorder(lines)]
        if bug is not None and seconds < math.inf:
            block = innermost(self._blocks, bug.file, bug.line)
            names = names_at(bug.text, bug.file, bug.line)
            plugins.append(Turns(self.touched, bug.file, block, names, seconds))
        with broken or contextlib.nullcontext():
            with warnings.catch_warnings(action="ignore"):  # jax's, of forks after it has computed
                child = os.fork()
            if child == 0:
                most = CPU_SECONDS if bug is not None else FINITE * CPU_SECONDS
                self._child(output, [*(["-x"] if first_only else []), *selection], broken, plugins, most)
            status = _wait(child)
        if lines.exists():
            self._passed |= self.touched.add(
                lines.read_text(encoding="utf-8").splitlines(), self._blocks
            )
        if status is Waited.LONG:
            return Tested(-2, f"not done after {PATIENCE} s, of which most was waiting", ())
        if status is Waited.IDLY:
            return Tested(-1, "it waited for what never came", ())
        text = output.read_text(encoding="utf-8", errors="replace")
        said = [line for line in text.splitlines() if line.strip()]
        bad = [line.split(" ", 1)[1].split(" - ")[0] for line in said if line.startswith(FAILED)]
        # Files that cannot be collected are no tests.
        failed = [name for name in bad if "::" in name]
        # A crash in compiled code is no exit code of pytest's, and a failure all the same.
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU and (self.root / ALONE).exists():
            return Tested(NONE, "its whole selection takes too long in a process of its own", ())
        if code == -signal.SIGXCPU:
            return Tested(-1, f"not done after {CPU_SECONDS} s of computing", ())
        if broken is not None and failed and bug is not None:
            self.touched.killed(bug.file, failed[0])
        self.touched.save()
        return Tested(1 if code < 0 else code, said[-1] if said else "", tuple(failed))

    def passing_through(self, bug: "Bug") -> list[str]:
        """Files with the quickest tests that are known to pass through the block of a bug."""
        block = innermost(self._blocks, bug.file, bug.line)
        names = self.touched.through(bug.file, block) if block is not None else []
        files = dict.fromkeys(name.partition("::")[0] for name in names)
        return [file for file in files if (self.root / file).exists()][:FURTHER]

    def failing(self, tests: Iterable[str]) -> set[str]:
        """Which of some tests fail without any bug, in one run of all of them.

        A test that has passed in this copy needs no second run. Files that cannot be collected and runs
        that end early leave all of them in doubt.
        """
        every = [test for test in dict.fromkeys(tests) if test not in self._passed]
        found = self.tested(every, first_only=False) if every else None
        if found is None or found.code == 0:
            return set()
        return set(found.failed) if found.code == 1 and found.failed else set(every)

    def _child(
        self,
        output: Path,
        selection: Sequence[str],
        broken: "Broken | None",
        plugins: Sequence[object],
        most: int,
    ) -> NoReturn:
        """Run pytest in the copy and end this process with its exit code, whatever happens."""
        code = 3
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 10))
        try:
            with output.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.chdir(self.root)
            # jax, which is imported, reads no variables any more.
            jax.config.update("jax_compilation_cache_dir", str(PROGRAMS))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            if broken is not None and not broken.in_place():
                # Classes of a package that is imported twice are not the same: another process.
                (self.root / ALONE).touch()
                arguments = ["-m", "pytest", *OPTIONS, f"--jaxtyping-packages={PACKAGE},{CHECKER}"]
                if all(word.endswith(".py") or word == "-x" for word in selection):
                    selection = selection[: ALONE_FILES + selection.count("-x")]
                os.execv(sys.executable, [sys.executable, *arguments, *selection])
            code = int(pytest.main([*OPTIONS, *selection], plugins=plugins))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _broken(self, bug: "Bug") -> "Broken":
        """The texts of the copy, with calls in them, without the bug and with it."""
        old, new = (ROOT / bug.file).read_text(encoding="utf-8"), bug.text
        number = next((n for n, block in enumerate(self._blocks) if block.file == bug.file), 0)
        if bug.file.startswith(SOURCE):
            old, new = (instrumented(text, bug.file, number)[0] for text in (old, new))
        if bug.file == f"{SOURCE}/__init__.py":
            old, new = silent(old), silent(new)
        return Broken(self.root / bug.file, old, new)


class Bug(NamedTuple):
    """A file of the project, its text with a bug in it, and the line where it is."""

    file: str
    text: str
    line: int


def bug_at(place: Place, new: str) -> Bug:
    """What a place becomes."""
    line = place.text.count("\n", 0, place.start) + 1
    return Bug(str(place.path.relative_to(ROOT)), place.broken(new), line)


class Revive:
    """A plugin of pytest: arrays are made when conftest.py has set how jax is to compute."""

    def pytest_sessionstart(self) -> None:
        revive()


class Broken:
    """Puts a bug into a file on entering and takes it out on leaving."""

    def __init__(self, path: Path, old: str, new: str):
        self._path, self._old, self._new = path, old, new

    def __enter__(self) -> None:
        self._write(self._new)

    def __exit__(self, *_: object) -> None:
        self._write(self._old)

    def in_place(self) -> bool:
        """Put the bug into the functions of this process; False if the package must be imported anew."""
        return replace_code(self._path, self._old, self._new)

    def _write(self, text: str) -> None:
        """With a second of its own: a bug may keep a file's size, and compiled files know no more."""
        self._path.write_text(text, encoding="utf-8")
        os.utime(self._path, (second := next(SECONDS), second))


class Waited(enum.Enum):
    """How a process was waited for in vain: it went on computing, or computed nothing at all."""

    LONG = enum.auto()
    IDLY = enum.auto()


def _wait(child: int) -> int | Waited:
    """The status of a process that has ended; one that does not is killed."""
    deadline, computing, since = time.monotonic() + PATIENCE, 0.0, time.monotonic()
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        now, spent = time.monotonic(), _computed(child)
        # Threads that only look whether there is something to do take a little, too.
        if spent > computing + SOME or math.isinf(spent):
            computing, since = spent, now
        if now > deadline or now > since + IDLE:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Waited.LONG if now > deadline else Waited.IDLY
        time.sleep(0.02)
    return done[1]


def _computed(process: int) -> float:
    """Processor seconds of a process, its ended children included; infinite where it cannot be known."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return math.inf
