"""The study of implicit families in small: cells are computed once, kept and tabulated."""

import json
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    import reproduction.implicit.__main__ as study

    yield study
    for name in [name for name in sys.modules if name.split(".")[0] == "reproduction"]:
        del sys.modules[name]


def spec_of(study):
    return tomllib.loads((study.HERE / "small.toml").read_text())


@pytest.mark.turns(2, first=1)
@pytest.mark.parametrize(
    "part", [pytest.param("scores", marks=pytest.mark.slow), "distances", "energies"]
)
@pytest.mark.filterwarnings("ignore")
def test_a_small_spec_runs_and_goes_on(study, tmp_path, part):
    import jax

    with jax.numpy_rank_promotion("allow"):
        assert study.run(spec_of(study), tmp_path, part) == 0
        files = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")}
        assert files
        assert study.run(spec_of(study), tmp_path, part) == 0
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")} == files
    from reproduction.implicit.page import sections

    assert any(line.startswith("| ") for line in sections(tmp_path))


def test_a_failing_cell_makes_the_command_fail(study, tmp_path, capsys):
    spec = spec_of(study)
    spec["distances"]["methods"] = ["no-such-family"]
    assert study.run(spec, tmp_path, "distances-banana-no-such-family") == 1
    assert "no-such-family" in capsys.readouterr().err


def test_distances_know_equal_and_different_samples(study):
    from reproduction.implicit.distances import distances

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 2000, 3))
    same, other = distances(x, y), distances(x + [0.5, 0, 0], y)
    assert other["sliced"] > same["sliced"] + 5 * other["sliced_error"]
    assert other["mmd"] > same["mmd"] + 5 * other["mmd_error"]


def test_known_constants_agree_with_quadrature(study):
    """log Z of the RBM and of ICA in two dimensions, on a grid."""
    import jax.numpy as jnp
    from reproduction.implicit.energies import Ica, Rbm, plane_log_z, rbm_log_z

    machine = Rbm(
        jnp.array([[0.5, -0.2], [0.3, 0.4]]),
        jnp.array([0.2, -0.1]),
        jnp.array([0.1, -0.3]),
        jnp.zeros(2),
    )
    np.testing.assert_allclose(plane_log_z(machine), rbm_log_z(machine), rtol=1e-5)
    # Tails of cosh are long: rows of W that are large enough leave nothing beyond the grid.
    weights = jnp.array([[4.0, 1.0], [-0.5, 5.0]])
    exact = 2 * np.log(np.pi) - np.linalg.slogdet(np.asarray(weights))[1]
    np.testing.assert_allclose(plane_log_z(Ica(weights)), exact, rtol=1e-3)


def test_stored_cells_are_tables(study):
    stored = sorted((study.HERE / "cells").glob("*.json"))
    for file in stored:
        assert all(isinstance(row, dict) for row in json.loads(file.read_text())), file
