"""`quietgrad fit`: a task or a user's file, each method, and its messages."""

import dataclasses
import json
import runpy

import jax
import numpy as np
import pytest
import xarray

import quietgrad as qg
from quietgrad._util.fingerprint import fingerprint
from quietgrad.cli.commands import fit, models, settings
from quietgrad.cli.commands.show import show_command
from quietgrad.diagnostics.diagnosis import Verdict
from quietgrad.status import Status

MODEL = """
import jax.numpy as jnp
import quietgrad as qg

target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2 * jnp.arange(1, 4)), dim=3)
vague = qg.Target(lambda z: -0.5 * jnp.sum(z**2))
broken = qg.Target.from_logdensity(lambda z: jnp.nan * z[0], dim=3)
"""
NUMPYRO = """
import numpyro
import numpyro.distributions as dist


def model(x, y=None, *, scale=1.0):
    slope = numpyro.sample("slope", dist.Normal(0.0, scale).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ slope, 0.5), obs=y)


def nothing(x):
    return 3


def clumsy(x):
    return undefined + x
"""
PYMC = """
import pymc as pm

with pm.Model(coords={"side": ["left", "right"]}) as model:
    height = pm.Normal("height", 0.0, 1.0, dims="side")
    pm.Normal("y", height, 0.5, observed=[0.5, -0.5], dims="side")


def made(y):
    with pm.Model() as inner:
        pm.Normal("seen", pm.Normal("level"), 1.0, observed=y)
    return inner
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a model, and no cache of compiled programs: the test session has its own."""
    (tmp_path / "my_model.py").write_text(MODEL)
    (tmp_path / "numpyro_model.py").write_text(NUMPYRO)
    (tmp_path / "pymc_model.py").write_text(PYMC)
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{a - b + 0.5 * e}" for a, b, e in rng.normal(size=(20, 3))]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,y", *rows]))
    monkeypatch.chdir(tmp_path)
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
        ({"family": "low"}, "unknown family 'low'; known: arrowhead, auto"),
        ({"family": "meanfield"}, "Did you mean 'mean-field'"),
        ({"family": "advi"}, "'mean-field', or 'full-rank'"),
        ({"learning_rate": 0.1}, "--method auto has no --learning-rate.*--method sgd"),
        ({"method": "saa", "estimator": "nocv"}, "--method saa has no --estimator.*auto or"),
        ({"draws": 5}, "name it with --estimator"),
        ({"draws": 5, "estimator": "auto"}, "chooses its --draws"),
        ({"estimator": "noc"}, "unknown estimator 'noc'.*nocv"),
        ({"name": "my_model.py:vague"}, "does not say its dim"),
        ({"name": "my_model.py"}, "my_model.py:target"),
        ({"name": "breast-cancr"}, "Did you mean 'breast-cancer'"),
    ],
)
def test_misuse_says_what_to_do(arguments, words):
    with pytest.raises(ValueError, match=words):
        run(**arguments)


def test_a_numpyro_model_with_its_data_into_a_folder_and_again(folder, capsys):
    """Draws, summary, history, plot, verdict and result are written; repeat.py gets the same answer."""
    arguments = {"data": folder / "rows.csv", "arguments": ["x=a,b", "scale=2.0"], "out": folder / "out"}
    code = run("numpyro_model.py:model", **arguments)
    printed = capsys.readouterr().out
    out = folder / "out"
    document = json.loads((out / "result.json").read_text())
    verdict = json.loads((out / "verdict.json").read_text())
    assert document["verdict"] == verdict["verdict"]
    assert code == document["exit_code"] == fit.VERDICT_CODES[Verdict(verdict["verdict"])]
    assert (out / "verdict.txt").read_text().startswith(verdict["verdict"])
    assert "slope[1]" in printed
    assert "slope[1]" in (out / "summary.csv").read_text()
    assert (out / "history.csv").read_text().startswith("step,seconds,wall,compile,elbo,elbo_error\n")
    assert (out / "fit.png").read_bytes().startswith(b"\x89PNG")
    with xarray.open_datatree(out / "draws.nc") as tree:
        assert tree["posterior"]["slope"].shape[2:] == (2,)
        assert tree["log_likelihood"]["y"].shape[2:] == (20,)
    with pytest.raises(ValueError, match="add --force"):
        run("numpyro_model.py:model", **arguments)
    with jax.numpy_rank_promotion("allow"):
        again = runpy.run_path(str(out / "repeat.py"))
    assert again["result"].elbo == document["elbo"]
    assert again["arguments"]["scale"] == 2.0


