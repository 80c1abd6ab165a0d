"""A result that was saved comes back bit for bit, without its model, and says what needs the model."""

import dataclasses
import hashlib
import json
import pickle
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import golden
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from structured_members import STRUCTURES, member
from subjects import cast

import quietgrad as qg
from quietgrad import families
from quietgrad._numerics.lapack import INLINE
from quietgrad.adapters import flowjax
from quietgrad.families.conditional import NestedLaplace
from quietgrad.families.stored import StoredFamily
from quietgrad.fitting.single import problem_of
from quietgrad.methods import REGISTRY as METHODS
from quietgrad.results.refined import ChainDiagnostics, Refined
from quietgrad.results.result import Remembered
from quietgrad.results.saving import RESULT, Described
from quietgrad.results.storage.classes import class_of
from quietgrad.results.storage.file import DIGEST, LENGTH
from quietgrad.structure import Structure
from quietgrad.targets import AbstractNamedModel
from quietgrad.targets.stored import NEEDS_MODEL, NO_MAP, StoredModel, about

FORMATS = sorted(path.name for path in Path(__file__).parent.glob("format_*"))


class Place(NamedTuple):
    """A point that is no dict."""

    east: jax.Array
    north: jax.Array


@pytest.fixture(autouse=True, scope="module")
def broadcasting():
    """FlowJAX, NumPyro and PyTensor broadcast as NumPy does."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def fitted():
    """A fit of three numbers, on which other families are put."""
    target = qg.Target.from_logdensity(golden.curved, 3)
    return qg.fit(target, method=qg.Sgd(steps=10), key=jr.key(5))


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A diagnosed fit of a NumPyro model, and its file."""
    result = qg.fit(golden.target(), "mean-field", key=jr.key(2))
    result.diagnose()
    return result, result.save(tmp_path_factory.mktemp("saved") / "fit.quietgrad")


def single():
    """What a process without double precision has."""
    return jax.enable_x64(new_val=False)


def again(result, path, **templates):
    return qg.load(result.save(path / "fit.quietgrad"), **templates)


def bits(tree):
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_array_like(leaf)]
    return [(np.asarray(leaf).dtype, np.shape(leaf), np.asarray(leaf).tobytes()) for leaf in leaves]


@eqx.filter_jit
def drawn(q):
    """Draws and their log densities; what came back takes the program of what was saved."""
    z = q.sample(jr.key(9), 5)
    return z, q.log_prob(z)


def check_same(found, result):
    assert type(found.q) is type(result.q)
    assert jax.tree.structure(found.q) == jax.tree.structure(result.q)
    assert bits(found.q) == bits(result.q)
    assert bits(found.sample(jr.key(9), 5)) == bits(result.sample(jr.key(9), 5))
    assert bits(drawn(found.q)) == bits(drawn(result.q))
    assert bits(found.history) == bits(result.history)
    same = ("elbo", "elbo_error", "status", "hint", "steps", "clock", "evaluation", "programs", "seed")
    assert all(getattr(found, name) == getattr(result, name) for name in same)
    assert found.explain() == result.explain()
    assert str(found.diagnosis) == str(result.diagnosis)
    # Random numbers of what is asked of it later are the same.
    assert bits(found.words) == bits(result.words)


# A file knows arrays and not families: from family to family precisions take turns.
@pytest.mark.turns(7)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=() if (number + turn) % 2 else pytest.mark.slow)
        for number, name in enumerate(families.REGISTRY)
        for turn, dtype in enumerate((jnp.float32, jnp.float64))
    ],
)
def test_every_family_comes_back_bit_for_bit(name, dtype, fitted, tmp_path):
    q = cast(families.REGISTRY[name].init(3, key=jr.key(1)), dtype)
    result = eqx.tree_at(lambda r: r.q, fitted, q)
    found = again(result, tmp_path)
    check_same(found, result)
    assert found.q.dtype == dtype


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["arrowhead", "chain"])
def test_structured_families_come_back(kind, fitted, tmp_path):
    q = member(STRUCTURES[0], kind)
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ z, q.dim)
    result = eqx.tree_at(lambda r: (r.q, r.target), fitted, (q, target))
    check_same(again(result, tmp_path), result)


