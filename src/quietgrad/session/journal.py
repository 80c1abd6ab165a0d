"""What a method decided and why: written for people, in words. Nothing reads it to decide anything."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Decision:
    """One decision: its `kind` is a key of `SENTENCES`, `numbers` holds what it was based on."""

    step: int
    kind: str
    estimator: str
    numbers: dict[str, Any]

    def __str__(self) -> str:
        return f"step {self.step:,}: {SENTENCES[self.kind].format(d=self, **self.numbers)}"


SENTENCES = {
    "search": "L-BFGS at fixed draws led to an ELBO of {elbo:.2f} on fresh draws{others}",
    "search stop": "at fresh draws a Newton step is expected to gain {left:.3f} ± {left_error:.3f} "
    "nats, which is not worth it; stop",
    "mode": "the mode with its curvature has an ELBO of {elbo:.2f}; Newton steps from there led to "
    "{later:.2f}",
    "embed": "the {simpler} solution, ELBO {elbo:.2f}, becomes the start of {family}",
    "enough": "{family} is about {gap:.2f} nats below the log evidence, so no richer family is worth it",
    "simpler": "{simpler} with the same means and conditional scales is {lost:.3f} nats below {family}, "
    "which is no clear loss, and takes its place",
    "trusted": "{family} would be trusted ({why}), so no richer family is needed",
    "evidence": "the verdict on {family} would be '{verdict}': {why}; look for a family that mends it",
    "up": "{richer} gained {gained:.2f} ± {error:.2f} nats over {family} and takes its place",
    "not up": "{richer} gained {gained:.2f} ± {error:.2f} nats over {family}, which is no clear gain",
    "mixture": "Newton steps of a mixture with {components} components led to an ELBO of {elbo:.2f}",
    "bend": "bending the Gaussian on the host led to an ELBO of {elbo:.2f}; the last round gained "
    "{gained:.3f} ± {error:.3f} nats",
    "newton": "Newton steps on the target's average gradient and curvature led to an ELBO of "
    "{elbo:.2f}; another one is expected to gain {left:.3f} ± {left_error:.3f} nats, so go on with "
    "stochastic steps",
    "newton stop": "Newton steps on the target's average gradient and curvature led to an ELBO of "
    "{elbo:.2f}; another one is expected to gain {left:.3f} ± {left_error:.3f} nats, which is not worth "
    "it; stop",
    "structure": "{sentence}",
    "globals": "with the locals given the {count} globals ({locals}), a Gaussian for these is about "
    "{gap:.3f} nats below their marginal density",
    "flow of globals": "a flow for the globals gained {gained:.3f} nats at its draws",
    "valley": "Newton steps that were stationary gained {gained:.2f} nats with more draws, so the "
    "target is far from quadratic; let another start compete",
    "choose": "noise dominates, so quiet gradients pay: {d.estimator} has the least variance × cost, "
    "{ratio:.2f} of the present one",
    "drift": "the gradient stands out from its noise ({signal:.2f} of its square), so the cheapest step "
    "is the right one",
    "stay": "noise dominates, and nothing has clearly less variance × cost than {d.estimator}",
    "round": "a round with a decaying rate gained {gain:+.2f} ± {error:.2f} nats; another one, twice as "
    "long, from a rate of {rate:.3g}",
    "take back": "a round with a decaying rate changed the ELBO by {gain:+.2f} ± {error:.2f} nats; take "
    "it back and halve the rate to {rate:.3g}",
    "stop": "the last round gained {gain:+.2f} ± {error:.2f} nats, which is not worth another; stop",
}
