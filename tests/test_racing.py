"""The race, in the library and from the command line."""

import json
import subprocess
import sys

import jax.numpy as jnp
import jax.random as jr
import pytest

import quietgrad as qg

MODEL = """
import jax.numpy as jnp
import quietgrad as qg

target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2 * jnp.arange(1, 4)), dim=3)
broken = qg.Target.from_logdensity(lambda z: jnp.log(-jnp.abs(z[0])) - jnp.sum(z**2), dim=3)
number = 3


def misshapen():
    return qg.Target.from_logdensity(lambda z: z**2, dim=3)
"""


def command(folder, *arguments):
    (folder / "my_model.py").write_text(MODEL)
    call = [sys.executable, "-m", "quietgrad", "race", *arguments]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)


def test_names_a_winner_and_says_why():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
    entrants = {"plain": "nocv", "quiet": "quiet", "odd": qg.Pathwise(sampler="antithetic", draws=3)}
    result = qg.race(target, entrants=entrants, seconds=0.1, key=jr.key(0))
    assert {lane.name for lane in result.lanes} == {"plain", "quiet"}
    assert "even number" in result.left_out["odd"]
    assert result.winner in result.recommendation()
    lanes = {lane.name: lane for lane in result.lanes}
    assert lanes["quiet"].variance < lanes["plain"].variance
    assert result.mark == result.best.elbo - 1


def test_command_prints_a_table_and_writes_json(tmp_path):
    done = command(tmp_path, "my_model.py:target", "--seconds", "0.05", "--json", "race.json")
    assert done.returncode == 0, done.stderr
    assert "Use " in done.stdout
    document = json.loads((tmp_path / "race.json").read_text())
    assert document["format"] == 1
    assert len(document["lanes"]) >= 7
    assert document["environment"]["quietgrad"] == qg.__version__


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("my_model.py:broken", ["finite ELBO", "log density"]),
        ("my_model.py:misshapen", ["real scalar", "float32[3]"]),
        ("my_model.py:number", ["quietgrad.Target", "int"]),
        ("my_model.py:tagret", ["no 'tagret'", "target"]),
        ("missing.py:target", ["my_model.py:target", "missing.py"]),
    ],
)
def test_bugs_in_a_users_model_end_in_a_helpful_message(tmp_path, place, words):
    done = command(tmp_path, place, "--seconds", "0.02")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
