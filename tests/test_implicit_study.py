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
    "part",
    [
        pytest.param("scores", marks=pytest.mark.slow),
        pytest.param("gradients", marks=pytest.mark.slow),
        "distances",
        pytest.param("energies", marks=pytest.mark.slow),
    ],
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


def test_shares_are_all_of_it_and_trials_stay_with_what_they_are_for(study, tmp_path):
    names = list(study.plan(tomllib.loads((study.HERE / "full.toml").read_text()), tmp_path))
    first, second = (study.in_share(names, share) for share in ("1/2", "2/2"))
    assert sorted(first + second) == sorted(names)
    assert min(len(first), len(second)) > len(names) / 4
    for some in (first, second):
        tried = {name for name in some if name.startswith("tuning-")}
        needed = {f"tuning-{name.rsplit('-', 1)[0]}" for name in some} & set(names)
        assert needed == tried


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


@pytest.mark.parametrize("name", ["gaussian", "rbm", "ica"])
def test_exact_draws_are_of_the_energy(study, name, key):
    """The mean of the energy's gradient over them is minus that of log Z."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    from jax.flatten_util import ravel_pytree
    from oracles import assert_mean
    from reproduction.implicit.energies import PROBLEMS

    problem = PROBLEMS[name]()
    exact, log_z = problem.draws, problem.log_z
    assert exact is not None
    assert log_z is not None

    @jax.jit
    def gradients(key):
        leaves, form = jax.tree.flatten(problem.energy)
        keys = jr.split(key, len(leaves))
        moved = [x + 0.1 * jr.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
        energy = jax.tree.unflatten(form, moved)
        x = exact(energy, key, 5_000)
        each = jax.vmap(lambda x: ravel_pytree(jax.grad(lambda e: e(x))(energy))[0])(x)
        return each, -ravel_pytree(jax.grad(log_z)(energy))[0]

    each, truth = gradients(key)
    # What lies above the diagonal of the Gaussian's root is no parameter.
    moving = np.asarray(jnp.std(each, axis=0) > 0)
    assert_mean(np.asarray(each)[:, moving], np.asarray(truth)[moving])
    assert not np.any(np.asarray(truth)[~moving])


def rows_of_a_study(ours, theirs):
    """Rows of three seeds, in which Stein weights have `ours` everywhere, and the others `theirs`."""
    from reproduction.implicit.claims import CONTENDERS, DEFAULT, PLAIN, STEIN_SCORE

    noise, share = [-0.001, 0.0, 0.001], {"share": 1.0, "seed": 0}
    return {
        "scores": [
            {"target": "t", "estimator": name, "median": value} | share
            for name, value in ((PLAIN, theirs), (STEIN_SCORE, ours))
        ],
        "gradients": [
            {"problem": "p", "rule": rule, "mse": value, "chains_over_dim": 2} | share
            for rule, value in (("plain mean", theirs), (DEFAULT, ours))
        ],
        "energies": [
            {"problem": p, "method": m, "log_likelihood": 0.0, "train": -v + n, "seed": s}
            for p in ("a", "b", "c")
            for m, v in (("stein", ours), ("cd", theirs), ("pcd", theirs))
            for s, n in enumerate(noise)
        ],
        "distances": [
            {"target": t, "method": m, "sliced": v + n, "sliced_error": 0.001, "share": 1.0, "seed": s}
            for t in ("a", "b", "c", "d")
            for m, v in (("uivi-stein", ours), *((m, theirs) for m in CONTENDERS))
            for s, n in enumerate(noise)
        ],
    }


def test_a_likelihood_that_is_an_estimate_is_not_counted(study):
    from reproduction.implicit.claims import _of_energies

    rows = rows_of_a_study(1.0, 2.0)["energies"]
    assert "rows of the fit: 3 of 3" in _of_energies(rows)[-1]
    estimated = [row | ({"log_z_error": 0.1} if row["problem"] == "a" else {}) for row in rows]
    *each, last = _of_energies(estimated)
    assert "rows of the fit: 2 of 2" in last
    assert "not counted" in each[0]
    assert "not counted" not in each[1]


def test_claims_follow_the_rows(study):
    from reproduction.implicit.claims import said

    good, bad = (said(rows_of_a_study(*values)) for values in ((0.1, 1.0), (1.0, 0.1)))
    assert len(good) == len(bad) == 1 + 1 + 4 + 5
    assert all("does not hold" in line for line in bad[:2])
    assert all("**holds**" in line for line in good[:2])
    assert "rows of the fit, above CD-k" in good[2]
    assert "rows held back, not told apart from CD-k" in good[2]
    assert "below persistent CD" in bad[2]
    assert [line for line in good if "three of five: holds" in line]
    assert [line for line in bad if "three of five: is not shown" in line]
    assert [line for line in good if "four of six: holds** (4 of 4" in line]
    assert [line for line in bad if "four of six: is not shown** (0 of 4" in line]


def test_a_missing_contender_counts_against_the_claim(study):
    from reproduction.implicit.claims import said

    rows = rows_of_a_study(0.1, 1.0)
    rows["distances"] = [r for r in rows["distances"] if (r["target"], r["method"]) != ("a", "ksivi")]
    found = said(rows)
    assert [line for line in found if "not run: ksivi" in line]
    assert [line for line in found if "four of six: is not shown** (3 of 4" in line]


def test_settings_are_the_best_of_the_tuning_seeds(study):
    """Means over seeds decide; a fit that went astray does not count as good; no rows, no choice."""
    from reproduction.implicit import distances_cell, energies_cell

    fits = [
        {"chains": c, "rate": r, "train": v}
        for c, r, values in ((32, 0.01, (-1.0, -9.0)), (32, 0.03, (-2.0, -2.1)), (64, 0.01, (np.nan, 5)))
        for v in values
    ]
    assert energies_cell.tuned(fits) == (32, 0.03)
    assert energies_cell.tuned([]) == (energies_cell.CHAINS, energies_cell.RATE)
    trained = [
        {"rate": r, "sliced": v}
        for r, values in ((0.001, (0.1, 0.9)), (0.003, (0.2, 0.3)), (0.01, (np.nan, 0.0)))
        for v in values
    ]
    assert distances_cell.tuned(trained) == 0.003
    assert distances_cell.tuned([]) == distances_cell.RATE


def test_cells_take_the_settings_of_their_tuning(study, tmp_path, monkeypatch):
    from reproduction.implicit import distances_cell, energies_cell

    taken = {}
    monkeypatch.setattr(energies_cell, "rows", lambda *given: taken.update(energies=given[-1]) or [])
    monkeypatch.setattr(distances_cell, "rows", lambda *given: taken.update(distances=given[-2]) or [])
    monkeypatch.setattr(study, "start", lambda name, cache: None)
    kept = {"energies": [{"rate": 0.1}], "distances": [{"rate": 0.2}]}
    for part, name in (("energies", "gaussian-stein"), ("distances", "banana-uivi-stein")):
        (tmp_path / f"tuning-{part}-{name}.json").write_text(json.dumps(kept[part]))
        assert study.run(spec_of(study), tmp_path, f"{part}-{name}") == 0
    assert taken == kept


def test_tuning_comes_before_what_uses_it(study, tmp_path):
    spec = spec_of(study)
    spec["energies"]["tuning"] = spec["distances"]["tuning"] = {
        "seeds": [9],
        "chains": [8],
        "rates": [1],
    }
    names = list(study.plan(spec, tmp_path))
    last = max(names.index(name) for name in names if name.startswith("tuning"))
    assert last < min(names.index(name) for name in names if not name.startswith("tuning"))
    assert {"tuning-energies-gaussian-cd", "tuning-distances-banana-particles"} <= set(names)


def test_figures_are_drawn_from_rows(study, tmp_path):
    from reproduction.implicit.figures import draw
    from reproduction.implicit.page import rows_of

    stored = rows_of(study.HERE / "cells")
    draw(stored, tmp_path)
    parts = {
        "scores": "implicit-scores.svg",
        "gradients": "energy-gradients.svg",
        "distances": "implicit-distances.svg",
        "energies": "energy-likelihoods.svg",
    }
    for part, name in parts.items():
        assert (tmp_path / name).exists() == bool(stored[part])


def test_stored_cells_are_tables(study):
    stored = sorted((study.HERE / "cells").glob("*.json"))
    for file in stored:
        assert all(isinstance(row, dict) for row in json.loads(file.read_text())), file
