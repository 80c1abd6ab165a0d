"""The public names: the same in `__all__`, for type checkers and when asked for; jax comes late."""

import ast
import inspect
import pathlib
import subprocess
import sys

import pytest

import quietgrad


def names_for_type_checkers():
    """What is imported under `if TYPE_CHECKING:`, plus what is imported outright."""
    tree = ast.parse(inspect.getsource(quietgrad))
    blocks = [n.body for n in tree.body if isinstance(n, ast.If)] + [tree.body]
    imports = [n for body in blocks for n in body if isinstance(n, ast.ImportFrom) and n.level]
    return [alias.asname or alias.name for node in imports for alias in node.names]


def test_all_is_sorted_and_without_duplicates():
    assert list(quietgrad.__all__) == sorted(set(quietgrad.__all__))
    assert dir(quietgrad) == list(quietgrad.__all__)


def test_type_checkers_see_the_same_names():
    assert sorted(names_for_type_checkers()) == list(quietgrad.__all__)


@pytest.mark.parametrize("name", quietgrad.__all__)
def test_every_name_can_be_had(name):
    assert getattr(quietgrad, name) is not None


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="'quietgrad' has no attribute 'nonsense'"):
        quietgrad.nonsense  # noqa: B018


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_import_does_not_load_jax():
    done = run_python("import sys, quietgrad; sys.exit('jax' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_newton_steps_wait_for_no_stochastic_gradients():
    """optax, rich and sparse matrices are a good part of the imports, and such a fit needs none."""
    done = run_python(
        "import sys, quietgrad as qg, jax.random as jr; "
        "qg.fit(qg.Target(lambda z: -0.5 * z @ z, dim=2), 'full-rank', key=jr.key(0), progress=False); "
        "late = ('optax', 'rich', 'scipy.sparse', 'quietgrad.estimators.registry'); "
        "assert not (early := [name for name in late if name in sys.modules]), early"
    )
    assert done.returncode == 0, done.stderr


def test_importing_every_name_does_not_start_a_back_end():
    """Until one has started, users may choose devices and their number."""
    done = run_python(
        "from quietgrad import *; import jax; jax.config.update('jax_num_cpu_devices', 3); "
        "assert len(jax.devices()) == 3"
    )
    assert done.returncode == 0, done.stderr


def test_star_import_brings_every_name():
    done = run_python(
        "from quietgrad import *; import quietgrad; assert set(quietgrad.__all__) <= set(globals())"
    )
    assert done.returncode == 0, done.stderr


def test_users_type_checkers_see_the_annotations():
    """Without this file they take every name for `Any` (PEP 561)."""
    assert (pathlib.Path(quietgrad.__file__).parent / "py.typed").is_file()
