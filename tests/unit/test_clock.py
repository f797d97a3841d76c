"""The host's clock: one for all processes, which never steps, and whose file is believed only after a look."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import msgq
from msgq import stats
from msgq.cli.app import app
from msgq.common import shm_paths
from msgq.impl.base import clock
from msgq.impl.fake.clock import VirtualClock
from tests.support import ROOT, SHM, Child, run_child
from tests.unit import clock_children

ALICE, BOB = 65001, 65002
HOUR = 3600 * 10**9
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become two other users")


def pack_clock_file(offset: int, magic: bytes = b"GSQCLCK1", version: int = 1) -> bytes:
    return struct.pack("<8sQq40x", magic, version, offset)


def an_hour_ago() -> int:
    """Return the offset of a clock that was made before somebody set the wall clock forward by an hour."""
    return clock.wall_offset_ns() - HOUR


@pytest.fixture
def shm(token: str) -> Iterator[Path]:
    """A folder for children to take for /dev/shm."""
    folder = SHM / f"shm-{token}"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def read_clock_of_child(shm: Path, user: int | None = None, **environment: str) -> dict[str, Any]:
    found: dict[str, Any] = run_child(clock_children.read_clock_in_folder, str(shm), user, env=environment)
    return found


def write_file(path: Path, data: bytes, owner: int = -1, mode: int = 0o444) -> None:
    path.write_bytes(data)
    path.chmod(mode)
    os.chown(path, owner, -1)


class TestAgreement:
    def test_first_process_creates_clock_file_with_wall_clock_offset(self, shm: Path) -> None:
        found = read_clock_of_child(shm)
        assert found["off_by"] < HOUR / 60
        assert (found["trouble"], found["warned"]) == ("", [])
        assert (shm / "msgqclock").read_bytes() == pack_clock_file(found["offset"])
        assert (shm / "msgqclock").stat().st_mode & 0o777 == 0o444
        assert os.listdir(shm) == ["msgqclock"]

    def test_later_processes_use_offset_of_clock_file(self, shm: Path) -> None:
        offset = an_hour_ago()
        write_file(shm / "msgqclock", pack_clock_file(offset))
        found = read_clock_of_child(shm)
        assert found["offset"] == offset
        assert HOUR - 10**9 < found["off_by"] < HOUR + 60 * 10**9
        assert found["trouble"] == ""

    def test_processes_started_together_use_equal_clock_offset(self, shm: Path) -> None:
        children = [Child(clock_children.ask_together, str(shm)) for _ in range(4)]
        try:
            for child in children:
                assert child.hear() == "ready"
            for child in children:
                child.say()
            assert len({child.result() for child in children}) == 1
        finally:
            for child in children:
                child.__exit__()

    def test_running_process_keeps_offset_after_removal_of_clock_file(self, shm: Path) -> None:
        offset = an_hour_ago()
        write_file(shm / "msgqclock", pack_clock_file(offset))
        with Child(clock_children.ask_again, str(shm)) as child:
            assert child.hear() == "ready"
            (shm / "msgqclock").unlink()
            child.say()
            assert child.result() == [offset] * 3, "before, after, and in a fork"
        assert read_clock_of_child(shm)["offset"] > offset + HOUR / 2, "who starts afterwards makes another"


BAD = {
    "empty": b"",
    "short": pack_clock_file(1)[:63],
    "long": pack_clock_file(1) + b"\0",
    "of zeros": bytes(64),
    "foreign": pack_clock_file(1, magic=b"elsewise"),
    "of another version": pack_clock_file(1, version=2),
    "before the epoch": pack_clock_file(-(2**62)),
    "of the far future": pack_clock_file(2**62 + 2**61),
}


class TestHostileFiles:
    def refused(self, shm: Path) -> dict[str, Any]:
        """See that the file is not believed, nobody is held up, and this user's processes agree all the same."""
        first = read_clock_of_child(shm)
        assert first["off_by"] < HOUR / 60
        assert str(shm / "msgqclock") in first["trouble"]
        assert read_clock_of_child(shm)["offset"] == first["offset"]
        assert (shm / f"msgqclock_{os.geteuid()}").read_bytes() == pack_clock_file(first["offset"])
        return first

    @pytest.mark.parametrize("what", BAD)
    def test_clock_file_with_invalid_bytes_is_refused(self, shm: Path, what: Any) -> None:
        write_file(shm / "msgqclock", BAD[what])
        assert "remove it" in self.refused(shm)["trouble"]

    def test_clock_file_writable_by_others_is_refused(self, shm: Path) -> None:
        write_file(shm / "msgqclock", pack_clock_file(an_hour_ago()), mode=0o664)
        self.refused(shm)

    @pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
    def test_clock_path_of_another_file_type_is_refused(self, shm: Path, make: Callable[[Path], None]) -> None:
        make(shm / "msgqclock")
        self.refused(shm)

    def test_clock_file_with_second_link_is_refused(self, shm: Path) -> None:
        write_file(shm / "msgqclock", pack_clock_file(an_hour_ago()))
        os.link(shm / "msgqclock", shm / "another")
        self.refused(shm)

    def test_process_with_invalid_clock_files_warns_and_uses_local_clock(self, shm: Path) -> None:
        for path in (shm / "msgqclock", shm / f"msgqclock_{os.geteuid()}"):
            write_file(path, b"nonsense")
        found = read_clock_of_child(shm)
        assert found["off_by"] < HOUR / 60
        assert "uses a separate clock" in found["trouble"]
        assert len(found["warned"]) == 1

    def test_creator_of_host_clock_file_keeps_offset_of_user_clock_file(self, shm: Path) -> None:
        """The stranger's file is gone, and what this user's processes stamp goes on as before."""
        offset = an_hour_ago()
        write_file(shm / f"msgqclock_{os.geteuid()}", pack_clock_file(offset))
        assert read_clock_of_child(shm)["offset"] == offset
        assert (shm / "msgqclock").read_bytes() == pack_clock_file(offset)


