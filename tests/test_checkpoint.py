"""Fits that are stopped and resumed end with the same bits; checkpoints of other fits are refused."""

import math
import shutil
import signal
from pathlib import Path

import checkpoint_fits
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from checkpoint_fits import bits, run

import quietgrad as qg
from quietgrad.session.checkpoint import FORMAT, MAGIC, NAME

SLOW = ("long", "switching", "ladder", "exploring")


class Stop(BaseException):
    """Nothing in the library catches this: what it interrupts might as well have been killed."""


def stop_at(number):
    seen = [0]

    def callback(moment):
        seen[0] += 1
        if seen[0] == number:
            raise Stop

    return callback


def resumed(name, directory, number):
    """The fit, stopped at every n-th evaluation until it comes through, and how often it was stopped."""
    for stops in range(100):
        try:
            return run(name, checkpoint=directory, callback=stop_at(number)), stops
        except Stop:
            # Evaluations since the last write are made again: a longer run is sure to get further.
            number += 1
    raise AssertionError("the fit does not get any further")


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in checkpoint_fits.FITS],
)
def test_a_fit_that_was_stopped_anywhere_ends_with_the_same_bits(name, tmp_path, monkeypatch):
    # Fits of a moment are saved once or twice only; here whenever they can be, to resume everywhere.
    monkeypatch.setattr("quietgrad.session.checkpoint.SHARE", math.inf)
    whole = run(name)
    evaluations = len(whole.history["step"])
    rng = np.random.default_rng(0)
    # Each is stopped several times on its way; the fits that are slow anyway do it twice.
    trials = 2 if name in SLOW else 1
    for trial, number in enumerate(rng.choice(np.arange(2, evaluations), trials, replace=False)):
        found, stops = resumed(name, tmp_path / str(trial), int(number))
        assert stops > 0
        assert bits(found) == bits(whole)
        again = run(name, checkpoint=tmp_path / str(trial), callback=stop_at(1))
        assert bits(again) == bits(whole)


def test_control_c_leaves_a_checkpoint_that_goes_on(tmp_path):
    def callback(moment):
        if moment.step == 600:
            signal.raise_signal(signal.SIGINT)

    cut = run("sgd", checkpoint=tmp_path, callback=callback)
    assert cut.status is qg.Status.INTERRUPTED
    assert "the same call" in cut.hint
    later = []
    found = run("sgd", checkpoint=tmp_path, callback=lambda moment: later.append(moment.step))
    # What was written down before the interruption is not made again.
    assert later == list(range(600, 2001, 200))
    assert bits(found) == bits(run("sgd"))
    assert found.clock["total"] > cut.clock["total"]
    phases = sum(seconds for phase, seconds in found.clock.items() if phase != "total")
    assert phases == pytest.approx(found.clock["total"])
    assert np.all(np.diff(found.history["wall"]) >= 0)


def test_a_fit_that_ran_out_of_time_goes_on_if_it_is_given_more(tmp_path):
    first = run("sgd", checkpoint=tmp_path, seconds=1e-9)
    assert first.status is qg.Status.BUDGET
    assert first.steps < 2000
    again = run("sgd", checkpoint=tmp_path, seconds=1e-9, callback=stop_at(1))
    assert bits(again) == bits(first)
    assert bits(run("sgd", checkpoint=tmp_path)) == bits(run("sgd"))


def test_a_finished_fit_leaves_its_file_alone(tmp_path):
    run("bam", checkpoint=tmp_path)
    before = (tmp_path / NAME).stat()
    run("bam", checkpoint=tmp_path)
    after = (tmp_path / NAME).stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def helper(z):
    return -0.5 * z @ z


def helped(z):
    return helper(z)


def small(prior=helped, data=None, **changes):
    """A fit of a few steps; `changes` are what a refusal should name."""
    x = np.arange(6.0) if data is None else data
    model = qg.Target(prior, lambda z, x: -0.5 * (x - z[0]) ** 2, x, dim=2)
    settings = {
        "family": "mean-field",
        "method": small_sgd(),
        "key": jr.key(0),
        **changes,
    }
    return qg.fit(model, settings.pop("family"), **settings)


def small_sgd(estimator="quiet", rate=1e-2, steps=3):
    return qg.Sgd(estimator, optax.adam(rate), steps)


def scaled(scale):
    return lambda z: -0.5 * jnp.sum(scale * z**2)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stored")
    small(checkpoint=directory)
    return directory / NAME


@pytest.fixture
def checkpoint(stored, tmp_path):
    shutil.copy(stored, tmp_path / NAME)
    return tmp_path / NAME


