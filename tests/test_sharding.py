"""Rows, draws and starts shared out over devices: the same answer on one, two and eight."""

import json
import math
import os
import re
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.estimators.registry import REGISTRY
from quietgrad.evaluation.elbo_terms import _terms
from quietgrad.evaluation.points import AT_ONCE
from quietgrad.fitting import problem_of
from quietgrad.scale.sharding import check_mesh, spread
from quietgrad.session import Problem

SCRIPT = Path(__file__).with_name("mesh_fit.py")
# Programs that evaluate a target at several points, as text after XLA has split them up.
SHOWN = "--xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_(_run|values|curvature)$"
# What the models of `SCRIPT` compute at points, where rows, draws or starts are shared out: of each row,
# or of each coordinate. The shape is what one device has of them.
COMPUTED = {
    "rows": re.compile(r"f64\[(\d+,\d+)\]\S* exponential\("),
    "draws": re.compile(r"f64\[([\d,]+)\]\S* (?:sine|cosine)\("),
    "starts": re.compile(r"f64\[([\d,]+)\]\S* tanh\("),
}
# Of the script: rows, coordinates, rows of a minibatch, and draws of `quiet` and of its own.
ROWS, DIM, BATCH, QUIET, DRAWS = 37, 3, 8, 2, 12


def mesh_of(*names, kind=jax.sharding.AxisType.Auto):
    """One device, which has everything to itself."""
    return jax.make_mesh((1,) * len(names), names, axis_types=(kind,) * len(names))


def begin(devices, *arguments, env=None, shown=None):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    if shown is not None:
        flags += f" --xla_dump_to={shown} {SHOWN}"
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, "XLA_FLAGS": flags, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(process, devices):
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    found = json.loads(out.splitlines()[-1])
    assert found["devices"] == devices
    return found["answers"]


def shares_of_a_device(folder):
    """How many points a device evaluates at once, and how many rows or coordinates, in each program."""
    found = defaultdict(set)
    for file in folder.glob("*after_optimizations.txt"):
        text, program = file.read_text(), file.name.split(".")[1]
        for shared, computed in COMPUTED.items():
            for shape in computed.findall(text):
                *points, each = (int(n) for n in shape.split(","))
                found[shared, program].add((math.prod(points), each))
    return found


@pytest.fixture(scope="module")
def alone():
    return answers(begin(1), 1)


def assert_same(found, alone):
    # Sums in another order differ by rounding, which 50 steps and a few Newton steps carry on.
    for name in alone.keys() & found.keys() - {"minibatch"}:
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-7, err_msg=name)