def test_a_saved_result_is_shown_and_is_a_start(folder, capsys):
    out = folder / "out"
    run(
        "numpyro_model.py:model",
        data=folder / "rows.csv",
        arguments=["x=a,b"],
        out=out,
        family="full-rank",
    )
    saved = qg.load(out / "fit.quietgrad")
    assert saved.diagnosis is not None
    assert saved.seed == (0, 0)
    capsys.readouterr()
    assert show_command(out) == 0
    printed = capsys.readouterr().out
    assert str(saved) in printed
    assert f"verdict: {saved.diagnosis}" in printed
    assert "slope[1]" in printed
    assert f"quietgrad {qg.__version__}" in printed
    again = {"data": folder / "rows.csv", "arguments": ["x=a,b"], "start": out / "fit.quietgrad"}
    run("numpyro_model.py:model", **again, out=folder / "further", diagnose=False)
    further = json.loads((folder / "further" / "result.json").read_text())
    assert further["family"] == "FullRank"
    with jax.numpy_rank_promotion("allow"):
        repeated = runpy.run_path(str(folder / "further" / "repeat.py"))
    assert repeated["result"].elbo == further["elbo"]
    with pytest.raises(ValueError, match="leave --family and --rank out"):
        run("numpyro_model.py:model", **again, family="low-rank")
    with pytest.raises(ValueError, match="has no fit.quietgrad"):
        show_command(folder)
    with pytest.raises(
        ValueError, match=r"there is no .*nothing; name the folder of quietgrad fit --out"
    ):
        show_command(folder / "nothing")


def told(folder, monkeypatch, capsys, verdict):
    """A fit whose verdict is given, its folder and what was printed after the verdict."""
    given = dataclasses.replace(qg.fit(TARGET, key=jax.random.key(0)).diagnose(), verdict=verdict)
    monkeypatch.setattr(qg.FitResult, "diagnose", lambda result: given)
    out = folder / "out"
    code = run(out=out, force=True)
    return code, out, capsys.readouterr().out.partition("verdict: ")[2]


TARGET = qg.Target.from_logdensity(lambda z: -0.5 * z @ z, dim=1)


@pytest.mark.slow
def test_the_folder_says_which_draws_to_use(folder, monkeypatch, capsys):
    """Corrected draws are there if the verdict asks for them, and go when a later fit needs none."""
    code, out, printed = told(folder, monkeypatch, capsys, Verdict.CORRECTED)
    assert code == 4
    assert "summary of the corrected draws" in printed
    assert "use corrected_draws.nc" in (out / "verdict.txt").read_text()
    with xarray.open_datatree(out / "corrected_draws.nc") as tree:
        assert "importance-corrected" in tree["posterior"].attrs["kind"]
    with xarray.open_datatree(out / "draws.nc") as tree:
        assert tree["posterior"].attrs["kind"].endswith("draws of q")
    assert (out / "corrected_summary.csv").read_text() != (out / "summary.csv").read_text()
    code, out, printed = told(folder, monkeypatch, capsys, Verdict.DO_NOT_TRUST)
    assert code == 5
    assert "summary of q, which the verdict says not to trust" in printed
    assert "not to be trusted" in (out / "verdict.txt").read_text()
    assert not list(out.glob("corrected_*"))


def test_a_checkpoint_goes_on_and_refuses_what_changed(folder):
    settings = {"checkpoint": folder / "saved", "out": folder / "out", "diagnose": False}
    sgd = {"method": "sgd", "steps": 60}
    assert run(**sgd, seconds=1e-3, **settings) == 3
    # Results of a fit that was not finished are replaced by those of the fit that goes on from it.
    run(**sgd, **settings)
    first = json.loads((folder / "out" / "result.json").read_text())
    assert first["steps"] == 60
    run(**sgd, **settings, force=True)
    again = json.loads((folder / "out" / "result.json").read_text())
    assert (again["elbo"], again["clock"]) == (first["elbo"], first["clock"])
    with pytest.raises(ValueError, match="method.steps: 60 is stored, 61 was given"):
        run(method="sgd", steps=61, **settings, force=True)


