"""A missing package is named together with the extra that brings it."""

import subprocess
import sys

CODE = """
import importlib, sys

for adapter, package, extra in (
    ("numpyro", "numpyro", "numpyro"),
    ("pymc", "pymc", "pymc"),
    ("flowjax", "flowjax", "flows"),
    ("arviz", "arviz_base", "arviz"),
):
    sys.modules[package] = None
    try:
        importlib.import_module(f"quietgrad.adapters.{adapter}")
    except ImportError as error:
        assert f"needs {package}: pip install 'quietgrad[{extra}]'" in str(error), error
    else:
        raise AssertionError(adapter)
import quietgrad
from quietgrad.results.expectations.result import Expectations

sys.modules["matplotlib"] = sys.modules["pandas"] = None
plots = "quietgrad.results.display.plots"
for ask, what, package, extra in (
    (lambda: importlib.import_module(plots), "a figure", "matplotlib", "plot"),
    (lambda: quietgrad.FitResult.history_frame(None), "a data frame", "pandas", "arviz"),
    (lambda: Expectations.frame(None), "a data frame", "pandas", "arviz"),
):
    try:
        ask()
    except ImportError as error:
        assert f"{what} needs {package}: pip install 'quietgrad[{extra}]'" in str(error), error
    else:
        raise AssertionError(package)
assert "QuietELBO" not in quietgrad.__all__
"""


def test_missing_packages_are_named_with_their_extra():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_itself_loads_no_adapter():
    code = "import sys, quietgrad.fitting; print([m for m in sys.modules if 'd.adapters' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
