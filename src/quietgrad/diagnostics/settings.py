"""The numbers by which a fit is judged, and why; tests and ablations replace fields of the object."""

import math

import equinox as eqx


class Diagnostics(eqx.Module):
    """How much a verdict may cost, what it looks at, and what counts as right.

    `print(qg.Diagnostics())` shows all of it; `result.diagnose(settings=...)` takes another one.
    """

    # Time. Without `seconds`, a verdict takes at most the fit's own wait, or this many seconds: nobody
    # who waited for a fit of a second minds them, and most of them are compilation.
    least_seconds: float = 5.0
    # Of the time, the share that is kept for parts that take longer than the pace of the part before
    # says: of 355 stored verdicts two were late, by 11 % and by 2 %.
    reserve: float = 0.1
    # Of the time, the share that draws of q may take; the rest is for chains, climbs and tails.
    draws_share: float = 0.3
    # What the parts that come after the chains cost, as a share of the time that is kept for them.
    tails_share: float = 0.15
    # Chains and climbs are cut down to these before they are left out: 32 chains tell a mean to 0.1 sds
    # after three independent moves each, and of 8 climbs one meets a mode of a fifth of the volume with
    # a chance of 83 %.
    least_chains: int = 32
    least_scouts: int = 8
    # Numbers (rows x coordinates x gradients) that a diagnosis may touch, and its least gradients.
    work: int = 2**32
    least_gradients: int = 3000
    # Numbers that an array of draws may hold: 256 MB in double precision, of which there are three.
    most_numbers: int = 2**25
    # Coordinates that are judged one by one; of more, those most strongly coupled and a random sample
    # in equal parts. Both are enough to see 1 % of wrong coordinates with a chance of 1 - 0.99^1000.
    most_coordinates: int = 2000
    # Numbers on the model's own scale that are judged beside the coordinates, small variables first.
    most_variables: int = 1000

    # Draws. Pairs that are quasi-random together; groups of them are independent of each other, and an
    # error estimate needs at least four.
    pairs: int = 64
    few_pairs: int = 32
    least_groups: int = 4

    # Weights are all but equal if draws are worth this share of as many of the posterior. A Gaussian
    # whose sd is r of the posterior's has a share of about exp(-(1 - r^2)^2 / 2): r is then above 0.82
    # in every direction, which is within the tolerance. And draws that a mode must have to be covered:
    # their number tells its mass to 20 %.
    flat_weights: float = 0.95
    flat_draws: int = 25

    # The metric. Draws for each coordinate that a matrix asks for; with fewer, a diagonal is estimated.
    per_coordinate: int = 4
    # The share of draws with the lowest density that is left out: far out a gradient may be anything.
    left_out: float = 0.05
    # Bounds of the curvature in units of q's scales where it is estimated coordinate by coordinate, and
    # the least curvature where it is a matrix: a density that is flat wherever q draws has none.
    least_curvature: float = 1e-2
    most_curvature: float = 1e2
    flat: float = 1e-12

    # Chains from q's draws, chains from far climbs, trial steps of the climbs.
    chains: int = 96
    scouts: int = 32
    trials: int = 40
    # Climbs from draws of a q that is no Gaussian, far from each other: as many as modes are told apart.
    own_climbs: int = 24
    # Leapfrog steps of each round of chains; the next one runs if the last left a question open.
    leapfrogs: tuple[int, ...] = (24, 24, 48, 96, 192)
    # Time of a trajectory: a quarter of the period in which a Gaussian returns, after which its start is
    # forgotten. And the most leapfrog steps that it may take.
    trajectory: float = 0.5 * math.pi
    most_leapfrogs: int = 12
    # Acceptance that the step is adapted to lie between, and below which it is halved at once.
    acceptance: tuple[float, float] = (0.75, 0.92)
    poor_acceptance: float = 0.4
    # Chains whose late states follow their start more closely than this tell nothing of their limit.
    stuck: float = 0.9
    # Long chains, which go on where q is off and weights do not correct it. Moves before the metric is
    # taken from the states, twice. Moves in which the step is adapted to it, by a fifth at most each, so
    # that eight change it by a factor of four. The first moves after that, which are doubled until all
    # is known, and their number at most, zero for no such chains. After some of them, chains end for
    # which that would not be enough. Trajectories are longer and steps smaller than those of short
    # chains: states must forget, and narrow places must be entered.
    warm_up: tuple[int, ...] = (8, 16)
    step_moves: int = 8
    first_moves: int = 32
    most_moves: int = 1024
    tried_moves: int = 128
    # Where moves diverge, with smaller steps once more: of baseball batting averages 0.18 % diverge
    # with the first and 0.04 % with the second, of centred eight schools 0.11 % with both.
    long_leapfrogs: tuple[int, ...] = (32, 64)
    long_acceptance: tuple[tuple[float, float], ...] = ((0.9, 0.96), (0.97, 0.99))
    # Errors of their means and log sds as a share of the tolerance: a fifth, which is an effective size
    # of 400. States of each chain that are judged and handed out.
    precise: float = 0.2
    judged_moves: int = 64
    # An error of the energy that is called a divergence, as NUTS has it, and the share of proposals that
    # may diverge: where more do, a part of the posterior is too narrow for the steps. Eight schools,
    # centred, has 0.0016, and chains miss 27 % of the sd of log tau there.
    divergence: float = 1000.0
    most_diverged: float = 0.001
    # Errors below which chains have settled well enough to tell another mode from a ridge.
    settled: float = 0.25

    # Climbs: the nearest and furthest starts in the posterior's scales, and the box of those near zero.
    nearest: float = 2.0
    furthest: float = 60.0
    box: float = 2.0
    # L-BFGS: pairs that are remembered, sufficient decrease, and how much shorter a failed step becomes.
    memory: int = 8
    decrease: float = 1e-4
    shorter: float = 0.3

    # Modes. A chain is elsewhere if its average is this many sds of other chains' averages, and this
    # many posterior sds, from theirs.
    apart: float = 6.0
    apart_std: float = 2.0
    # Log mass relative to q's region above which another mode matters: 3 %, which moves a mean by a
    # tenth of the distance at most, and is what chance makes of the estimate.
    matters: float = -3.5
    # A climb rests where a step of its own promises fewer nats than this: it is within 0.15 sds of a
    # mode. Two modes have a dip of so many nats at one of so many points between them.
    resting: float = 0.01
    dip: float = 0.25
    between: int = 15
    # Places that are looked at, the heaviest first, and modes that are told apart.
    candidates: int = 4
    most_modes: int = 24
    # The Gaussian at such a place: Newton steps on averages over draws, which double digits once they
    # are close, at most so many, until one moves it by fewer sds than this; the most by which a step
    # changes a variance, and the most posterior sds that it moves; pairs of draws for its mass, known to
    # 10 % where they are worth half their number; and the k-hat from which on weights have no mean.
    local_steps: int = 12
    local_rest: float = 0.03
    no_mean: float = 1.0
    local_change: float = 8.0
    local_move: float = 3.0
    local_pairs: int = 256
    # q leaves a place out if it has less than one of so many of its share there.
    share_left: float = 10.0
    # Chains that begin in each mode that q has draws in, as far as there are; chains that may leave the
    # mode in which they began for modes to count as separate. And what the mass of a mode may be off
    # by: half of that moves the mean of two equal modes by 0.1 sds.
    mode_chains: int = 16
    crossing: float = 0.1
    mode_mass: float = 0.1

    # Coordinates and directions along which tails are looked at, the widest first, and numbers for them.
    axes: int = 48
    widest: int = 4
    axis_numbers: int = 2**22

    # Tolerance: what a right fit may be off by. Means in posterior sds, log of q's sd over the
    # posterior's.
    mean: float = 0.25
    narrow: float = -math.log(1.3)
    wide: float = math.log(1.3)
    # Estimates are called off a little before, if noise alone would make them so in less than one of a
    # thousand coordinates; of more than `few` numbers, in less than one of twenty diagnoses.
    caution: float = 0.88
    significant: float = 3.3
    few: int = 500
    false_alarms: float = 0.05
    # Errors above which an estimate leaves the question open.
    sharp_mean: float = 0.1
    sharp_scale: float = 0.12
    # Errors that must fit between an estimate and its limit for it to count as right, and for chains not
    # to go on. Sds are estimated too low where a tail has not been visited yet, and so are their errors.
    margin: float = 1.0
    clear_margin: float = 2.0

    # A flow whose sd is below this share of the posterior's, with weights of a k-hat above this, has
    # left something out that its draws and chains from them do not get to.
    followed: float = math.log(0.88)
    no_variance: float = 0.5
    # Nats that a Newton step may promise in all, and for each coordinate, before a fit is unfinished.
    gain: float = 0.5
    gain_each: float = 0.02
    # Draws of the posterior that weights must be worth, what they may differ from the chains by, and an
    # error of either beyond which they confirm nothing.
    worth: int = 100
    agree_mean: float = 0.25
    agree_scale: float = 0.25
    confirmed: float = 0.3
    # Errors by which they may differ as well: of a few numbers, noise makes one of twenty differ more.
    agree_errors: float = 2.0
    # Share of draws at which a density may be zero and weights still correct it, and beyond which there
    # is nothing to judge.
    most_bad: float = 0.01
    hopeless: float = 0.5
    # Posterior sds by which restarts may differ, and nats by which another may be better.
    restart_mean: float = 0.5
    restart_gain: float = 1.0

    # Shapes. Correlations that are called a shape: some 300 independent states leave a noise of 0.06.
    funnel: float = 0.35
    banana: float = 0.6
    straight: float = 0.9
    # Coordinates among which shapes are looked for, those most strongly coupled first.
    shape_coordinates: int = 500


DEFAULT = Diagnostics()
