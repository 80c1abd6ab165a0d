"""Fits on all devices of this process, or of two processes; prints their answers as JSON.

`mesh_fit.py HOST PORT NUMBER` is one of two processes that find each other at this address.
"""

import json
import sys

import jax

jax.config.update("jax_enable_x64", True)
if sys.argv[1:]:
    host, port, number = sys.argv[1:]
    jax.distributed.initialize(f"{host}:{port}", num_processes=2, process_id=int(number))

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import quietgrad as qg  # noqa: E402

# Not a multiple of 2 or 8: some devices get fillers.
ROWS = 37
rng = np.random.default_rng(0)
x, y = rng.standard_normal((ROWS, 3)), rng.integers(0, 2, ROWS) * 2.0 - 1
data = {"x": x, "y": y}


def log_likelihood(z, rows):
    return jax.nn.log_sigmoid(rows["y"] * (rows["x"] @ z))


def log_prior(z):
    return -0.5 * jnp.sum(z**2)


# `waves` and `modes` have functions that tell their programs from the others: see `test_sharding`.
rows = qg.Target(log_prior, log_likelihood, data, dim=3)
wide = qg.Target(lambda z, h: jnp.exp(h) * log_prior(z) + 1.5 * h, log_likelihood, data, dim=3)
waves = qg.Target.from_logdensity(lambda z: jnp.sum(jnp.sin(2 * z)) - 0.1 * jnp.sum(z**2), dim=3)
modes = qg.Target.from_logdensity(lambda z: 9 * jnp.sum(jnp.tanh(z) ** 2) - 0.5 * jnp.sum(z**2), dim=3)


def mesh(*names):
    """All devices; with two names, two by half of them."""
    count, two = jax.device_count(), min(2, jax.device_count())
    shape = (count,) if len(names) == 1 else (two, count // two)
    return jax.make_mesh(shape, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names))


sgd, auto = qg.Sgd(steps=50, by_clock=False), qg.Auto(by_clock=False)
# Draws that do not divide evenly by 8.
twelve = qg.Sgd(qg.Pathwise(sampler="antithetic", draws=12), steps=50, by_clock=False)
fits = {
    "sgd": (rows, {"method": sgd, "mesh": mesh("rows")}),
    "draws": (waves, {"method": twelve, "mesh": mesh("draws")}),
    "rows and draws": (
        wide,
        {"method": twelve, "mesh": mesh("rows", "draws"), "hyperparameters": jnp.zeros(())},
    ),
}
if not sys.argv[1:]:
    fits |= {
        "minibatch": (rows, {"method": sgd, "mesh": mesh("rows"), "batch_size": 8}),
        "auto": (rows, {"method": auto, "mesh": mesh("rows")}),
        "restarts": (modes, {"method": auto, "mesh": mesh("restarts"), "restarts": 5}),
    }
answers = {}
for name, (target, how) in fits.items():
    result = qg.fit(target, key=jax.random.key(0), **how)
    answers[name] = [result.elbo, *np.asarray(result.q.mean()).tolist()]
    if result.hyperparameters is not None:
        answers[name].append(float(result.hyperparameters))
    if result.restarts is not None:
        answers[name] += [start.elbo for start in result.restarts.starts]
print(json.dumps({"devices": jax.device_count(), "answers": answers}))
