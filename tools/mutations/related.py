"""Which files of tests are about a file of the package: those that name most of what it defines."""

import ast
import functools
import re
from pathlib import Path

from .workshop import ROOT, SOURCE

# How many of them there are for one file: collecting them takes tenths of a second.
FILES = 8
# The rooms with numbers in them, and the tests beside them.
ROOMS = {
    "_numerics": "tests/solvers/test_host_parts.py tests/test_lapack.py tests/test_matrices.py",
    "diagnostics": "tests/diagnostics tests/propriety",
    "estimators": "tests/contract tests/estimators tests/weights tests/surrogates "
    "tests/control_variates",
    "evaluation": "tests/test_elbo_terms.py tests/test_metrics.py tests/test_gradient_noise.py "
    "tests/test_arrival.py",
    "families": "tests/contract/test_families.py tests/contract/test_bases.py tests/families",
    "fitting": "tests/test_fit.py tests/test_many.py tests/test_restarts.py tests/test_looping.py",
    "methods": "tests/methods tests/test_given_start.py",
    "racing": "tests/test_racing.py",
    "results": "tests/expectations tests/display tests/storage tests/checkpoints",
    "scale": "tests/test_shuffling.py tests/test_sharding.py",
    "session": "tests/test_recorder.py tests/test_clock.py tests/test_streaming.py "
    "tests/test_checkpoint.py",
    "solvers": "tests/solvers",
    "structure": "tests/structure tests/families/test_structured.py",
    "study": "tests/study/test_summary.py tests/study/test_timing.py tests/study/test_claims.py",
    "targets": "tests/targets tests/test_fit_batches.py",
}


@functools.lru_cache(maxsize=512)
def related(file: str) -> list[str]:
    """The first few, those beside its room before others."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    named = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    module = Path(file).stem
    room = Path(file).relative_to(SOURCE).parts[0] if file.startswith(SOURCE) else ""
    own, counts = _files(ROOMS.get(room, "")), {}
    for test in _files("tests"):
        words = _words(test)
        alike = len(named & words) + 2 * (module in words) + 4 * (module in Path(test).stem)
        counts[test] = alike + 3 * (test in own)
    return sorted(counts, key=lambda test: -counts[test])[:FILES]


@functools.lru_cache(maxsize=512)
def _words(test: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", (ROOT / test).read_text(encoding="utf-8")))


def _files(selection: str) -> list[str]:
    found = []
    for word in selection.split():
        path = ROOT / word
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        found += [str(file.relative_to(ROOT)) for file in files]
    return found