CHANGES = {
    "data": ({"data": np.arange(6.0) + 1}, "target.data: float64"),
    "rows": ({"data": np.arange(7.0)}, "target.data: float64[6]"),
    "model": ({"prior": lambda z: -z @ z}, "target.log_prior: program"),
    "family": ({"family": "full-rank"}, "family: MeanField is stored, FullRank was given"),
    "start": ({"family": qg.MeanField(jnp.ones(2), jnp.zeros(2))}, "family.loc"),
    "method": ({"method": "saa"}, "method: Sgd is stored, Saa was given"),
    "steps": ({"method": small_sgd(steps=4)}, "method.steps: 3 is stored, 4 was given"),
    "optimizer": ({"method": small_sgd(rate=1e-3)}, "method.optimizer"),
    "estimator": ({"method": small_sgd(estimator="nocv")}, "method.estimator: Quiet is stored"),
    "batch size": ({"batch_size": 2}, "batch_size: None is stored, 2 was given"),
    "key": ({"key": jr.key(1)}, "key: [0, 0] is stored, [0, 1] was given"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_fit_is_refused_and_the_difference_is_named(change, checkpoint):
    changes, named = CHANGES[change]
    content = checkpoint.read_bytes()
    with pytest.raises(ValueError, match="belongs to another fit") as refused:
        small(checkpoint=checkpoint.parent, **changes)
    assert named in str(refused.value)
    assert "another directory" in str(refused.value)
    assert checkpoint.read_bytes() == content


def test_a_model_is_known_by_what_it_computes(checkpoint, monkeypatch, tmp_path):
    """A helper that changed is a change; the same function written anew is none."""
    small(prior=lambda point: helper(point), checkpoint=checkpoint.parent, callback=stop_at(1))
    monkeypatch.setitem(globals(), "helper", lambda z: -0.6 * z @ z)
    with pytest.raises(ValueError, match="target.log_prior: program"):
        small(checkpoint=checkpoint.parent)
    small(prior=scaled(jnp.ones(2)), checkpoint=tmp_path / "captured")
    small(prior=scaled(jnp.ones(2)), checkpoint=tmp_path / "captured", callback=stop_at(1))
    with pytest.raises(ValueError, match="log_prior.constants"):
        small(prior=scaled(2 * jnp.ones(2)), checkpoint=tmp_path / "captured")


def truncated(content):
    return content[:-1]


def changed(content):
    return content[:-50] + bytes([content[-50] ^ 1]) + content[-49:]


def other_format(content):
    return content.replace(MAGIC + str(FORMAT).encode(), MAGIC + b"0", 1)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (truncated, "damaged"),
        (changed, "damaged"),
        (lambda content: MAGIC + f"{FORMAT}\n".encode(), "damaged"),
        (lambda content: b"", "not written by quietgrad"),
        (lambda content: b"PK\x03\x04 something else", "not written by quietgrad"),
        (other_format, "has format 0"),
    ],
    ids=["truncated", "changed", "first line only", "empty", "foreign", "other format"],
)
def test_a_file_that_cannot_be_read_is_not_overwritten(damage, named, checkpoint):
    content = damage(checkpoint.read_bytes())
    checkpoint.write_bytes(content)
    with pytest.raises(ValueError, match=named):
        small(checkpoint=checkpoint.parent)
    assert checkpoint.read_bytes() == content


def test_a_folder_that_cannot_be_written_to_is_found_before_the_fit(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="directory that can be written to"):
            small(checkpoint=place, callback=stop_at(1))


def test_a_full_disk_does_not_end_the_fit(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("quietgrad._util.files.os.fsync", full)
    with pytest.warns(UserWarning, match="No space left"):
        found = small(checkpoint=tmp_path)
    assert bits(found) == bits(small())
    assert list(Path(tmp_path).iterdir()) == []


def test_a_refused_method_makes_no_folder(tmp_path):
    with pytest.raises(ValueError, match="bam"):
        small(method="bam", checkpoint=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_hyperparameters_go_through_a_checkpoint(tmp_path):
    def fit(**settings):
        model = qg.Target(
            lambda z, h: -0.5 * jnp.sum((z - h) ** 2),
            lambda z, x, h: -0.5 * (x - z[0]) ** 2 + 0 * h[0],
            np.arange(6.0),
            dim=2,
        )
        method = qg.Sgd(steps=40, evaluate_every=10, by_clock=False)
        return qg.fit(model, method=method, hyperparameters=jnp.ones(2), key=jr.key(0), **settings)

    with pytest.raises(Stop):
        fit(checkpoint=tmp_path, callback=stop_at(4))
    whole, found, again = fit(), fit(checkpoint=tmp_path), fit(checkpoint=tmp_path)
    assert bits(found) == bits(whole) == bits(again)
    np.testing.assert_array_equal(again.hyperparameters, whole.hyperparameters)


def test_restarts_have_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="restarts=2"):
        small(checkpoint=tmp_path, restarts=2)
