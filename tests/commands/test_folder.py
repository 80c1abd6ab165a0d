"""The folder of results: complete or not there, never written over unasked; strict JSON in it."""

import json

import numpy as np
import pytest

from quietgrad.cli.commands.folder import RESULT, check_out, staged, write_json


def test_results_appear_at_once(tmp_path):
    out = tmp_path / "deep" / "out"
    with staged(out) as stage:
        (stage / "a.txt").write_text("a")
        assert not out.exists()
    assert [file.name for file in out.iterdir()] == ["a.txt"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_what_fails_leaves_the_folder_alone_and_says_where_its_part_is(tmp_path):
    out = tmp_path / "out"

    def write():
        with staged(out) as stage:
            (stage / "a.txt").write_text("a")
            raise ValueError("broke")

    with pytest.raises(ValueError, match="broke") as caught:
        write()
    assert not out.exists()
    (note,), (stage,) = caught.value.__notes__, tmp_path.iterdir()
    assert (stage / "a.txt").exists()
    assert str(stage) in note


def test_old_results_are_replaced_only_by_force_and_other_files_never(tmp_path):
    out = tmp_path / "out"
    check_out(out, force=False)
    out.mkdir()
    check_out(out, force=False)
    (out / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="no results; name another folder"):
        check_out(out, force=True)
    (out / RESULT).write_text("old")
    with pytest.raises(ValueError, match="add --force"):
        check_out(out, force=False)
    check_out(out, force=True)
    with staged(out) as stage:
        (stage / RESULT).write_text("new")
    assert (out / RESULT).read_text() == "new"
    assert (out / "mine.txt").read_text() == "mine"
    with pytest.raises(ValueError, match="is a file"):
        check_out(out / "mine.txt", force=True)


def test_json_is_strict(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": np.asarray([1.0, np.nan]), "b": (np.float64(2), np.inf), "c": {"d": None}})

    def refuse(name):
        raise AssertionError(name)

    found = json.loads(path.read_text(), parse_constant=refuse)
    assert found == {"a": [1.0, None], "b": [2.0, None], "c": {"d": None}}
