"""SIVI's bound and its gradient against the formula, node by node and draw by draw."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from oracles import assert_same
from subjects import target_2d

from quietgrad.estimators import Sivi
from quietgrad.families import FullRank, SemiImplicit, split


def bent(mixing):
    """A member in two dimensions whose network and Gaussian matter."""
    rng = np.random.default_rng(1)
    q = SemiImplicit.init(2, key=jr.key(0), mixing=mixing, widths=(4,))
    out = jnp.asarray(0.5 * rng.normal(size=q.generator.out.shape))
    gaussian = FullRank.of_host(rng.normal(size=2), np.array([[0.5, 0.0], [0.3, 2.0]]), np.dtype(float))
    return eqx.tree_at(lambda q: (q.generator.out, q.gaussian), q, (out, gaussian))


@pytest.mark.parametrize(("mixing", "nodes"), [(1, 0), (3, 5)])
def test_bound_and_gradient_are_those_of_the_formula(mixing, nodes, key):
    target, q, made = target_2d("curved"), bent(mixing), Sivi(draws=3, nodes=nodes)
    key_draws, key_nodes = jr.split(key)
    e = q.base.sample((3, q.base_dim), q.dtype, key=key_draws)
    shared = jr.normal(key_nodes, (nodes, mixing), q.dtype)
    params, rebuild = split(q)

    def bound(params):
        moved, terms = rebuild(params), []
        log_det = jax.lax.stop_gradient(jnp.sum(q.gaussian.log_diagonal()))
        for draw in e:
            w, densities = moved.whitened(draw), []
            for eps in (draw[2:], *shared):
                mean, log_std = moved.generator(eps)
                densities.append(jnp.prod(norm.pdf(w, mean, jnp.exp(log_std))))
            log_q = jnp.log(sum(densities) / (nodes + 1)) - log_det
            terms.append(target.log_density(moved.color(w)) - log_q)
        return sum(terms) / len(terms)

    @jax.jit
    def both(params):
        q = rebuild(params)
        found, _ = made.step(target, q, made.init(target, q), key=key)
        return (found.elbo, found.grad), jax.value_and_grad(bound)(params)

    ours, literal = both(params)
    assert_same(ours, literal, operations=100)
