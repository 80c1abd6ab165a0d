"""Draws and summaries in the folder of a fit: of q, and corrected ones if the verdict asks for them."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ...diagnostics.diagnosis import Verdict
from ...results import FitResult

DRAWS, SUMMARY = "draws.nc", "summary.csv"
CORRECTED_FILES = CORRECTED_DRAWS, CORRECTED_SUMMARY = "corrected_draws.nc", "corrected_summary.csv"
# Numbers of a file of draws, at most: draws times those of a draw, likelihoods of rows included.
STORED = 2**25
# Rows of the summary that are printed.
SHOWN = 20


def which(verdict: Verdict | None, *, refined: bool = False) -> str:
    """Which of the files hold draws to use, in a sentence."""
    if refined:
        return f"{DRAWS} and {SUMMARY} are those of chains that started from q; the verdict is of q"
    if verdict is Verdict.CORRECTED:
        return (
            f"use {CORRECTED_DRAWS} and {CORRECTED_SUMMARY}, which are corrected by importance weights "
            f"or chains; {DRAWS} and {SUMMARY} are q's own, which is off"
        )
    own = f"{DRAWS} and {SUMMARY} are those of q"
    if verdict is Verdict.TRUST:
        return own
    return own + (", which was not diagnosed" if verdict is None else ", which is not to be trusted")


def write_draws(stage: Path, result: FitResult, verdict: Verdict | None) -> None:
    """Write draws and summaries, and print the summary that the verdict speaks of."""
    size = max(result.q.dim, result.target.rows, 1)
    count = int(np.clip(STORED // size, 100, 2000))
    table, title = _write(stage / DRAWS, stage / SUMMARY, result.to_arviz(count)), "summary of q"
    if result.refined is not None:
        title = "summary of the chains' draws"
    elif verdict is Verdict.CORRECTED:
        tree = result.to_arviz(count, corrected=True)
        table = _write(stage / CORRECTED_DRAWS, stage / CORRECTED_SUMMARY, tree)
        title = f"summary of the corrected draws (that of q itself, which is off, is in {SUMMARY})"
    elif verdict is Verdict.DO_NOT_TRUST:
        title += ", which the verdict says not to trust"
    elif verdict is None:
        title += ", which was not diagnosed"
    more = "" if len(table) <= SHOWN else f"\n({len(table) - SHOWN:,} more in the file)"
    text = f"{title}:\n{table.head(SHOWN).to_string()}{more}"
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def _write(draws: Path, summary: Path, tree: Any) -> Any:
    from ...adapters import arviz

    tree.to_netcdf(draws)
    table = arviz.summary(tree, round_to="none")
    table.to_csv(summary)
    return table
