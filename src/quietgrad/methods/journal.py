"""What a method decided and why: written for people, in words. Nothing reads it to decide anything."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Decision:
    """One decision.

    `kind`: "climb" (starts at fixed draws competed) and "climb stop" (nothing is left to gain),
    "given" (Newton steps from a start that was given), "far" and "near" (steps from it gain, or do not),
    "embed" (a richer family starts from a simpler one's solution), "mode" (another start), "newton" and
    "newton stop" (curvature), "valley" (more gained than promised); "enough", "up" and "not up" on the
    ladder of families; while exploring "go on", "noise" (it dominates), "level" (nothing gained), "roll
    back" (worse than before) or "reset" (non-finite); while annealing "round", "take back", "choose"
    (another estimator) or "stop"; in a run with the user's optimiser "drift", "stay" or
    "choose". `numbers` holds what it was based on.
    """

    step: int
    kind: str
    estimator: str
    rate: float
    numbers: dict[str, Any]

    def __str__(self) -> str:
        return f"step {self.step:,}: {_WORDS[self.kind].format(d=self, **self.numbers)}"


_WORDS = {
    "climb": "L-BFGS at fixed draws from {start} led to an ELBO of {elbo:.2f} on fresh draws{others}",
    "climb stop": "at fresh draws a Newton step promises {left:.3f} ± {left_error:.3f} nats, which is "
    "not worth it; stop",
    "mode": "the mode with its curvature has an ELBO of {elbo:.2f}; Newton steps from there led to "
    "{later:.2f}",
    "given": "the start that was given has an ELBO of {elbo:.2f}; Newton steps from there led to "
    "{later:.2f}",
    "far": "a round with a decaying rate from the start that was given gained {answer_gain:+.2f} ± "
    "{answer_error:.2f} nats, so it is not the answer yet; explore",
    "near": "a round with a decaying rate from the start that was given gained {answer_gain:+.2f} ± "
    "{answer_error:.2f} nats, so it is close to the answer; no need to explore",
    "embed": "the {simpler} solution, ELBO {elbo:.2f}, becomes the start of {family}",
    "enough": "{family} is about {gap:.2f} nats below the log evidence, so no richer family is worth it",
    "up": "{richer} gained {gained:.2f} ± {error:.2f} nats over {family} and takes its place",
    "not up": "{richer} gained {gained:.2f} ± {error:.2f} nats over {family}, which is no clear gain",
    "newton": "{iterations} Newton steps on the target's average gradient and curvature led to an ELBO "
    "of {elbo:.2f}; another one promises {left:.3f} ± {left_error:.3f} nats, so go on with stochastic "
    "steps",
    "newton stop": "{iterations} Newton steps on the target's average gradient and curvature led to an "
    "ELBO of {elbo:.2f}; another one promises {left:.3f} ± {left_error:.3f} nats, which is not worth "
    "it; stop",
    "valley": "Newton steps that had come to rest gained {gained:.2f} nats with more draws, so the "
    "target is far from quadratic; let another start compete",
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
    "stop": "the last round gained {answer_gain:+.2f} ± {answer_error:.2f} nats, which is not worth "
    "another; stop",
}
