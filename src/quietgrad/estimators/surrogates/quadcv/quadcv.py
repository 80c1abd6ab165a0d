"""QuadCV as the paper runs it: closed-form means where the family has them, further draws elsewhere."""

from jaxtyping import Array, Float, Key, PyTree

from ....families import AbstractFamily, HasPathMetric
from ....targets import Target
from ...entropy import Path
from ..surrogate import AbstractSurrogate, Control
from .flow import QuadraticFlow
from .quadratic import Quadratic


class QuadCV(AbstractSurrogate):
    """`closed` for families that know their path metric, `empirical` (Algorithm 1) for all others."""

    closed: Quadratic = Quadratic()
    empirical: QuadraticFlow = QuadraticFlow()

    @property
    def biased(self) -> bool:
        """When either form is."""
        return self.closed.biased or self.empirical.biased

    def refuses(self, target: Target, q: AbstractFamily, draws: int) -> str | None:
        """What the chosen form objects to."""
        return self._form(q).refuses(target, q, draws)

    def variance_bound(self, q: AbstractFamily) -> float:
        """That of the chosen form."""
        return self._form(q).variance_bound(q)

    def init(self, target: Target, q: AbstractFamily) -> PyTree:
        """The chosen form's state."""
        return self._form(q).init(target, q)

    def control(
        self,
        state: PyTree,
        target: Target,
        q: AbstractFamily,
        e: Float[Array, "draws base"],
        path: Path,
        slope: Float[Array, "draws dim"],
        *,
        key: Key[Array, ""],
    ) -> tuple[Control, PyTree]:
        """The chosen form's control."""
        return self._form(q).control(state, target, q, e, path, slope, key=key)

    def _form(self, q: AbstractFamily) -> AbstractSurrogate:
        return self.closed if isinstance(q, HasPathMetric) else self.empirical
