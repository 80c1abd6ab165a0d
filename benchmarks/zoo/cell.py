"""One model and one tool in this process: a line of JSON for each seed.

python -m zoo.cell MODEL TOOL SEEDS
"""

import json
import math
import sys

from . import load
from .peers import PEERS
from .reference import read


def main(name: str, tool: str, seeds: int) -> None:
    """Fit and print."""
    from . import fitting, peers

    model, truth = load(name), read()[name]
    fit = peers.fit if tool in PEERS else fitting.fit
    for seed in range(seeds):
        row = {"model": name, "tool": tool, "seed": seed, "cold": seed == 0}
        row |= fit(model, truth, tool, seed)
        print(json.dumps({key: _plain(value) for key, value in row.items()}), flush=True)


def _plain(value: object) -> object:
    """JSON has no infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return 1e300 if value > 0 else -1e300
    return value


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
