"""Figures of a fit: what is drawn, with names that matplotlib or a reader could stumble over."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.patches import Rectangle
from test_card import CLOCK, HISTORY

import quietgrad as qg
from quietgrad.families import Mixture
from quietgrad.results.display import plots
from quietgrad.results.display.curve import curve_of
from quietgrad.results.display.noise import Noise, gradient_noise

NOISE = ("Quiet", [Noise("loc of a", 0.0, 0.0, 2.0), Noise("log_std of $b_$", 0.5, 0.1, 3.0)])


def drawn(figure):
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


@pytest.mark.turns(2)
@pytest.mark.parametrize("noise", [NOISE, None], ids=["noise", "no noise"])
@pytest.mark.parametrize("most", [0, 3, 6])
def test_panels(noise, most):
    draws = {"a": np.random.default_rng(0).normal(size=(50, 2)), "$x_": np.zeros((50, 5))}
    figure = plots.fit_figure("title", curve_of(HISTORY, CLOCK), noise, draws, None, most=most)
    assert drawn(figure).startswith(b"\x89PNG")
    assert figure._repr_png_().startswith(b"\x89PNG")
    axes = figure.get_axes()
    assert len(axes) == (1 if noise is None else 2) + most
    assert axes[0].get_xlim() == (0.0, CLOCK["total"])


def test_labels_of_an_axis_say_whole_values():
    """Not what is left of them after a number that is written in a corner."""
    history = HISTORY | {"elbo": np.asarray([-54325.0, -54322.5, -54321.5, -54321.0])}
    figure = plots.fit_figure("", curve_of(history, CLOCK), None, {}, None, most=0)
    assert drawn(figure)
    axis = figure.get_axes()[0].yaxis
    labels = [label.get_text().replace("\N{MINUS SIGN}", "-") for label in axis.get_ticklabels()]
    np.testing.assert_allclose([float(label) for label in labels], axis.get_ticklocs())
    assert axis.get_offset_text().get_text() == ""


def area(patches):
    """Of outlines that close on themselves, one after the other."""
    corners = [patch.get_patch_transform().transform(patch.get_path().vertices) for patch in patches]
    return sum(abs(np.sum(c[:-1, 0] * c[1:, 1] - c[1:, 0] * c[:-1, 1])) / 2 for c in corners)


def test_corrected_draws_are_outlined_on_the_scale_of_the_others_however_many_there_are():
    """Both are densities, with an area of one."""
    rng = np.random.default_rng(0)
    draws, corrected = ({"a": rng.normal(size=(count, 1))} for count in (50, 500))
    figure = plots.fit_figure("", None, None, draws, ("corrected", corrected), most=1)
    patches = figure.get_axes()[-1].patches
    outline = [patch for patch in patches if not patch.get_fill()]
    bars = [patch for patch in patches if patch.get_fill()]
    assert len(outline) == 1
    assert area(bars) == pytest.approx(1, rel=1e-9)
    assert area(outline) == pytest.approx(1, rel=1e-9)


def test_what_is_not_finite_is_said():
    draws = {"a": np.full((20, 1), np.nan)}
    figure = plots.fit_figure("", None, None, draws, None, most=1)
    assert drawn(figure)
    words = [text.get_text() for axes in figure.get_axes() for text in axes.texts]
    assert words == ["no evaluation was finite", "not finite"]


def test_histograms_of_other_numbers_of_draws_can_be_compared():
    """The filled one and the outlined one hold an area of one each."""
    rng = np.random.default_rng(0)
    draws, corrected = {"a": rng.normal(size=(200, 1))}, {"a": rng.normal(size=(50, 1))}
    figure = plots.fit_figure("", None, None, draws, ("few", corrected), most=1)
    filled, outlined = [], []
    for patch in figure.get_axes()[1].patches:
        if isinstance(patch, Rectangle):
            filled.append(patch.get_width() * patch.get_height())
        else:
            x, y = patch.get_xy()[:-1].T
            outlined.append(np.sum(np.diff(x) * y[:-1]))
    np.testing.assert_allclose([sum(filled), sum(outlined)], 1.0, rtol=1e-12)


def test_noise_is_told_by_block_and_variable(key):
    """One wide and one narrow variable: the gradient of the narrow one's location is the noisier."""
    target = qg.Target.from_logdensity(
        lambda p: -0.5 * (jnp.sum(p["wide"] ** 2) + 1e4 * jnp.sum(p["narrow"] ** 2)),
        example={"wide": np.zeros(2), "narrow": np.zeros(3)},
    )
    q = qg.MeanField(jnp.zeros(5), jnp.log(jnp.asarray([0.01, 0.01, 0.01, 1.0, 1.0])))
    name, parts = gradient_noise(target, q, qg.estimator("nocv", draws=4), None, repeats=100, key=key)
    assert name == "Iid + Sampled with 4 draws"
    sizes = {part.label: part for part in parts}
    assert set(sizes) == {f"{b} of {v}" for b in ("loc", "log_std") for v in ("wide", "narrow")}
    # At the posterior the gradient of a location is e / std: a hundred times as much for the narrow one.
    ratio = sizes["loc of narrow"].std / sizes["loc of wide"].std
    assert abs(np.log(ratio / 100)) < 5 / np.sqrt(2 * 100 * 2)
    assert all(part.std == part.plain for part in parts)
    # Sticking the landing has no noise there, and stands in for a fit without an estimator.
    _, quiet = gradient_noise(target, q, None, None, repeats=20, key=key)
    assert max(part.std for part in quiet) < 1e-10 * max(part.plain for part in quiet)


def test_parts_that_draws_do_not_depend_on_are_not_shown(key):
    """The weight of a single component is one, whatever its logit."""
    target = qg.Target.from_logdensity(lambda z: -jnp.sum(jnp.cosh(z)), dim=2)
    one = Mixture.init(2, components=1, key=key)
    _, parts = gradient_noise(target, one, qg.estimator("nocv", draws=4), None, repeats=20, key=key)
    assert {part.label for part in parts} == {"loc", "packed"}


def test_a_result_plots_and_frames_its_history(key):
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ z, 2)
    result = qg.fit(target, method=qg.Sgd("quiet", steps=20), key=key)
    figure = result.plot(corrected=True, most=2)
    assert len(figure.get_axes()) == 4
    assert drawn(figure)
    assert "reliable corrected draws" in figure._suptitle.get_text()
    frame = result.history_frame()
    assert list(frame.columns) == list(result.history)
    np.testing.assert_array_equal(frame["elbo"], result.history["elbo"])
    with pytest.raises(ValueError, match="most must be"):
        result.plot(most=-1)
    # The curve alone.
    assert len(result.plot(noise=False, most=0).get_axes()) == 1
    assert jax.tree.leaves(result)
