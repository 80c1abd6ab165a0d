"""Any input at all: what is taken works, and what is not is refused by one of the stated errors."""

import math
import string

import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import quietgrad as qg
from quietgrad import cli
from quietgrad._util.checks import whole
from quietgrad.datasets import a1a, frisk, redwine
from quietgrad.estimators import REGISTRY as ESTIMATORS
from quietgrad.evaluation.arrival import arrival_index
from quietgrad.study.plan import selected
from quietgrad.study.read_spec import parse
from quietgrad.study.records import Cell
from quietgrad.study.store import Store

REFUSED = (ValueError, TypeError, FileNotFoundError)
# Machines differ in speed, and these run beside others; what is found must be found again.
quick = settings(
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
few = settings(quick, max_examples=15)
ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
NAMES = st.text(alphabet=string.ascii_letters + string.digits + "-_./\\ <>'\"\n\x00é", max_size=30)
SCALARS = st.one_of(st.integers(-5, 50), st.floats(), st.booleans(), st.text(max_size=8))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@pytest.fixture(autouse=True)
def _as_users_run_it():
    """The type checker of the test run would refuse wrong types before the package's own checks."""
    jaxtyping.config.update("jaxtyping_disable", True)  # noqa: FBT003
    yield
    jaxtyping.config.update("jaxtyping_disable", False)  # noqa: FBT003


def refused_or(call):
    """The result; None if it was refused, with words."""
    try:
        return call()
    except REFUSED as error:
        assert str(error).strip()  # noqa: PT017
        return None


@quick
@given(ANY)
def test_whole_numbers(value):
    made = refused_or(lambda: whole(value, "draws", least=1))
    assert made is None or (made == value and made >= 1 and not isinstance(value, bool))


@quick
@given(
    st.sampled_from(sorted(ESTIMATORS)),
    st.dictionaries(st.sampled_from(["draws", "order", "beta", "rate", "x"]), ANY, max_size=2),
)
def test_estimators_by_name(name, given_settings):
    made = refused_or(lambda: qg.estimator(name, **given_settings))
    if made is not None and "draws" in given_settings and given_settings["draws"] is not None:
        assert made.draws_for(qg.MeanField(jnp.zeros(2), jnp.zeros(2))) >= 1


@quick
@given(ANY)
def test_names_that_are_no_names(value):
    for call in (
        lambda: qg.estimator(value),
        lambda: qg.Sgd(value),
        lambda: qg.Pathwise(sampler=value),
        lambda: qg.fit(qg.Target.from_logdensity(lambda z: -z @ z, dim=1), method=value, key=jr.key(0)),
        lambda: qg.tasks.load(value),
    ):
        if isinstance(value, str) and value in (*ESTIMATORS, "auto"):
            continue
        with pytest.raises(REFUSED):
            call()


@few
@given(ANY.filter(lambda v: not (isinstance(v, int | float) and not isinstance(v, bool) and v > 0)))
def test_limits_that_are_no_limits(value):
    if value is None or value is True:
        return
    target = qg.Target.from_logdensity(lambda z: -z @ z, dim=1)
    with pytest.raises(REFUSED):
        qg.fit(target, seconds=value, key=jr.key(0))


def likelihood(z, x):
    return -0.5 * (x.reshape(x.shape[0], -1)[:, 0] - z[0]) ** 2


@few
@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int32, np.int64, np.bool_, np.complex64, "U3"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    )
)
def test_data_of_any_shape_and_type(data):
    target = refused_or(lambda: qg.Target(lambda z: -z @ z, likelihood, data, dim=1))
    if target is None:
        return
    assert target.rows == data.shape[0] > 0
    assert np.issubdtype(data.dtype, np.number) or data.dtype == np.bool_
    assert np.all(np.isfinite(np.asarray(data, complex)))
    assert target.log_density(jnp.zeros(1)).shape == ()


@few
@given(VALUES)
def test_data_that_is_no_array(data):
    target = refused_or(lambda: qg.Target(lambda z: -z @ z, likelihood, data, dim=1))
    assert target is None or target.rows >= 1


