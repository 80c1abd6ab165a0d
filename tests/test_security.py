"""Nobody is let in: no code from data, no paths out of a folder, no names that become markup."""

import ast
import dataclasses
import html.parser
import itertools
from pathlib import Path

import fabricated
import numpy as np
import pytest

from quietgrad import report
from quietgrad.cli.commands import fit
from quietgrad.datasets import a1a, files, frisk, redwine
from quietgrad.study import read_spec
from quietgrad.study.records import Cell
from quietgrad.study.store import Store

SOURCE = Path(files.__file__).parents[1]
MODULES = sorted(SOURCE.rglob("*.py"))
# What makes code of data, or objects that can run some.
FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.load"}
SCRIPT = "<script>alert(1)</script>"
HOSTILE_NAMES = [
    "../../../up",
    "/etc/passwd",
    "C:\\windows",
    "..",
    ".",
    "a/../../b",
    "nul\x00byte",
    "\n",
    "~/home",
    "$(touch x)",
    "x" * 5000,
]


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_code_is_made_of_data(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        alias.name.split(".")[0]
        for n in ast.walk(tree)
        if isinstance(n, ast.Import)
        for alias in n.names
    }
    imported |= {
        n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module
    }
    assert not imported & FORBIDDEN_IMPORTS
    for name, node in calls(tree):
        assert name not in FORBIDDEN_CALLS, f"line {node.lineno}"
        settings = {key.arg: ast.unparse(key.value) for key in node.keywords}
        assert settings.get("shell", "False") == "False", f"line {node.lineno}"
        assert settings.get("allow_pickle", "False") == "False", f"line {node.lineno}"


def test_this_would_be_seen():
    """The search finds what it is there to find."""
    found = {name for name, _ in calls(ast.parse("import os\nos.system('ls')\neval('1')"))}
    assert found == {"os.system", "eval"} <= FORBIDDEN_CALLS


@pytest.mark.parametrize("dataset", [a1a, frisk, redwine])
def test_data_files_are_pinned(dataset):
    if files.find(dataset.FILE) is None:
        pytest.skip(f"needs {dataset.FILE.name}")
    assert files.fingerprint(dataset.load()) == dataset.FILE.sha256


def test_a_forgery_that_keeps_every_sum_is_refused(tmp_path, monkeypatch):
    """Two measurements of one column change places: all counts and sums of the parser agree."""
    found = files.find(redwine.FILE)
    if found is None:
        pytest.skip(f"needs {redwine.FILE.name}")
    lines = [line.split(";") for line in found.read_text().splitlines()]
    # Rows that are repeated elsewhere would be missed.
    once = [i for i in range(1, 40) if lines.count(lines[i]) == 1]
    first, second = next(
        (i, j) for i, j in itertools.combinations(once, 2) if lines[i][0] != lines[j][0]
    )
    lines[first][0], lines[second][0] = lines[second][0], lines[first][0]
    (tmp_path / redwine.FILE.name).write_text("\n".join(";".join(line) for line in lines))
    redwine.parse((tmp_path / redwine.FILE.name).read_text())
    monkeypatch.setenv(files.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match="SHA-256"):
        redwine.load()


def cell(**changes):
    plain = Cell("gauss", "mean-field", "nocv", "nocv", 2, 0, 10, 0.01)
    return dataclasses.replace(plain, **changes)


@pytest.mark.parametrize("field", ["task", "family", "label", "group"])
@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: repr(name)[:20])
def test_no_name_leads_out_of_the_results(field, name, tmp_path):
    store = Store(tmp_path / "out")
    path = store.path(cell(**{field: name}))
    assert path.parent == store.cells
    assert path.resolve().parent == store.cells.resolve()
    assert len(path.name) < 200
    assert path.name.isprintable()
    assert path != store.path(cell())


def test_names_that_look_alike_have_files_of_their_own(tmp_path):
    store = Store(tmp_path)
    names = ["a/b", "a--b", "a b", "a-b", "../a-b"]
    assert len({store.path(cell(task=name)) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["..toml", "...toml", "status.toml"])
def test_a_study_cannot_be_called_by_dots(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("[[grid]]\n")
    with pytest.raises((ValueError, FileNotFoundError), match="cannot be called|Or give"):
        read_spec.load(name)


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.scripts, self.handlers = 0, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def hostile(record, **changes):
    return dataclasses.replace(record, cell=dataclasses.replace(record.cell, **changes))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of a plain study, and of one in which everything that can be named has a hostile name."""
    found = []
    for evil in ("", SCRIPT, '" onload="alert(1)', "</script><img src=x onerror=alert(1)>"):
        records = fabricated.study(
            tasks=["counts" + evil],
            families=["mean-field" + evil],
            labels=["nocv", "quadcv" + evil],
            methods=["auto"],
            reps=2,
            ablations=False,
        )
        records = [hostile(record, group=record.cell.group) for record in records]
        records = [
            dataclasses.replace(
                r, environment={**r.environment, "cpu": f"cpu{evil}", "commit": f"c{evil}"}
            )
            for r in records
        ]
        records.append(fabricated.unfinished("failed", f"because {evil}", task="counts" + evil))
        directory = fabricated.write(tmp_path_factory.mktemp("page"), records)
        manifest = directory / "manifest.json"
        if manifest.exists():
            quoted = evil.replace('"', '\\"')
            manifest.write_text(manifest.read_text().replace('"title": "', f'"title": "{quoted}', 1))
        found.append(report.build(directory).read_text(encoding="utf-8"))
    return found


def test_no_name_becomes_markup(pages):
    plain, *others = (Tags(page) for page in pages)
    for other in others:
        assert other.scripts == plain.scripts
        assert other.handlers == plain.handlers
    assert SCRIPT not in pages[1]


def test_markup_of_the_terminal_is_text(tmp_path, monkeypatch, capsys):
    """A closing tag that was never opened would end the command with an error after the fit."""
    folder = tmp_path / "m[/red]"
    folder.mkdir(parents=True)
    model = "import jax.numpy as jnp, quietgrad as qg\n"
    model += "target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)\n"
    (folder / "model.py").write_text(model)
    monkeypatch.chdir(tmp_path)
    code = fit.fit_command(
        "m[/red]/model.py:target", method="sgd", family="mean-field", seed=0, json_path=None, steps=20
    )
    assert code in (0, 3)
    assert "m[/red]/model.py:target" in capsys.readouterr().out


def test_a_local_dask_cluster_listens_on_loopback_only():
    dask = pytest.importorskip("quietgrad.study.engines.dask")
    import dask.config as settings

    # A user's own configuration must not open it, either.
    with settings.set({"distributed.scheduler.default-host": "0.0.0.0"}):
        with dask._cluster([], None) as cluster:
            assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
            addresses = [worker.address for worker in cluster.workers.values()]
            assert addresses
            assert all(address.startswith("tcp://127.0.0.1:") for address in addresses)
            assert cluster.dashboard_link == "" or "127.0.0.1" in cluster.dashboard_link


def test_what_a_fingerprint_sees():
    one, other = (np.zeros(3), np.ones(2)), (np.zeros(3), np.array([1.0, 1.00001]))
    assert files.fingerprint(one) != files.fingerprint(other)
    assert files.fingerprint(one) == files.fingerprint((np.zeros(3) * -1.0, np.ones(2) + 1e-12))
