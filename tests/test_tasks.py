"""The named tasks: their sizes, their data, and what can be known before loading them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from quietgrad.datasets import DataNotFoundError, tasks

# name: (dim, training rows, test rows, batch size)
SIZES = {
    "a1a": (120, 1440, 165, None),
    "frisk": (37, 96, None, None),
    "redwine": (653, 100, 100, None),
    "redwine-mini": (653, 1431, 168, 32),
    "breast-cancer": (31, 504, 65, None),
    "diabetes": (603, 100, 100, None),
    "diabetes-mini": (603, 396, 46, 32),
    "counts": (37, 96, None, None),
}
EMBEDDED = ["breast-cancer", "diabetes", "diabetes-mini", "counts"]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch):
    """A proxy at a port where nobody listens: every download fails at once."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")


def load(name: str) -> tasks.Task:
    file = tasks.REGISTRY[name].file
    folder = os.environ.get("QUIETGRAD_DATA")
    if file is not None and not (folder and (Path(folder) / file.name).is_file()):
        pytest.skip(f"needs {file.name}: set QUIETGRAD_DATA to a folder that holds it")
    if name in ("breast-cancer", "diabetes", "diabetes-mini"):
        pytest.importorskip("sklearn", reason="scikit-learn holds this data")
    return tasks.load(name)


def test_every_task_has_its_sizes_written_down():
    assert list(SIZES) == list(tasks.REGISTRY)


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str):
    task = load(name)
    test_rows = None if task.test is None else task.test.rows
    assert (task.dim, task.train.rows, test_rows, task.batch_size) == SIZES[name]
    assert task.train.dim == task.dim
    assert task.train.scale == 1
    assert (task.name, task.title) == (name, tasks.REGISTRY[name].title)


@pytest.mark.parametrize("name", SIZES)
def test_log_density_and_gradient_are_finite(name: str):
    task = load(name)
    z = jnp.asarray(0.5 * np.random.default_rng(0).standard_normal(task.dim))
    value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(task.train.log_density))(z)
    assert jnp.isfinite(value)
    assert jnp.all(jnp.isfinite(gradient))
    assert jnp.any(gradient != 0)
    if task.test is not None:
        assert jnp.all(jnp.isfinite(eqx.filter_jit(task.test.log_likelihoods)(z)))


@pytest.mark.parametrize("name", SIZES)
def test_title_is_one_line_with_the_rows_and_the_batch(name: str):
    title, (_, rows, _, batch) = tasks.REGISTRY[name].title, SIZES[name]
    assert "\n" not in title
    numbers = [int(number) for number in re.findall(r"\d+", title)]
    assert numbers == ([rows] if batch is None else [rows, batch])


def test_listing_needs_no_data():
    downloaded = [name for name, entry in tasks.REGISTRY.items() if entry.file is not None]
    assert downloaded == ["a1a", "frisk", "redwine", "redwine-mini"]
    assert [name for name, entry in tasks.REGISTRY.items() if entry.simulated] == ["counts"]
    assert "simulated" in tasks.REGISTRY["counts"].title


def test_listing_needs_no_optional_package():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pooch', 'sklearn'])); "
        "from quietgrad import tasks; print(*(entry.title for entry in tasks.REGISTRY.values()))"
    )
    root = str(Path(tasks.__file__).parents[2])
    paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "simulated counts" in done.stdout


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_tasks_load_offline(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("QUIETGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load(name).simulated == (name == "counts")


@pytest.mark.parametrize("name", ["a1a", "frisk", "redwine", "redwine-mini"])
def test_missing_data_says_how_to_supply_it(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("QUIETGRAD_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tasks.REGISTRY[name].file
    assert file is not None
    with pytest.raises(DataNotFoundError, match=f"folder that holds {re.escape(file.name)}"):
        tasks.load(name)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="unknown task 'redwin'.*Did you mean 'redwine'"):
        tasks.load("redwin")


@pytest.mark.parametrize(
    ("name", "family", "rate"),
    [
        ("counts", "mean-field", 0.01),
        ("counts", "real-nvp", 0.01),
        ("breast-cancer", "real-nvp", 0.01),
        ("diabetes", "low-rank", 0.01),
        ("diabetes", "real-nvp", 0.001),
        ("diabetes-mini", "real-nvp-affine", 0.001),
    ],
)
def test_learning_rate_is_the_papers(name: str, family: str, rate: float):
    assert load(name).learning_rate(family) == rate


@pytest.mark.parametrize("name", ["redwine", "redwine-mini", "diabetes", "diabetes-mini"])
def test_networks_see_standardised_data(name: str):
    task = load(name)
    assert task.test is not None
    for values in task.train.data:
        np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-10)
        np.testing.assert_allclose(values.std(axis=0), 1, atol=1e-10)
    # The test rows are in the training rows' units, so their own mean is not zero.
    assert abs(task.test.data[1].mean()) > 1e-6


def test_breast_cancer_standardises_inputs_only():
    x, y = load("breast-cancer").train.data
    np.testing.assert_allclose(x.std(axis=0), 1, atol=1e-10)
    assert set(y.tolist()) == {0, 1}


def test_a1a_is_shuffled_before_it_is_split():
    task = load("a1a")
    assert task.test is not None
    # 349 of the 395 positive rows are among the first 1440 of RandomState(0).permutation(1605).
    assert (task.train.data[1].sum(), task.test.data[1].sum()) == (349, 46)
