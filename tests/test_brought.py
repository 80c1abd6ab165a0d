"""Models as people bring them: each is a density, its reference is of it, and rows are judged by it."""

import sys
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not part of the source distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

brought, reference, judged, table, tools, models = map(
    import_module,
    ("brought", "brought.reference", "brought.judged", "brought.table", "brought.tools", "models"),
)
read, same = (getattr(import_module("zoo.reference"), name) for name in ("read", "same"))
Store = import_module("zoo.store").Store

REFERENCES = read(reference.STORE)
HERE = {"commit": "0" * 40, "dirty": False, "cpu": "a cpu", "cores": 2}
HERE |= {"python": "3", "jax": "0", "precision": "float32"}
pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # PyTensor asks for double precision, and gets what there is.
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype"),
]


@pytest.fixture(autouse=True)
def broadcasts():
    """As users have it: NumPyro broadcasts."""
    with jax.numpy_rank_promotion("allow"):
        yield


def rarely(names, every):
    """The names, of which each `every`-th is for every run and the rest is slow."""
    return [
        pytest.param(name, marks=() if place % every == 0 else pytest.mark.slow)
        for place, name in enumerate(names)
    ]


def test_there_are_enough_models_of_both_languages_and_each_says_what_it_is():
    made = [make() for make in brought.REGISTRY.values()]
    assert len(made) >= 40
    assert sum(model.language == "pymc" for model in made) >= 8
    kinds = {model.about for model in made}
    # Two models share their density: all rows, and batches of them.
    assert len(kinds) == len(made) - 1
    assert all(len(kind) > 20 for kind in kinds)


def test_unknown_model_is_refused_by_name():
    with pytest.raises(ValueError, match=r"no model 'radom' among.*radon"):
        brought.load("radom")


@pytest.mark.turns(3)
@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", rarely(brought.REGISTRY, every=9))
def test_density_and_gradient_are_finite_where_fits_start(name, double):
    with jax.enable_x64(double):
        target = brought.load(name).target()
        z = jnp.asarray(0.1 * np.random.default_rng(0).normal(size=target.dim))
        value, grad = jax.jit(jax.value_and_grad(target.log_density))(z)
    assert value.dtype == (jnp.float64 if double else jnp.float32)
    assert np.isfinite(value)
    assert np.all(np.isfinite(grad))
    assert np.any(np.asarray(grad) != 0)


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", rarely(brought.REGISTRY, every=12))
def test_density_is_that_of_the_models_own_language(name):
    """Up to a constant, at points of our order of coordinates and of theirs: the same names in both."""
    model = brought.load(name)
    log_density, dim = model.log_density()
    target = model.target()
    assert dim == target.dim
    points = 0.1 * np.random.default_rng(1).normal(size=(3, dim))
    ours = jax.jit(jax.vmap(target.log_density))(points)
    theirs = jax.jit(jax.vmap(log_density))(points)
    np.testing.assert_allclose(ours - ours[0], theirs - theirs[0], rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("name", rarely(REFERENCES, every=12))
def test_reference_is_of_this_model_and_its_chains_agree(name):
    row, model = REFERENCES[name], brought.load(name)
    assert reference.words(model) == {key: row[key] for key in reference.words(model)}
    assert same(row["fingerprint"], model.fingerprint())
    if row["good"] and row["how"].startswith("NUTS"):
        assert max(row["r_hat"]) < reference.MOST_R_HAT
        assert min(row["size"]) > reference.LEAST_SIZE
    if row["good"]:
        assert len(row["mean"]) == len(row["std"]) == len(row["names"]) == len(row["index"])


def test_chains_that_disagree_give_no_reference():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(1, 4, 500, 3))
    assert reference.summary(draws)["good"]
    apart = draws + np.arange(4)[None, :, None, None] * np.array([0.0, 0.5, 0.0])
    assert not reference.summary(apart)["good"]


def test_copies_make_a_reference_of_chains_that_stay_in_one_mode():
    """Two mirrored modes, chains in one of them each: the mean is zero, the sd that of both."""
    rng = np.random.default_rng(1)
    draws = np.array([3.0, -3.0, 3.0, -3.0])[:, None, None] + rng.normal(size=(4, 500, 1))
    row = reference.summary(np.stack([draws, -draws]))
    assert row["good"]
    assert abs(row["mean"][0]) < 1e-9
    # The Monte Carlo error of the second moment, E z^2 = 10 with variance 4 * 9 + 2.
    error = np.sqrt(38 / 2000) / (2 * np.sqrt(10))
    assert abs(row["std"][0] - np.sqrt(10)) < 5 * error
    assert not reference.summary(draws[None])["good"]


def test_constants_are_left_out_of_a_reference():
    draws = np.random.default_rng(2).normal(size=(1, 4, 500, 3))
    draws[..., 1] = 1.0
    assert reference.summary(draws)["index"] == [0, 2]


