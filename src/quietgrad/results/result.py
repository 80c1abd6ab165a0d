"""What a fit hands back: the fitted family, how it ended, and how it came about."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key, PyTree, UInt32

from .._numerics.lapack import over_points
from .._util.checks import whole
from .._util.compiling import program
from .._util.extras import adapter, needs_extra
from .._util.random import key_words
from ..diagnostics.agreement import Agreement
from ..diagnostics.diagnose import diagnose
from ..diagnostics.diagnosis import Diagnosis, Ending, Restart
from ..diagnostics.draws import moments
from ..diagnostics.for_nuts import NutsStart, nuts_start
from ..diagnostics.linear_response import LinearResponse, linear_response
from ..diagnostics.posterior import PosteriorDraws, of_chains, resampled
from ..diagnostics.settings import Diagnostics
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..families.stored import StoredFamily, class_name
from ..status import Status
from ..targets import Target
from ..targets.hyperparameters import given
from ..targets.stored import without_density
from .display.card import card
from .display.curve import curve_of
from .display.noise import gradient_noise
from .display.table import named
from .refined import Refine, Refined, refine
from .saving import check_same, origin, write_result

# Numbers that a summary in a notebook may be made of: draws times those of a draw.
SUMMARISED = 2**22


class Remembered:
    """What was found out about a result after it was made; results themselves do not change."""

    diagnosis: Diagnosis | None = None
    # Of a result that was loaded: how it was made, and the log density at some draws of q.
    made: dict[str, Any] | None = None
    probes: Float[np.ndarray, " probes"] | None = None

    # No part of what a result is: two results differ by their fields, not by what was asked of them.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remembered)

    def __hash__(self) -> int:
        return 0


class FitResult(eqx.Module):
    """A fitted family and how it came about.

    `elbo` is a fresh evaluation of `q` on the full data, with standard error `elbo_error`. `status` says
    how the fit ended, and `hint` in a sentence why and what to do. `history` has arrays `step`,
    `seconds` (of optimisation), `wall` (of the whole wait), `compile`, `elbo`, `elbo_error`, and what
    the callback added. `clock` splits the wall clock of the call into `compile`, `optimise`, `evaluate`
    and `other` seconds, with their `total`. `evaluation` says with how many draws and how often the
    ELBO was judged.
    """

    q: AbstractFamily
    elbo: float
    elbo_error: float
    status: Status = eqx.field(static=True)
    hint: str = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    history: dict[str, np.ndarray]
    clock: dict[str, float]
    evaluation: str = eqx.field(static=True)
    programs: int = eqx.field(static=True)
    target: Target
    method: eqx.Module
    estimator: AbstractEstimator | None
    estimator_state: PyTree
    decisions: tuple[Any, ...] = ()
    # Two words of a key of its own, from which a diagnosis takes its random numbers.
    words: UInt32[Array, "2"] | None = None
    # Where the other starts led, if there were any.
    restarts: Agreement | None = None
    remembered: Remembered = eqx.field(static=True, default_factory=Remembered, repr=False)
    # Posterior draws of chains that started from q, if these were asked for.
    refined: Refined | None = None
    # What was fitted beside q, in the form in which it was given; `target` and `q` are those given it.
    hyperparameters: PyTree = None
    # The words of the key that the fit was called with.
    seed: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What `diagnose` said last, also if that was before the result was saved; None if never."""
        return self.remembered.diagnosis

    @property
    def made(self) -> dict[str, Any]:
        """Versions, code commit, machine, precision and seed; for a loaded result, those of then."""
        return origin(self.seed) if self.remembered.made is None else dict(self.remembered.made)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result to a file that `quietgrad.load` reads, here or elsewhere, without the model.

        The file has `q`, the ELBO, how the fit ended, the history, the last diagnosis, and the names and
        scales of the model's variables. It has neither the model nor its data, apart from data that the
        map to the model's variables uses, and those of a hierarchy whose nested locals are found by the
        model. Nothing in it is pickled.

        Args:
            path: the file, which is replaced if it is there.

        Returns:
            The path.
        """
        return write_result(path, self)

    def with_target(self, target: Target) -> "FitResult":
        """A loaded result with its model, for all that asks for one: diagnosis, predictions, NUTS.

        Args:
            target: the target that was fitted, made again. It is recognised by its log density at some
                draws of q; another one is an error. A q that was made from it (a hierarchy with nested
                locals) is made again.
        """
        target = given(target, self.hyperparameters, self.q).of_dim(self.q.dim)
        q = self.q
        if isinstance(q, StoredFamily):
            q = q.around(target) or q
        check_same(target, q, self.remembered.probes)
        refined = None if self.refined is None else dataclasses.replace(self.refined, target=target)
        return dataclasses.replace(self, q=q, target=target, refined=refined)

    @property
    def seconds(self) -> float:
        """Seconds of optimisation."""
        return self.clock["optimise"]

    def explain(self) -> str:
        """How the fit went, in words: what the method decided, one decision a line, and the end."""
        lines = [*map(str, self.decisions), str(self), self.evaluation]
        lines += [] if self.restarts is None else [str(self.restarts)]
        lines += [] if self.refined is None else [str(self.refined)]
        return "\n".join(lines)

    def sample(self, key: Key[Array, ""], draws: int = 1000) -> Any:
        """Draws from `q` in the form of the target's points (vectors, or its pytree).

        After `fit(..., refine=True)` they are draws of the chains instead; `result.q` has its own.
        For a target that was made from a NumPyro or PyMC model they come in the model's names and on its
        constrained scale, with its deterministic variables.
        """
        if self.refined is not None:
            return self.refined.sample(key, draws)
        return _constrained(self.target, self.q.sample(key, draws))

    def predictive(self, key: Key[Array, ""], *args: Any, draws: int = 1000, **kwargs: Any) -> Any:
        """Observed variables of a NumPyro or PyMC model, drawn again for each of `draws` draws from `q`.

        `args` and `kwargs` are what the model is called with; without any, as it was for the fit. The
        model is run: data that it holds or reads by name are those of now, while draws, likelihoods and
        diagnoses are of the data that were fitted.
        """
        if self.target.model is None:
            raise ValueError(
                "this target has a density only, from which data cannot be drawn; make it with "
                "Target.from_numpyro or Target.from_pymc"
            )
        key_draws, key_data = jax.random.split(key)
        drawn = self.sample(key_draws, draws)
        return self.target.model.predictive(drawn, args, kwargs, key=key_data)

    def to_arviz(
        self,
        draws: int = 1000,
        *,
        corrected: bool = False,
        coords: Mapping[str, Any] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
    ) -> Any:
        """Draws of q as an ArviZ `DataTree`, with their log weights, likelihoods, data and labels.

        `sample_stats` has `lp` and `log_q`, which `arviz_stats.loo_approximate_posterior` takes.
        With `corrected` the draws are those of `posterior`, resampled by importance weights. `coords`
        has labels along the model's axes (a NumPyro plate, say), and `dims` names the axes of variables
        that the model leaves without a name. After `fit(..., refine=True)` it has all draws of the
        chains.
        """
        if self.refined is not None and not corrected:
            return self.refined.to_arviz(coords=coords, dims=dims)
        found = self._corrected(self._rng(3), draws) if corrected else None
        draws, make = whole(draws, "draws", least=1), adapter("arviz").to_arviz
        return make(self.target, self.q, self._key(3), draws, found, coords=coords, dims=dims)

    def summary(self, draws: int = 4000, *, corrected: bool = False, **settings: Any) -> Any:
        """Mean, standard deviation and interval of every variable, by `arviz_stats.summary`."""
        if self.refined is not None and not corrected:
            return self.refined.summary(**settings)
        return adapter("arviz").summary(self.to_arviz(draws, corrected=corrected), **settings)

    def history_frame(self) -> Any:
        """The history as a pandas data frame, one row for each evaluation."""
        with needs_extra("arviz", "a data frame"):
            import pandas as pd
        return pd.DataFrame(self.history)

    def plot(self, *, corrected: bool = False, noise: bool | None = None, most: int = 8) -> Any:
        """A matplotlib figure: ELBO against seconds, gradient noise by part of q, and `most` marginals.

        `corrected` also outlines importance-corrected draws. `noise=False` leaves out the noise, which
        takes some hundred gradients and compiles two programs; a result that was loaded without its
        model is drawn without. `.savefig("fit.png")` writes a file.
        """
        from .display import plots

        key, shown = self._key(4), whole(most, "most", least=0)
        parts, better = None, None
        if not without_density(self.target) if noise is None else noise:
            used = self.estimator, self.estimator_state
            parts = gradient_noise(self.target, self.q, *used, repeats=100, key=key)
        if corrected:
            found = self.posterior(key, 4000)
            better = f"{'' if found.reliable else 'un'}reliable corrected draws", named(found.points)
        draws, curve = named(self.sample(key, 4000)), curve_of(self.history, self.clock)
        return plots.fit_figure(self._headline(), curve, parts, draws, better, most=shown)

    def _repr_html_(self) -> str:
        # A model with very many numbers is summarised from fewer draws.
        shapes = jax.eval_shape(self.target.constrain, jax.ShapeDtypeStruct((self.q.dim,), self.q.dtype))
        numbers = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        draws = int(np.clip(SUMMARISED // max(1, numbers), 100, 2000))
        return card(
            self._headline(),
            str(self.status),
            self.hint,
            good=self.status is Status.CONVERGED,
            failed=self.status.failed,
            history=self.history,
            clock=self.clock,
            decisions=self.decisions,
            draws=named(self.sample(self._key(4), draws)),
            diagnosis=self.remembered.diagnosis,
        )

    def posterior(self, key: Key[Array, ""], draws: int = 1000) -> PosteriorDraws:
        """Draws of the posterior; `print` says how they were made and how far they can be relied on.

        Draws of q, resampled by importance weights. Where `diagnose` found that weights do not correct
        q, and long chains from q's draws do, they are draws of these chains.
        """
        found = self._corrected(np.random.default_rng(key_words(key)), draws)
        return dataclasses.replace(found, points=_constrained(self.target, found.points))

    def _corrected(self, rng: np.random.Generator, draws: int) -> PosteriorDraws:
        draws, found = whole(draws, "draws", least=1), self.diagnosis
        if found is not None and found.chain_draws is not None and found.by_chains:
            return of_chains(found.chain_draws, self.q.dtype, rng, draws)
        return resampled(self.target, self.q, rng, draws)

    def diagnose(
        self,
        draws: int = 2000,
        restarts: Sequence["FitResult"] = (),
        *,
        seconds: float | int | None = None,
        settings: Diagnostics | None = None,
        progress: bool | None = None,
    ) -> Diagnosis:
        """One verdict (trust, use the corrected draws, do not trust), why, and what to do.

        Draws of q for importance weights, then short chains, climbs to other modes and far tails.

        Args:
            draws: draws of q for importance weights, at least; fewer where coordinates are many.
            restarts: other fits of the same target, which should agree with this one, beside those that
                the fit has made itself.
            seconds: the most time that it takes. By default as long as the fit took, or five seconds,
                whichever is more. What there is no time for is listed, and nothing is trusted without
                it.
            settings: the numbers by which a fit is judged, `Diagnostics()` by default.
            progress: a line on the terminal; by default if standard error is one.
        """
        settings = Diagnostics() if settings is None else settings
        if seconds is None:
            seconds = max(settings.least_seconds, self.clock.get("total", 0.0))
        elif not seconds > 0:
            raise ValueError(f"seconds must be positive; got {seconds!r}")
        rng = self._rng(0)
        ending = Ending(self.status, self.hint)
        others = [Restart(*moments(other.q, rng), other.elbo, other.elbo_error) for other in restarts]
        others += [] if self.restarts is None else self.restarts.others
        draws = whole(draws, "draws", least=1)
        found = diagnose(
            self.target,
            self.q,
            ending,
            rng,
            draws=draws,
            restarts=others,
            seconds=float(seconds),
            settings=settings,
            progress=progress,
        )
        self.remembered.diagnosis = found
        return found

    def linear_response(self, coordinates: Sequence[int] | None = None) -> LinearResponse:
        """Scales, or covariances of some coordinates, beyond what q can follow (Giordano et al. 2018).

        For location-scale families, mean-field above all. Each coordinate is a linear system, which
        takes some ten to fifty products with the Hessian of the ELBO.
        """
        return linear_response(self.target, self.q, self._rng(1), coordinates)

    def refine(
        self,
        seconds: float | int = 60.0,
        *,
        settings: Refine | None = None,
        sampler: str | None = None,
        progress: bool | None = None,
    ) -> Refined:
        """Posterior draws by NUTS chains that start from q's draws and move in q's coordinates.

        Args:
            seconds: the most time, apart from warm-up and a first block of moves.
            settings: chains, draws of each, and the R-hat and effective sizes that end the run,
                `Refine()` by default.
            sampler: "numpyro" or "blackjax", whichever is installed by default.
            progress: a line on the terminal; by default if standard error is one.
        """
        if not seconds > 0:
            raise ValueError(f"seconds must be positive; got {seconds!r}")
        return refine(
            self.target,
            self.q,
            self._rng(5),
            seconds=float(seconds),
            settings=Refine() if settings is None else settings,
            sampler=sampler,
            progress=progress,
        )

    def for_nuts(self, chains: int = 4, *, dense: bool | None = None) -> NutsStart:
        """Starting points and an inverse mass matrix for NumPyro's or BlackJAX's NUTS.

        Its `coordinates` have the transformed density, in which the posterior is about a standard normal
        as far as q is right.
        """
        chains = whole(chains, "chains", least=1)
        return nuts_start(self.target, self.q, self._rng(2), chains, dense=dense)

    def _rng(self, stream: int) -> np.random.Generator:
        words = [0, 0] if self.words is None else key_words(self.words)
        return np.random.default_rng([*words, stream])

    def _key(self, stream: int) -> Key[Array, ""]:
        return jax.random.key(int(self._rng(stream).integers(2**31)))

    def _headline(self) -> str:
        return f"{class_name(self.q)} of dim {self.q.dim}: ELBO {self.elbo:.2f} ± {self.elbo_error:.2f}"

    def __str__(self) -> str:
        clock = self.clock
        return (
            f"{self._headline()} after {self.steps:,} steps and {clock['total']:.2f} s "
            f"({clock['compile']:.2f} compiling, "
            f"{clock['optimise']:.2f} optimising, {clock['evaluate']:.2f} evaluating, "
            f"{clock['other']:.2f} other); {self.status}: {self.hint}"
        )


@program
def _constrained(target: Target, z: Float[Array, "draws dim"]) -> Any:
    return over_points(target.constrain, z)
