"""NumPyro models with 10^4 and 10^5 latent variables, each as globals and the locals given them.

Both parts are functions of their own, as NumPyro's AutoSemiDAIS asks for them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Large(NamedTuple):
    """`of_globals()` draws the globals, `of_locals(globals)` the rest, in the plate of this name.

    `batched` is what AutoBatched guides take as their batch dimensions: one where all sites have one
    length, else none.
    """

    of_globals: Callable[[], Any]
    of_locals: Callable[..., None]
    plate: str
    batched: int = 0

    def model(self) -> None:
        """The whole."""
        self.of_locals(self.of_globals())


def large(name: str) -> Large:
    """The model of this name."""
    return {"item-response": item_response, "crossed": crossed, "factorisation": factorisation}[name]()


def item_response() -> Large:
    """Two-parameter logistic: abilities of 9,980 persons, slopes and difficulties of 10 items."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng, persons, items = np.random.default_rng(11), 9980, 10
    slope, hard = np.exp(0.3 * rng.normal(size=items)), rng.normal(size=items)
    odds = slope * (rng.normal(size=(persons, 1)) - hard)
    answers = jnp.asarray(rng.random((persons, items)) < 1 / (1 + np.exp(-odds)), jnp.float32)

    def of_globals() -> Any:
        with numpyro.plate("items", items):
            a: Any = numpyro.sample("a", dist.LogNormal(0.0, 0.5))
            b: Any = numpyro.sample("b", dist.Normal(0.0, 2.0))
        return a, b

    def of_locals(found: Any) -> None:
        a, b = found
        with numpyro.plate("persons", persons):
            ability: Any = numpyro.sample("ability", dist.Normal(0.0, 1.0))
            logits = a * (ability[:, None] - b)
            numpyro.sample("y", dist.Bernoulli(logits=logits).to_event(1), obs=answers)

    return Large(of_globals, of_locals, "persons")


def crossed() -> Large:
    """Crossed random effects: 5,000 raters and 5,000 subjects, ten ratings of each subject."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng, count, each = np.random.default_rng(12), 5000, 10
    rater = jnp.asarray(np.stack([rng.permutation(count) for _ in range(each)], axis=1))
    effect = 0.5 + 0.7 * rng.normal(size=count)[np.asarray(rater)] + rng.normal(size=(count, 1))
    ratings = jnp.asarray(effect + rng.normal(size=(count, each)), jnp.float32)

    def of_globals() -> Any:
        mean: Any = numpyro.sample("mean", dist.Normal(0.0, 5.0))
        scales: Any = numpyro.sample("scales", dist.LogNormal(0.0, 1.0).expand([3]).to_event(1))
        with numpyro.plate("raters", count):
            a: Any = numpyro.sample("a", dist.Normal(0.0, scales[0]))
        return mean, scales, a

    def of_locals(found: Any) -> None:
        mean, scales, a = found
        with numpyro.plate("subjects", count):
            b: Any = numpyro.sample("b", dist.Normal(0.0, scales[1]))
            center = mean + b[:, None] + a[rater]
            numpyro.sample("y", dist.Normal(center, scales[2]).to_event(1), obs=ratings)

    return Large(of_globals, of_locals, "subjects")


def factorisation() -> Large:
    """A matrix of 2,500 x 2,500 with rank 20, of which 40 entries a row are seen: 100,000 factors."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng, size, rank, seen = np.random.default_rng(13), 2500, 20, 40
    rows, columns = rng.normal(size=(2, size, rank)) / rank**0.25
    column = np.stack([rng.permutation(size) for _ in range(seen)], axis=1)
    center = np.einsum("ir,isr->is", rows, columns[column])
    entries = jnp.asarray(center + 0.5 * rng.normal(size=center.shape), jnp.float32)
    place, scale = jnp.asarray(column), rank**-0.25

    def of_globals() -> Any:
        with numpyro.plate("columns", size):
            return numpyro.sample("v", dist.Normal(0.0, scale).expand([rank]).to_event(1))

    def of_locals(v: Any) -> None:
        with numpyro.plate("rows", size):
            u: Any = numpyro.sample("u", dist.Normal(0.0, scale).expand([rank]).to_event(1))
            center = jnp.einsum("ir,isr->is", u, v[place])
            numpyro.sample("y", dist.Normal(center, 0.5).to_event(1), obs=entries)

    return Large(of_globals, of_locals, "rows", batched=1)