@needs_root
class TestUsers:
    def test_clock_file_of_root_is_used_by_all_users(self, shm: Path) -> None:
        offset = an_hour_ago()
        write_file(shm / "msgqclock", pack_clock_file(offset))
        assert [read_clock_of_child(shm, user)["offset"] for user in (None, ALICE, BOB)] == [offset] * 3

    def test_clock_file_of_another_user_is_refused_and_blocks_no_process(self, shm: Path) -> None:
        write_file(shm / "msgqclock", pack_clock_file(an_hour_ago()), ALICE)
        for user in (BOB, None):
            found = read_clock_of_child(shm, user)
            assert found["off_by"] < HOUR / 60
            assert f"user {ALICE}" in found["trouble"]
            assert not found["warned"]
        assert read_clock_of_child(shm, ALICE)["trouble"] == ""

    def test_user_clock_file_owned_by_another_user_is_refused(self, shm: Path) -> None:
        for path in (shm / "msgqclock", shm / f"msgqclock_{BOB}"):
            write_file(path, pack_clock_file(an_hour_ago()), ALICE)
        found = read_clock_of_child(shm, BOB)
        assert found["off_by"] < HOUR / 60
        assert len(found["warned"]) == 1

    def test_clock_file_of_trusted_user_is_used(self, shm: Path) -> None:
        offset = an_hour_ago()
        write_file(shm / "msgqclock", pack_clock_file(offset), ALICE)
        assert read_clock_of_child(shm, BOB, MSGQ_TRUST=str(ALICE))["offset"] == offset

    def test_clock_file_trust_does_not_depend_on_trust_of_topic(self, shm: Path) -> None:
        """Or a process's clock would depend on which of its sockets connects first."""
        write_file(shm / "msgqclock", pack_clock_file(an_hour_ago()), ALICE)
        found = run_child(clock_children.ask_while_connecting, str(shm), str(ALICE))
        assert found["off_by"] < HOUR / 60
        assert f"user {ALICE}" in found["trouble"]
        os.unlink(shm / f"msgqclock_{os.geteuid()}")
        offset = read_clock_of_child(shm, MSGQ_TRUST=str(ALICE))["offset"]
        found = run_child(clock_children.ask_while_connecting, str(shm), "", env={"MSGQ_TRUST": str(ALICE)})
        assert found["offset"] == offset
        assert found["trouble"] == ""

    def test_process_without_write_permission_uses_local_clock(self, shm: Path) -> None:
        shm.chmod(0o555)
        found = read_clock_of_child(shm, BOB)
        assert found["off_by"] < HOUR / 60
        assert "Permission denied" in found["trouble"]
        assert len(found["warned"]) == 1
        assert not os.listdir(shm)

    def test_existing_clock_file_is_used_without_write_permission(self, shm: Path) -> None:
        offset = an_hour_ago()
        write_file(shm / "msgqclock", pack_clock_file(offset))
        shm.chmod(0o555)
        assert read_clock_of_child(shm, BOB)["offset"] == offset

    def test_clock_in_other_time_namespace_has_same_time(self, shm: Path) -> None:
        """Its CLOCK_MONOTONIC is ahead; whoever of the two makes the file, both have the same time."""
        command = ["unshare", "--time", "--monotonic", "5000", "--fork", sys.executable, "-c"]
        code = "from tests.unit import clock_children; clock_children.main()"
        for who_makes_it in ("within", "outside"):
            (shm / "msgqclock").unlink(missing_ok=True)
            if who_makes_it == "outside":
                write_file(shm / "msgqclock", pack_clock_file(an_hour_ago()))
            done = subprocess.run(
                [*command, code],
                input=json.dumps(str(shm)) + "\n",
                capture_output=True,
                text=True,
                cwd=ROOT,
                check=False,
            )
            if "unshare" in done.stderr:
                pytest.skip(f"no time namespaces here: {done.stderr}")
            there, offset_there, trouble = json.loads(done.stdout)
            here = read_clock_of_child(shm)
            assert trouble == ""
            assert offset_there == here["offset"] - 5000 * 10**9
            assert abs(here["offset"] + time.monotonic_ns() - there) < HOUR / 60