@pytest.mark.parametrize("base", [qg.StudentT(3.5), qg.Logistic()])
def test_bases_come_back(base, fitted, tmp_path):
    result = eqx.tree_at(lambda r: r.q, fitted, qg.FullRank.init(3, base=base, key=jr.key(1)))
    found = again(result, tmp_path)
    check_same(found, result)
    assert found.q.base == base


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("kind", "dim", "settings"),
    [
        (flowjax.CouplingFlow, 3, {"flow_layers": 2}),
        (flowjax.SplineFlow, 3, {"flow_layers": 1, "knots": 5}),
        (flowjax.AutoregressiveFlow, 3, {"flow_layers": 1}),
        (flowjax.SplineFlow, 1, {}),
    ],
)
def test_flows_of_flowjax_come_back(kind, dim, settings, fitted, tmp_path):
    q = kind.init(dim, **settings, key=jr.key(1))
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ z, q.dim)
    result = eqx.tree_at(lambda r: (r.q, r.target), fitted, (q, target))
    check_same(again(result, tmp_path), result)


def check_alike(found, result):
    """Draws and densities by programs are those of the family, up to the rounding of another program."""
    q, own = found.q, result.q
    assert isinstance(q, StoredFamily)
    assert (q.dim, q.base_dim, q.base, q.dtype) == (own.dim, own.base_dim, own.base, own.dtype)
    assert str(found) == str(result)
    close = {"rtol": 1e-9, "atol": 1e-9} if q.dtype == jnp.float64 else {"rtol": 1e-3, "atol": 1e-3}
    z = own.sample(jr.key(9), 6)
    np.testing.assert_allclose(q.sample(jr.key(9), 6), z, **close)
    np.testing.assert_allclose(q.log_prob(z), own.log_prob(z), **close)
    e = q.base.sample((2, 3, q.base_dim), q.dtype, key=jr.key(8))
    both, theirs = (jax.vmap(jax.vmap(each.transport_and_log_prob))(e) for each in (q, own))
    for ours, expected in zip(both, theirs, strict=True):
        np.testing.assert_allclose(ours, expected, **close)
    np.testing.assert_allclose(q.log_prob(z.reshape(2, 3, -1)), own.log_prob(z).reshape(2, 3), **close)
    np.testing.assert_allclose(q.transport(e[1, 2]), own.transport(e[1, 2]), **close)
    twofold = jax.tree.map(lambda x: jnp.stack([x, x]), q.arrays)
    several = dataclasses.replace(q, arrays=twofold, member=None)
    twice = eqx.filter_vmap(lambda q: q.log_prob(z))(several)
    np.testing.assert_allclose(twice, jnp.stack([own.log_prob(z)] * 2), **close)


EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(effects=EFFECTS):
    """The centred eight schools."""
    import numpyro
    import numpyro.distributions as dist

    def model(y=None):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        with numpyro.plate("school", 8):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("y", dist.Normal(theta, ERRORS), obs=y)

    return qg.Target.from_numpyro(model, effects)


@pytest.fixture(scope="module")
def hierarchy(fitted, tmp_path_factory):
    """A hierarchy with nested locals, which hold the model's functions, and its file."""
    target = schools()
    q = families.Hierarchical.for_target(target, key=jr.key(1))
    result = eqx.tree_at(lambda r: (r.q, r.target), fitted, (q, target))
    result = dataclasses.replace(result, remembered=Remembered())
    return result, result.save(tmp_path_factory.mktemp("saved") / "fit.quietgrad")


