"""Crowd annotation (Paun et al. 2018): items, annotators, and true classes that are summed out."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import nn
from numpyro.handlers import reparam
from numpyro.infer.reparam import LocScaleReparam

from .languages import Numpyro

CLASSES, ITEMS, ANNOTATORS = 3, 40, 5
# Labels are more often right than not; without such a prior classes could be renamed.
DIAGONAL = 1 + 4 * np.eye(CLASSES)
ODDS = np.array([[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]])


def _labels():
    """Each item labelled by five annotators of different skill: items × annotators."""
    rng = np.random.default_rng(301)
    truth = rng.choice(CLASSES, size=ITEMS, p=[0.5, 0.3, 0.2])
    skill = np.array([0.9, 0.8, 0.75, 0.6, 0.85])
    right = rng.uniform(size=(ITEMS, ANNOTATORS)) < skill
    return np.where(right, truth[:, None], rng.integers(0, CLASSES, size=(ITEMS, ANNOTATORS)))


def multinomial(labels):
    """Annotation, one confusion matrix for all annotators: simplexes, discrete classes summed out."""
    with numpyro.plate("class", CLASSES):
        confusion = numpyro.sample("confusion", dist.Dirichlet(DIAGONAL))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(CLASSES)))
    with numpyro.plate("item", ITEMS, dim=-2):
        c = numpyro.sample("c", dist.Categorical(share), infer={"enumerate": "parallel"})
        with numpyro.plate("position", ANNOTATORS):
            numpyro.sample("y", dist.Categorical(confusion[c]), obs=labels)


def dawid_skene(labels):
    """Annotation, a confusion matrix for each annotator (Dawid and Skene 1979)."""
    with numpyro.plate("annotator", ANNOTATORS, dim=-2), numpyro.plate("class", CLASSES):
        confusion = numpyro.sample("confusion", dist.Dirichlet(DIAGONAL))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(CLASSES)))
    with numpyro.plate("item", ITEMS, dim=-2):
        c = numpyro.sample("c", dist.Categorical(share), infer={"enumerate": "parallel"})
        with numpyro.plate("position", ANNOTATORS):
            who = jnp.arange(ANNOTATORS)
            numpyro.sample("y", dist.Categorical(confusion[who, c]), obs=labels)


def mace(labels):
    """Annotation with spammers (Hovy et al. 2013): a label is the truth or the annotator's habit."""
    with numpyro.plate("annotator", ANNOTATORS):
        habit = numpyro.sample("habit", dist.Dirichlet(jnp.full(CLASSES, 10.0)))
        honest = numpyro.sample("honest", dist.Beta(0.5, 0.5))
    with numpyro.plate("item", ITEMS, dim=-2):
        uniform = dist.DiscreteUniform(0, CLASSES - 1)
        c = numpyro.sample("c", uniform, infer={"enumerate": "parallel"})
        with numpyro.plate("position", ANNOTATORS):
            who = jnp.arange(ANNOTATORS)
            spam = dist.Bernoulli(1 - honest[who])
            s = numpyro.sample("s", spam, infer={"enumerate": "parallel"})
            probs = jnp.where(s[..., None] == 0, nn.one_hot(c, CLASSES), habit[who])
            numpyro.sample("y", dist.Categorical(probs), obs=labels)


def item_difficulty(labels):
    """Annotation, each item with log odds of its own around those of its class."""
    with numpyro.plate("class", CLASSES):
        mean = numpyro.sample("mean", dist.Normal(ODDS, 1).to_event(1))
        std = numpyro.sample("std", dist.HalfNormal(1).expand([CLASSES - 1]).to_event(1))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(CLASSES)))
    with numpyro.plate("item", ITEMS, dim=-2):
        c = numpyro.sample("c", dist.Categorical(share), infer={"enumerate": "parallel"})
        with reparam(config={"difficulty": LocScaleReparam(0)}):
            own = dist.Normal(mean[c], std[c]).to_event(1)
            difficulty = numpyro.sample("difficulty", own)
        with numpyro.plate("position", ANNOTATORS):
            logits = jnp.pad(difficulty, [(0, 0)] * (jnp.ndim(difficulty) - 1) + [(0, 1)])
            numpyro.sample("y", dist.Categorical(logits=logits), obs=labels)


def hierarchical_dawid_skene(labels):
    """Annotation, annotators' log odds around common ones, centred."""
    with numpyro.plate("class", CLASSES):
        mean = numpyro.sample("mean", dist.Normal(ODDS, 1).to_event(1))
        std = numpyro.sample("std", dist.HalfNormal(1).expand([CLASSES - 1]).to_event(1))
    with numpyro.plate("annotator", ANNOTATORS, dim=-2), numpyro.plate("class", CLASSES):
        odds = numpyro.sample("odds", dist.Normal(mean, std).to_event(1))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(CLASSES)))
    with numpyro.plate("item", ITEMS, dim=-2):
        c = numpyro.sample("c", dist.Categorical(share), infer={"enumerate": "parallel"})
        with numpyro.plate("position", ANNOTATORS):
            logits = odds[jnp.arange(ANNOTATORS), c]
            logits = jnp.pad(logits, [(0, 0)] * (jnp.ndim(logits) - 1) + [(0, 1)])
            numpyro.sample("y", dist.Categorical(logits=logits), obs=labels)


LABELS = _labels()
MODELS = {
    "annotation-multinomial": lambda: Numpyro(multinomial, (LABELS,)),
    "annotation-dawid-skene": lambda: Numpyro(dawid_skene, (LABELS,)),
    "annotation-mace": lambda: Numpyro(mace, (LABELS,)),
    "annotation-difficulty": lambda: Numpyro(item_difficulty, (LABELS,)),
    "annotation-hierarchical": lambda: Numpyro(
        hierarchical_dawid_skene,
        (LABELS,),
        easy=reparam(hierarchical_dawid_skene, config={"odds": LocScaleReparam(0)}),
        accept=0.95,
    ),
}
