"""The same model with other data: any number of rows, of the same form."""

import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg


def log_prior(z):
    return -0.5 * z @ z


def log_likelihood(z, rows):
    return -0.5 * (rows["y"] - rows["x"] @ z) ** 2


def table(rows, columns=2, dtype=float):
    rng = np.random.default_rng(rows)
    return {"x": rng.normal(size=(rows, columns)).astype(dtype), "y": rng.normal(size=rows)}


@pytest.mark.parametrize(
    "data",
    [
        table(5, columns=1),
        table(5, dtype=np.float32),
        table(5) | {"w": np.ones(5)},
        (table(5)["x"], table(5)["y"]),
    ],
    ids=["another number of columns", "another precision", "an array more", "no names"],
)
def test_data_of_another_form_are_refused(data):
    target = qg.Target(log_prior, log_likelihood, table(3), dim=2)
    with pytest.raises(ValueError, match="must be like that of the target"):
        target.with_data(data)


@pytest.mark.parametrize(("size", "after"), [(None, 7), (30, 30)])
def test_other_rows_take_the_place_of_those_before(size, after):
    """They stand for as many rows as they are, unless it was said how many those before stood for."""
    target = qg.Target(log_prior, log_likelihood, table(3), size=size, dim=2).with_data(table(7))
    z, data = np.array([0.3, -1.0]), table(7)
    likelihood = -0.5 * np.sum((data["y"] - data["x"] @ z) ** 2)
    assert target.size == after
    np.testing.assert_allclose(
        target.log_density(jnp.asarray(z)), -0.5 * z @ z + after / 7 * likelihood, rtol=1e-12
    )
