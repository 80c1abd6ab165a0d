"""Small fits by every estimator and method, and a process that prints what comes of them, bit by bit.

python determinism_fits.py NAMES...
"""

import argparse

import checkpoint_fits
import jax.random as jr
from subjects import accepted

import quietgrad as qg
from quietgrad import estimators

FAMILIES = ("mean-field", "low-rank", "full-rank", "real-nvp")


def by_steps(name):
    make = estimators.REGISTRY[name]
    made = make(**accepted(make, draws=6))
    return {"method": qg.Sgd(made, steps=30, evaluate_every=15, by_clock=False), "batch_size": 8}


# What depends on the clock cannot be repeated exactly.
FITS = {
    **{f"sgd, {name}": by_steps(name) for name in estimators.REGISTRY},
    "sgd, auto": {"method": qg.Sgd("auto", steps=200, evaluate_every=20, by_clock=False)},
    **{
        f"auto, {family}": {"method": qg.Auto(by_clock=False, steps=1000), "family": family}
        for family in FAMILIES
    },
    "auto, any family": {"method": qg.Auto(by_clock=False, steps=1000), "family": "auto"},
    "auto, batches": {"method": qg.Auto(by_clock=False, steps=1000), "batch_size": 8},
    "auto, restarts": {"method": qg.Auto(by_clock=False, steps=1000), "restarts": 3},
    "saa": {"method": qg.Saa(polish_steps=100), "family": "low-rank"},
    "bam": {"method": qg.Bam(iterations=30), "family": "full-rank"},
}


def digest(name, seed=3):
    """A digest of all that a fit hands back but its seconds, or the sentence in which it was refused."""
    try:
        result = qg.fit(checkpoint_fits.target(), key=jr.key(seed), **FITS[name])
    except ValueError as refused:
        return f"refused: {refused}"
    return checkpoint_fits.digest(result)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    for name in parser.parse_args().names:
        print(f"{name}\t{digest(name)}", flush=True)


if __name__ == "__main__":
    main()
