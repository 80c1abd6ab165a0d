"""Restarts, many fits, races, studies, reports, adapters, saved results."""

from .bug import bug

MANY = "tests/test_many.py"
RESTARTS = "tests/test_restarts.py"
RACE = "tests/test_racing.py"
STUDY = "tests/study/test_summary.py tests/study/test_timing.py"
CLAIMS = "tests/study/test_claims.py"
REPORT = "tests/report/test_build.py tests/report/test_curves.py"
SAVED = "tests/storage -k 'numpyro or named or model or whole_result or moved or named or bases'"
TABLES = "tests/datasets/test_tables.py"

MUTANTS = [
    bug(
        "fit_many",
        "own = key if number == 0 else numbered(key, number)",
        "own = key",
        "all data sets are fitted with one key",
        MANY,
    ),
    bug(
        "fit_many",
        "limit = None if seconds is None else left",
        "limit = None",
        "the limit of the whole call is nobody's",
        MANY,
    ),
    bug(
        "fit_many",
        "limit = None if seconds is None else left",
        "limit = seconds",
        "every fit has the seconds of all",
        MANY,
    ),
    bug("fit_many", "if len(raised) == count:", "if raised:", "one bad data set stops all", MANY),
    bug(
        "numbered",
        "[*key_words(key), stream]",
        "[stream]",
        "other starts do not depend on the key",
        RESTARTS,
    ),
    bug(
        "fit_restarts",
        "max(finished,",
        "min(finished,",
        "the worst of several starts is returned",
        RESTARTS,
    ),
    bug(
        "fit_restarts",
        "clock=common.clock.read()",
        "clock=answer.clock",
        "the clock is that of one start",
        RESTARTS,
    ),
    bug(
        "fit_restarts",
        "common.left() <= 0",
        "common.left() <= -1e9",
        "starts go on after the limit",
        RESTARTS,
    ),
    bug("_agree", "_distance(a, b) < SAME_SDS", "True", "modes of equal height are one", RESTARTS),
    bug(
        "_behind",
        "paired_difference(top, a)",
        "paired_difference(a, top)",
        "starts that are behind are finished",
        RESTARTS,
    ),
    bug(
        "_distance", "np.maximum(a.std, b.std)", "1.0", "starts differ in units and not in sds", RESTARTS
    ),
    bug(
        "_agreement",
        "if number != best:",
        "if number == best:",
        "the diagnosis compares an answer with itself",
        RESTARTS,
    ),
    bug(
        "race",
        "lanes.sort(key=lambda lane: (_or_inf(lane.seconds_to_mark), -lane.elbo))",
        "lanes.sort(key=lambda lane: (_or_inf(lane.seconds_to_mark), lane.elbo))",
        "the lowest of those that did not arrive comes first",
        RACE,
    ),
    bug("race", "best.terms.elbo - MARGIN", "best.terms.elbo + MARGIN", "nobody reaches the mark", RACE),
    bug(
        "_run",
        "seconds / EVALUATIONS / max(cost, 1e-9)",
        "seconds / max(cost, 1e-9)",
        "a race is looked at once",
        RACE,
    ),
    bug(
        "Lane.noise_cost",
        "self.variance * self.microseconds",
        "self.variance / self.microseconds",
        "costs are divided by",
        RACE,
    ),
    bug(
        "RaceResult.recommendation",
        "min(waits",
        "max(waits",
        "the last to be done is called first",
        RACE,
    ),
    bug("_lane", "1e6 * done.pace", "1e3 * done.pace", "microseconds are milliseconds", RACE),
    bug(
        "late_rise",
        "np.median(after) - np.median(before)",
        "np.median(before) - np.median(after)",
        "rising runs are on a plateau",
        STUDY,
    ),
    bug(
        "on_plateau",
        "rise < max(NATS, 2 * error)",
        "rise < min(NATS, 2 * error)",
        "noise keeps every run from its plateau",
        STUDY,
    ),
    bug(
        "tail_mean",
        "known[-max(LEAST, len(known) // 10) :]",
        "known[: max(LEAST, len(known) // 10)]",
        "the end of a run is its beginning",
        STUDY,
    ),
    bug(
        "best_elbo", "max(best.get(key, -math.inf), end)", "end", "the best is the last record's", STUDY
    ),
    bug(
        "_row",
        "reps=len(records)",
        "reps=len({id(r.cell) for r in records}) + 1",
        "repetitions are one too many",
        STUDY,
    ),
    bug(
        "_row",
        "arrival.target - late_elbo(arrival.record)",
        "late_elbo(arrival.record) - arrival.target",
        "the gap has the wrong sign",
        STUDY,
    ),
    bug(
        "_median_arrival",
        "math.inf if value is None else value",
        "0.0 if value is None else value",
        "runs that never arrived were the fastest",
        STUDY,
    ),
    bug(
        "late_variance_ratio",
        "3 * step >= 2 * np.max(step)",
        "3 * step <= 2 * np.max(step)",
        "late variance ratios are early ones",
        STUDY,
    ),
    bug("settled", "min(i, WINDOW - 1) // 2", "0", "the least of a window stands for it", STUDY),
    bug(
        "Timing.by_configuration",
        "configuration(time.cell): time.rounds",
        "configuration(each.times[0].cell): time.rounds",
        "a timing is joined to the first row",
        STUDY,
    ),
    bug(
        "Timing.with_pass",
        "configuration(t.cell) not in again",
        "configuration(t.cell) in again",
        "what was measured again is kept twice",
        STUDY,
    ),
    bug("mean", "0.5 + LEVEL / 2", "LEVEL", "one-sided tails make a two-sided interval", CLAIMS),
    bug("mean", "stdtrit(reps - 1,", "stdtrit(reps,", "one degree of freedom too many", CLAIMS),
    bug(
        "geometric",
        "_exp(logs.low), _exp(logs.high)",
        "_exp(logs.high), _exp(logs.low)",
        "the ends of an interval are swapped",
        CLAIMS,
    ),
    bug(
        "Interval.within",
        "self.high < low or self.low > high",
        "self.high < low",
        "intervals above are no failure",
        CLAIMS,
    ),
    bug(
        "standardise_inputs",
        "(x - loc) / std, y) for x, y in split",
        "(x - x.mean(axis=0)) / x.std(axis=0), y) for x, y in split",
        "the test set is standardised by itself",
        TABLES,
    ),
    bug("_cut", "order[train : train + test]", "order[:test]", "test rows are training rows", TABLES),
    bug(
        "_location_and_scale", "values.std(axis=0)", "values.std()", "all columns have one scale", TABLES
    ),
    bug(
        "number",
        "digits - 1 - math.floor",
        "digits - math.floor",
        "one digit more than is meant",
        REPORT,
    ),
    bug("times", "(min, max)", "(max, min)", "a range of factors is printed backwards", REPORT),
    bug(
        "duration",
        '(3600.0, "hours"), (60.0, "minutes")',
        '(60.0, "hours"), (3600.0, "minutes")',
        "minutes are called hours",
        REPORT,
    ),
    bug(
        "to_arviz",
        'stats["lp"] - stats["log_q"]',
        'stats["log_q"] - stats["lp"]',
        "log weights have the wrong sign",
        "tests/adapters/test_arviz.py",
    ),
    bug(
        "_by_chain",
        "x.reshape(chains, -1, *x.shape[1:])",
        "x.reshape(-1, chains, *x.shape[1:])",
        "draws are taken for chains",
        "tests/adapters/test_arviz.py",
    ),
    bug(
        "NumpyroModel._unscaled",
        "log_probs[name] / scale",
        "log_probs[name]",
        "likelihoods of a subsampled plate are scaled up",
        "tests/adapters/test_numpyro_target.py tests/adapters/test_arviz.py",
    ),
    bug(
        "NumpyroModel._log_likelihood",
        'total * count / sites[self.rows.plate]["args"][0]',
        "total",
        "rows of a plate are scaled by it and by the target",
        "tests/adapters/test_numpyro_target.py",
    ),
    bug(
        "PymcModel.constrain",
        "zip(self.program.variables, values, strict=True)",
        "zip(self.program.variables, values[::-1], strict=True)",
        "variables get each other's values",
        "tests/adapters/test_pymc.py",
    ),
    bug(
        "Bijected.forward_with_score",
        "jnp.ones_like(log_det)",
        "-jnp.ones_like(log_det)",
        "the score of a flow has the determinant's gradient turned",
        "tests/adapters/test_flowjax.py",
    ),
    bug(
        "read_file",
        "if digest != content[-DIGEST:]:",
        "if not digest:",
        "a damaged file is read",
        "tests/storage tests/test_checkpoint.py -k 'damaged or whole_result or refused'",
    ),
    bug(
        "check_same",
        "if not np.all(same):",
        "if not np.any(same):",
        "another model's data are not noticed",
        "tests/storage/test_probes.py",
    ),
    bug(
        "Decoder._array",
        "math.prod(shape), offset)",
        "math.prod(shape), 0)",
        "every array is the first one",
        "tests/checkpoints tests/storage -k 'come_back or comes_back'",
    ),
    bug(
        "exported",
        "max(1, int((INLINE - 1) / work)) if work else 0",
        "0",
        "stored programs share out LAPACK calls",
        "tests/storage -k lapack",
    ),
    bug(
        "FitResult.save",
        "return write_result(path, self)",
        "return write_result(path, dataclasses.replace(self, history={}))",
        "the history is not saved",
        "tests/storage -k mean-field",
    ),
]
