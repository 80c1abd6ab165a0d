"""Two versions of quietgrad side by side: an earlier commit in a temporary folder, and this tree."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
# The commit that everything is held against: the last one with three drivers.
COMMIT = "321b8d4"


@contextmanager
def both(commit: str) -> Iterator[dict[str, Path]]:
    """Trees by name: "old" is `commit`, "new" this repository as it stands."""
    git = ["git", "-C", str(HERE.parent), "worktree"]
    with tempfile.TemporaryDirectory() as scratch:
        old = Path(scratch) / "old"
        subprocess.run([*git, "add", "--detach", str(old), commit], check=True)
        try:
            yield {"old": old, "new": HERE.parent}
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)


def importing(tree: Path) -> dict[str, str]:
    """The environment of a process that imports quietgrad from a tree, and compiles all it needs."""
    return os.environ | {"PYTHONPATH": str(tree / "src"), "JAX_ENABLE_COMPILATION_CACHE": "false"}
