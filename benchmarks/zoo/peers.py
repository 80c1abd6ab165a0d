"""Other tools on the same log densities: NumPyro's SVI, BlackJAX's pathfinder, PyMC's ADVI.

None of them gives a verdict. So that they can say something, their draws get importance weights, and a
Pareto k-hat above 0.7 counts as a warning; a user has to ask for that himself.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from quietgrad.diagnostics.psis import smooth

from .judging import DO_NOT_TRUST, TRUST, errors
from .model import Model

DRAWS = 4000
LIMIT = 0.7


class Candidate(NamedTuple):
    """Draws of what a tool fitted, their log density, and its exact moments where they are known."""

    z: Float[Array, "draws dim"]
    log_q: Float[Array, " draws"]
    mean: Float[Array, " dim"]
    std: Float[Array, " dim"]


def numpyro_svi(model: Model, *, key: jax.Array) -> Candidate:
    """AutoNormal, 5000 steps of Adam at 0.01, 10 particles."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    def joint() -> None:
        flat = dist.ImproperUniform(dist.constraints.real, (), (model.dim,))
        z: Any = numpyro.sample("z", flat)
        numpyro.factor("log_density", model.log_density(z))

    guide = autoguide.AutoNormal(joint)
    svi = SVI(joint, guide, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=10))
    key_fit, key_draw = jr.split(key)
    params = svi.run(key_fit, 5000, progress_bar=False).params
    return _mean_field(params["z_auto_loc"], params["z_auto_scale"], key_draw)


def pathfinder(model: Model, *, key: jax.Array) -> Candidate:
    """The best of four paths, each from its own start in (-2, 2), with BlackJAX's settings."""
    from blackjax.vi.pathfinder import approximate, sample

    key_start, key_path, key_draw = jr.split(key, 3)
    starts = jr.uniform(key_start, (4, model.dim), minval=-2.0, maxval=2.0)
    one = jax.jit(lambda key, start: approximate(key, model.log_density, start)[0])
    paths = [one(key, start) for key, start in zip(jr.split(key_path, 4), starts, strict=True)]
    best = max(paths, key=lambda path: float(jnp.nan_to_num(path.elbo, nan=-jnp.inf)))
    z, log_q = sample(key_draw, best, DRAWS)
    return Candidate(z, log_q, jnp.mean(z, axis=0), jnp.std(z, axis=0))


def pymc_advi(model: Model, *, key: jax.Array) -> Candidate:
    """`pm.fit` as it comes: mean-field ADVI, 10,000 steps; the density enters as a Potential."""
    import pymc as pm
    from pytensor import wrap_jax

    log_density = wrap_jax(model.log_density)
    with pm.Model():
        z = pm.Flat("z", shape=model.dim, initval=np.zeros(model.dim))
        pm.Potential("log_density", log_density(z))
        seed = int(jr.randint(key, (), 0, 2**31 - 1))
        approximation = pm.fit(method="advi", random_seed=seed, progressbar=False)
    mean, std = approximation.mean.eval(), approximation.std.eval()
    return _mean_field(jnp.asarray(mean), jnp.asarray(std), key)


PEERS = {
    "numpyro-svi": numpyro_svi,
    "blackjax-pathfinder": pathfinder,
    "pymc-advi": pymc_advi,
}


def _mean_field(mean: Float[Array, " dim"], std: Float[Array, " dim"], key: jax.Array) -> Candidate:
    z = mean[None] + std[None] * jr.normal(key, (DRAWS, mean.size))
    log_q = jnp.sum(norm.logpdf(z, mean[None], std[None]), axis=1)
    return Candidate(z, log_q, mean, std)


def fit(model: Model, reference: dict[str, Any], tool: str, seed: int) -> dict[str, Any]:
    """One fit of a peer, as a row like ours."""
    began = time.perf_counter()
    try:
        answer = jax.block_until_ready(PEERS[tool](model, key=jr.key(seed)))
    except FloatingPointError as error:
        # PyMC stops at the first loss that is not a number, and says so.
        row = {"elbo": None, "status": f"failed: {error}"[:200], "verdict": DO_NOT_TRUST}
        wrong = errors(reference, np.full(model.dim, np.nan), np.full(model.dim, np.nan))
        seconds = round(time.perf_counter() - began, 2)
        return row | wrong | {"seconds": seconds, "judged_by": "exception", "corrected_error": None}
    seconds = time.perf_counter() - began
    terms = np.asarray(jax.jit(jax.vmap(model.log_density))(answer.z) - answer.log_q)
    khat = smooth(np.where(np.isnan(terms), -np.inf, terms)).khat
    return {
        "elbo": float(np.mean(terms)),
        "status": "ended",
        "seconds": round(seconds, 2),
        "verdict": TRUST if khat < LIMIT else DO_NOT_TRUST,
        "judged_by": "k-hat",
        "khat": khat,
        "corrected_error": None,
        **errors(reference, np.asarray(answer.mean), np.asarray(answer.std)),
    }