TRUTH = {"good": True, "index": [0, 2], "names": ["a", "c"], "mean": [0.0, 1.0], "std": [1.0, 2.0]}
TRUTH |= {"dim": 3, "about": "a model.", "must_warn": None}


def row_of(model="funnel", tool="auto", seed=0, mean=(0.0, 9.0, 1.0), std=(1.0, 0.0, 2.0), **more):
    row = {"model": model, "tool": tool, "seed": seed, "verdict": "trust", "status": "converged"}
    row |= {"answer": {"mean": list(mean), "std": list(std)}, "processor_seconds": 4.0}
    return row | {"seconds": 5.0, "programs": 3} | more


def test_rows_are_judged_by_the_numbers_that_vary():
    row = judged.judge(row_of(mean=(0.1, 9.0, 2.0), std=(1.2, 0.0, 2.0)), TRUTH)
    assert (row["mean_error"], row["worst"]) == (0.5, "c")
    assert (row["least_std_ratio"], row["most_std_ratio"]) == (1.0, 1.2)
    assert judged.judge(row_of(), None)["mean_error"] is None
    assert judged.judge(row_of(), TRUTH | {"good": False})["mean_error"] is None


def test_corrected_draws_are_judged_where_the_verdict_asks_for_them():
    after = {"mean": [0.0, 9.0, 1.0], "std": [1.0, 0.0, 2.0]}
    row = row_of(mean=(3.0, 9.0, 1.0), verdict="use the corrected draws", corrected_answer=after)
    row = judged.judge(row, TRUTH)
    assert (row["mean_error"], row["corrected_error"]) == (3.0, 0.0)
    assert judged.right(row)
    assert not judged.right(judged.judge(row_of(mean=(3.0, 9.0, 1.0)), TRUTH))


def test_answer_that_is_not_a_number_is_wrong():
    row = judged.judge(row_of(mean=(float("nan"), 9.0, 1.0)), TRUTH)
    assert row["mean_error"] > 1e6
    assert row["worst"] == "a"


def test_table_counts_what_is_right_believed_silent_and_sooner_than_nuts():
    rows = [
        row_of(),
        row_of("radon", verdict="do not trust", processor_seconds=20.0),
        row_of("crossed", mean=(2.0, 9.0, 1.0)),
        row_of("credit", status="unbounded", verdict="do not trust", mean=(2.0, 9.0, 1.0)),
        *(row_of(name, "nuts", processor_seconds=8.0) for name in ("funnel", "radon")),
    ]
    rows = [judged.judge(row, TRUTH) | {"label": "float32"} for row in rows]
    head, _, ours, _ = (line.strip("| ").split(" | ") for line in table.summary(rows))
    assert dict(zip(head, ours, strict=True)) == {
        "tool": "quietgrad, family chosen", "precision": "float32", "models": "4", "fits": "4",
        "right": "2 of 4", "right and believed": "1 of 4", "says so": "1", "silent": "1",
        "wrong among `trust`": "1 of 2", "warned of needlessly": "1 of 2", "false endings": "1",
        "processor s, median": "4.0", "to the first answer": "–",
        "of NUTS's, median": "1.50", "at most NUTS's": "1 of 2",
    }  # fmt: skip
    lines = table.by_model(rows, ["crossed"], {"crossed": TRUTH})
    assert "silent | 2.00 a | converged" in lines[2]


def test_tools_refuse_models_of_the_other_language():
    pymc, numpyro = brought.load("pymc-robust"), brought.load("crossed")
    assert tools.refuses("svi-normal", pymc) == "svi-normal takes numpyro models"
    assert tools.refuses("advi", numpyro) == "advi takes pymc models"
    assert tools.refuses("auto", pymc) is None
    assert "batches" in tools.refuses("nuts", brought.load("forest-batches"))


def test_process_that_dies_is_a_row(tmp_path, capsys):
    def dies(*_, **__):
        return iter(["out of memory"])

    rows = Store("float32", tmp_path, zoo="brought", models=brought.REGISTRY)
    assert models.fit(rows, "funnel", "auto", 0, "float32", run=dies) == 1
    (row,) = rows.rows("auto")
    assert (row["status"], row["hint"], row["verdict"]) == ("fault", "out of memory", "do not trust")
    assert "fault" in capsys.readouterr().out
    # The table says where it is from, too.
    assert any("auto (1)" in line for line in table.page({"float32": rows}, ["funnel"], {}))


@pytest.mark.slow
def test_runner_stores_a_row_of_a_fresh_process(tmp_path):
    rows = Store("float32", tmp_path, zoo="brought", models=brought.REGISTRY)
    assert models.fit(rows, "two-proportions", "auto", 0, "float32") == 0
    (row,) = rows.rows("auto")
    assert row["status"] == "converged"
    assert 0 < row["processor_seconds"]
    assert row["programs"] > 0
    (place,) = rows.environments("auto").values()
    assert place["precision"] == "float32"
    lines = table.page({"float32": rows}, ["two-proportions"], REFERENCES)
    assert any("| two-proportions | 2 |" in line for line in lines)