def test_a_hierarchy_with_nested_locals_comes_back_without_its_model(hierarchy, tmp_path):
    result, path = hierarchy
    found = qg.load(path)
    assert "Hierarchical of dim 10" in str(found)
    check_alike(found, result)
    tree, own = (r.to_arviz(50)["posterior"] for r in (found, result))
    assert set(tree.data_vars) == {"mu", "tau", "theta"}
    for variable in own.data_vars:
        np.testing.assert_allclose(tree[variable], own[variable], rtol=1e-8, atol=1e-8)
    assert tree["theta"].dims == own["theta"].dims
    np.testing.assert_allclose(found.summary(100)["mean"], result.summary(100)["mean"], rtol=1e-6)
    # What was loaded is saved again, bit for bit. (The method was written in words the first time.)
    other = again(found, tmp_path)
    once = (tmp_path / "fit.quietgrad").read_bytes()
    assert other.save(tmp_path / "copy").read_bytes() == once
    assert bits(other.q) == bits(found.q)
    assert bits(other.sample(jr.key(9), 5)) == bits(found.sample(jr.key(9), 5))
    assert str(Path.home()).encode() not in path.read_bytes()
    assert b"site-packages" not in path.read_bytes()


def test_a_stored_hierarchy_is_made_again_around_its_model(hierarchy):
    result, path = hierarchy
    whole = qg.load(path).with_target(schools())
    assert type(whole.q) is families.Hierarchical
    assert bits(whole.q) == bits(result.q)
    assert bits(whole.q.sample(jr.key(9), 5)) == bits(result.q.sample(jr.key(9), 5))
    assert type(qg.load(path, family=result.q).q) is families.Hierarchical
    with pytest.raises(ValueError, match="not the target that was fitted"):
        qg.load(path).with_target(schools(EFFECTS + 1.0))
    # A fit goes on from it, with the functions of the target that is fitted.
    other = schools(EFFECTS + 1.0)
    problem = problem_of(other, qg.load(path).q, None, key=jr.key(0))
    assert problem.q.of_locals.target is problem.target
    assert np.isfinite(qg.elbo(other, problem.q, key=jr.key(0)))


def test_functions_that_cannot_be_exported_need_a_family_like_it(fitted, tmp_path):
    def density(z):
        shape = jax.ShapeDtypeStruct((), z.dtype)
        still = jax.lax.stop_gradient(z[0])
        one = jax.pure_callback(np.ones_like, shape, still, vmap_method="sequential")
        return -0.5 * one * jnp.sum(z**2)

    target = qg.Target.from_logdensity(density, 3)
    structure = Structure([0], [[1], [2]])
    own = NestedLaplace.begin(target, structure, np.zeros((1, 2)))
    q = families.Hierarchical(of_globals=qg.FullRank.init(1, key=jr.key(0)), of_locals=own)
    result = eqx.tree_at(lambda r: (r.q, r.target), fitted, (q, target))
    path = result.save(tmp_path / "fit.quietgrad")
    with pytest.raises(ValueError, match=r"holds functions.*calls back to Python.*load\(path, family="):
        qg.load(path)
    assert bits(qg.load(path, family=q).q) == bits(q)


