"""What is read from the data files, by the figures that are published for them."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from quietgrad.datasets import RawFile, a1a, frisk, redwine
from quietgrad.datasets.tables import hundreds

DATASETS = {"a1a": a1a, "frisk": frisk, "redwine": redwine}


def text_of(file: RawFile) -> str:
    folder = os.environ.get("QUIETGRAD_DATA")
    if not folder or not (Path(folder) / file.name).is_file():
        pytest.skip(f"needs {file.name}: set QUIETGRAD_DATA to a folder that holds it")
    return (Path(folder) / file.name).read_text()


# Small texts in each file's form, read with the content check switched off.
SMALL = {
    "a1a": "-1 3:1 11:1\n+1 1:1 119:1\n",
    "frisk": "prose\n\nstops pop past.arrests precinct eth crime\n"
    "75 200 12 9 1 2\n36 500 24 9 2 2\n1 300 6 9 3 2\n7 200 9 9 1 3\n"
    "5 900 12 7 1 2\n5 50 12 7 2 2\n5 50 12 7 3 2\n",
    "redwine": '"acidity";"pH";"quality"\n7.4;3.5;5\n7.8;3.2;6\n',
}
VARIANTS = {
    "as it is": lambda text: text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "trailing blanks": lambda text: text.replace("\n", "  \n"),
    "blank lines at the end": lambda text: text + "\n \n",
    "no newline at the end": str.rstrip,
    "tabs for blanks": lambda text: text.replace(" ", "\t"),
    "doubled blanks": lambda text: text.replace(" ", "  "),
}


def read(name: str, text: str):
    return DATASETS[name].parse(text, expect=lambda **_: None)


def test_small_a1a():
    x, y = read("a1a", SMALL["a1a"])
    rows, columns = np.nonzero(x)
    assert list(zip(rows, columns, strict=True)) == [(0, 2), (0, 10), (1, 0), (1, 118)]
    assert y.tolist() == [0, 1]


def test_small_frisk():
    # Precinct 7 is 90% black and record 4 is no weapon crime: neither is in the subset.
    group, site, offset, count = read("frisk", SMALL["frisk"])
    assert group.tolist() == [0, 1, 2]
    assert site.tolist() == [0, 0, 0]
    assert count.tolist() == [75, 36, 1]
    np.testing.assert_allclose(np.exp(offset), [15, 30, 7.5])


def test_small_redwine():
    x, y = read("redwine", SMALL["redwine"])
    assert x.tolist() == [[7.4, 3.5], [7.8, 3.2]]
    assert y.tolist() == [5, 6]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", DATASETS)
def test_white_space_does_not_matter(name: str, variant: str):
    expected = read(name, SMALL[name])
    for one, other in zip(expected, read(name, VARIANTS[variant](SMALL[name])), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", DATASETS)
def test_white_space_does_not_matter_in_the_files(name: str, variant: str):
    text = text_of(DATASETS[name].FILE)
    for one, other in zip(
        DATASETS[name].parse(text), DATASETS[name].parse(VARIANTS[variant](text)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a1a", "", "expected rows 1605, found 0"),
        ("a1a", SMALL["a1a"], "expected rows 1605, found 2; expected non zeros 22249, found 4"),
        ("a1a", "-1 3:1 11\n", "expected entries of the form index:value, found '11'"),
        ("a1a", "<html></html>", "could not convert string to float: '<html></html>'"),
        ("frisk", "", "expected a header line 'stops pop past.arrests precinct eth crime'"),
        ("frisk", "stops pop past.arrests precinct eth crime\n", r"record \[6\], found \[\]"),
        ("frisk", SMALL["frisk"], "expected records 900, found 7"),
        ("frisk", SMALL["frisk"] + "1 2 3\n", r"expected values per record \[6\], found \[3, 6\]"),
        ("redwine", "", "expected lines 1600, found 0"),
        ("redwine", SMALL["redwine"], r"expected values per line \[12\], found \[3\]"),
    ],
)
def test_other_content_is_rejected(name: str, text: str, message: str):
    with pytest.raises(ValueError, match=message):
        DATASETS[name].parse(text)


def replaced(old: str, new: str):
    return lambda text: text.replace(old, new, 1)


def swapped(line: int):
    def change(text: str) -> str:
        lines = text.splitlines()
        lines[line - 1], lines[line] = lines[line], lines[line - 1]
        return "\n".join(lines)

    return change


def shortened(text: str) -> str:
    return text.rstrip().rpartition("\n")[0]


CORRUPTIONS = {
    "a1a, last row lost": (a1a, shortened, "rows 1605"),
    "a1a, a label changed": (a1a, replaced("-1", "+1"), "minus one 1210"),
    "a1a, an entry moved": (a1a, replaced("3:1", "12:1"), "all zero columns"),
    "a1a, an entry doubled": (a1a, replaced("11:1", "14:1"), "ones 22249"),
    "a1a, a value changed": (a1a, replaced("3:1", "3:2"), "ones 22249"),
    "a1a, an index too large": (a1a, replaced("83:1", "123:1"), "largest index 119, found 123"),
    "a1a, an index too small": (a1a, replaced("3:1", "0:1"), "smallest index 1, found 0"),
    "a1a, rows swapped": (a1a, swapped(9), "row numbers labelled one"),
    "frisk, last row lost": (frisk, shortened, "records 900, found 899"),
    "frisk, a row doubled": (frisk, replaced("1720 191 1 1 1", "1720 191 1 1 2"), "cells 900"),
    "frisk, stops changed": (frisk, replaced("\n37 2596 56 2", "\n38 2596 56 2"), "stops 25264"),
    "frisk, arrests changed": (frisk, replaced("37 2596 56", "37 2596 57"), "arrests 10744"),
    "frisk, people changed": (frisk, replaced("37 2596 56", "37 99999 56"), "subset 32, found 31"),
    "redwine, last row lost": (redwine, shortened, "lines 1600, found 1599"),
    "redwine, a grade changed": (redwine, replaced("9.4;5\n", "9.4;6\n"), "quality counts"),
    "redwine, an input changed": (redwine, replaced("7.4;0.7;", "7.4;0.8;"), "sum of the inputs"),
    "redwine, rows swapped": (redwine, swapped(4), "times quality 7249197"),
    "redwine, a value missing": (redwine, replaced("7.4;", "nan;"), "missing values 0, found 1"),
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_corrupted_files_are_rejected(corruption: str):
    dataset, change, message = CORRUPTIONS[corruption]
    text = text_of(dataset.FILE)
    assert change(text) != text
    with pytest.raises(ValueError, match=message):
        dataset.parse(change(text))


def test_figures_of_a1a():
    x, y = a1a.parse(text_of(a1a.FILE))
    assert x.shape == (1605, 119)
    assert Counter(x.ravel().tolist()) == {1.0: 22249, 0.0: 1605 * 119 - 22249}
    assert Counter(y.tolist()) == {0.0: 1210, 1.0: 395}
    assert set(x.sum(axis=1)) == {12, 13, 14}
    assert (1 + np.flatnonzero(x.sum(axis=0) == 0)).tolist() == [12, 60, 89, 96, 111, 116]


def test_figures_of_frisk():
    group, site, offset, count = frisk.parse(text_of(frisk.FILE))
    assert count.sum() == 25264
    arrests = np.exp(offset) * 12 / 15
    np.testing.assert_allclose(arrests, np.round(arrests), rtol=1e-12)
    assert round(arrests.sum()) == 10744
    assert round(arrests.min()) == 6
    assert sorted(zip(group, site, strict=True)) == [(g, s) for g in range(3) for s in range(32)]


def test_frisk_by_hand():
    # The subset again, record by record and in plain Python.
    lines = [line.split() for line in text_of(frisk.FILE).splitlines()[7:] if line.strip()]
    records = [tuple(map(int, line)) for line in lines]
    people = {(p, e): pop for _, pop, _, p, e, _ in records}
    share = {p: people[p, 1] / sum(people[p, e] for e in (1, 2, 3)) for p in range(1, 76)}
    kept = [r for r in records if r[5] == 2 and 0.1 < share[r[3]] <= 0.4]
    sites = sorted({r[3] for r in kept})
    group, site, offset, count = frisk.parse(text_of(frisk.FILE))
    assert count.tolist() == [r[0] for r in kept]
    assert group.tolist() == [r[4] - 1 for r in kept]
    assert site.tolist() == [sites.index(r[3]) for r in kept]
    np.testing.assert_allclose(offset, [np.log(1.25 * r[2]) for r in kept], rtol=1e-12)


def test_figures_of_redwine():
    x, y = redwine.parse(text_of(redwine.FILE))
    assert x.shape == (1599, 11)
    assert Counter(y.tolist()) == {3: 10, 4: 53, 5: 681, 6: 638, 7: 199, 8: 18}
    assert np.isfinite(x).all()
    rows = [tuple(row) for row in np.column_stack([x, y]).tolist()]
    assert len(rows) - len(set(rows)) == 240
    train, test = hundreds(redwine.parse(text_of(redwine.FILE)))
    first = [1109, 1032, 1002, 487, 979, 1054, 542, 853, 1189, 412]
    np.testing.assert_array_equal(train.x[:10], x[first])
    assert train.y.mean() == pytest.approx(5.57, abs=1e-12)
    assert train.y.std() == pytest.approx(0.72464, abs=5e-6)
    assert len(test.y) == 100