@pytest.mark.parametrize(
    ("name", "arguments", "dim"),
    [
        ("pymc_model.py:model", {}, 2),
        ("pymc_model.py:made", {"arguments": ["y=0.5"]}, 1),
        ("my_model.py:target", {}, 3),
        ("numpyro_model.py:model", {"data": "rows.csv", "arguments": ["x=a,b"]}, 2),
    ],
)
def test_what_a_file_has_becomes_a_target(name, arguments, dim, folder):
    data = arguments.get("data")
    found = models.load_model(name, data and folder / data, arguments.get("arguments", ()))
    assert found.target.dim == dim


@pytest.mark.parametrize(
    ("name", "arguments", "error", "words"),
    [
        ("numpyro_model.py:model", [], ValueError, "numpyro_model.py:model needs x; no --data"),
        ("numpyro_model.py:model", ["x=1"], ValueError, r"model failed \(line 8\): AttributeError"),
        ("numpyro_model.py:nothing", ["x=1"], TypeError, "returned 'int' and has no NumPyro sites"),
        ("numpyro_model.py:clumsy", ["x=1"], ValueError, r"line 17\): NameError.*undefined"),
        ("numpyro_model.py:modle", [], ValueError, "no 'modle'; there are model, nothing, clumsy"),
        ("my_model.py:target", ["x=1"], ValueError, "is a target, which has its own data"),
        ("pymc_model.py:model", ["x=1"], ValueError, "is a PyMC model, which has its own data"),
        ("breast-cancer", ["x=1"], ValueError, "has its own data; leave out"),
    ],
)
def test_models_that_cannot_be_had_say_why(name, arguments, error, words):
    with pytest.raises(error, match=words):
        models.load_model(name, None, arguments)


def test_a_model_that_observes_nothing_is_not_fitted(folder):
    (folder / "x.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(ValueError, match="observes nothing, with y, scale at the default"):
        models.load_model("numpyro_model.py:model", folder / "x.csv", ["x=a,b"])


@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [
        (Status.CONVERGED, None, 0),
        (Status.CONVERGED, Verdict.TRUST, 0),
        (Status.CONVERGED, Verdict.CORRECTED, 4),
        (Status.CONVERGED, Verdict.DO_NOT_TRUST, 5),
        (Status.BUDGET, Verdict.DO_NOT_TRUST, 3),
        (Status.STALLED, Verdict.DO_NOT_TRUST, 1),
        (Status.INTERRUPTED, None, 130),
    ],
)
def test_exit_codes_follow_the_ending_and_the_verdict(status, verdict, code):
    assert fit.exit_code(status, verdict) == code


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("auto", {}),
        ("auto", {"estimator": "nocv", "draws": 4, "steps": 900}),
        ("saa", {}),
        ("sgd", {"estimator": "auto", "steps": 50, "learning_rate": 0.05}),
    ],
)
def test_the_code_of_a_method_makes_it(method, given):
    import optax

    model = models.load_model("my_model.py:target")
    made = settings.method_of(method, model, "mean-field", given)
    again = eval(settings.method_code(method, model, "mean-field", given), {"qg": qg, "optax": optax})
    # Optax's closures are new on every call, and compared by how they were made.
    if method == "sgd":
        assert fingerprint(made.optimizer) == fingerprint(again.optimizer)
    else:
        assert made == again
    assert (made.steps, made.estimator) == (again.steps, again.estimator) if given else True


def test_rank_is_that_of_the_low_rank_family(folder, key):
    model = models.load_model("my_model.py:target")
    made = settings.family_of("low-rank", 2, model, key)
    scope = {"qg": qg, "target": model.target, "key": key}
    again = eval(settings.family_code("low-rank", 2), scope)
    np.testing.assert_array_equal(made.factor, again.factor)
    assert made.rank == 2
    with pytest.raises(ValueError, match="--family full-rank has no --rank.*low-rank"):
        run(family="full-rank", rank=2)
