"""Bad files, names and machines at the command line: a message, the right exit code, and nothing lost.

Every case runs in a folder that holds a finished study and a result; both must be there unchanged.
"""

import contextlib
import hashlib
import json
import os
import socket
import threading
from pathlib import Path

import pytest
import test_bad_input
import test_fit_command
import toys

from quietgrad import cli
from quietgrad.study.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked:UserWarning")
MODEL = """
import jax.numpy as jnp
import quietgrad as qg

target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
number = 3
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of four cells, made once."""
    folder = tmp_path_factory.mktemp("study")
    made = toys.jobs(folder)
    store = Store(folder / "out").create()
    for job in made:
        store.write(toys.fake(job))
    spec = {"name": "own", "title": "own"}
    store.write_manifest(made, spec=spec, environment=toys.environment(), command="quietgrad study own")
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def dask(monkeypatch):
    """The engine, which waits a second for a scheduler."""
    found = pytest.importorskip("quietgrad.study.engines.dask")
    monkeypatch.setattr(found, "CONNECT_SECONDS", 1)


@pytest.fixture
def folder(study, tmp_path, monkeypatch):
    """The study, a model and an old result in a folder of their own, with a blank in its name."""
    here = tmp_path / "a folder"
    for name, content in study.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    (here / "model.py").write_text(MODEL)
    (here / "result.json").write_text('{"kept": true}')
    monkeypatch.chdir(here)
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")
    return here


def contents(folder):
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".lock"
    }


