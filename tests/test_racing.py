"""The race, in the library and from the command line."""

import dataclasses
import importlib
import json
import re
import subprocess
import sys

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad import cli
from quietgrad.racing import entrants_for

MODEL = """
import jax.numpy as jnp
import quietgrad as qg

target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2 * jnp.arange(1, 4)), dim=3)
broken = qg.Target.from_logdensity(lambda z: jnp.log(-jnp.abs(z[0])) - jnp.sum(z**2), dim=3)
number = 3


def misshapen():
    return qg.Target.from_logdensity(lambda z: z**2, dim=3)
"""


def known(value):
    assert value is not None
    return value


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model in it, from which commands are called."""
    (tmp_path / "my_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("full_batch", [True, False])
def test_names_of_the_default_field_tell_the_draws(full_batch):
    """A table shows nothing else of an entrant."""
    field = entrants_for(full_batch=full_batch)
    told = {name: found for name in field if (found := re.search(r"(\d+) draws$", name))}
    assert len(told) >= 6
    for name, found in told.items():
        assert field[name].draws == int(found[1])


@pytest.mark.slow
def test_names_a_winner_and_says_why():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
    entrants = {"plain": "nocv", "quiet": "quiet", "odd": qg.Pathwise(sampler="antithetic", draws=3)}
    # At the solution, near which few steps on a busy machine may not come.
    best = qg.MeanField(jnp.zeros(2), jnp.zeros(2))
    result = qg.race(target, best, entrants=entrants, seconds=0.1, key=jr.key(0))
    assert {lane.name for lane in result.lanes} == {"plain", "quiet"}
    assert "even number" in result.left_out["odd"]
    assert result.winner in result.recommendation()
    lanes = {lane.name: lane for lane in result.lanes}
    assert known(lanes["quiet"].variance) < known(lanes["plain"].variance)
    assert lanes["quiet"].estimator == "Quiet"
    assert all(lane.clock["optimise"] > 0 for lane in result.lanes)


def test_a_race_is_a_table_and_says_who_was_done_first_with_everything_included():
    """By the optimisation one wins and by the watch the other, unless it ended below the mark."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
    result = qg.race(target, entrants={"quiet": "quiet", "auto": "auto"}, seconds=0.1, key=jr.key(0))

    def told(**changes):
        lanes = [
            dataclasses.replace(
                lane,
                clock={"total": 1.0 if lane.name == "quiet" else 9.0},
                elbo=result.mark + changes.get(lane.name, 0.5),
            )
            for lane in result.lanes
        ]
        return dataclasses.replace(result, lanes=lanes, winner="auto").recommendation()

    assert told().endswith("included, quiet was done first: after 1 s, auto after 9 s.")
    assert "done first" not in told(quiet=-0.5)

    title, head, *rows = str(result).splitlines()
    assert f"{result.mark:.2f}" in title
    assert head.split()[0] == "entrant"
    assert [row.split()[0] for row in rows[:2]] == [lane.name for lane in result.lanes]
    assert len({len(row) for row in (head, *rows[:2])}) == 1
    assert rows[-1] == result.recommendation()
    shown = result._repr_html_()
    assert all(f"<td>{lane.name}</td>" in shown for lane in result.lanes)


@pytest.mark.slow
def test_methods_race_under_the_same_judge_and_the_same_limit():
    target = qg.Target.from_logdensity(lambda z: -jnp.sum(jnp.cosh(z - 2)), dim=3)
    entrants = {"auto": "auto", "saa": qg.Saa(), "sgd": qg.Sgd("quiet")}
    result = qg.race(target, "full-rank", entrants=entrants, seconds=0.2, key=jr.key(0))
    lanes = {lane.name: lane for lane in result.lanes}
    # Everyone starts at the family's own start or a mean-field one; nobody gets quiet's numbers.
    assert lanes["saa"].microseconds is None
    assert lanes["auto"].noise_cost is None
    assert known(lanes["sgd"].noise_cost) > 0
    # The first evaluation after the limit is the last, whenever a busy machine comes to it.
    assert all(np.all(lane.seconds[:-1] < 0.2) for lane in result.lanes)
    with pytest.raises(ValueError, match=r"unknown entrant 'autoo'.*auto"):
        qg.race(target, entrants={"a": "autoo"}, key=jr.key(0))


def test_an_arrival_must_be_held_and_be_at_the_mark():
    """The mark is a nat below the best answer by the judge; what is 50 nats below is not there."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - 20) ** 2), dim=2)
    still = qg.Sgd("quiet", optimizer=optax.adam(1e-6))
    entrants = {"slow": qg.estimator("quiet"), "still": still, "auto": "auto"}
    result = qg.race(target, entrants=entrants, seconds=0.3, learning_rate=1e-4, key=jr.key(0))
    lanes = {lane.name: lane for lane in result.lanes}
    # Who did not arrive comes after who did, the highest first.
    late = [lane.elbo for lane in result.lanes if lane.seconds_to_mark is None]
    assert len(late) == 2
    assert late == sorted((lane.elbo for lane in result.lanes[1:]), reverse=True)
    assert result.winner == "auto"
    assert lanes["slow"].seconds_to_mark is None
    place = int(np.flatnonzero(lanes["auto"].seconds >= lanes["auto"].seconds_to_mark)[0])
    assert lanes["auto"].elbos[place] >= result.mark
    assert result.mark > float(qg.elbo(target, result.best.q, key=jr.key(1))) - 1.5


def test_command_prints_a_table_and_writes_json(folder):
    call = [sys.executable, "-m", "quietgrad", "race", "my_model.py:target"]
    call += ["--seconds", "0.05", "--json", "race.json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Use " in done.stdout
    document = json.loads((folder / "race.json").read_text())
    assert document["format"] == 2
    assert len(document["lanes"]) >= 7
    assert document["environment"]["quietgrad"] == qg.__version__


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("my_model.py:broken", ["finite ELBO", "log density"]),
        ("my_model.py:misshapen", ["real scalar", "float64[3]"]),
        ("my_model.py:number", ["quietgrad.Target", "int"]),
        ("my_model.py:tagret", ["no 'tagret'", "target"]),
        ("missing.py:target", ["my_model.py:target", "missing.py"]),
    ],
)
@pytest.mark.usefixtures("folder")
def test_bugs_in_a_users_model_end_in_a_helpful_message(place, words, monkeypatch, capsys):
    """In this process, which has imported jax: an error that is not caught would be this test's."""
    # Nobody finds an ELBO where there is none: one entrant of each kind says so as well as all.
    field = {"quiet": "quiet", "auto": "auto", "saa": "saa"}
    monkeypatch.setattr(
        importlib.import_module("quietgrad.racing.race"), "entrants_for", lambda full_batch: field
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(["race", place, "--seconds", "0.02"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    for word in words:
        assert word in told
