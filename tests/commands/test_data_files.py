"""Data files of the command: what is read from them, and which argument of a model gets it."""

import functools
import json

import numpy as np
import pytest

from quietgrad.cli.commands.arguments import bind
from quietgrad.cli.commands.tables import read_table


def model(x, y=None, *, groups=1):
    del x, y, groups


TABLE = {
    "a": np.arange(3),
    "b": np.asarray([0.5, 1.5, 2.5]),
    "y": np.ones(3),
    "name": np.asarray(["u"] * 3),
}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_has_whole_numbers_reals_and_text(tmp_path, delimiter):
    path = tmp_path / "d.csv"
    lines = ["\ufeffid, x ,who", "1,0.5,ann", "2,-1e3,bob"]
    path.write_text("\n".join(line.replace(",", delimiter) for line in lines), encoding="utf-8")
    table = read_table(path)
    assert list(table) == ["id", "x", "who"]
    assert [column.dtype.kind for column in table.values()] == ["i", "f", "U"]
    np.testing.assert_array_equal(table["x"], [0.5, -1000])


def test_npz_and_json_have_arrays_and_plain_numbers(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.ones((4, 2)), n=np.asarray(3))
    (tmp_path / "d.json").write_text(json.dumps({"x": [[1, 2], [3, 4]], "n": 3}))
    (tmp_path / "records.json").write_text(json.dumps([{"x": 1.5, "n": 1}, {"x": 2.5, "n": 2}]))
    found = read_table(tmp_path / "d.npz")
    assert found["x"].shape == (4, 2)
    assert (type(found["n"]), found["n"]) == (int, 3)
    found = read_table(tmp_path / "d.json")
    assert (found["x"].shape, found["n"]) == ((2, 2), 3)
    np.testing.assert_array_equal(read_table(tmp_path / "records.json")["x"], [1.5, 2.5])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("d.parquet", "", "data files are .csv, .tsv, .npz, .json"),
        ("d.csv", "a,b\n1,2\n3\n", "row 2 has 1 values for 2 columns"),
        ("d.csv", "a,a\n1,2\n", "different names"),
        ("d.csv", "", "a first line"),
        ("d.json", "3", "an object of arrays"),
        ("d.json", '[{"a": 1}, {"b": 1}]', "the same names"),
    ],
)
def test_bad_files_are_told(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="no data file"):
        read_table(tmp_path / "missing.csv")


def test_columns_become_the_arguments_of_their_names_or_those_asked_for():
    found = bind(model, TABLE, ["x=a,b", "groups=4"], "m.py:model")
    np.testing.assert_array_equal(found.values["x"], [[0, 0.5], [1, 1.5], [2, 2.5]])
    np.testing.assert_array_equal(found.values["y"], TABLE["y"])
    assert found.values["groups"] == 4
    assert found.unused == ["name"]
    assert found.defaults == []


def test_functions_inside_others_and_those_that_take_anything():
    class Handler:
        fn = staticmethod(model)

        def __call__(self, *args, **kwargs):
            pass

    assert bind(Handler(), TABLE, ["x=a"], "m").defaults == ["groups"]
    assert "x" not in bind(functools.partial(model, x=3), TABLE, [], "m").values

    def anything(**columns):
        del columns

    numbers = {name: TABLE[name] for name in ("a", "b", "y")}
    found = bind(anything, numbers, ["x=a,b"], "m")
    assert list(found.values) == ["x", "y"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "m.py:model needs x; the data have a, b, y, name.*--arg x=column"),
        (["x=name"], "x holds text"),
        (["x=a,name"], "name holds text"),
        (["x=c"], "neither a number nor columns"),
        (["z=a"], "has the parameters x, y, groups"),
        (["x"], "write name=columns"),
    ],
)
def test_what_cannot_be_bound_says_what_to_do(given, words):
    with pytest.raises(ValueError, match=words):
        bind(model, TABLE, given, "m.py:model")


def test_missing_values_are_refused_with_their_row():
    with pytest.raises(ValueError, match="x has no value in row 2"):
        bind(model, {"x": np.asarray([0.0, np.nan])}, [], "m")
    with pytest.raises(ValueError, match="no --data were given"):
        bind(model, {}, [], "m")
