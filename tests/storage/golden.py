"""Writes the golden files of the present format: `python tests/storage/golden.py`, once for each.

A file that is there is never written again: that later versions read it is the point of it.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist

import quietgrad as qg
from quietgrad import families
from quietgrad.adapters.flowjax import SplineFlow
from quietgrad.families import Chain
from quietgrad.results.refined import Refine, refine
from quietgrad.results.result import Remembered
from quietgrad.results.saving import RESULT
from quietgrad.structure import Structure

FOLDER = Path(__file__).parent / f"format_{RESULT.format}"
X = np.linspace(-1.0, 1.0, 8)


def model(x, y=None):
    """A simplex, a positive scale, a deterministic variable and a plate."""
    share: Any = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    noise: Any = numpyro.sample("noise", dist.HalfNormal(1.0))
    numpyro.deterministic("level", share[0] + 2 * share[1])
    with numpyro.plate("row", x.shape[0]):
        numpyro.sample("y", dist.Normal(share[0] + share[1] * x, noise), obs=y)


def target():
    """The model with its data."""
    return qg.Target.from_numpyro(model, X, 0.3 + 0.5 * X + 0.3 * np.sin(9.0 * X))


def curved(z):
    """Any density of three numbers."""
    return -0.5 * jnp.sum(z**2) - 0.1 * z[0] ** 4


def schools(y):
    """Groups whose effects are found by Newton steps, which a file has as programs."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    with numpyro.plate("school", 6):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 2.0), obs=y)


def later():
    """The same for what came in later: programs of a q with functions, chains, points, families."""
    from structured_members import away

    fitted = qg.fit(qg.Target.from_logdensity(curved, 3), method=qg.Sgd(steps=10), key=jr.key(11))
    groups = qg.Target.from_numpyro(schools, np.array([4.0, -2.0, 1.0, 0.0, 3.0, -1.0]))
    hierarchy = families.Hierarchical.for_target(groups, key=jr.key(12))
    narrow = qg.MeanField(jnp.zeros(3), jnp.full(3, -1.0))
    chains = eqx.tree_at(lambda r: r.q, fitted, narrow)
    chains = dataclasses.replace(chains, status=qg.Status.CONVERGED)
    chains.diagnose(seconds=100)
    assert chains.diagnosis.by_chains
    few = Refine(warm_up=50, draws=50, block=50, longer=1)
    rng = np.random.default_rng(0)
    refined = refine(
        fitted.target, fitted.q, rng, seconds=600.0, settings=few, sampler=None, progress=False
    )
    points = {"a": jnp.ones(2), "b": jnp.zeros(3)}
    named = qg.Target.from_logdensity(lambda p: curved(p["b"]) - jnp.sum(p["a"] ** 2), example=points)
    sites = {"a": "map", "b": "full-rank"}
    found = {
        "hierarchy": eqx.tree_at(lambda r: (r.q, r.target), fitted, (hierarchy, groups)),
        "corrected": chains,
        "refined": dataclasses.replace(fitted, refined=refined),
        "by-site": qg.fit(named, sites, method=qg.Sgd(steps=10), key=jr.key(13)),
    }
    kinds = {
        "curved": families.Curved.init(3, key=jr.key(14), order=(2, 0, 1)),
        "mixture": families.Mixture.init(3, key=jr.key(15), components=3),
        "semi-implicit": families.SemiImplicit.init(3, key=jr.key(16), mixing=2, widths=(4,)),
    }
    for name, q in kinds.items():
        found[name] = eqx.tree_at(lambda r: r.q, fitted, away(q))
    return {
        name: dataclasses.replace(r, remembered=r.remembered if name == "corrected" else Remembered())
        for name, r in found.items()
    }


def results():
    """A result for each kind of thing that a file can hold."""
    plain = qg.Target.from_logdensity(curved, 3)
    diagnosed = qg.fit(target(), "full-rank", key=jr.key(1))
    diagnosed.diagnose()
    steps = qg.Sgd(steps=20)
    chain = Chain.init(4, structure=Structure([], [[0, 1], [2, 3]]).with_kind("chain"), key=jr.key(2))
    four = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), 4)
    tree = qg.Target.from_logdensity(lambda p: curved(p["z"]), example={"z": jnp.zeros(3)})
    return {
        "numpyro": diagnosed,
        "restarts": qg.fit(plain, "mean-field", restarts=2, key=jr.key(3)),
        "low-rank": qg.fit(plain, "low-rank", method=qg.Saa(), key=jr.key(4)),
        "flow": qg.fit(tree, "real-nvp-affine", method=steps, key=jr.key(5)),
        "chain": qg.fit(four, chain, method=steps, key=jr.key(6)),
        "flowjax": qg.fit(
            plain, SplineFlow.init(3, flow_layers=1, key=jr.key(7)), method=steps, key=jr.key(7)
        ),
        "student": qg.fit(
            plain,
            qg.MeanField.init(3, base=qg.StudentT(4.0), key=jr.key(8)),
            method=steps,
            key=jr.key(8),
        ),
    }


def said(result):
    """What a reader of the file must find, as plain values."""
    draws = jax.tree.map(lambda x: np.asarray(x, float).tolist(), result.sample(jr.key(0), 3))
    z = result.q.sample(jr.key(0), 3)
    return {
        "family": type(result.q).__name__,
        "elbo": result.elbo,
        "status": str(result.status),
        "text": str(result),
        "seed": list(result.seed),
        "verdict": None if result.diagnosis is None else str(result.diagnosis.verdict),
        "restarts": None if result.restarts is None else len(result.restarts),
        "draws": draws,
        "log_q": np.asarray(result.q.log_prob(z), float).tolist(),
        "history": {name: np.asarray(x).tolist() for name, x in result.history.items()},
        **corrected(result),
    }


def corrected(result):
    """Draws of the verdict's own chains, where it has any."""
    if result.diagnosis is None or result.diagnosis.chain_draws is None:
        return {}
    return {"posterior": np.asarray(result.posterior(jr.key(0), 3).points, float).tolist()}


def write():
    """The files that are missing, and what is in them."""
    FOLDER.mkdir(exist_ok=True)
    place = FOLDER / "expected.json"
    expected = json.loads(place.read_text()) if place.exists() else {}
    for make in (results, later):
        if make is results and expected:
            continue
        for name, result in make().items():
            if name not in expected:
                path = result.save(FOLDER / f"{name}.quietgrad")
                # A family with functions is read as programs of its draws and density.
                expected[name] = said(result) | {"family": type(qg.load(path).q).__name__}
    place.write_text(json.dumps(expected))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))
    write()
