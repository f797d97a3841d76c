"""Processes that use much of a processor, from files like those of /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from msgq.common.busy_processes import BusyProcesses
from msgq.common.thread_samples import ThreadSample

SECOND = 1_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")


def set_ran(root: Path, pid: int, seconds: float, name: str = "compiler", start: int = 7) -> None:
    (root / str(pid)).mkdir(exist_ok=True)
    user, system = round(seconds * TICKS) - 1, 1
    fields = ["R", *["0"] * 10, str(user), str(system), *["0"] * 6, str(start), *["0"] * 16, "3", "0"]
    (root / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


@pytest.fixture
def scanned(tmp_path: Path) -> BusyProcesses:
    """A scan after one second, in which two processes had run for 5 s."""
    (tmp_path / "self").mkdir()
    (tmp_path / "99").mkdir()  # it has just ended
    set_ran(tmp_path, 10, 5)
    set_ran(tmp_path, 11, 5, name="a) (b")
    busy = BusyProcesses(str(tmp_path))
    assert busy.take_samples(SECOND, ()) == []
    return busy


def test_process_that_ran_since_previous_scan_has_sample(scanned: BusyProcesses, tmp_path: Path) -> None:
    set_ran(tmp_path, 10, 5.05)  # less than a tenth of the time
    set_ran(tmp_path, 11, 5.9, name="a) (b")
    sample = ThreadSample(2 * SECOND, SECOND, 9 * SECOND // 10, -1, 11, 11, 3, "", "a) (b", "")
    assert scanned.take_samples(2 * SECOND, ()) == [sample]


def test_excluded_process_has_no_sample(scanned: BusyProcesses, tmp_path: Path) -> None:
    for pid in (10, 11):
        set_ran(tmp_path, pid, 5.9)
    assert [sample.pid for sample in scanned.take_samples(2 * SECOND, {11})] == [10]


def test_new_process_with_old_id_has_no_sample(scanned: BusyProcesses, tmp_path: Path) -> None:
    set_ran(tmp_path, 10, 9, start=8)
    assert scanned.take_samples(2 * SECOND, ()) == []


def test_scan_after_pause_has_no_samples(scanned: BusyProcesses, tmp_path: Path) -> None:
    set_ran(tmp_path, 10, 9.5)
    assert scanned.take_samples(5 * SECOND, ()) == []
    set_ran(tmp_path, 10, 10.5)
    assert [sample.pid for sample in scanned.take_samples(6 * SECOND, ())] == [10]


def test_missing_directory_has_no_samples(tmp_path: Path) -> None:
    busy = BusyProcesses(str(tmp_path / "none"))
    assert [busy.take_samples(time * SECOND, ()) for time in (1, 2)] == [[], []]
