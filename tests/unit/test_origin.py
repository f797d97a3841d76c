"""Origins: one word for each thread, and those that nobody else has."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msgq.common import shm_paths
from msgq.errors import InvalidValueError
from msgq.impl.base import clock
from msgq.impl.fake.clock import VirtualClock
from tests.support import SHM, Child, Task, in_fork, run_child
from tests.unit import origin_children
from tests.unit.test_clock import needs_root, write_file
from tests.unit.test_clock import shm as shm  # a fixture

HOUR = 3600 * 10**9
FILE = f"msgqorigin_{os.geteuid()}"


def pack_origin_file(last: int = 0, magic: bytes = b"GSQORGN1", version: int = 1) -> bytes:
    return struct.pack("<8sQQ40x", magic, version, last)


def make_origin_times(shm: Path, count: int = 10) -> dict[str, Any]:
    with Child(origin_children.make_origin_times, count, str(shm)) as child:
        assert child.hear() == "ready"
        child.say()
        found: dict[str, Any] = child.result()
    return found


def check_seven() -> None:
    assert clock.origin_time() == 7


class TestThreads:
    def test_origin_time_of_new_thread_is_zero(self) -> None:
        assert Task(clock.origin_time).result() == 0

    def test_origin_time_is_separate_for_each_thread(self) -> None:
        clock.set_origin(7)
        try:
            assert Task(clock.origin_time).result() == 0
            assert clock.origin_time() == 7
            assert in_fork(check_seven) == 0, "a child goes on with that of the thread that forked"
        finally:
            clock.set_origin(0)
        assert clock.origin_time() == 0

    def test_origin_time_out_of_range_is_refused(self) -> None:
        with pytest.raises(InvalidValueError, match="-1"):
            clock.set_origin(-1)
        with pytest.raises(OverflowError):
            clock.set_origin(1 << 63)
        assert clock.origin_time() == 0


class TestUnique:
    def test_new_origin_times_increase(self) -> None:
        before = clock.time_ns()
        made = [clock.new_origin_time() for _ in range(1000)]
        assert made == sorted(set(made))
        assert before <= made[0]
        assert made[-1] <= clock.time_ns() + 1000

    def test_new_origin_times_of_processes_are_unique(self) -> None:
        count = 20_000
        children = [Child(origin_children.make_origin_times, count) for _ in range(3)]
        try:
            for child in children:
                assert child.hear() == "ready"
            for child in children:
                child.say()
            found = [child.result() for child in children]
        finally:
            for child in children:
                child.__exit__()
        assert not any(each["trouble"] for each in found)
        assert len({one for each in found for one in each["made"]}) == 3 * count
        for each in found:
            assert each["made"] == sorted(each["made"])

    def test_new_origin_times_of_parent_and_child_are_unique(self) -> None:
        here, there = run_child(origin_children.make_in_forks, 3000)
        assert len({*here, *there}) == 6000

    def test_new_origin_times_of_threads_are_unique(self) -> None:
        start = threading.Barrier(3)

        def some() -> list[int]:
            start.wait()
            return [clock.new_origin_time() for _ in range(10_000)]

        made = [one for task in [Task(some) for _ in range(3)] for one in task.result()]
        assert len(set(made)) == 30_000

    def test_new_origin_time_in_use_is_replaced_by_next_value(self, shm: Path) -> None:
        with Child(origin_children.make_origin_times, 3, str(shm)) as child:
            assert child.hear() == "ready"
            ahead = clock.time_ns() + 9 * 10**8
            write_file(shm / FILE, pack_origin_file(ahead), mode=0o600)
            child.say()
            found = child.result()
        # On a busy machine, the value may be past. The unit tests of the headers have their own clock.
        assert found["made"] == [ahead + 1, ahead + 2, ahead + 3] or found["after"] > ahead

    def test_new_origin_time_ignores_invalid_stored_time(self, shm: Path) -> None:
        for last in (clock.time_ns() + HOUR, (1 << 63) - 1, (1 << 64) - 1):
            write_file(shm / FILE, pack_origin_file(last), mode=0o600)
            found = make_origin_times(shm)
            assert found["before"] <= found["made"][0]
            assert found["made"][-1] <= found["after"] + HOUR / 3600

    def test_new_origin_time_in_virtual_time_is_virtual(self) -> None:
        virtual = VirtualClock(lambda ns: None)
        with virtual.patch_time():
            assert [clock.new_origin_time() for _ in range(3)] == [10**9, 10**9 + 1, 10**9 + 2]
            virtual.now_ns += 100
            assert [clock.new_origin_time() for _ in range(2)] == [10**9 + 100, 10**9 + 101]
        assert clock.new_origin_time() > HOUR

    def test_new_origin_time_at_virtual_time_0_is_not_unknown(self) -> None:
        virtual = VirtualClock(lambda ns: None)
        virtual.now_ns = 0  # time at the start of a simulation
        assert [virtual.new_origin_time() for _ in range(2)] == [1, 2]


BAD = {
    "empty": b"",
    "short": pack_origin_file()[:63],
    "long": pack_origin_file() + b"\0",
    "foreign": pack_origin_file(magic=b"elsewise"),
    "of another version": pack_origin_file(version=2),
}


class TestFile:
    def refused(self, shm: Path) -> str:
        found = make_origin_times(shm)
        assert found["made"] == sorted(set(found["made"]))
        assert found["before"] <= found["made"][0]
        assert len(found["warned"]) == 1
        assert "only in this process" in found["trouble"]
        return str(found["trouble"])

    def test_origin_file_is_created_with_user_id_in_name(self, shm: Path) -> None:
        found = make_origin_times(shm)
        assert (found["trouble"], found["warned"]) == ("", [])
        assert set(os.listdir(shm)) == {FILE, "msgqclock"}
        assert (shm / FILE).read_bytes() == pack_origin_file(found["made"][-1])
        assert (shm / FILE).stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("what", BAD)
    def test_origin_file_with_invalid_bytes_is_refused(self, shm: Path, what: Any) -> None:
        write_file(shm / FILE, BAD[what], mode=0o600)
        assert "remove it" in self.refused(shm)
        assert (shm / FILE).read_bytes() == BAD[what]

    @pytest.mark.parametrize("make_it", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
    def test_origin_path_of_another_file_type_is_refused(self, shm: Path, make_it: Callable[[Path], None]) -> None:
        make_it(shm / FILE)
        self.refused(shm)

    @needs_root
    def test_origin_file_of_another_user_is_refused(self, shm: Path) -> None:
        write_file(shm / FILE, pack_origin_file(), 65001, mode=0o666)
        assert "65001" in self.refused(shm)

    @needs_root
    def test_origin_file_of_a_trusted_user_is_refused(self, shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_file(shm / FILE, pack_origin_file(), 65001, mode=0o666)
        monkeypatch.setenv("MSGQ_TRUST", "65001")
        assert "65001" in self.refused(shm)

    def test_truncation_of_mapped_origin_file_ends_no_process(self, shm: Path) -> None:
        found = run_child(origin_children.cut_and_make, str(shm / FILE))
        assert found[0] < found[1] < found[2]

    def test_origin_file_is_not_listed_as_prefix(self) -> None:
        clock.new_origin_time()
        assert (SHM / FILE).exists()
        assert not [name for name in shm_paths.list_prefixes() if "origin" in name]
