"""Squared bias, variance and mean squared error of gradients, as `bias.json` has them."""

import json
from pathlib import Path

from .names import family_name, task_name
from .numbers import number, with_error

NAME = "bias.json"
FORMAT = 1


def bias_rows(directory: Path) -> list[dict[str, str]]:
    """The rows of the table, relative to the variance of NoCV; none if nothing was measured."""
    path = directory / NAME
    if not path.exists():
        return []
    about = json.loads(path.read_text(encoding="utf-8"))
    if about.get("format") != FORMAT:
        raise ValueError(f"{path} has format {about.get('format')!r}; this version reads {FORMAT}")
    rows = []
    for row in about["rows"]:
        plain = row["plain_variance"]
        bias, error, variance = (row[key] / plain for key in ("bias_squared", "bias_error", "variance"))
        rows.append(
            {
                "place": f"{task_name(row['task'])}, {family_name(row['family'])}, {row['where']}",
                "label": row["label"],
                "draws": str(row["draws"]),
                "bias": f"{number(bias, 2)} ± {number(error, 1)}",
                "variance": with_error(
                    variance, row["variance_error"] / plain if "variance_error" in row else None
                ),
                "mse": number(variance + bias),
            }
        )
    return rows