@pytest.mark.parametrize("devices", [pytest.param(2, marks=pytest.mark.slow), 8])
def test_the_same_answer_on_several_devices(devices, alone, tmp_path):
    found = answers(begin(devices, shown=tmp_path), devices)
    assert found.keys() == alone.keys()
    assert_same(found, alone)
    # Fillers are among the rows that are shuffled, so that other minibatches are drawn.
    assert np.all(np.isfinite(found["minibatch"]))
    rows, half, points = -(-ROWS // devices), -(-ROWS // 2), AT_ONCE // devices
    # Of the mesh of two axes, whose target has a hyperparameter: at the end of the fit.
    shared = AT_ONCE // (devices // 2)
    assert shares_of_a_device(tmp_path) == {
        ("rows", "jit__run"): {(QUIET, rows), (QUIET, BATCH), (DRAWS // (devices // 2), half)},
        ("rows", "jit_values"): {(AT_ONCE, rows), (shared, half), (shared, 1)},
        ("draws", "jit__run"): {(-(-DRAWS // devices), DIM)},
        ("draws", "jit_values"): {(points, DIM)},
        ("starts", "jit_values"): {(points, DIM)},
        ("starts", "jit_curvature"): {(1, DIM)},
    }
    # Steps begin with arrays where their programs leave them, so that each of the fits compiles one.
    assert len([*tmp_path.glob("*.jit__run.*after_optimizations.txt")]) == 4


@pytest.mark.slow
def test_two_processes_agree_with_one(alone):
    """Each has one device and half of the rows or draws; sums go over the loopback interface."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {"QUIETGRAD_COMPILED": "off"}
    both = [begin(1, "127.0.0.1", str(port), str(number), env=env) for number in range(2)]
    first, second = (answers(process, 2) for process in both)
    assert first.keys() == {"sgd", "draws", "rows and draws"}
    assert first == second
    assert_same(first, alone)


def test_several_processes_have_no_clock_in_common(key, monkeypatch):
    """Refused before anything is launched that another process would have to wait for."""
    mesh = mesh_of("rows")
    target = qg.Target(lambda z: -0.5 * z @ z, lambda z, x: -((x @ z) ** 2), np.ones((4, 2)), dim=2)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    plain = qg.Sgd(by_clock=False)
    for method, more in ((qg.Auto(by_clock=False), {}), (qg.Sgd(), {}), (plain, {"seconds": 9.0})):
        with pytest.raises(ValueError, match="their own clocks"):
            qg.fit(target, method=method, mesh=mesh, key=key, **more)
    with pytest.raises(ValueError, match="restarts are for one process"):
        qg.fit(target, method=plain, mesh=mesh, restarts=2, key=key)


# In the text of a program that shares out draws.
SHARED = "spec=P('draws',)"
PLAIN = qg.Target(lambda z: -0.5 * z @ z, dim=2)
WITH_ROWS = qg.Target(lambda z: -0.5 * z @ z, lambda z, x: -((x - z[0]) ** 2), np.arange(5.0), dim=2)


def step_of(name, target, key):
    estimator, q = qg.estimator(name), qg.MeanField.init(2, key=key)
    if estimator.refuses(target, q) is not None:
        q = qg.SemiImplicit.init(2, key=key)
    state = estimator.init(target, q)
    return str(jax.make_jaxpr(lambda q: estimator.step(target, q, state, key=key)[0].grad)(q))


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", REGISTRY)
def test_every_estimator_shares_out_its_draws(name, key):
    """On one device the program already says so."""
    assert SHARED in step_of(name, WITH_ROWS.with_mesh(mesh_of("draws")), key)


@pytest.mark.parametrize("mesh", [None, mesh_of("rows")])
def test_draws_are_left_alone_by_meshes_for_rows(mesh, key):
    assert SHARED not in step_of("quiet", WITH_ROWS.with_mesh(mesh), key)


def test_the_judge_shares_out_its_pairs(key):
    q, seed = qg.MeanField.init(2, key=key), jnp.zeros(2, jnp.uint32)

    def program(target):
        return str(jax.make_jaxpr(lambda q: _terms(target, q, seed, seed[0], 4, None, None)[0])(q))

    assert SHARED in program(PLAIN.with_mesh(mesh_of("draws")))
    assert SHARED not in program(PLAIN)


def test_some_of_the_rows_share_out_draws_too():
    """A climb on few rows, as minibatch fits begin with, has the devices of the fit."""
    q = qg.MeanField.init(2, key=jax.random.key(0))
    problem = Problem(WITH_ROWS.with_mesh(mesh_of("draws")), q, given=WITH_ROWS)
    assert problem.on_some_rows(2, np.random.default_rng(0)).mesh == problem.target.mesh


def test_rows_stay_on_disk_while_draws_are_shared_out(tmp_path, key):
    np.save(tmp_path / "x.npy", np.arange(5.0))
    rows = np.load(tmp_path / "x.npy", mmap_mode="r")
    target = qg.Target(WITH_ROWS.log_prior, WITH_ROWS.log_likelihood, rows, dim=2)
    how = {"method": qg.Sgd(steps=3, by_clock=False), "batch_size": 2, "key": key}
    pool = problem_of(target.with_mesh(mesh_of("draws")), "mean-field", 2, key=key).target
    assert SHARED in step_of("quiet", pool, key)
    found = qg.fit(target, mesh=mesh_of("draws"), **how)
    assert np.isfinite(found.elbo)
    # What follows a fit is for one device.
    assert found.target.mesh is None
    with pytest.raises(ValueError, match="stay on disk"):
        qg.fit(target, mesh=mesh_of("shards"), **how)


@pytest.mark.parametrize(
    ("target", "mesh", "how", "said"),
    [
        (
            PLAIN,
            mesh_of("rows"),
            {},
            "the axis 'rows' of the mesh .* this target has none; name it 'draws'",
        ),
        (PLAIN, mesh_of("draws", "x"), {}, "the axis 'x' of the mesh .* this target has none"),
        (WITH_ROWS, mesh_of("rows", kind=jax.sharding.AxisType.Explicit), {}, "must be Auto"),
        (PLAIN, mesh_of("restarts"), {}, "shares out starts, and this fit has one"),
        (PLAIN, mesh_of("restarts"), {"restarts": 2, "method": "sgd"}, "Sgd fits MeanField .* in turn"),
        (
            PLAIN,
            mesh_of("draws"),
            {"checkpoint": "somewhere"},
            "a checkpoint is for a fit on one device",
        ),
    ],
)
def test_what_a_mesh_cannot_do(target, mesh, how, said, key):
    with pytest.raises(ValueError, match=said):
        qg.fit(target, mesh=mesh, key=key, **how)


def test_a_mesh_is_one_of_jax():
    with pytest.raises(TypeError, match=r"must be a jax\.sharding\.Mesh, .* got list"):
        check_mesh(jax.devices(), PLAIN, restarts=1)


def test_rows_that_are_shared_out_are_the_same_target():
    spread_out = spread(WITH_ROWS.with_mesh(mesh_of("rows")))
    np.testing.assert_allclose(spread_out.log_density(jnp.ones(2)), WITH_ROWS.log_density(jnp.ones(2)))
