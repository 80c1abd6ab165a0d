"""A fit in a notebook: what is on its card, well formed, escaped, and without a script."""

import re
import xml.etree.ElementTree as ET

import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad._util.html import element
from quietgrad.results.display.card import card
from quietgrad.results.display.curve import curve_of, ticks
from quietgrad.results.display.svg import svg

EVIL = "<script>alert('1')</script>"
CLOCK = {"compile": 1.0, "optimise": 0.5, "evaluate": 0.2, "other": 0.1, "total": 1.8}
HISTORY = {
    "step": np.arange(4),
    "wall": np.asarray([0.6, 1.0, 1.4, 1.7]),
    "compile": np.asarray([0.5, 0.5, 0.8, 0.8]),
    "elbo": np.asarray([-1e6, -12.0, -10.5, -10.0]),
    "elbo_error": np.asarray([1.0, 0.2, 0.1, 0.1]),
}


def made(**changes):
    given = {
        "good": True,
        "failed": False,
        "history": HISTORY,
        "clock": CLOCK,
        "decisions": [],
        "draws": {EVIL: np.zeros((5, 30))},
        "diagnosis": None,
    }
    return card(EVIL, "converged", f"hint {EVIL}", **{**given, **changes})


def parsed(text):
    """As XML, which is stricter than browsers: every element closed, every text escaped."""
    return ET.fromstring(text)


def tags(text):
    return [node.tag.rpartition("}")[2] for node in parsed(text).iter()]


def test_text_is_escaped_and_there_is_no_script():
    text = made(decisions=[EVIL])
    assert "script" not in tags(text)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 33
    assert "url(" not in text
    assert "src=" not in text
    assert element("p", "<'&", title='"') == '<p title="&quot;">&lt;&#x27;&amp;</p>'


def test_long_tables_are_folded_and_longer_ones_cut():
    shown = tags(made())
    assert shown.count("details") == 1
    # Two heads, ten rows and twenty folded ones.
    assert shown.count("tr") == 2 + 30
    many = made(draws={"z": np.zeros((3, 1000))})
    assert tags(many).count("tr") == 2 + 200
    assert "800 are left out" in many
    assert "details" not in tags(made(draws={"z": np.zeros((3, 4))}))


def test_without_a_diagnosis_it_says_how_to_get_one():
    assert "result.diagnose()" in made()


def test_a_fit_that_never_was_finite_has_a_card_without_a_curve():
    history = {**HISTORY, "elbo": np.full(4, np.nan)}
    text = made(history=history, draws={"z": np.full((4, 2), np.nan)}, good=False, failed=True)
    assert "svg" not in tags(text)
    assert "nan" in text


def test_the_curve_shows_its_end_and_where_programs_were_compiled():
    curve = curve_of(HISTORY, CLOCK)
    assert curve is not None
    # The better half is -12 to -10: the start, a million below, does not set the edge.
    assert -20 < curve.bottom < -12
    assert -10 < curve.top < -9
    assert curve.total == 1.8
    np.testing.assert_allclose(curve.compiling, [(0.0, 0.5), (1.0, 1.3)])


def test_the_curve_lies_where_its_axes_say():
    """The axis of the ELBO begins at the curve's bottom and ends at its top, that of seconds at zero."""
    history = {**HISTORY, "elbo": np.asarray([-12.0, -11.0, -10.5, -10.0])}
    curve = curve_of(history, CLOCK)
    assert curve is not None
    nodes = [(node.tag.rpartition("}")[2], node.attrib, node.text) for node in parsed(svg(curve)).iter()]
    (drawn,) = [attrib["d"] for tag, attrib, _ in nodes if tag == "path"]
    left, top, bottom, right = map(float, re.findall(r"[\d.]+", drawn))
    (line,) = [attrib["points"] for tag, attrib, _ in nodes if tag == "polyline"]
    x, y = np.asarray([point.split(",") for point in line.split()], float).T
    # Places are written with one digit behind the point.
    np.testing.assert_allclose(x, left + (right - left) * curve.seconds / curve.total, rtol=0, atol=0.06)
    height = (curve.elbo - curve.bottom) / (curve.top - curve.bottom)
    np.testing.assert_allclose(y, bottom - (bottom - top) * height, rtol=0, atol=0.06)
    window = [attrib for tag, attrib, _ in nodes if tag == "svg"][1]
    assert (float(window["y"]), float(window["height"])) == (top, bottom - top)
    shades = [attrib for tag, attrib, _ in nodes if tag == "rect"]
    assert len(shades) == len(curve.compiling)
    assert all((float(one["y"]), float(one["height"])) == (top, bottom - top) for one in shades)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.8), (-499.3, -498.75), (-3e5, 2.0)])
def test_ticks_are_a_few_round_numbers_inside(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 7
    assert all(low <= x <= high for x in found)
    step = found[1] - found[0]
    digit = step / 10 ** np.floor(np.log10(step * (1 + 1e-9)))
    assert round(digit, 6) in (1, 2, 5)


def test_a_result_remembers_its_diagnosis_and_can_be_mapped_over(key):
    import jax

    target = qg.Target.from_logdensity(
        lambda z: -0.5 * jnp.sum(z[EVIL] ** 2), example={EVIL: np.zeros(2)}
    )
    result = qg.fit(target, method=qg.Sgd("quiet", steps=3), key=key)
    before = result._repr_html_()
    assert "result.diagnose()" in before
    assert "script" not in tags(before)
    verdict = str(result.diagnose(200).verdict)
    after = result._repr_html_()
    assert verdict in after
    assert "result.diagnose()" not in after
    found = result.remembered.diagnosis
    assert found is not None
    assert verdict in found._repr_html_()
    jax.tree.map(lambda a, b: (a, b), result, jax.tree.map(lambda x: x, result))
