"""What a user does first, in an environment that has the package and nothing else."""

import importlib.metadata
import importlib.resources
import subprocess
import sys

before = set(sys.modules)

import quietgrad as qg  # noqa: E402

brought = {name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
assert brought == {"quietgrad"}, f"importing quietgrad imports {sorted(brought)}"
assert (importlib.resources.files("quietgrad") / "py.typed").is_file()

timed = subprocess.run(
    [sys.executable, "-X", "importtime", "-c", "import quietgrad"], capture_output=True, text=True
)
microseconds = next(
    int(line.split("|")[1])
    for line in timed.stderr.splitlines()
    if line.split("|")[-1].strip() == "quietgrad"
)
print(f"import quietgrad: {microseconds / 1e3:.1f} ms")
print(*(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "equinox", "optax", "numpy")))

import jax.numpy as jnp  # noqa: E402
import jax.random as jr  # noqa: E402

target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - 1.0) ** 2), dim=2)
for method in (qg.Auto(), qg.Saa(), qg.Sgd("quiet", steps=500)):
    result = qg.fit(target, "mean-field", method=method, key=jr.key(0))
    print(type(method).__name__, result.status, f"{result.elbo:.4f}")
    # The log evidence, which a normal reaches.
    assert abs(result.elbo - float(jnp.log(2 * jnp.pi))) < 0.05, result
print(result.diagnose())
