"""What auto decided and why: a record that can be read, explained in words, and replayed."""

import dataclasses
from typing import Any

# Kinds of decisions that only the finish takes.
FINISH = ("round", "take back", "choose", "near enough", "stop")


@dataclasses.dataclass(frozen=True)
class Decision:
    """One decision at the end of a window.

    `kind`: on the way "climb" (fixed draws), "go on", "noise" (it dominates), "level" (nothing gained),
    "roll back" (worse than before) or "reset" (non-finite); "embed" (a richer family starts from the
    mean-field solution), "newton" (its correlations come from the target's curvature); in the finish
    "round", "take back", "choose" (another estimator), "near enough" (for a start) or "stop"; in a run
    with the user's optimiser "drift", "stay" or "choose". `numbers` holds what it was based on.
    """

    step: int
    kind: str
    estimator: str
    rate: float
    numbers: dict[str, Any]

    def __str__(self) -> str:
        return f"step {self.step:,}: {_WORDS[self.kind].format(d=self, **self.numbers)}"


_WORDS = {
    "climb": "{iterations} L-BFGS iterations at fixed draws led to an ELBO of {elbo:.2f}, where fresh "
    "draws see no further gain; finish with stochastic steps",
    "embed": "the mean-field solution, ELBO {elbo:.2f}, becomes the start of {family}",
    "newton": "{iterations} Newton steps on the target's average gradient and curvature led to an ELBO "
    "of {elbo:.2f}",
    "go on": "{answer_gain:+.2f} ± {answer_error:.2f} nats since the last check, so the fit is still "
    "moving; keep the rate of {d.rate:.3g}",
    "noise": "the window's average beats its end by {average_gain:.2f} ± {average_error:.2f} nats, so "
    "noise dominates; go on from the average with a rate that decays from {d.rate:.3g}",
    "level": "{answer_gain:+.2f} ± {answer_error:.2f} nats since the last check at a constant rate; let "
    "it decay from {d.rate:.3g}",
    "roll back": "{answer_gain:+.2f} ± {answer_error:.2f} nats: worse than the last answer; go back to "
    "it and halve the rate to {d.rate:.3g}",
    "reset": "something turned non-finite; go back to the last answer, forget the momentum and quarter "
    "the rate to {d.rate:.3g}",
    "choose": "noise dominates, so quiet gradients pay: {d.estimator} has the least variance × cost, "
    "{ratio:.2f} of the present one",
    "drift": "the gradient stands out from its noise ({signal:.2f} of its square), so the cheapest step "
    "is the right one",
    "stay": "noise dominates, and nothing has clearly less variance × cost than {d.estimator}",
    "round": "a round with a decaying rate gained {answer_gain:+.2f} ± {answer_error:.2f} nats; another "
    "one, twice as long, from a rate of {d.rate:.3g}",
    "take back": "a round with a decaying rate changed the ELBO by {answer_gain:+.2f} ± "
    "{answer_error:.2f} nats; take it back and halve the rate to {d.rate:.3g}",
    "near enough": "the last round gained {answer_gain:+.2f} ± {answer_error:.2f} nats; near enough "
    "for a start",
    "stop": "the last round gained {answer_gain:+.2f} ± {answer_error:.2f} nats, which is not worth "
    "another; stop",
}
