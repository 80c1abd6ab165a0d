"""Settings of every test: double precision, no silent broadcasting, and a key that never changes."""

import atexit
import functools
import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

# Tests compile much and run little, and these make compiling about five times faster. XLA stops at
# flags it does not know: should a new jax have dropped one, drop it here.
FAST_COMPILATION = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    # Both cores have a process of their own: splitting a program for several threads only costs.
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FAST_COMPILATION])

# What one run of the tests left in a cache must not change the next one: every process, and what it
# starts, has empty caches. Those of pytest-xdist's workers are inside that of the process that starts
# them, because workers may end without `atexit`. PyTensor's would be in the home folder.
CACHES = tempfile.mkdtemp(prefix="quietgrad-tests-", dir=os.environ.get("QUIETGRAD_TEST_CACHES"))
atexit.register(shutil.rmtree, CACHES, ignore_errors=True)
os.environ["QUIETGRAD_TEST_CACHES"] = os.environ["XDG_CACHE_HOME"] = CACHES
PYTENSOR = [os.environ.get("PYTENSOR_FLAGS", ""), f"base_compiledir={CACHES}/pytensor"]
os.environ["PYTENSOR_FLAGS"] = ",".join(filter(None, PYTENSOR))
os.environ["QUIETGRAD_COMPILED"] = "off"
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

import jax  # noqa: E402
import pytest  # noqa: E402
import sparing_checks  # noqa: E402

# Before anything of the package is imported.
sparing_checks.install()

from subjects import key_of  # noqa: E402

from quietgrad._util import memory  # noqa: E402

# A shell starts what it runs in the background deaf to Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tracing makes many objects that live as long as their program. Looking through all of them again and
# again took a tenth of the time.
gc.freeze()
gc.set_threshold(100_000, 50, 1000)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem():
    """Cases of a test that is marked `turns(n, first=0)` are slow, but for one of n from the first on.

    Parameters that make a product take their turns along its diagonals, and each value of each of them
    is met in every run.
    """
    made = yield
    if isinstance(made, list):
        _take_turns(made)
    return made


# Marks of what an ordinary run leaves out.
RARE = ("slow", "chaos", "stress", "statistical")


def _ranks(cases, names):
    """Which of the values of parameters that are given together each case has, by number."""
    values = [tuple(id(case.callspec.params[name]) for name in names) for case in cases]
    order = list(dict.fromkeys(values))
    return [order.index(value) for value in values]


def _take_turns(items):
    cases = [item for item in items if not any(map(item.get_closest_marker, RARE))]
    asked = cases[0].get_closest_marker("turns") if cases else None
    if asked is None or not hasattr(cases[0], "callspec"):
        return
    together = [mark.args[0] for mark in cases[0].iter_markers("parametrize")]
    together = [name.replace(",", " ").split() if isinstance(name, str) else name for name in together]
    alone = {*cases[0].callspec.params}.difference(*together)
    ranks = [_ranks(cases, names) for names in (*together, *([name] for name in sorted(alone)))]
    ranks = [column for column in ranks if max(column) > 0]
    (number,), first = asked.args, asked.kwargs.get("first", 0)
    often = {place for place, row in enumerate(zip(*ranks, strict=True)) if sum(row) % number == first}
    often = often or {0}
    for column in ranks if len(ranks) > 1 else ():
        for value in set(column) - {column[place] for place in often}:
            often.add(column.index(value))
    for place, case in enumerate(cases):
        if place not in often:
            case.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def checks_types():
    """The first calls of each function are checked in every test."""
    sparing_checks.next_test()


@pytest.fixture
def key(request):
    """A fixed seed folded with the test's name: the same on every run, different in every test."""
    return key_of(request.node.nodeid)


@pytest.fixture
def register(monkeypatch):
    """Add a family to the registry, for one test."""
    from quietgrad import families

    return functools.partial(monkeypatch.setitem, families.REGISTRY)


@pytest.fixture
def uninstall(monkeypatch):
    """Make a module one that cannot be imported, for one test."""

    def missing(module):
        monkeypatch.setitem(sys.modules, module, None)

    return missing


@pytest.fixture
def tell(record_property):
    """Say something that is printed at the end of the run, whichever process the test ran in."""

    def said(text, **counts):
        record_property("told", text)
        for name, count in counts.items():
            record_property(name, count)

    return said


def pytest_terminal_summary(terminalreporter):
    """What tests told, and the sums of what they counted."""
    reports = [one for several in terminalreporter.stats.values() for one in several]
    said = [
        pair for one in reports if getattr(one, "when", "") == "call" for pair in one.user_properties
    ]
    if said:
        terminalreporter.section("what was told")
    for text in (value for name, value in said if name == "told"):
        terminalreporter.line(text)
    for counted in sorted({name for name, value in said if isinstance(value, int)}):
        total = sum(value for name, value in said if name == counted)
        terminalreporter.line(f"{total:,} {counted} in all")


# Two processes of tests must fit into the memory that there is, 8 GB at least, with what else runs.
MEMORY = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
CONTAINER = Path("/sys/fs/cgroup/memory.max")
if CONTAINER.exists() and (limit := CONTAINER.read_text().strip()).isdigit():
    MEMORY.append(int(limit))
MOST_BYTES = 3 * max(2**33, min(MEMORY)) // 8
# Tests between two looks at them, which take some milliseconds each.
LOOK_EVERY = 20
TESTS = itertools.count(1)


@pytest.fixture(autouse=True)
def few_programs():
    """Forget compiled programs before they are too many for one process."""
    yield
    if next(TESTS) % LOOK_EVERY == 0 and memory.crowded(MOST_BYTES):
        memory.forget_programs()