def test_a_family_with_functions_needs_one_like_it(fitted, tmp_path):
    def flow(seed):
        made = flowjax._coupling(3, flowjax.bijections.Affine(), 1, jr.key(seed))
        return flowjax.FlowjaxFlow.of(made)

    result = eqx.tree_at(lambda r: r.q, fitted, flow(1))
    check_same(again(result, tmp_path, family=flow(2)), result)
    # Without it there are programs, which draw and have a density, and nothing to fit.
    found = qg.load(tmp_path / "fit.quietgrad")
    check_alike(found, result)
    target = qg.Target.from_logdensity(golden.curved, 3)
    assert isinstance(found.with_target(target).q, StoredFamily)
    with pytest.raises(ValueError, match=r"cannot be fitted.*load\(path, family="):
        qg.fit(target, found.q, key=jr.key(0))
    with pytest.raises(ValueError, match="no derivatives"):
        jax.grad(lambda z: found.q.log_prob(z))(jnp.zeros(3))
    with pytest.raises(ValueError, match="arrays for a MeanField"):
        qg.load(tmp_path / "fit.quietgrad", family=qg.MeanField.init(3, key=jr.key(0)))


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_comes_back(name, tmp_path):
    made = METHODS[name]()
    target = qg.Target.from_logdensity(golden.curved, 3)
    result = qg.fit(target, "full-rank", method=made, seconds=3.0, key=jr.key(1))
    found = again(result, tmp_path)
    check_same(found, result)
    assert repr(found.method) == repr(result.method)
    assert repr(found.estimator) == repr(result.estimator)
    assert bits(found.estimator_state) == bits(result.estimator_state)


def test_settings_that_a_file_cannot_hold_are_described(fitted, tmp_path):
    target = qg.Target.from_logdensity(golden.curved, 3)
    result = qg.fit(target, method=qg.Sgd(steps=5, optimizer=optax.sgd(0.1)), key=jr.key(5))
    found = again(result, tmp_path)
    check_same(found, result)
    assert isinstance(found.method, Described)
    assert "steps=5" in repr(found.method)


def test_a_model_comes_back_with_names_labels_and_verdict(named):
    result, path = named
    found = qg.load(path)
    check_same(found, result)
    assert found.diagnosis is not None
    assert found.diagnosis.verdict is result.diagnosis.verdict
    tree, own = found.to_arviz(50), result.to_arviz(50)
    assert own["posterior"].identical(own["posterior"])
    for variable in own["posterior"].data_vars:
        np.testing.assert_array_equal(tree["posterior"][variable], own["posterior"][variable])
    np.testing.assert_array_equal(tree["sample_stats"]["log_q"], own["sample_stats"]["log_q"])
    assert "lp" not in tree["sample_stats"]
    assert found.summary(100).equals(result.summary(100))
    assert found.history_frame().equals(result.history_frame())
    assert found.plot(most=2)._repr_png_() == result.plot(most=2, noise=False)._repr_png_()
    assert found._repr_html_() == result._repr_html_()


@pytest.mark.slow
def test_the_names_of_a_pymc_model_and_its_labels_come_back(tmp_path):
    pymc = pytest.importorskip("pymc")
    with pymc.Model(coords={"side": ["left", "right"]}) as model:
        height = pymc.HalfNormal("height", 1.0, dims="side")
        pymc.Normal("y", height, 0.5, observed=[0.5, 1.5], dims="side")
    result = qg.fit(qg.Target.from_pymc(model), method=qg.Sgd(steps=5), key=jr.key(1))
    found = again(result, tmp_path)
    check_same(found, result)
    assert found.to_arviz(20)["posterior"]["height"].coords["side"].values.tolist() == ["left", "right"]
    assert (
        found.with_target(qg.Target.from_pymc(model)).predictive(jr.key(0), draws=3)["y"].shape[0] == 3
    )


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "example",
    [{"b": jnp.zeros(2), "a": jnp.zeros(())}, Place(jnp.zeros(()), jnp.zeros(2)), [jnp.zeros(3)]],
)
def test_points_of_any_form_come_back(example, tmp_path):
    def density(point):
        return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(point))

    target = qg.Target.from_logdensity(density, example=example)
    result = qg.fit(target, method=qg.Sgd(steps=5), key=jr.key(1))
    found = again(result, tmp_path)
    check_same(found, result)
    assert type(found.sample(jr.key(0), 2)) is type(example)


