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


target = qg.Target(lambda z: -0.5 * jnp.sum(z**2), log_likelihood, data, dim=3)
auto = jax.sharding.AxisType.Auto
mesh = jax.make_mesh((jax.device_count(),), ("rows",), axis_types=(auto,))
answers = {}
for name, method, batch_size in (
    ("sgd", qg.Sgd(steps=50, by_clock=False), None),
    ("minibatch", qg.Sgd(steps=50, by_clock=False), 8),
    ("auto", qg.Auto(by_clock=False), None),
):
    if sys.argv[1:] and name != "sgd":
        continue
    result = qg.fit(target, method=method, batch_size=batch_size, mesh=mesh, key=jax.random.key(0))
    answers[name] = [result.elbo, *np.asarray(result.q.mean()).tolist()]
print(json.dumps({"devices": jax.device_count(), "answers": answers}))
