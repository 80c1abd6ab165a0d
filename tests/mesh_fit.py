"""Fits on one device, on two and on all of this process; prints their answers as JSON, by devices.

`mesh_fit.py HOST PORT NUMBER` is one of two processes that find each other at this address. These fit on
all that both have.
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


target = qg.Target(lambda z: -0.5 * jnp.sum(z**2), log_likelihood, data, dim=3)
auto = jax.sharding.AxisType.Auto
fits = {
    "sgd": (qg.Sgd(steps=50, by_clock=False), None),
    "minibatch": (qg.Sgd(steps=50, by_clock=False), 8),
    "auto": (qg.Auto(by_clock=False), None),
}
several = (jax.device_count(),) if sys.argv[1:] else (1, 2, jax.device_count())
answers = {count: {} for count in several}
for count, found in answers.items():
    mesh = jax.make_mesh((count,), ("rows",), axis_types=(auto,), devices=jax.devices()[:count])
    for name in ["sgd"] if sys.argv[1:] else fits:
        method, batch_size = fits[name]
        result = qg.fit(target, method=method, batch_size=batch_size, mesh=mesh, key=jax.random.key(0))
        found[name] = [result.elbo, *np.asarray(result.q.mean()).tolist()]
print(json.dumps(answers))
