"""Hierarchies and state spaces with an answer that is known: by quadrature, or by stored long chains."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RESULTS = Path(__file__).parent / "results"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

NORMAL = {f"normal-{groups}": groups for groups in (100, 1000, 10_000, 100_000)}
# Centred models whose family is chosen; the others are fitted by name.
CHOSEN = ("schools-centred", "radon-centred", "logistic-centred")
BY_CHAINS = ("poisson-500", "bernoulli-500", *CHOSEN)
STATES = ("local-level-1000", "volatility-1000")
# Models of 10^4 and 10^5 latents whose exact answer is not known, and the families to fit.
LARGE = {"item-response": "hierarchical", "crossed": "sparse", "factorisation": "blocks of plates"}
# Seconds for a fit of blocks, which would go on for minutes, and its peers with it.
LIMIT = 300.0
NAMES = (*NORMAL, *BY_CHAINS, *STATES, *LARGE)


class Case(NamedTuple):
    """A target, the moments of its first coordinates, its log evidence, the family and time of a fit."""

    target: Any
    mean: Any = None
    std: Any = None
    log_evidence: float | None = None
    family: Any = "hierarchical"
    seconds: float | None = None


def case(name: str) -> Case:
    """The case of this name."""
    if name in NORMAL:
        from hierarchy_models import exact, normal_groups, normal_target

        y = normal_groups(NORMAL[name])
        known = exact(y)
        return Case(normal_target(y), known.mean, known.std, known.log_evidence)
    if name in STATES:
        import quietgrad as qg

        return Case(qg.Target.from_numpyro(*state_space(name)))
    if name in LARGE:
        from hierarchy_large import large

        import quietgrad as qg

        target, family = qg.Target.from_numpyro(large(name).model), LARGE[name]
        if family.startswith("blocks"):
            return Case(target, family=blocks(target), seconds=LIMIT)
        return Case(target, family=family)
    from zoo import reference

    # The zoo's own references are of double precision, and looked after there.
    zoo, row, model = reference.read(), reference.read(store()).get(name), chain_model(name)
    row = zoo.get(name) or (row if reference.is_current(model, row) else None)
    if row is None:
        raise SystemExit(f"{name} has no reference; python benchmarks/hierarchies.py reference makes it")
    family = "auto" if name in CHOSEN else "hierarchical"
    return Case(model.target, np.array(row["mean"]), np.array(row["std"]), None, family)


def blocks(target: Any) -> Any:
    """A Gaussian for the factors of each row, and of each column, independent of each other."""
    import jax
    import jax.random as jr

    from quietgrad.families import Arrowhead
    from quietgrad.structure import blocks_of_plates

    structure = blocks_of_plates(target)
    return jax.jit(lambda key: Arrowhead.init(target.dim, structure=structure, key=key))(jr.key(0))


def store() -> Path:
    """Where references of models that are not in the zoo are."""
    return RESULTS / "hierarchy_reference.json"


def chain_model(name: str) -> Any:
    """A model with long chains as its reference, which move in its non-centred form."""
    import jax.numpy as jnp
    from zoo.hierarchical import MODELS
    from zoo.model import Model, View

    if name in MODELS:
        return MODELS[name]()
    target, first = {"poisson-500": poisson, "bernoulli-500": bernoulli, "logistic-centred": logistic}[
        name
    ]()
    groups = target.dim - first
    view = View(
        lambda u: jnp.concatenate([u[:first], u[0] + jnp.exp(u[1]) * u[first:]]),
        lambda u: groups * u[1],
    )
    return Model(name, target, view=view, accept=0.9)


def poisson() -> tuple[Any, int]:
    """Two counts a group with log rates theta_j."""
    from hierarchy_models import normal_groups, poisson_target

    y = np.random.default_rng(1).poisson(np.exp(normal_groups(500)))
    return poisson_target(y), 2


def bernoulli() -> tuple[Any, int]:
    """Ten coin tosses a group with log odds theta_j."""
    import jax
    import jax.numpy as jnp
    from hierarchy_models import normal_groups, prior

    import quietgrad as qg

    odds = normal_groups(500)[:, :1]
    toss = np.random.default_rng(2).random((500, 10)) < 1 / (1 + np.exp(-odds))
    signs = jnp.asarray(2.0 * toss - 1, jnp.zeros(()).dtype)

    def log_density(z):
        return prior(z) + jnp.sum(jax.nn.log_sigmoid(signs * z[2:, None]))

    return qg.Target.from_logdensity(log_density, dim=502), 2


def logistic() -> tuple[Any, int]:
    """Coin tosses of 40 groups: z is mu, log tau, a slope, and the intercepts themselves."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.stats import norm

    import quietgrad as qg

    rng = np.random.default_rng(7)
    group = np.repeat(np.arange(40), 12)
    x = rng.normal(size=group.size)
    odds = (-0.3 + 0.8 * rng.normal(size=40))[group] + 0.7 * x
    y = (rng.random(group.size) < 1 / (1 + np.exp(-odds))).astype(np.float32)

    def log_prior(z):
        hyper = norm.logpdf(z[0], 0.0, 2.0) + norm.logpdf(z[1], -0.5, 1.0) + norm.logpdf(z[2], 0.0, 2.0)
        return hyper + jnp.sum(norm.logpdf(z[3:], z[0], jnp.exp(z[1])))

    def log_likelihood(z, d):
        logit = z[3:][d["group"]] + z[2] * d["x"]
        return jax.nn.log_sigmoid((2 * d["y"] - 1) * logit)

    data = {"group": group, "x": x.astype(np.float32), "y": y}
    return qg.Target(log_prior, log_likelihood, data, dim=43), 3


def state_space(name: str) -> tuple[Any, ...]:
    """A NumPyro model of 1,000 steps, and its data."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    if name.startswith("local"):
        rng = np.random.default_rng(4)
        x = np.cumsum(0.3 * rng.normal(size=1000))
        y = jnp.asarray(x + rng.normal(size=1000), jnp.float32)

        def local_level(y: Any) -> None:
            step = numpyro.sample("step", dist.LogNormal(-1.0, 1.0))
            noise = numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
            x: Any = numpyro.sample("x", dist.GaussianRandomWalk(scale=step, num_steps=1000))
            numpyro.sample("y", dist.Normal(x, noise), obs=y)

        return local_level, y
    rng = np.random.default_rng(5)
    log_scale = np.cumsum(0.1 * rng.normal(size=1000)) - 4
    returns = jnp.asarray(np.exp(log_scale) * rng.standard_t(10, 1000), jnp.float32)

    def volatility(returns: Any) -> None:
        """NumPyro's example: a random walk of the log volatility, Student-t returns."""
        step = numpyro.sample("sigma", dist.Exponential(50.0))
        s: Any = numpyro.sample("s", dist.GaussianRandomWalk(scale=step, num_steps=1000))
        nu = numpyro.sample("nu", dist.Exponential(0.1))
        numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)

    return volatility, returns
