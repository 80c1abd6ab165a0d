"""Programs are right where some versions of XLA are wrong, and are parts of other programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from quietgrad._util.compiling import FUSIONS, LEVEL, fusions_left, jit_options, program
from quietgrad.families import Components, Mixture

# More numbers than XLA computes in one piece, in either precision.
MANY = 40_000


def products(x, matrix):
    return jnp.sum((matrix @ x) ** 2)


@pytest.mark.parametrize("level", [None, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_products_are_right_however_many_there_are(dtype, level):
    rng = np.random.default_rng(0)
    x, matrix = rng.normal(size=(MANY, 3)).astype(dtype), rng.normal(size=(3, 3)).astype(dtype)
    found = program(jax.vmap(products, in_axes=(0, None)), level=level)(x, matrix)
    assert_allclose(found, np.sum((x @ matrix.T) ** 2, axis=1), rtol=1e-4)


def test_sums_over_one_of_seven_axes_come_back():
    x = np.random.default_rng(0).normal(size=(2, 3, 1, 2, 2, 8, 8, 8)).astype(np.float32)
    found = program(lambda a, b: jnp.sum(a * b, axis=3))(*x)
    assert_allclose(found, np.sum(x[0] * x[1], axis=3), rtol=1e-4)


def test_many_draws_of_a_mixture_are_those_of_the_host(key):
    rng = np.random.default_rng(0)
    loc, root = rng.normal(size=(4, 2)), np.tril(rng.normal(size=(4, 2, 2)))
    root[:, [0, 1], [0, 1]] = rng.uniform(0.4, 0.7, size=(4, 2))
    q = Mixture.of(Components(np.zeros(4), loc, root), np.dtype(np.float32))
    e = q.base.sample((MANY // 4, 2), q.dtype, key=key)
    assert_allclose(
        q.sample(key, MANY // 4), q.host_transport(np.asarray(e, float)), rtol=1e-3, atol=1e-3
    )


def test_a_program_within_another_is_a_part_of_it():
    square = program(lambda x: x**2, level=0)
    assert square(3.0) == 9
    assert jax.jit(lambda x: square(x) + 1)(3.0) == 10
    assert jax.grad(square)(3.0) == 6
    assert jnp.array_equal(jax.vmap(square)(jnp.arange(3.0)), jnp.array([0.0, 1.0, 4.0]))


def test_what_the_user_sets_is_left(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    assert jit_options(1)["compiler_options"][LEVEL] == 1
    monkeypatch.setenv("XLA_FLAGS", f"--{LEVEL}=2 --{FUSIONS}=dot")
    assert not {LEVEL, FUSIONS} & {*jit_options(1).get("compiler_options", {})}


@pytest.mark.parametrize(
    ("version", "left"),
    [("0.10.1", None), ("0.10.2", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"), ("0.11.3", ""), ("1.0", None)],
)
def test_only_versions_that_are_wrong_get_the_option(version, left):
    assert fusions_left(version) == left
