"""One verdict from all evidence, with its reasons in words and numbers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..status import Status
from .diagnosis import Ending, Restart, Verdict
from .evidence import Evidence
from .tolerance import missed, off, significance, unsure

# Coordinates of a direction that are named.
NAMED = 3


class Findings(NamedTuple):
    """Reasons by what follows from them: nothing mends it, weights may mend it, it is fine."""

    fatal: list[str]
    wrong: list[str]
    fine: list[str]


def judge(
    evidence: Evidence, ending: Ending, restarts: Sequence[Restart] = ()
) -> tuple[Verdict, Findings]:
    """The verdict and all reasons."""
    found = Findings([], [], [])
    _ending(ending, found)
    _density(evidence, found)
    _modes(evidence, found)
    _restarts(evidence, restarts, found)
    _errors(evidence, found)
    _gain(evidence, found)
    _unseen(evidence, found)
    neck = _neck(evidence, found)
    corrects = (_corrects(evidence, found) and not neck) or _continued(evidence, found)
    if found.fatal:
        return Verdict.DO_NOT_TRUST, found
    if not found.wrong:
        return Verdict.TRUST, found
    return (Verdict.CORRECTED if corrects else Verdict.DO_NOT_TRUST), found


def correctable(evidence: Evidence, found: Findings) -> bool:
    """Whether long chains may mend what is wrong: they have begun, and there is one mode to move in.

    Chains do not cross between modes, and would agree on one that holds a part of the mass only.
    """
    alone = evidence.modes is None and evidence.elsewhere is None
    begun = evidence.begun is not None and evidence.settings.most_moves > 0
    return not found.fatal and alone and begun and not evidence.unseen


def _ending(ending: Ending, found: Findings) -> None:
    if ending.status.failed:
        found.fatal.append(f"the fit failed ({ending.status}): {ending.hint}")
    elif ending.status is not Status.CONVERGED:
        found.wrong.append(f"the fit did not converge ({ending.status}): {ending.hint}")


def _density(evidence: Evidence, found: Findings) -> None:
    """Where the density is not finite, has no end, or has mass that q leaves out."""
    share, name = evidence.draws.bad_share, evidence.watched.coordinate
    if share > 0:
        where = found.fatal if share > evidence.settings.most_bad else found.wrong
        where.append(f"the log density or its gradient is not finite at {share:.2%} of q's draws")
    for ray, tail in evidence.tails[:1]:
        names = " and ".join(name(i) for i in ray.coordinates[:NAMED])
        if tail.improper:
            found.fatal.append(f"the density does not fall off along {names}: the posterior is improper")
        else:
            missing = "mean and sd do" if tail.slope > -2.1 else "sd does"
            found.fatal.append(
                f"the density falls only like t^{tail.slope:.1f} along {names}, so its {missing} "
                "not exist"
            )
    if evidence.elsewhere is not None:
        away, own = evidence.elsewhere, np.mean(evidence.draws.z, axis=0)
        moved = np.abs(away.place - own) / np.std(evidence.draws.z, axis=0)
        worst = int(np.argmax(moved))
        found.fatal.append(
            f"there is mass where q never looks: near {name(worst)} = {away.place[worst]:.4g} (q is at "
            f"{own[worst]:.4g}), about exp({away.log_mass:.1f}) times that around q"
        )


def _modes(evidence: Evidence, found: Findings) -> None:
    """Several modes, of which q may cover more than one; not said again of one that it leaves out."""
    if evidence.modes is None or evidence.elsewhere is not None:
        return
    a, b = evidence.modes[:2]
    name, count = evidence.watched.coordinate, len(evidence.modes)
    worst = int(np.argmax(np.abs(a - b) / np.std(evidence.draws.z, axis=0)))
    places = f"{name(worst)} = {a[worst]:.4g} and {b[worst]:.4g}"
    places = f"{places} among {count} of them" if count > 2 else places
    if evidence.covers:
        found.fine.append(f"q has several modes of the posterior, {places}, by their mass")
        return
    found.wrong.append(f"the posterior has several modes: {places}, with a dip between them")


def _restarts(evidence: Evidence, restarts: Sequence[Restart], found: Findings) -> None:
    if not restarts:
        return
    settings, name = evidence.settings, evidence.watched.coordinate
    own, std = np.mean(evidence.draws.z, axis=0), np.std(evidence.draws.z, axis=0)
    terms = evidence.draws.log_weights[evidence.draws.finite]
    elbo, error = float(np.mean(terms)), float(np.std(terms) / math.sqrt(terms.size))
    for other in restarts:
        gain, doubt = other.elbo - elbo, math.hypot(error, other.elbo_error)
        if gain > settings.restart_gain + 2 * doubt:
            found.fatal.append(f"a restart found a better answer, by {gain:.1f} ± {doubt:.1f} nats")
            continue
        distance = np.abs(other.mean - own) / np.maximum(std, other.std)
        worst = int(np.argmax(distance))
        if distance[worst] > settings.restart_mean and gain > -settings.restart_gain - 2 * doubt:
            found.fatal.append(
                f"a restart that is as good ends {distance[worst]:.1f} sds away in {name(worst)}"
            )
    if not any("restart" in reason for reason in found.fatal):
        found.fine.append(f"{len(restarts)} restarts agree, or ended lower")


def _errors(evidence: Evidence, found: Findings) -> None:
    """Means and scales that are off, or could not be found out."""
    best, name, settings = evidence.best, evidence.watched.name, evidence.settings
    (means, scales), (open_means, open_scales) = off(best, settings), unsure(best, settings)
    ratio, ratio_error = np.exp(best.log_ratio), np.exp(best.log_ratio) * best.log_ratio_error
    worst = _worst(np.abs(best.shift), means, open_means)
    place = f"{best.shift[worst]:+.2f} ± {best.shift_error[worst]:.2f} sd in {name(worst)}"
    if means.any():
        found.wrong.append(f"off: {_count(means)}; the posterior mean differs from q's by {place}")
    elif open_means.any():
        found.wrong.append(f"open: {_count(open_means)}; the posterior mean may differ by {place}")
    else:
        found.fine.append(f"largest difference of a mean: {place}")
    worst = _worst(np.abs(best.log_ratio), scales, open_scales)
    place = f"{ratio[worst]:.2f} ± {ratio_error[worst]:.2f} times the posterior's in {name(worst)}"
    if scales.any():
        found.wrong.append(f"off: {_count(scales, 'sd')}; q's sd is {place}")
    elif open_scales.any():
        found.wrong.append(f"open: {_count(open_scales, 'sd')}; q's may be {place}")
    else:
        found.fine.append(f"largest difference of an sd: q's is {place}")


def _gain(evidence: Evidence, found: Findings) -> None:
    """What a Newton step would gain; nothing where the draws do not tell if that is much or little."""
    gain, settings = evidence.gain, evidence.settings
    worth = settings.gain + settings.gain_each * evidence.draws.z.shape[1]
    if math.isfinite(gain.nats) and gain.conclusive(worth):
        text = f"a Newton step promises {gain.nats:.2f} ± {gain.error:.2f} nats"
        (found.wrong if gain.clearly_above(worth) else found.fine).append(text)


def _unseen(evidence: Evidence, found: Findings) -> None:
    """What was not looked at, and which coordinates were."""
    if evidence.unseen:
        found.wrong.append(f"open: not looked at for lack of time: {'; '.join(evidence.unseen)}")
    watched = evidence.watched
    if watched.selected:
        found.fine.append(
            f"judged {watched.dim:,} of {watched.whole:,} coordinates: those most strongly coupled to "
            "others, and as many of the rest, taken at random"
        )
    if watched.whole > evidence.settings.few:
        hidden = missed(evidence.best, evidence.settings)
        if math.isfinite(hidden):
            found.fine.append(
                f"of so many, a single mean that is off by {hidden:.2f} sd could be missed"
            )


def _corrects(evidence: Evidence, found: Findings) -> bool:
    """Whether importance weights correct what is wrong; says so."""
    weights, size, settings = evidence.weights, evidence.draws.log_q.size, evidence.settings
    worth = f"{size:,} draws are worth {weights.effective:,.0f} of the posterior"
    if not weights.usable:
        found.fine.append(
            f"importance weights cannot be relied on: k-hat {weights.khat:.2f} is above the limit of "
            f"{weights.limit:.2f}"
        )
        return False
    tail = f"k-hat {weights.khat:.2f}, below the limit of {weights.limit:.2f}"
    if weights.khat >= weights.limit:
        tail = f"no importance weight is twice the average (k-hat {weights.khat:.2f})"
    equal = weights.khat == -math.inf
    found.fine.append(f"{'the largest importance weights are equal' if equal else tail}; {worth}")
    if weights.effective < settings.worth:
        return False
    narrowest = float(np.min(evidence.best.log_ratio[: evidence.watched.dim]))
    # The tail of a Gaussian's weights if q's sd is r of the posterior's: k = 1 - r^2.
    if 1 - math.exp(2 * min(0.0, narrowest)) > weights.limit:
        found.fine.append(
            f"but q's narrowest sd, {math.exp(narrowest):.2f} of the posterior's, makes weights so "
            "heavy that few draws do not show it"
        )
        return False
    if equal or evidence.flat:
        # p is q as far as q's own tails reach, and what is beyond is looked for by climbs. In a neck, or
        # in tails as heavy as a funnel's, chains of one step size would only add their noise.
        return True
    a, b = evidence.weighted, evidence.moved
    many = a.shift.size > settings.few
    errors = significance(a.shift.size, settings) if many else settings.agree_errors
    doubt = np.hypot(a.shift_error, b.shift_error), np.hypot(a.log_ratio_error, b.log_ratio_error)
    with np.errstate(invalid="ignore"):
        apart, scaled = np.abs(a.shift - b.shift), np.abs(a.log_ratio - b.log_ratio)
        agree = apart <= np.maximum(settings.agree_mean, errors * doubt[0])
        agree &= scaled <= np.maximum(settings.agree_scale, errors * doubt[1])
    confirmed = np.maximum(*doubt) < settings.confirmed
    if not np.all(agree & confirmed):
        # Of modes that bridges have confirmed, weights need not tell the masses again.
        (found.fine if evidence.covers else found.wrong).append(
            "importance weights and short chains from q's draws do not confirm each other"
        )
        return False
    return True


def _continued(evidence: Evidence, found: Findings) -> bool:
    """Whether long chains from q's draws are enough; says so."""
    draws = evidence.chain_draws
    if draws is None:
        return False
    found.fine.append(str(draws))
    return draws.enough


def _neck(evidence: Evidence, found: Findings) -> bool:
    """Whether there is a neck that neither q's draws nor chains get into; says so."""
    place = evidence.neck
    if place is None:
        return False
    ratio, name = math.exp(evidence.best.log_ratio[place]), evidence.watched.name
    found.wrong.append(
        f"open: the flow's sd is {ratio:.2f} times the posterior's in {name(place)} as far as chains "
        f"get, and k-hat {evidence.weights.khat:.2f} says that there is more"
    )
    return True


def _worst(size: np.ndarray, wrong: np.ndarray, unclear: np.ndarray) -> int:
    """The largest, among those that are wrong or else unclear if there are any."""
    among = wrong if wrong.any() else unclear if unclear.any() else np.ones_like(wrong)
    return int(np.argmax(np.where(among, size, -1.0)))


def _count(which: np.ndarray, what: str = "mean") -> str:
    number = int(np.count_nonzero(which))
    return f"{number} of {which.size} {what}{'s' if which.size > 1 else ''}"
