"""Hierarchies against exact answers and long chains: wait, memory, nats below log Z and errors.

`python benchmarks/hierarchies.py` runs every case in a process of its own, `--only NAME ...` some of
them; rows are in results/hierarchies.json. The normal hierarchy is y_ij ~ N(theta_j, 1), two rows a
group, theta_j ~ N(mu, tau^2), in single precision, whose posterior is known by quadrature. Processor
seconds stand beside the wait, because other work on the machine does not count there.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from timing import save

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

NORMAL = {f"normal-{groups}": groups for groups in (100, 1000, 10_000, 100_000)}
OTHERS = ("poisson-500", "bernoulli-500", "eight-schools", "local-level-1000", "volatility-1000")


def main() -> None:
    """Run the cases, or one of them within its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*NORMAL, *OTHERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--family", default="hierarchical")
    parser.add_argument("--case", choices=names, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        print(json.dumps(run(given.case, given.family)))
        return
    rows = []
    for name in given.only:
        command = [sys.executable, __file__, "--case", name, "--family", given.family]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name}: {done.stderr[-2000:]}", file=sys.stderr)
            continue
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print("  ".join(f"{key} {shown(value)}" for key, value in rows[-1].items()))
    save(rows, "hierarchies.json")


def shown(value: object) -> str:
    """Numbers with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run(name: str, family: str) -> dict[str, object]:
    """One row: the fit, its verdict, and what is known of the answer."""
    import jax.random as jr

    import quietgrad as qg

    target, known, first = case(name)
    start = time.perf_counter(), time.process_time()
    result = qg.fit(target, family, key=jr.key(0))
    wait, work = time.perf_counter() - start[0], time.process_time() - start[1]
    begun = time.perf_counter(), time.process_time()
    verdict = result.diagnose()
    row: dict[str, object] = {
        "case": name,
        "family": type(result.q).__name__,
        "status": str(result.status),
        "wait": wait,
        "processor": work,
        "programs": result.programs,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "elbo": result.elbo,
        "verdict": str(verdict.verdict),
        "verdict_wait": time.perf_counter() - begun[0],
        "verdict_processor": time.process_time() - begun[1],
    }
    if known is None:
        return row
    if known.log_evidence is not None:
        row["nats_below"] = known.log_evidence - result.elbo
    z = np.concatenate([np.asarray(result.sample(jr.key(n), 500), float)[:, first] for n in range(20)])
    row["mean_error"] = float(np.max(np.abs(z.mean(axis=0) - known.mean) / known.std))
    row["std_ratio_error"] = float(np.max(np.abs(z.std(axis=0) / known.std - 1)))
    return row


def case(name: str):  # noqa: ANN201
    """The target, what is known of it, and the coordinates that this is about."""
    from hierarchy_models import exact, normal_groups, normal_target, poisson_target

    if name in NORMAL:
        y = normal_groups(NORMAL[name])
        return normal_target(y), exact(y), slice(0, 2)
    if name == "poisson-500":
        y = np.random.default_rng(1).poisson(np.exp(normal_groups(500)))
        target = poisson_target(y)
        return target, by_nuts(target), slice(None)
    if name == "bernoulli-500":
        target = bernoulli()
        return target, by_nuts(target), slice(None)
    if name == "eight-schools":
        target = eight_schools()
        return target, None, slice(None)
    return (local_level() if name.startswith("local") else volatility()), None, slice(None)


def bernoulli():  # noqa: ANN201
    """Ten coin tosses a group with log odds theta_j."""
    import jax
    import jax.numpy as jnp
    from hierarchy_models import normal_groups, prior

    import quietgrad as qg

    odds = normal_groups(500)[:, :1]
    toss = np.random.default_rng(2).random((500, 10)) < 1 / (1 + np.exp(-odds))
    signs = jnp.asarray(2.0 * toss - 1, jnp.zeros(()).dtype)

    def log_density(z):  # noqa: ANN001, ANN202
        return prior(z) + jnp.sum(jax.nn.log_sigmoid(signs * z[2:, None]))

    return qg.Target.from_logdensity(log_density, dim=502)


def eight_schools():  # noqa: ANN201
    """The centred model."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import quietgrad as qg

    error = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    effect = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])

    def model() -> None:
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("school", 8):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("y", dist.Normal(theta, error), obs=effect)

    return qg.Target.from_numpyro(model)


def local_level():  # noqa: ANN201
    """x_t ~ N(x_{t-1}, s^2), y_t ~ N(x_t, r^2), 1,000 steps, centred."""
    import jax.numpy as jnp
    from jax.scipy.stats import norm

    import quietgrad as qg

    rng = np.random.default_rng(4)
    x = np.cumsum(0.3 * rng.normal(size=1000))
    y = jnp.asarray(x + rng.normal(size=1000), jnp.zeros(()).dtype)

    def log_density(z):  # noqa: ANN001, ANN202
        state, noise, x = jnp.exp(z[0]), jnp.exp(z[1]), z[2:]
        own = norm.logpdf(x[0], 0.0, 10.0) + jnp.sum(norm.logpdf(x[1:], x[:-1], state))
        hyper = norm.logpdf(z[0], -1.0, 1.0) + norm.logpdf(z[1], 0.0, 1.0)
        return hyper + own + jnp.sum(norm.logpdf(y, x, noise))

    return qg.Target.from_logdensity(log_density, dim=1002)


def volatility():  # noqa: ANN201
    """NumPyro's example: a random walk of the log volatility, Student-t returns, 1,000 steps."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import quietgrad as qg

    rng = np.random.default_rng(5)
    log_scale = np.cumsum(0.1 * rng.normal(size=1000)) - 4
    returns = jnp.asarray(np.exp(log_scale) * rng.standard_t(10, 1000), jnp.zeros(()).dtype)

    def model(returns: object) -> None:
        step = numpyro.sample("sigma", dist.Exponential(50.0))
        s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step, num_steps=1000))
        nu = numpyro.sample("nu", dist.Exponential(0.1))
        numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)

    return qg.Target.from_numpyro(model, returns)


def by_nuts(target):  # noqa: ANN001, ANN201
    """Means and sds of all coordinates by long chains of BlackJAX's NUTS from the fit's coordinates."""
    import blackjax
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    from hierarchy_models import Exact

    start = jnp.zeros(target.dim)
    warm = blackjax.window_adaptation(blackjax.nuts, target.log_density, target_acceptance_rate=0.95)
    keys = jr.split(jr.key(1), 4)

    def chain(key):  # noqa: ANN001, ANN202
        first, second = jr.split(key)
        (state, settings), _ = warm.run(first, start, 2000)
        kernel = blackjax.nuts(target.log_density, **settings)
        step = lambda state, key: (lambda s: (s, s.position))(kernel.step(key, state)[0])  # noqa: E731
        return jax.lax.scan(step, state, jr.split(second, 5000))[1]

    z = np.concatenate([np.asarray(jax.jit(chain)(key), float) for key in keys])
    return Exact(None, z.mean(axis=0), z.std(axis=0))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
