"""What is known of a posterior's means and standard deviations, and how well."""

import dataclasses
from typing import Any

import numpy as np

from ..._util.extras import needs_extra

Named = dict[str, np.ndarray]
# Rows that are printed before the rest is counted.
SHOWN = 40


@dataclasses.dataclass(frozen=True)
class Expectations:
    """By name, in the shapes of what was asked for: means and standard deviations, with standard errors.

    `plain_mean`, `plain_error` are those of the draws as they are. `order` is that of the control
    variates that `mean` came from (0 for none), and `gain` how many times as many draws a plain mean
    would need. `chains` and `draws` say what all came from.
    """

    mean: Named
    error: Named
    std: Named
    std_error: Named
    plain_mean: Named
    plain_error: Named
    plain_std: Named
    order: Named
    chains: int
    draws: int

    @property
    def gain(self) -> Named:
        """(plain error / error)^2; one where both are zero."""
        return {name: _ratio(self.plain_error[name], error) for name, error in self.error.items()}

    def rows(self) -> list[dict[str, Any]]:
        """One row for each number, with a label such as slope[3, 1]."""
        gains, found = self.gain, []
        columns = {
            "mean": self.mean,
            "error": self.error,
            "std": self.std,
            "std_error": self.std_error,
            "plain_mean": self.plain_mean,
            "plain_error": self.plain_error,
            "gain": gains,
            "order": self.order,
        }
        for name, values in self.mean.items():
            for index in np.ndindex(np.shape(values)):
                inside = f"[{', '.join(map(str, index))}]" if index else ""
                row = {key: column[name][index].item() for key, column in columns.items()}
                found.append({"label": f"{name}{inside}"} | row)
        return found

    def frame(self) -> Any:
        """`rows` as a pandas data frame."""
        with needs_extra("arviz", "a data frame"):
            import pandas as pd
        return pd.DataFrame(self.rows()).set_index("label")

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len("label"), *(len(row["label"]) for row in rows[:SHOWN]))
        lines = [
            f"{self.chains} chains of {self.draws:,} draws; gain: how many times as many a plain mean "
            "would need",
            f"{'':{width}}  {'mean':>11} {'error':>9} {'std':>10} {'plain mean':>11} {'error':>9} "
            f"{'gain':>8}",
        ]
        lines += [
            f"{row['label']:{width}}  {row['mean']:>11.5g} {row['error']:>9.2g} {row['std']:>10.4g} "
            f"{row['plain_mean']:>11.5g} {row['plain_error']:>9.2g} {row['gain']:>8.3g}"
            for row in rows[:SHOWN]
        ]
        if len(rows) > SHOWN:
            lines.append(f"and {len(rows) - SHOWN} more in `rows()`")
        return "\n".join(lines)


def _ratio(plain: np.ndarray, error: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (plain / error) ** 2
    return np.where((plain == 0) & (error == 0), 1.0, ratio)
