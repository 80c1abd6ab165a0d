"""Tools that fit a Gaussian to a log density, each as its users call it, behind one signature.

A contender is a function (target, family, rate, key) that yields snapshots of its answer as it goes.
Everything between its first line and a snapshot is on its clock; what is done with snapshots is not.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from . import blackjax_vi, numpyro_svi, ours, pymc_advi
from .snapshot import Snapshot

Run = Callable[..., Iterator[Snapshot]]


class Contender(NamedTuple):
    """`run` fits `families`; one that takes a step size is run with each of `rates`."""

    run: Run
    families: tuple[str, ...]
    settings: str
    rates: tuple[float | None, ...] = (None,)


RATES = (0.1, 0.01, 0.001)
REGISTRY: dict[str, Contender] = {
    "quietgrad auto": Contender(ours.auto, ("mean-field", "low-rank", "full-rank"), "no settings"),
    "quietgrad sgd": Contender(ours.quiet_steps, ("mean-field",), ours.SETTINGS, (0.01,)),
    "NumPyro SVI": Contender(
        numpyro_svi.svi, ("mean-field", "low-rank", "full-rank"), numpyro_svi.SETTINGS, RATES
    ),
    "BlackJAX VI": Contender(blackjax_vi.vi, ("mean-field", "full-rank"), blackjax_vi.SETTINGS, RATES),
    "BlackJAX pathfinder": Contender(
        blackjax_vi.pathfinder, ("full-rank",), blackjax_vi.PATHFINDER_SETTINGS
    ),
    "PyMC ADVI": Contender(pymc_advi.advi, ("mean-field", "full-rank"), pymc_advi.SETTINGS),
}

__all__ = ["REGISTRY", "Contender", "Snapshot"]
