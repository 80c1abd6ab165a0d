"""What a brought model is given to: this library and others, each as its documentation has it.

A tool returns draws by site; what it says of itself is its verdict. Seconds are taken in `cell`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .model import Brought
from .reference import processor_seconds

DRAWS = 10_000
# What NUTS says of itself: with fewer effective draws or a larger R-hat its user is warned.
LEAST_SIZE, MOST_R_HAT = 100.0, 1.05
# As the library has its verdicts, which others are not to import; and what those have that give none.
TRUST, CORRECTED, DO_NOT_TRUST, NONE = "trust", "use the corrected draws", "do not trust", "none"


@dataclass
class Answer:
    """What came out: its verdict, how to draw from it, and what else a row is to have.

    `draws` is called when the clock has stopped. `corrected` gives draws that the verdict asks for.
    """

    verdict: str
    draws: Callable[[], dict[str, Any]]
    more: dict[str, Any] = field(default_factory=dict)
    corrected: Callable[[], dict[str, Any]] | None = None


def auto(model: Brought, seed: int) -> Answer:
    """`qg.fit(target, "auto")` and its verdict."""
    result, more = _fitted(model, seed)
    found = result.diagnose()
    more |= {
        "reasons": list(found.reasons),
        "advice": list(found.advice),
        "khat": float(found.khat),
        "gradients_of_verdict": found.gradients,
        "verdict_seconds": round(found.seconds, 2),
    }
    corrected = None
    if str(found.verdict) == CORRECTED:
        corrected = lambda: result.posterior(jr.key(2000 + seed), DRAWS).points  # noqa: E731
    return Answer(str(found.verdict), lambda: result.sample(jr.key(1000 + seed), DRAWS), more, corrected)


def refined(model: Brought, seed: int) -> Answer:
    """The same fit with `refine=True`: chains in its coordinates, which say whether they are enough."""
    result, more = _fitted(model, seed, refine=True)
    chains = result.refined
    if chains is None:
        return Answer(DO_NOT_TRUST, lambda: result.sample(jr.key(1000 + seed), DRAWS), more)
    found = chains.diagnostics
    more |= {"r_hat": found.rhat, "size": min(found.effective_bulk, found.effective_tail)}
    more |= {"divergent": found.divergences, "gradients_of_chains": found.gradients}
    count = chains.z.shape[0] * chains.z.shape[1]
    verdict = TRUST if chains.converged else DO_NOT_TRUST
    return Answer(verdict, lambda: chains.sample(jr.key(1000 + seed), count), more)


def _fitted(model: Brought, seed: int, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """A result and what its row has, the processor seconds to the first evaluation among it."""
    import quietgrad as qg

    first: list[float] = []

    def answered(_: Any) -> None:
        if not first:
            first.append(processor_seconds())

    result = qg.fit(
        model.target(),
        "auto",
        key=jr.key(seed),
        progress=False,
        batch_size=model.batch_size,
        callback=answered,
        **settings,
    )
    return result, {
        "status": str(result.status),
        "hint": result.hint,
        "fitted": type(result.q).__name__,
        "elbo": float(result.elbo),
        "first_answer": round(first[0], 2) if first else None,
        "clock": {name: round(value, 2) for name, value in result.clock.items()},
        "programs_of_fit": result.programs,
    }


def nuts(model: Brought, seed: int) -> Answer:
    """NUTS, 500 warm-up and 500 draws, one chain, the language's defaults."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    found = model.sample(seed, warmup=500, draws=500)
    parts = [value.reshape(*value.shape[:2], -1) for value in found.draws.values()]
    values = np.concatenate(parts, axis=-1)
    values = values[..., values.std(axis=(0, 1)) > 0]
    size, r_hat = float(np.min(effective_sample_size(values))), float(np.max(split_gelman_rubin(values)))
    good = size >= LEAST_SIZE and r_hat <= MOST_R_HAT and found.divergent == 0
    more = {"status": "ended", "size": size, "r_hat": r_hat, "divergent": found.divergent}
    draws = {name: value[0] for name, value in found.draws.items()}
    return Answer(TRUST if good else DO_NOT_TRUST, lambda: draws, more)


def _svi(guide: str) -> Callable[[Brought, int], Answer]:
    def run(model: Brought, seed: int) -> Answer:
        import numpyro
        from numpyro.handlers import block, trace
        from numpyro.handlers import seed as seed_handler
        from numpyro.infer import SVI, Trace_ELBO, TraceEnum_ELBO, autoguide

        traced = trace(seed_handler(model.model, jr.key(0))).get_trace(*model.args, **model.kwargs)
        summed_out = [name for name, site in traced.items() if "enumerate" in site.get("infer", {})]
        shown = block(model.model, hide=summed_out) if summed_out else model.model
        elbo: Any = TraceEnum_ELBO() if summed_out else Trace_ELBO()
        form = getattr(autoguide, guide)(shown)
        svi = SVI(model.model, form, numpyro.optim.Adam(0.01), elbo)
        found = svi.run(jr.key(seed), 5000, *model.args, progress_bar=False, **model.kwargs)
        jax.block_until_ready(found.losses)
        key = jr.key(1000 + seed)

        def draws() -> dict[str, Any]:
            return form.sample_posterior(key, found.params, sample_shape=(DRAWS,))

        return Answer(NONE, draws, {"status": "ended", "elbo": -float(found.losses[-1])})

    return run


def pathfinder(model: Brought, seed: int) -> Answer:
    """BlackJAX's pathfinder from one start in (-2, 2), on the density of the model's own language."""
    from blackjax.vi.pathfinder import approximate, sample

    log_density, dim = model.log_density()
    key_start, key_path, key_draw = jr.split(jr.key(seed), 3)
    start = jr.uniform(key_start, (dim,), minval=-2.0, maxval=2.0)
    path = jax.jit(lambda key, start: approximate(key, log_density, start)[0])(key_path, start)
    elbo = float(jax.block_until_ready(path.elbo))
    draws = lambda: model.constrained(jnp.asarray(sample(key_draw, path, DRAWS)[0]))  # noqa: E731
    return Answer(NONE, draws, {"status": "ended", "elbo": elbo})


def _advi(method: str) -> Callable[[Brought, int], Answer]:
    def run(model: Brought, seed: int) -> Answer:
        import pymc

        with model.build():
            found = pymc.fit(method=method, random_seed=seed, progressbar=False)

        def draws() -> dict[str, Any]:
            data = found.sample(DRAWS, random_seed=1000 + seed).posterior
            return {str(name): np.asarray(value)[0] for name, value in data.data_vars.items()}

        return Answer(NONE, draws, {"status": "ended", "elbo": -float(found.hist[-1])})

    return run


TOOLS: dict[str, Callable[[Brought, int], Answer]] = {
    "auto": auto,
    "refined": refined,
    "nuts": nuts,
    "svi-normal": _svi("AutoNormal"),
    "svi-multivariate": _svi("AutoMultivariateNormal"),
    "pathfinder": pathfinder,
    "advi": _advi("advi"),
    "fullrank-advi": _advi("fullrank_advi"),
}
LANGUAGES = {"svi-normal": "numpyro", "svi-multivariate": "numpyro"}
LANGUAGES |= {"advi": "pymc", "fullrank-advi": "pymc"}


def refuses(tool: str, model: Brought) -> str | None:
    """Why a tool does not take this model."""
    language = LANGUAGES.get(tool)
    if language is not None and language != model.language:
        return f"{tool} takes {language} models"
    if tool not in ("auto", "refined") and model.batch_size is not None:
        return f"{tool} is not run on batches"
    return None