def test_restarts_hyperparameters_and_columns_of_a_callback_come_back(tmp_path):
    def prior(z, h):
        return -0.5 * jnp.sum((z - h["loc"]) ** 2) - 0.5 * jnp.sum(h["loc"] ** 2)

    target = qg.Target(prior, dim=2)
    h = {"loc": jnp.ones(2), "kept": 3}
    marks = {"callback": lambda moment: {"mark": moment.step / 3}}
    result = qg.fit(target, hyperparameters=h, method=qg.Sgd(steps=20), key=jr.key(1), **marks)
    found = again(result, tmp_path)
    check_same(found, result)
    assert bits(found.hyperparameters) == bits(result.hyperparameters)
    assert "mark" in found.history
    assert found.with_target(target).for_nuts().points.shape == (4, 2)
    plain = qg.Target.from_logdensity(golden.curved, 3)
    result = qg.fit(plain, restarts=2, method=qg.Sgd(steps=5), key=jr.key(1))
    found = again(result, tmp_path)
    check_same(found, result)
    assert str(found.restarts) == str(result.restarts)


def test_chains_of_a_refined_result_come_back(named, tmp_path):
    shape = (2, 5)
    about = ChainDiagnostics(
        rhat=1.01,
        effective_bulk=400.0,
        effective_tail=300.0,
        divergences=0,
        gradients=9,
        seconds=1.0,
        acceptance=0.8,
    )
    z = named[0].q.sample(jr.key(3), 10).reshape(*shape, -1)
    refined = Refined(
        named[0].target, z, np.zeros(shape, bool), np.full(shape, 3), about, converged=True, how="chains"
    )
    result = dataclasses.replace(named[0], refined=refined)
    found = again(result, tmp_path)
    assert bits(found.sample(jr.key(9), 5)) == bits(result.sample(jr.key(9), 5))
    assert str(found.refined) == str(result.refined)
    np.testing.assert_array_equal(
        found.to_arviz()["posterior"]["noise"], result.to_arviz()["posterior"]["noise"]
    )
    whole = found.with_target(golden.target())
    assert "lp" in whole.to_arviz()["sample_stats"]


def undiagnosed(result):
    """Draws of chains are stored with the diagnosis, and need no model."""
    return dataclasses.replace(result, remembered=Remembered())


ASKS = {
    "diagnose": lambda r: r.diagnose(),
    "posterior": lambda r: undiagnosed(r).posterior(jr.key(0)),
    "predictive": lambda r: r.predictive(jr.key(0)),
    "for_nuts": lambda r: r.for_nuts(),
    "linear_response": lambda r: r.linear_response(),
    "plot": lambda r: r.plot(noise=True),
    "to_arviz": lambda r: undiagnosed(r).to_arviz(corrected=True),
    "elbo": lambda r: qg.elbo(r.target, r.q, key=jr.key(0)),
}


@pytest.mark.parametrize("name", ASKS)
def test_what_needs_the_model_says_so(name, named):
    with pytest.raises(ValueError, match="was loaded from a file, which has no model") as raised:
        ASKS[name](qg.load(named[1]))
    assert str(raised.value) == NEEDS_MODEL


def test_with_its_model_a_result_does_what_it_did(named):
    result, path = named
    found = qg.load(path).with_target(golden.target())
    assert str(found.diagnose()) == str(result.diagnose())
    assert bits(found.predictive(jr.key(0), draws=3)) == bits(result.predictive(jr.key(0), draws=3))
    assert "log_likelihood" in found.to_arviz(20).children


def test_another_model_is_recognised(named):
    found = qg.load(named[1])
    other = qg.Target.from_numpyro(golden.model, golden.X, 0.31 + 0.5 * golden.X)
    with pytest.raises(ValueError, match=r"not the target that was fitted.*fit\(target, loaded.q"):
        found.with_target(other)
    with pytest.raises(ValueError, match="dim 3"):
        found.with_target(qg.Target.from_logdensity(golden.curved, 4))


