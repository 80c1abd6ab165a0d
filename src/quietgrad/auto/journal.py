"""What auto decided and why: a record that can be read, explained in words, and replayed."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Decision:
    """One decision at the end of a window.

    `kind`: "go on", "halve" (noise dominates: restart from the average), "roll back" (worse than
    before), "reset" (non-finite), "choose" (another estimator), "embed" (a richer family starts from the
    mean-field solution) or "stop". `numbers` holds what it was based on.
    """

    step: int
    kind: str
    estimator: str
    rate: float
    numbers: dict[str, Any]

    def __str__(self) -> str:
        return f"step {self.step:,}: {_WORDS[self.kind].format(d=self, **self.numbers)}"


_WORDS = {
    "go on": "{answer_gain:+.2f} ± {answer_error:.2f} nats since the last check, so the fit is still "
    "moving; keep the rate of {d.rate:.3g}",
    "halve": "the window's average beats its end by {average_gain:.2f} ± {average_error:.2f} nats, so "
    "noise dominates; restart from the average and halve the rate to {d.rate:.3g}",
    "roll back": "the window lost {loss:.2f} ± {answer_error:.2f} nats against the last answer; go back "
    "to it and halve the rate to {d.rate:.3g}",
    "reset": "something turned non-finite; go back to the last answer, forget the momentum and quarter "
    "the rate to {d.rate:.3g}",
    "choose": "noise dominates, so quiet gradients pay: {d.estimator} has the least variance × cost, "
    "{ratio:.2f} of the present one",
    "embed": "the mean-field solution, ELBO {elbo:.2f}, becomes the start of {family}",
    "stop": "the last window gained {answer_gain:+.2f} ± {answer_error:.2f} nats, less than half a nat; "
    "stop",
}
