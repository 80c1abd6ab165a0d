"""Gram matrices against the columns or the definition they come from, and zero means."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_mean, assert_same
from subjects import key_of

from quietgrad.estimators.weights import KERNELS, Gaussian, Polynomial
from quietgrad.families import bases

EVERY_BASE = pytest.mark.parametrize("base", [b() for b in bases.REGISTRY.values()], ids=bases.REGISTRY)
REPLICATIONS = 20_000


@functools.cache
def pool(base):
    return np.asarray(base.sample((REPLICATIONS, 5), float, key=key_of(repr(base))))


def draws(base, count, dim):
    """The same draws for all tests of a base: samplers of heavy tails are slow to compile."""
    return jnp.asarray(pool(base)[:count, :dim])


@EVERY_BASE
@pytest.mark.parametrize("dim", [1, 4])
@pytest.mark.parametrize("order", [1, 2])
def test_gram_is_that_of_the_columns(order, dim, base):
    kernel, e = Polynomial(order), draws(base, 6, dim)
    columns, gram = (
        eqx.filter_jit(form)(e, at)
        for form, at in ((kernel.columns, base.score(e)), (kernel.gram_of_base, base))
    )
    plain = eqx.filter_jit(kernel.gram)(e, base.score(e))
    assert columns.shape[1] == kernel.scale(dim, base) == kernel.column_count(dim)
    # Sums over the columns, in another order.
    size = float(jnp.max(jnp.sum(columns**2, axis=1)))
    assert_same(gram, columns @ columns.T, operations=columns.shape[1], scale=size)
    assert_same(plain, columns @ columns.T, operations=columns.shape[1], scale=size)


@EVERY_BASE
def test_columns_are_the_stein_operator_on_monomials(base):
    """Laplacian + grad . grad log q_0 by autodiff, monomial by monomial."""
    e = draws(base, 1, 3)[0]
    monomials = [lambda e, j=j: e[j] for j in range(3)]
    monomials += [lambda e, j=j: e[j] ** 2 for j in range(3)]
    monomials += [lambda e, i=i, j=j: e[i] * e[j] for i in range(3) for j in range(i + 1, 3)]

    @jax.jit
    def both(e):
        score = jax.grad(lambda e: jnp.sum(base.log_prob(e)))(e)
        expected = [jnp.trace(jax.hessian(m)(e)) + jax.grad(m)(e) @ score for m in monomials]
        first, second = (
            Polynomial(order).columns(e[None, :], base.score(e)[None, :])[0] for order in (1, 2)
        )
        return first, second, jnp.stack(expected)

    first, second, expected = both(e)
    assert_same(second, expected, operations=10)
    assert_same(first, expected[:3], operations=10)


@EVERY_BASE
def test_gaussian_gram_is_its_definition(base):
    """k_0 = div_x div_y k + s(x).grad_y k + s(y).grad_x k + s(x).s(y) k."""
    dim, relative = 3, 0.7
    e = draws(base, 5, dim)

    def k(x, y):
        return jnp.exp(-jnp.sum((x - y) ** 2) / (2 * relative**2 * dim))

    def k0(x, y):
        score_x, score_y = (jax.grad(lambda e: jnp.sum(base.log_prob(e)))(e) for e in (x, y))
        both = jnp.trace(jax.jacobian(jax.grad(k, 0), 1)(x, y))
        mixed = score_x @ jax.grad(k, 1)(x, y) + score_y @ jax.grad(k, 0)(x, y)
        return both + mixed + score_x @ score_y * k(x, y)

    expected = jax.jit(jax.vmap(jax.vmap(k0, (None, 0)), (0, None)))(e, e)
    # Distances come from |x|^2 + |y|^2 - 2 x.y, so rounding is relative to the squared lengths.
    size = float(jnp.max(jnp.sum(e**2, axis=1))) * float(jnp.max(jnp.abs(expected)))
    gram = eqx.filter_jit(Gaussian(relative).gram_of_base)(e, base)
    assert_same(gram, expected, operations=10 * dim, scale=size)


@EVERY_BASE
@pytest.mark.parametrize("order", [1, 2])
def test_columns_have_mean_zero(order, base):
    e = draws(base, REPLICATIONS, 2)
    assert_mean(eqx.filter_jit(Polynomial(order).columns)(e, base.score(e)), 0.0)


@EVERY_BASE
@pytest.mark.parametrize("kernel", [Polynomial(1), Polynomial(2), Gaussian()], ids=repr)
def test_kernels_have_mean_zero(kernel, base):
    """E k_0(e, y) = 0 for whatever y."""
    y = jnp.array([[0.3, -1.0], [2.0, 1.0], [-0.5, 0.1]])
    e = draws(base, REPLICATIONS, 2)

    @jax.jit
    @jax.vmap
    def row(x):
        return kernel.gram_of_base(jnp.concatenate([x[None, :], y]), base)[0, 1:]

    assert_mean(row(e), 0.0)


@EVERY_BASE
@pytest.mark.parametrize("kernel", KERNELS)
def test_scale_is_the_size_of_a_diagonal_entry(kernel, base):
    kernel, e = KERNELS[kernel](), draws(base, 100, 5)
    typical = np.median(np.diagonal(eqx.filter_jit(kernel.gram_of_base)(e, base)))
    # Of the order of: within the factor by which scores of the bases differ from unit variance.
    assert 1 / 5 < kernel.scale(5, base) / typical < 5


def test_other_orders_are_refused():
    with pytest.raises(ValueError, match="order must be 1 or 2; got 3"):
        Polynomial(3)
