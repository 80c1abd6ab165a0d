"""A temporary copy of the project in which bugs are put, tests are run, and bugs are taken out again."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from .mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "examples", "benchmarks", "docs", "pyproject.toml", "README.md")
NICE = 10
# Bugs can make a loop endless; a selection takes seconds.
SECONDS = 300


class Gone(Exception):
    """The text of a mutant is not in its file, or more than once: the list is out of date."""


class Tested(NamedTuple):
    """pytest's exit code (-1 if it never ended), its last line, and the tests that failed."""

    code: int
    said: str
    failed: tuple[str, ...]


class Workshop:
    """Use as a context; the copy is deleted at the end. The project itself is only read."""

    def __enter__(self) -> "Workshop":
        self.root = Path(tempfile.mkdtemp(prefix="quietgrad-mutations-"))
        ignored = shutil.ignore_patterns("__pycache__", "results", "references", "*.pyc")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, ignore=ignored)
            elif source.exists():
                shutil.copy2(source, self.root / name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def tested(self, selection: Sequence[str]) -> Tested:
        """What pytest says of a selection; it stops at the first test that fails."""
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "--no-header", "--tb=line"]
        command += ["-p", "no:cacheprovider", "-rfE", *selection]
        environment = os.environ | {
            "PYTHONPATH": str(self.root / "src"),
            # A bug may leave size and second of a file as they were, which is how caches tell.
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_COMPILATION_CACHE_DIR": str(self.root / ".programs"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                preexec_fn=lambda: os.nice(NICE) and None,
            )
        except subprocess.TimeoutExpired:
            return Tested(-1, f"not done after {SECONDS} s", ())
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        failed = [line.split(" ", 1)[1].split(" - ")[0] for line in lines if line.startswith("FAILED ")]
        return Tested(done.returncode, lines[-1] if lines else done.stderr.strip()[-200:], tuple(failed))

    def broken(self, mutant: Mutant) -> "Broken":
        """A context in which the bug is in the copy."""
        return Broken(self.root / "src" / "quietgrad" / mutant.file, mutant)


class Broken:
    """Puts a bug into a file on entering and takes it out on leaving."""

    def __init__(self, path: Path, mutant: Mutant):
        self.path, self.mutant = path, mutant
        self.text = path.read_text(encoding="utf-8") if path.exists() else ""
        times = self.text.count(mutant.old)
        if times != 1:
            raise Gone(f"its text stands {times} times in {mutant.file}, not once")

    def __enter__(self) -> None:
        self.path.write_text(self.text.replace(self.mutant.old, self.mutant.new), encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        self.path.write_text(self.text, encoding="utf-8")