def test_a_fit_goes_on_from_a_saved_one(named):
    result, path = named
    loaded = qg.load(path)
    further = qg.fit(golden.target(), loaded.q, key=jr.key(7))
    again = qg.fit(golden.target(), result.q, key=jr.key(7))
    assert bits(further.q) == bits(again.q)
    error = np.hypot(further.elbo_error, result.elbo_error)
    assert further.elbo > result.elbo - 5 * error


def test_saving_what_was_loaded_writes_the_same_file(named, tmp_path):
    _, path = named
    assert qg.load(path).save(tmp_path / "copy").read_bytes() == path.read_bytes()


def test_the_file_says_how_it_was_made(named):
    made = qg.load(named[1]).made
    assert made["quietgrad"] == qg.__version__
    assert made["jax"] == jax.__version__
    assert made["seed"] == [0, 2]
    assert {"python", "cpu", "precision", "commit", "saved"} <= set(made)
    assert made == named[0].made | {"saved": made["saved"]}
    # What the user's disk looks like is nobody's business.
    assert str(Path.home()).encode() not in named[1].read_bytes()
    assert b"site-packages" not in named[1].read_bytes()


def test_nothing_is_pickled(fitted, tmp_path, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    check_same(again(fitted, tmp_path), fitted)


def signed(content):
    """The bytes with a digest that fits them."""
    return content[:-DIGEST] + hashlib.sha256(content[:-DIGEST]).digest()


def with_header(content, change):
    """The file with another header, signed: a digest proves that a file is whole, not who wrote it."""
    line, _, rest = content.partition(b"\n")
    length = int.from_bytes(rest[:LENGTH], "little")
    header = json.loads(rest[LENGTH : LENGTH + length])
    text = json.dumps(change(header)).encode()
    return signed(line + b"\n" + len(text).to_bytes(LENGTH, "little") + text + rest[LENGTH + length :])


def edited(path, old, new):
    def change(header):
        return json.loads(json.dumps(header).replace(old, new))

    return with_header(path.read_bytes(), change)


def without(name):
    def change(header):
        del header["root"][name]
        return header

    return lambda content: with_header(content, change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[:-1], "damaged"),
        (lambda content: content[: len(content) // 2], "damaged"),
        (lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:], "damaged"),
        (lambda content: RESULT.magic + b"1\n", "damaged"),
        (lambda content: b"", "was not written by quietgrad"),
        (lambda content: b"PK\x03\x04 something", "was not written by quietgrad"),
        (lambda content: b"quietgrad checkpoint 4\n" + content, "was not written by quietgrad"),
        (lambda content: content.replace(b"result 1", b"result 99", 1), "has format 99.*later one"),
        (without("q"), "does not have the parts of a result"),
        (without("history"), "does not have the parts of a result"),
    ],
)
def test_a_file_that_is_no_whole_result_is_refused(change, words, named, tmp_path):
    path = tmp_path / "bad.quietgrad"
    path.write_bytes(change(named[1].read_bytes()))
    with pytest.raises(ValueError, match=words):
        qg.load(path)


@pytest.mark.parametrize("name", ["subprocess:Popen", "os:system", "nowhere.at_all:Family"])
def test_a_file_cannot_name_any_code(name, named, tmp_path):
    path = tmp_path / "bad.quietgrad"
    path.write_bytes(edited(named[1], "quietgrad.families.mean_field:MeanField", name))
    with pytest.raises(ValueError, match="needs|is no module or dataclass"):
        qg.load(path)


