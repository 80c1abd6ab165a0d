"""The worked example of CONTRIBUTING.md, added exactly as it says: one file and one registry line."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import pytest
from jax.flatten_util import ravel_pytree
from oracles import assert_mean, by_quadrature, replicate
from promises import assert_control_variate
from subjects import family, in_turn, target_2d

from quietgrad.estimators import Controlled, control_variates
from quietgrad.estimators.control_variates import AbstractControlVariate

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SECTION = PAGE.split("\n## Add your own control variate\n")[1].split("\n## ")[0]


def found(pattern, text):
    match = re.search(pattern, text, re.DOTALL)
    assert match is not None, f"nothing in the section is like {pattern}"
    return match[1]


def block(after, language):
    """The first fenced block of a language below the words `after`."""
    return found(rf"```{language}\n(.*?)```", SECTION.split(after)[1])


PATH = Path(found(r"\*\*The file\*\* is `src/quietgrad/(\S+)\.py`", SECTION))
CHANGE = block("**The line**", "diff").splitlines()


@pytest.fixture(autouse=True)
def added(monkeypatch, tmp_path):
    """The file in its folder and the line in the registry, for one test."""
    written = tmp_path / PATH.with_suffix(".py").name
    written.write_text(block("**The file**", "python"))
    name = ".".join(["quietgrad", *PATH.parts])
    spec = importlib.util.spec_from_file_location(name, written)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    import_line, entry = [line[1:].strip() for line in CHANGE if line.startswith("+")]
    namespace = {}
    exec(import_line.replace("from .", f"from {control_variates.__name__}."), namespace)
    ((registered, cls),) = eval(f"{{{entry}}}", namespace).items()
    assert registered not in control_variates.REGISTRY
    monkeypatch.setitem(control_variates.REGISTRY, registered, cls)
    return registered


def test_the_change_fits_the_file_it_is_for():
    lines = Path(control_variates.__file__).read_text().splitlines()
    kept = [line[1:] for line in CHANGE if line.startswith(" ")]
    assert len(kept) > 2
    assert set(kept) <= set(lines)


def test_it_is_one_class_that_implements_the_contract(added):
    cls = control_variates.REGISTRY[added]
    assert issubclass(cls, AbstractControlVariate)
    assert isinstance(Controlled(added).control_variate, cls)


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", in_turn())
def test_it_keeps_the_promises_of_the_registry(kind, added, key):
    assert_control_variate(added, kind, key)


def test_gradient_is_unbiased(added, key):
    target, q = target_2d("curved"), family("mean-field", 2)
    made = Controlled(added, source="lagged", draws=4)
    start = made.init(target, q)._replace(control_variate=jnp.array([3.0, -1.0]))
    key_before, key_now = jr.split(key)
    _, state = eqx.filter_jit(made.step)(target, q, start, key=key_before)

    def gradient(key):
        return ravel_pytree(made.step(target, q, state, key=key)[0].grad)[0]

    truth = by_quadrature(target, q)
    assert_mean(replicate(gradient, 4000, key_now), truth.value[:-1], slack=truth.error[:-1])


def test_the_page_runs_and_the_noise_of_the_scales_falls(added, capsys):
    namespace = {}
    page = block("**Try it.**", "python")
    exec(page, namespace)
    printed, promised = (
        ast.literal_eval(text) for text in (capsys.readouterr().out, page.splitlines()[-1][2:])
    )
    assert promised["log_std"] < 0.5
    # A thousand gradients give a ratio to about 2 percent of the plain variance, one standard error.
    assert printed == pytest.approx(promised, abs=0.1)
    assert not namespace["estimator"].biased
