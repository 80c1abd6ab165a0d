"""Writes the golden files of the present format: `python tests/storage/golden.py`, once for each format.

A file of an earlier format is never written again: that it is still read is the point of it.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist

import quietgrad as qg
from quietgrad.adapters.flowjax import SplineFlow
from quietgrad.families import Chain
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
    }


def write():
    """All files, and what is in them."""
    FOLDER.mkdir(exist_ok=True)
    expected = {}
    for name, result in results().items():
        result.save(FOLDER / f"{name}.quietgrad")
        expected[name] = said(result)
    (FOLDER / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    if (FOLDER / "expected.json").exists():
        raise SystemExit(f"{FOLDER} is there: raise the format, and write that of the new one")
    write()
