"""How long the first fit of the network waits for its programs: the picture of the README adds it.

Run from the repository, on a machine that does nothing else: python reproduction/compile_times.py
Each row in a fresh process without any cache; rows of steps take a few of them, auto its whole fit.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

PATH = Path(__file__).parent / "compile_times.json"
TASK, FAMILY = "redwine", "mean-field"
ROWS = {"nocv": 10, "zvcv-gd": 10, "quadcv": 10, "quiet, 2 draws": 2, "auto": None}
ISOLATED = {"JAX_ENABLE_COMPILATION_CACHE": "false"}


def measure(label: str) -> float:
    """Seconds of compiling before and during the fit, in this process."""
    import jax.random as jr

    import quietgrad as qg

    target = qg.tasks.load(TASK).train
    method: qg.AbstractMethod | str = "auto"
    if ROWS[label] is not None:
        method = qg.Sgd(qg.estimator(label.partition(",")[0], draws=ROWS[label]), steps=200)
    result = qg.fit(target, FAMILY, method=method, progress=False, key=jr.key(0))
    return float(result.clock["compile"])


def main() -> None:
    """Measure every row in a process of its own, print and write."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    found = {}
    for label in ROWS:
        call = [sys.executable, __file__, label]
        done = subprocess.run(
            call, env=os.environ | ISOLATED, capture_output=True, text=True, check=True
        )
        found[label] = json.loads(done.stdout.splitlines()[-1])
        print(f"{label}: {found[label]:.2f} s")
    from quietgrad._util.environment import environment

    about = {"environment": environment(), "seconds": found}
    PATH.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
