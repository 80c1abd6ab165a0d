"""The data that needs no download."""

from collections.abc import Callable

import numpy as np
import pytest

from quietgrad.datasets import embedded


def test_simulated_counts():
    counts = embedded.counts()
    assert sorted(zip(counts.group, counts.site, strict=True)) == [
        (group, site) for group in range(3) for site in range(32)
    ]
    assert counts.events.sum() == 34097
    assert counts.events.tolist() == embedded.counts().events.tolist()
    exposure = np.exp(counts.offset)
    assert (round(exposure.min()), round(exposure.max())) == (16, 527)


def test_missing_scikit_learn_names_the_extra(uninstall: Callable[[str], None]):
    for module in ("sklearn", "sklearn.datasets"):
        uninstall(module)
    with pytest.raises(ImportError, match=r"pip install 'quietgrad\[study\]'"):
        embedded.diabetes()
