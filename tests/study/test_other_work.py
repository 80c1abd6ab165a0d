"""What other processes take: ticks of all processors, less this process's own."""

import math

import pytest

from quietgrad.study import other_work
from quietgrad.study.other_work import OtherWork


@pytest.fixture
def ticks(tmp_path, monkeypatch):
    """A machine of which a test says how many ticks went where, and a process that takes none."""
    stat = tmp_path / "stat"

    def set_to(user, idle, own=0.0):
        stat.write_text(f"cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 0 0\n")
        monkeypatch.setattr(other_work.time, "process_time", lambda: own)

    monkeypatch.setattr(other_work, "STAT", stat)
    monkeypatch.setattr(other_work.os, "sysconf", lambda name: 100)
    return set_to


def test_the_share_is_of_what_passed_since_and_without_this_process(ticks):
    ticks(user=1000, idle=5000)
    meanwhile = OtherWork()
    # 400 ticks passed: 100 busy, of them 60 (0.6 s) our own.
    ticks(user=1100, idle=5300, own=0.6)
    assert meanwhile.share() == pytest.approx(40 / 400)


def test_rounding_does_not_make_it_negative(ticks):
    ticks(user=0, idle=0)
    meanwhile = OtherWork()
    ticks(user=10, idle=90, own=0.11)
    assert meanwhile.share() == 0


def test_a_system_that_does_not_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(other_work, "STAT", tmp_path / "nowhere")
    assert math.isnan(OtherWork().share())
