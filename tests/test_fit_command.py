"""`quietgrad fit`: a task or a user's file, each method, and its messages."""

import json

import pytest

import quietgrad as qg
from quietgrad.commands import fit, models

MODEL = """
import jax.numpy as jnp
import quietgrad as qg

target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2 * jnp.arange(1, 4)), dim=3)
vague = qg.Target(lambda z: -0.5 * jnp.sum(z**2))
broken = qg.Target.from_logdensity(lambda z: jnp.nan * z[0], dim=3)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a model, and no cache of compiled programs: the test session has its own."""
    (tmp_path / "my_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit, "keep_compiled", lambda: None)
    return tmp_path


def run(name="my_model.py:target", *, method="auto", family="mean-field", json_path=None, **options):
    return fit.fit_command(name, method=method, family=family, seed=0, json_path=json_path, **options)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("auto", {}),
        ("auto", {"estimator": "nocv", "draws": 4, "steps": 900}),
        ("saa", {}),
        ("sgd", {"steps": 50}),
        ("sgd", {"estimator": "auto", "steps": 50, "learning_rate": 0.05}),
    ],
)
def test_every_method_from_a_users_file(method, options, folder, capsys):
    path = folder / "out.json"
    assert run(method=method, json_path=path, **options) in (0, 3)
    document = json.loads(path.read_text())
    assert document["format"] == fit.FORMAT
    assert (document["method"], document["options"]) == (method, options)
    assert document["clock"]["total"] > 0
    assert document["environment"]["quietgrad"] == qg.__version__
    assert len(document["history"]["elbo"]) == len(document["history"]["seconds"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "my_model.py:target" in printed
    assert all(" ".join(line.split()) in printed for line in document["decisions"])
    assert bool(document["decisions"]) == ("auto" in (method, options.get("estimator")))


def test_a_task_has_test_rows_and_its_batch_size(folder, capsys):
    path = folder / "out.json"
    assert run("breast-cancer", method="sgd", steps=20, json_path=path) == 3
    assert json.loads(path.read_text())["test_rows"] > 0
    assert "test lppd" in capsys.readouterr().out
    assert models.load_model("diabetes-mini").batch_size == qg.tasks.load("diabetes-mini").batch_size


def test_exit_codes_follow_the_ending(capsys):
    assert run() == 0
    assert run("my_model.py:broken") == 1
    assert "non-finite" in capsys.readouterr().out
    assert run(seconds=1e-3) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "quick"}, "unknown method 'quick'"),
        ({"family": "low"}, "unknown family 'low'"),
        ({"learning_rate": 0.1}, "--method auto has no --learning-rate.*--method sgd"),
        ({"method": "saa", "estimator": "nocv"}, "--method saa has no --estimator.*auto or"),
        ({"draws": 5}, "name it with --estimator"),
        ({"estimator": "noc"}, "unknown estimator 'noc'.*nocv"),
        ({"name": "my_model.py:vague"}, "does not say its dim"),
        ({"name": "my_model.py"}, "my_model.py:target"),
        ({"name": "breast-cancr"}, "Did you mean 'breast-cancer'"),
    ],
)
def test_misuse_says_what_to_do(arguments, words):
    with pytest.raises(ValueError, match=words):
        run(**arguments)