@few
@given(
    st.dictionaries(
        st.text(max_size=4),
        st.sampled_from([0.0, (0.0, 1.0), [0.0], {"a": 0.0}]),
        min_size=1,
        max_size=3,
    )
)
def test_points_of_any_tree(example):
    import jax

    def fn(point):
        return -sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(point))

    target = qg.Target.from_logdensity(fn, example=example)
    assert target.dim == len(jax.tree.leaves(example))
    assert float(target.log_density(jnp.zeros(target.dim))) == 0


def toml(value):
    """The value as TOML, as far as it has a form there."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + "".join(c for c in value if c.isprintable() and c != "'") + "'"
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else ("nan" if math.isnan(value) else "inf")
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else str(value)


KEYS = ["tasks", "families", "estimators", "methods", "draws", "reps", "steps", "group", "learning_rate"]


@quick
@given(
    st.dictionaries(st.sampled_from([*KEYS, "light_evaluation", "lppd_every", "x"]), VALUES, max_size=6)
)
def test_specs_of_any_values(tmp_path, grid):
    text = "[[grid]]\n" + "\n".join(f"{key} = {toml(value)}" for key, value in grid.items())
    made = refused_or(lambda: parse(text, "any", tmp_path))
    assert made is None or made.grids[0].tasks == tuple(grid["tasks"])


@quick
@given(st.text(max_size=60))
def test_specs_of_any_text(tmp_path, text):
    assert refused_or(lambda: parse(text, "any", tmp_path)) is None


@quick
@given(st.lists(NAMES, max_size=3))
def test_selections_of_any_text(only):
    cell = Cell("gauss", "mean-field", "nocv", "nocv", 2, 0, 10, 0.01)
    made = refused_or(lambda: selected([(None, cell)], only))
    assert made is None or len(made) == 1


@quick
@given(NAMES, NAMES, NAMES)
def test_cells_of_any_name_stay_in_their_folder(tmp_path, task, family, label):
    store = Store(tmp_path)
    path = store.path(Cell(task, family, "nocv", label, 2, 0, 10, 0.01))
    assert path.resolve().parent == store.cells.resolve()
    assert "\x00" not in path.name


@quick
@given(st.binary(max_size=200))
def test_cells_of_any_bytes_are_missing(tmp_path, content):
    store, cell = Store(tmp_path).create(), Cell("gauss", "mean-field", "nocv", "nocv", 2, 0, 10, 0.01)
    store.path(cell).write_bytes(content)
    assert store.read(cell) is None
    assert store.read_all() == []


@quick
@given(st.sampled_from([a1a, frisk, redwine]), st.text(max_size=100))
def test_data_files_of_any_text_are_refused(dataset, text):
    with pytest.raises(ValueError, match=r"."):
        dataset.parse(text)


@quick
@given(st.lists(st.floats(width=32), max_size=20), st.floats(allow_nan=False), st.integers(1, 7))
def test_an_arrival_is_at_the_mark(elbo, mark, hold):
    place = arrival_index(elbo, mark, hold)
    if place is None:
        # Not a single evaluation was at the mark, or none was held.
        assert hold > 1 or not any(value >= mark for value in elbo)
    else:
        assert elbo[place] >= mark
        assert not any(value >= mark for value in elbo[:place]) or hold > 1


WORDS = st.one_of(
    NAMES,
    st.sampled_from(
        ["--out", "--json", "--seed", "--steps", "--engine", "--family", "--only", "--data"]
    ),
    st.sampled_from(["-1", "nan", "1e999", "smoke.toml", "nowhere.py:x", ".", "/dev/null", "dask://"]),
)


@few
@given(
    st.sampled_from([["fit"], ["race"], ["study"], ["study", "status"], ["report"], ["list"], []]),
    st.lists(WORDS, max_size=4),
)
def test_commands_of_any_words_end_in_a_message(tmp_path, monkeypatch, capsys, command, words):
    """None of these is a model or a study, so nothing is run; nor is there ever a traceback."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, *words])
    told = capsys.readouterr()
    assert ended.value.code in (0, 1, 2)
    assert (told.out + told.err).strip()
    assert "Traceback" not in told.out + told.err
