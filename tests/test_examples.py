"""Every example runs and prints something; the notebooks are those of the scripts, with output."""

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "examples"
# What a run must have said; numbers are checked elsewhere.
SAYS = {
    "logistic_regression": "trust",
    "hierarchical": "not centred: ELBO",
    "bayesian_network": "noise:",
    "flow": "real-nvp-whitened",
    "pymc_model": "intercept[Aitkin]",
    "numpyro_svi": "variance of its gradient",
    "own_control_variate": "log_std: 0.2",
    "semi_implicit": "semi-implicit  ELBO",
    "energy": "draws between the rings",
    "vi_then_nuts": "NUTS from the fit",
}
MOST_LINES = 60
# One runs NUTS twice, to count what a fit saves, the other trains for half a minute; by themselves all
# are among the slow ones.
LONG = ("vi_then_nuts", "semi_implicit")


@pytest.mark.turns(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in SAYS]
)
def test_it_runs(name, capsys):
    """In this process, which has imported what they need."""
    with jax.numpy_rank_promotion("allow"):
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_it_runs_by_itself(name):
    """As a reader runs it: in single precision, without the settings of the tests."""
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout


def test_all_eight_are_short_and_say_what_they_do():
    scripts = {path.stem: path for path in FOLDER.glob("*.py") if path.stem != "make_notebooks"}
    assert scripts.keys() == SAYS.keys()
    for path in scripts.values():
        source = path.read_text()
        assert source.count("\n") < MOST_LINES
        assert ast.get_docstring(ast.parse(source))


def test_notebooks_are_the_scripts_with_output(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import make_notebooks  # pyright: ignore[reportMissingImports]

    for name in make_notebooks.NOTEBOOKS:
        stored = nbformat.read(FOLDER / "notebooks" / f"{name}.ipynb", as_version=4)
        made = make_notebooks.notebook_of(FOLDER / f"{name}.py")
        assert [(c.cell_type, c.source) for c in stored.cells] == [
            (c.cell_type, c.source) for c in made.cells
        ]
        outputs = [out for c in stored.cells if c.cell_type == "code" for out in c.outputs]
        assert outputs
        assert all(out.output_type != "error" for out in outputs)
