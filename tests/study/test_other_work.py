"""What other processes take: ticks of all processors, less this process's own."""

import math
import time

import pytest

from quietgrad.study.other_work import STAT, OtherWork


class Machine:
    """A machine of which a test says how many ticks went where, and a process that takes some."""

    def __init__(self, folder):
        self.stat, self.own = folder / "stat", 0.0

    def ticks(self, user, idle, own=0.0):
        self.stat.write_text(f"cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 0 0\n")
        self.own = own

    def watch(self):
        return OtherWork(self.stat, lambda: self.own)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_the_share_is_of_what_passed_since_and_without_this_process(machine):
    machine.ticks(user=1000, idle=5000)
    meanwhile = machine.watch()
    # 400 ticks passed: 100 busy, of them 60 our own.
    machine.ticks(user=1100, idle=5300, own=60.0)
    assert meanwhile.share() == pytest.approx(40 / 400)


def test_rounding_does_not_make_it_negative(machine):
    machine.ticks(user=0, idle=0)
    meanwhile = machine.watch()
    machine.ticks(user=10, idle=90, own=11.0)
    assert meanwhile.share() == 0


def test_a_system_without_a_count(machine):
    assert math.isnan(machine.watch().share())


@pytest.mark.skipif(not STAT.exists(), reason="needs the count of Linux")
def test_this_system_counts():
    meanwhile, began = OtherWork(), time.process_time()
    while time.process_time() < began + 0.05:
        pass
    assert 0 <= meanwhile.share() <= 1


@pytest.mark.parametrize("place", range(10))
def test_each_column_counts_as_what_it_is(machine, place):
    """user, nice, system, irq, softirq and steal are work, idle and iowait are none, and what virtual
    machines were given is counted among the first two already."""

    def ticks(taken):
        columns = [100] * 10
        columns[3] += 300
        columns[place] += taken
        machine.stat.write_text(f"cpu  {' '.join(map(str, columns))}\n")

    ticks(0)
    meanwhile = machine.watch()
    ticks(50)
    if place in (8, 9):
        assert math.isnan(meanwhile.share())
    else:
        assert meanwhile.share() == (0 if place in (3, 4) else 1)
