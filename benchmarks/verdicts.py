"""How much a verdict depends on its own draws: one fit, diagnosed again and again.

Run from the repository:
  python benchmarks/verdicts.py schools-noncentred --family full-rank --repeats 30

For a model of the zoo it prints how often each verdict was given, and the range of the narrowest sd, as
a ratio of q's to the posterior's. A fit that is off should get no `trust` in any of them.
"""

import argparse
from collections import Counter

import jax
import jax.random as jr
import numpy as np
import zoo

import quietgrad as qg
from quietgrad.diagnostics.diagnose import diagnose
from quietgrad.diagnostics.diagnosis import Ending


def main() -> None:
    """Fit once, diagnose often."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=zoo.REGISTRY)
    parser.add_argument("--family", default="auto")
    parser.add_argument("--repeats", type=int, default=30)
    given = parser.parse_args()
    target = zoo.load(given.model).target
    result = qg.fit(target, given.family, progress=False, key=jr.key(0))
    ending, verdicts, ratios = Ending(result.status, result.hint), Counter(), []
    for seed in range(given.repeats):
        found = diagnose(target, result.q, ending, np.random.default_rng(seed))
        verdicts[str(found.verdict)] += 1
        ratios.append(float(np.min(found.std_ratio)))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    least, middle, most = np.quantile(ratios, [0, 0.5, 1])
    print(f"{given.model}, {type(result.q).__name__}: {counts}")
    print(f"narrowest sd over the posterior's: {middle:.2f} ({least:.2f} to {most:.2f})")


if __name__ == "__main__":
    main()