def call(arguments, capsys):
    """Exit code and output of the command; anything but an exit is a traceback for the user."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    told = capsys.readouterr()
    return ended.value.code, " ".join((told.out + told.err).split())


def put(name, content):
    def write(folder):
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return write


def spec(text):
    return put("bad.toml", text)


def cut(share):
    """Every cell of the study cut short."""

    def write(folder):
        for cell in (folder / "out" / "cells").glob("*.parquet"):
            cell.write_bytes(cell.read_bytes()[: int(share * cell.stat().st_size)])

    return write


STUDY, GRID = (
    ["study", "bad.toml", "--out", "new"],
    '[[grid]]\ntasks = ["counts"]\nfamilies = ["mean-field"]\n',
)
FIT = ["fit", "model.py:target", "--method", "sgd", "--steps", "5"]
SYSTEM = Path("/sys")
# What is put into the folder, the arguments, the exit code, and words of the message.
CASES = {
    # Specs
    "TOML that ends early": (spec("[[grid]\n"), STUDY, 2, ["'bad' is not valid TOML", "line 1"]),
    "TOML with a key twice": (spec("[study]\ntitle = 'a'\ntitle = 'b'\n"), STUDY, 2, ["not valid TOML"]),
    "a spec that is not UTF-8": (
        spec(b"[study]\ntitle = '\xff\xfe'\n"),
        STUDY,
        2,
        ["bad.toml", "UTF-8"],
    ),
    "a spec of NUL bytes": (spec(b"\x00" * 40), STUDY, 2, ["not valid TOML"]),
    "an empty spec": (spec(""), STUDY, 2, ["no [[grid]]"]),
    "a grid that is no list": (spec("grid = 3\n"), STUDY, 2, ["no [[grid]]"]),
    "a grid of texts": (spec("grid = ['a']\n"), STUDY, 2, ["table", "'a'"]),
    "an unknown table": (spec(GRID + "[studdy]\n"), STUDY, 2, ["'studdy'", "Did you mean 'study'"]),
    "an unknown key": (spec(GRID + "repps = 3\n"), STUDY, 2, ["'repps'", "Did you mean 'reps'"]),
    "no estimators": (spec(GRID), STUDY, 2, ["no estimators and no methods"]),
    "an unknown task": (
        spec(GRID.replace("counts", "count") + 'methods = ["auto"]\n'),
        STUDY,
        2,
        ["unknown task 'count'", "Did you mean 'counts'"],
    ),
    "an unknown family": (
        spec(GRID.replace("mean-field", "mean field") + 'methods = ["auto"]\n'),
        STUDY,
        2,
        ["unknown family 'mean field'"],
    ),
    "an unknown estimator": (spec(GRID + 'estimators = ["novc"]\n'), STUDY, 2, ["'novc'", "nocv"]),
    "an unknown method": (spec(GRID + 'methods = ["autto"]\n'), STUDY, 2, ["'autto'", "auto"]),
    "no repetitions": (
        spec(GRID + 'reps = 0\nmethods = ["auto"]\n'),
        STUDY,
        2,
        ["reps", "at least 1", "0"],
    ),
    "a rate in words": (
        spec(GRID + 'learning_rate = "small"\nmethods = ["auto"]\n'),
        STUDY,
        2,
        ["learning_rate", "positive number", "'small'"],
    ),
    "the same cell twice": (
        spec(2 * (GRID + 'estimators = ["nocv"]\n')),
        STUDY,
        2,
        ["in the study twice", "another group or label"],
    ),
    "a module that is not there": (
        spec("[study]\nmodule = 'none.py'\n" + GRID),
        STUDY,
        2,
        ["none.py", "does not exist"],
    ),
    "a module with a bug": (
        lambda folder: (
            put("own.py", "1 / 0")(folder),
            spec("[study]\nmodule = 'own.py'\n" + GRID + 'methods = ["auto"]\n')(folder),
        ),
        STUDY,
        2,
        ["importing own.py failed", "ZeroDivisionError"],
    ),
    "a name of the package taken": (
        lambda folder: (
            put("own.py", "TASKS = {'counts': lambda: None}")(folder),
            spec("[study]\nmodule = 'own.py'\n" + GRID + 'methods = ["auto"]\n')(folder),
        ),
        STUDY,
        2,
        ["'counts'", "quietgrad has already"],
    ),
    "no such spec": (None, ["study", "quik"], 2, ["unknown study 'quik'", "Did you mean 'quick'"]),
    "no such file": (None, ["study", "none.toml"], 2, ["no file none.toml"]),
    "a folder for a spec": (
        lambda f: (f / "x.toml").mkdir(),
        ["study", "x.toml"],
        2,
        ["no file x.toml"],
    ),
    "only without a key": (
        None,
        ["study", "own.toml", "--out", "new", "--only", "gauss"],
        2,
        ["key=value"],
    ),
    "only with nothing left": (
        None,
        ["study", "own.toml", "--out", "new", "--only", "task=gaus"],
        2,
        ["task in this study", "'gaus'", "gauss"],
    ),
    "an unknown engine": (
        None,
        ["study", "own.toml", "--out", "new", "--engine", "ray"],
        2,
        ["unknown engine 'ray'", "dask, inprocess, processes"],
    ),
    "an address for processes": (
        None,
        ["study", "own.toml", "--out", "new", "--engine", "processes://host"],
        2,
        ["only dask takes an address"],
    ),
    "a file in the place of the results": (
        None,
        ["study", "own.toml", "--out", "result.json"],
        2,
        ["result.json"],
    ),
    "results below a file": (None, ["study", "own.toml", "--out", "result.json/x"], 2, ["result.json"]),
    # Stored results
    "no results there": (
        None,
        ["study", "status", "nowhere"],
        2,
        ["nowhere", "not the results directory"],
    ),
    "a report on nothing": (
        None,
        ["report", "nowhere"],
        2,
        ["no results in nowhere", "cells/*.parquet"],
    ),
    "every cell cut in half": (cut(0.5), ["report", "out", "--out", "page"], 2, ["no results in out"]),
    "every cell empty": (cut(0.0), ["study", "status", "out"], 1, ["4 missing"]),
    "a manifest cut short": (
        put("out/manifest.json", '{"format": 2, "cel'),
        ["study", "status", "out"],
        2,
        ["manifest.json is not a manifest", "keeps the cells"],
    ),
    "a manifest of another format": (
        put("out/manifest.json", '{"format": 99}'),
        ["study", "status", "out"],
        2,
        ["format 99", "reads 1 and 2"],
    ),
    "a manifest that is a list": (
        put("out/manifest.json", "[]"),
        ["study", "status", "out"],
        2,
        ["not a manifest", "list"],
    ),
    "a timing pass cut short": (
        put("out/timing.json", '{"format"'),
        ["report", "out", "--out", "page"],
        2,
        ["timing.json cannot be read", "measure again"],
    ),
    "an unknown statistic": (
        None,
        ["report", "out", "--statistic", "mode"],
        2,
        ["mode", "median"],
    ),
    # Models
    "a model with a bug in its grammar": (
        put("m.py", "def ("),
        ["fit", "m.py:target"],
        2,
        ["m.py could not be loaded"],
    ),
    "a model that fails": (
        put("m.py", "1 / 0"),
        ["fit", "m.py:target"],
        2,
        ["m.py could not be loaded", "ZeroDivisionError"],
    ),
    "a model that is not UTF-8": (
        put("m.py", b"x = '\xff'"),
        ["fit", "m.py:target"],
        2,
        ["m.py could not be loaded"],
    ),
    "a model with NUL bytes": (put("m.py", b"\x00"), ["fit", "m.py:target"], 2, ["m.py"]),
    "a model in a text file": (put("m.txt", MODEL), ["fit", "m.txt:target"], 2, ["m.txt", "end in .py"]),
    "no such model": (None, ["fit", "none.py:target"], 2, ["'none.py:target' does not name a model"]),
    "no such name": (None, ["fit", "model.py:tagret"], 2, ["no 'tagret'", "target"]),
    "a number for a target": (None, ["race", "model.py:number"], 2, ["is 'int'", "from_logdensity"]),
    "no such task": (None, ["fit", "breast-cancr"], 2, ["Did you mean 'breast-cancer'"]),
    "two models": (None, ["race", "model.py:target", "--task", "counts"], 2, ["not both"]),
    "negative seconds": (None, [*FIT, "--seconds", "-1"], 2, ["seconds must be positive", "-1"]),
    "seconds that are no number": (
        None,
        [*FIT, "--seconds", "nan"],
        2,
        ["seconds must be positive", "nan"],
    ),
    # Digits after the point are cut off before the command sees them.
    "half a step": (None, [*FIT[:-1], "0.5"], 2, ["steps", "whole number"]),
    "no steps": (None, [*FIT[:-1], "0"], 2, ["steps", "at least 1", "0"]),
    "an unknown option": (None, [*FIT, "--stps", "3"], 2, ["--stps"]),
    "an unknown command": (None, ["fitt", "model.py:target"], 2, ["fitt"]),
    "a result into a folder that is not there": (
        None,
        [*FIT, "--json", "none/result.json"],
        2,
        ["no folder none", "make it first"],
    ),
    "a folder in the result's place": (
        None,
        [*FIT, "--json", "out"],
        2,
        ["out is a folder", "out/result.json"],
    ),
    "a picture into a folder that is not there": (
        None,
        ["race", "model.py:target", "--plot", "none/race.png"],
        2,
        ["no folder none"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_message_an_exit_code_and_nothing_lost(name, folder, capsys):
    prepare, arguments, code, words = CASES[name]
    if prepare is not None:
        prepare(folder)
    before = contents(folder)
    ended, told = call(arguments, capsys)
    assert ended == code, told
    missing = [word for word in words if word not in told]
    assert not missing, f"{missing} not in: {told}"
    assert "Traceback" not in told
    assert contents(folder) == before


@pytest.mark.skipif(not SYSTEM.is_dir(), reason="needs a file system that nobody can write to")
def test_a_file_system_that_cannot_be_written(folder, capsys):
    before = contents(folder)
    code, told = call(["study", "own.toml", "--out", "/sys/quietgrad"], capsys)
    assert code == 2
    assert "/sys/quietgrad" in told
    assert contents(folder) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_at_the_end_of_a_fit(folder, capsys):
    """The answer is printed before it is written, and the command says that it is not stored."""
    code, told = call([*FIT, "--json", "/dev/full"], capsys)
    assert code == 1
    assert "No space left" in told
    assert "ELBO" in told
    assert Path("/dev/full").is_char_device()


def test_a_full_disk_leaves_the_old_result(folder, monkeypatch, capsys):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    before = contents(folder)
    code, told = call([*FIT, "--json", "result.json"], capsys)
    assert (code, "No space left" in told) == (1, True)
    assert contents(folder) == before


def test_a_full_disk_ends_a_study_and_a_rerun_completes_it(folder, monkeypatch, capsys):
    """The second cell does not fit: the first stays, no half file counts, and the rest is run later."""
    written, sync = [], os.fsync
    study = ["study", "own.toml", "--out", "new", "--engine", "inprocess", "--no-report"]

    def full(descriptor):
        written.append(descriptor)
        if len(written) == 3:  # the manifest is the first
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    before = contents(folder)
    code, told = call(study, capsys)
    assert (code, "No space left" in told) == (1, True)
    assert len(list((folder / "new" / "cells").glob("*.parquet"))) == 1
    # From the fourth on there is room again.
    code, told = call(study, capsys)
    assert (code, "4 done" in told) == (0, True)
    assert before.items() <= contents(folder).items()


def test_paths_with_blanks_work(folder, capsys):
    (folder / "my model.py").write_text(MODEL)
    arguments = ["fit", "my model.py:target", *FIT[2:], "--json", "my result.json"]
    assert call(arguments, capsys)[0] in (0, 3)
    assert json.loads((folder / "my result.json").read_text())["model"] == "my model.py:target"


@pytest.mark.usefixtures("dask")
def test_a_scheduler_that_is_not_there(folder, capsys):
    before = contents(folder)
    study = ["study", "own.toml", "--out", "new", "--engine", "dask://tcp://127.0.0.1:1"]
    code, told = call(study, capsys)
    assert code == 2
    assert "no Dask scheduler answers at" in told
    assert "127.0.0.1:1" in told
    assert before.items() <= contents(folder).items()
    assert not list((folder / "new" / "cells").iterdir())


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4], ids=["silent", "web"])
@pytest.mark.usefixtures("dask")
def test_a_port_where_something_else_listens(folder, capsys, said):
    before = contents(folder)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        greeter = threading.Thread(target=greet_and_wait, args=(server, said), daemon=True)
        greeter.start()
        study = ["study", "own.toml", "--out", "new", "--engine", f"dask://tcp://{address}"]
        code, told = call(study, capsys)
    assert code == 2
    assert f"no Dask scheduler answers at tcp://{address}: " in told
    assert "something listens there" in told
    assert before.items() <= contents(folder).items()


def greet_and_wait(server, said):
    """Candidate everyone with the same words, and never hang up."""
    kept = []
    with contextlib.suppress(OSError):
        while True:
            kept.append(server.accept()[0])
            kept[-1].sendall(said)


@pytest.mark.slow  # a race compiles every entrant
def test_a_missing_extra_names_it(folder, uninstall, capsys):
    """The packages are imported when the command needs them, and are made to be missing here."""
    uninstall("matplotlib")
    arguments = ["race", "model.py:target", "--seconds", "0.01", "--plot", "race.png"]
    before = contents(folder)
    code, told = call(arguments, capsys)
    assert (code, "pip install 'quietgrad[study]'" in told) == (2, True)
    assert contents(folder) == before


def test_there_are_at_least_sixty_of_them(capsys):
    """Counted where they are written; the reliability page quotes the sum."""
    misuse = vars(test_fit_command.test_misuse_says_what_to_do)["pytestmark"][0].args[1]
    counts = {
        "values": len(test_bad_input.WRONG_VALUES),
        "types": len(test_bad_input.WRONG_TYPES),
        "options of fit": len(misuse),
        "files, names and machines": len(CASES) + 7,
    }
    print(counts, sum(counts.values()))
    assert sum(counts.values()) >= 60
