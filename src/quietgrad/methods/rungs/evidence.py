"""What draws of the present answer say of it: how far it is from the posterior."""

from typing import NamedTuple

from ...families import AbstractFamily
from ...session import Candidate


class Evidence(NamedTuple):
    """Of the answer `q`: `gap`, about how many nats its ELBO is below the log evidence."""

    q: AbstractFamily
    gap: float

    @classmethod
    def of(cls, answer: Candidate) -> "Evidence":
        """From the terms that the evaluator has computed."""
        return cls(answer.q, answer.terms.gap)
