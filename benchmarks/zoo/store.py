"""Rows of fits as JSON, one file for each tool; every row names the environment it was made in."""

import contextlib
import datetime
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from . import REGISTRY

FOLDER = Path(__file__).parent.parent / "results"
Row = dict[str, Any]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time reads, changes and writes files of this folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class Store:
    """The files `ZOO_LABEL_TOOL.json` of a folder. A row is known by model, tool and seed.

    `models` are those of the zoo, in its order.
    """

    def __init__(
        self,
        label: str = "fits",
        folder: Path = FOLDER,
        *,
        zoo: str = "zoo",
        models: Iterable[str] = tuple(REGISTRY),
    ):
        self._name, self._folder, self._models = f"{zoo}_{label}", folder, tuple(models)

    def rows(self, tool: str) -> list[Row]:
        """The stored rows of a tool, in the order of the zoo."""
        return self._read(tool)["rows"]

    def has(self, model: str, tool: str, seed: int) -> bool:
        """Whether there is a row of this fit."""
        return any((row["model"], row["seed"]) == (model, seed) for row in self.rows(tool))

    def environments(self, tool: str) -> dict[str, Row]:
        """The environments that the rows of a tool were made in, by the name the rows give."""
        return self._read(tool)["environments"]

    def put(self, row: Row, environment: Row) -> None:
        """Store a row in the place of an older one of the same fit; several processes may do so."""
        with locked(self._folder):
            self._put(row, environment)

    def _put(self, row: Row, environment: Row) -> None:
        tool, stored = row["tool"], self._read(row["tool"])
        name = hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()[:8]
        row = row | {"environment": name, "date": datetime.date.today().isoformat()}
        same = (row["model"], row["seed"])
        rows = [old for old in stored["rows"] if (old["model"], old["seed"]) != same] + [row]
        order = {model: number for number, model in enumerate(self._models)}
        # A model that has left the zoo takes its rows along.
        rows = sorted(
            (row for row in rows if row["model"] in order),
            key=lambda row: (order[row["model"]], row["seed"]),
        )
        used = {row["environment"] for row in rows}
        known = stored["environments"] | {name: environment}
        self._write(tool, {key: known[key] for key in known if key in used}, rows)

    def _path(self, tool: str) -> Path:
        return self._folder / f"{self._name}_{tool}.json"

    def _read(self, tool: str) -> Row:
        path = self._path(tool)
        return json.loads(path.read_text()) if path.exists() else {"environments": {}, "rows": []}

    def _write(self, tool: str, environments: dict[str, Row], rows: list[Row]) -> None:
        """One row a line, all at once."""
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        path = self._path(tool)
        part = path.with_suffix(".part")
        part.write_text(f'{{"environments": {json.dumps(environments)},\n"rows": [\n{lines}\n]}}\n')
        os.replace(part, path)