def test_a_place_to_save_to_is_checked(fitted, tmp_path):
    with pytest.raises(ValueError, match=r"is a folder; name a file"):
        fitted.save(tmp_path)
    with pytest.raises(FileNotFoundError):
        qg.load(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_single_precision_does_not_round_what_was_double(named):
    with single(), pytest.raises(ValueError, match="jax_enable_x64"):
        qg.load(named[1])


def test_classes_are_found_where_they_have_moved_to(named, tmp_path):
    path = tmp_path / "moved.quietgrad"
    path.write_bytes(edited(named[1], "quietgrad.families.mean_field:", "quietgrad.older.place:"))
    assert bits(qg.load(path).q) == bits(named[0].q)
    # Two classes have this name; the fields tell which is meant.
    fields = [field for field in Described.__dataclass_fields__]
    assert class_of("quietgrad.gone:Described", object, "it", fields) is Described


def test_a_map_that_cannot_be_exported_is_asked_of_the_model(tmp_path):
    import numpyro
    import numpyro.distributions as dist

    def model():
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        shape, still = jax.ShapeDtypeStruct((), z.dtype), jax.lax.stop_gradient(z)
        called = jax.pure_callback(lambda z: np.asarray(z), shape, still, vmap_method="sequential")
        numpyro.deterministic("called", called)

    target = qg.Target.from_numpyro(model)
    result = qg.fit(target, method=qg.Sgd(steps=5), key=jr.key(1))
    found = again(result, tmp_path)
    with pytest.raises(ValueError, match="has no map") as raised:
        found.sample(jr.key(0), 2)
    assert str(raised.value) == NO_MAP
    assert bits(found.q.sample(jr.key(0), 2)) == bits(result.q.sample(jr.key(0), 2))
    assert bits(found.with_target(target).sample(jr.key(0), 2)) == bits(result.sample(jr.key(0), 2))


@pytest.mark.parametrize("form", FORMATS)
def test_files_of_every_format_are_read(form):
    folder = Path(__file__).parent / form
    expected = json.loads((folder / "expected.json").read_text())
    assert set(expected) == {path.stem for path in folder.glob("*.quietgrad")}
    for name, there in expected.items():
        # They are of single precision, which FlowJAX's splines want to be that of the process.
        with single():
            found = golden.said(qg.load(folder / f"{name}.quietgrad"))
        for part in {"draws", "log_q", "posterior"} & set(there):
            # Other machines and versions of XLA round otherwise, in single precision.
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5),
                found.pop(part),
                there.pop(part),
            )
        assert found == there, name


def test_the_present_format_has_golden_files():
    assert f"format_{RESULT.format}" in FORMATS


class Roots(AbstractNamedModel):
    """A model with a matrix of this side, whose root it hands out."""

    side: int = eqx.field(static=True)

    def constrain(self, point):
        x = jnp.linspace(-1.0, 1.0, self.side)
        kernel = jnp.exp(-jnp.square(x[:, None] - x[None, :]) * jnp.exp(point["z"][0]))
        return {"root": jnp.linalg.cholesky(kernel + jnp.eye(self.side))}

    def log_likelihoods(self, point):
        return {}

    def observed(self):
        return {}

    def dims(self):
        return {}

    def coords(self):
        return {}

    def predictive(self, draws, args, kwargs, *, key):
        return {}


@pytest.mark.parametrize("side", [20, 37])
def test_a_stored_map_calls_lapack_for_as_many_draws_as_one_thread_does(side):
    """20^3 operations of 25 draws are the limit itself, which is too many."""
    target = qg.Target(
        lambda p: -0.5 * jnp.sum(p["z"] ** 2), example={"z": jnp.zeros(1)}, model=Roots(side)
    )
    found = about(target, np.dtype(float))
    assert found.at_once * side**3 < INLINE <= (found.at_once + 1) * side**3
    # Whether or not draws come in blocks of that many.
    for draws in (2 * found.at_once, 2 * found.at_once + 1):
        z = jnp.linspace(-1.0, 1.0, draws)[:, None]
        ours = jax.vmap(StoredModel(found).constrain)(z)["root"]
        theirs = jnp.stack([target.constrain(point)["root"] for point in z[:: found.at_once]])
        np.testing.assert_allclose(ours[:: found.at_once], theirs, rtol=1e-12, atol=1e-12)
