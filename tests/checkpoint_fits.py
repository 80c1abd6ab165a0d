"""The fits that tests of checkpoints interrupt, and a process that runs them and can be killed.

    python checkpoint_fits.py DIRECTORY NAMES... [--cut NAME:WRITES] [--alone]

Each fit has a checkpoint in a directory of its name. `--cut NAME:2` lets the process kill itself in the
middle of the second write of that fit; `--alone` runs each fit without a checkpoint too. It prints the
name of a fit before it and digests of its results after it.
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import quietgrad as qg
from quietgrad._util import files as _atomic


def target(shift=0.0):
    x = jr.normal(jr.key(0), (40, 3))
    y = (x @ jnp.array([2.0, -1.0, 0.5]) + shift > 0).astype(x.dtype)

    def log_likelihood(z, data):
        x, y = data
        return y * (x @ z) - jnp.logaddexp(x @ z, 0.0)

    return qg.Target(lambda z: -0.5 * z @ z, log_likelihood, (x, y), dim=3)


# What depends on the clock cannot be repeated exactly.
FITS = {
    "sgd": {"method": qg.Sgd(steps=2000, evaluate_every=200, by_clock=False), "batch_size": 8},
    "long": {"method": qg.Sgd(steps=100_000, evaluate_every=5000, by_clock=False), "batch_size": 8},
    "saa": {"method": qg.Saa(polish_steps=1000), "family": "low-rank"},
    "auto": {
        "method": qg.Auto(by_clock=False, steps=4000, gain=0.05),
        "family": "full-rank",
        "batch_size": 8,
    },
    "bam": {"method": qg.Bam(iterations=300), "family": "full-rank"},
    "switching": {
        "method": qg.Sgd("auto", steps=300, evaluate_every=10, by_clock=False),
        "batch_size": 8,
    },
    "ladder": {"method": qg.Auto(by_clock=False, steps=3000), "family": "auto"},
    "exploring": {"method": qg.Auto(by_clock=False, steps=2000), "family": "real-nvp"},
}


def run(name, **settings):
    return qg.fit(target(), key=jr.key(1), **FITS[name], **settings)


def bits(result):
    """All that a fit hands back but where its time went, as text that shows every bit."""
    leaves = jax.tree.leaves((result.q, result.estimator_state, result.estimator, result.words))
    timeless = {k: v for k, v in result.history.items() if k not in ("seconds", "wall", "compile")}
    return {
        "arrays": [np.asarray(leaf).tobytes().hex() for leaf in leaves],
        "elbo": (result.elbo.hex(), result.elbo_error.hex()),
        "ending": (str(result.status), result.hint, result.steps),
        "history": {name: column.tolist().__repr__() for name, column in timeless.items()},
        "journal": [repr(decision) for decision in result.decisions],
        "words": (repr(result.estimator), result.evaluation),
    }


def kill_in_write(number):
    """Send SIGKILL to this process when its n-th file is half written and not yet in its place."""
    count, fsync = [0], os.fsync

    def counted(descriptor):
        count[0] += 1
        if count[0] == number:
            os.ftruncate(descriptor, 100)
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(descriptor)

    _atomic.os.fsync = counted


def digest(result):
    return hashlib.sha256(repr(bits(result)).encode()).hexdigest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--cut", default="")
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args()
    fatal, _, number = given.cut.partition(":")
    for name in given.names:
        if name == fatal:
            kill_in_write(int(number))
        print(name, flush=True)
        print(digest(run(name, checkpoint=given.directory / name)), flush=True)
        if given.alone:
            print(digest(run(name)), flush=True)


if __name__ == "__main__":
    main()