class TestUse:
    def test_topic_creation_time_is_measured_by_host_clock(self, endpoint: str) -> None:
        before = clock.time_ns()
        with msgq.pub_sock(endpoint):
            made = stats.topic(endpoint).created_ns
        assert made is not None
        assert before <= made <= clock.time_ns()

    def test_clock_equals_monotonic_clock_plus_offset(self) -> None:
        before = time.monotonic_ns()
        now = clock.time_ns() - clock.offset_ns()
        assert before <= now <= time.monotonic_ns()

    def test_wall_offset_equals_wall_clock_minus_monotonic_clock(self) -> None:
        assert abs(clock.wall_offset_ns() - (time.time_ns() - time.monotonic_ns())) < 10**9

    def test_timestamps_are_virtual_in_virtual_time(self) -> None:
        virtual = VirtualClock(lambda ns: None)
        with virtual.patch_time():
            assert clock.time_ns() == 10**9
        assert clock.time_ns() > HOUR

    def test_commands_neither_list_nor_remove_clock_file(self, prefix: str) -> None:
        clock.time_ns()
        before = (SHM / "msgqclock").stat().st_ino
        for words in (["clean"], ["clean", "--all-prefixes", "--dry-run"], ["doctor", "--fix"], ["list"]):
            assert "msgqclock" not in CliRunner().invoke(app, words).output
        assert (SHM / "msgqclock").stat().st_ino == before
        assert not [name for name in shm_paths.list_prefixes() if "clock" in name]
