"""Files in shared memory: made at once or not at all, and believed only after a look.

Every case of bad input here is an error that names endpoint and values, and leaves nothing half made.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket as sockets
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.common import shm_paths
from msgq.errors import (
    CorruptSegmentError,
    InvalidValueError,
    LayoutVersionError,
    MessageTooLargeError,
    SegmentError,
    SegmentSizeError,
)
from msgq.impl.ring.core import unlink_topic
from tests.support import DEADLINE_MS, SHM, Child, Task, run_child, wait_until
from tests.unit import children
from tests.unit.ringfile import (
    ATTENTION,
    HEADER,
    MAGIC,
    RING_INODE,
    SIDE_BYTES,
    STRANGER_UID,
    VERSION,
    RingFile,
    Words,
    ring_path,
    ring_position,
    side_path,
)

CONNECTS: dict[str, Callable[..., Any]] = {"pub": msgq.pub_sock, "sub": msgq.sub_sock}
both = pytest.mark.parametrize("connect", CONNECTS.values(), ids=CONNECTS)


def sized(connect: Callable[..., Any], endpoint: str, size: int) -> Any:
    return connect(endpoint, segment_size=size)


def works(endpoint: str) -> bool:
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send(b"x")
        return sub.receive(True) == b"x"


class TestSize:
    @both
    def test_segment_default_size_is_one_mebibyte(self, endpoint: str, connect: Callable[..., Any]) -> None:
        with connect(endpoint):
            assert ring_path(endpoint).stat().st_size == HEADER + 2**20
            assert side_path(endpoint).stat().st_size == SIDE_BYTES

    @both
    @pytest.mark.parametrize("size", [128, 129, 1000, 4096, 2**20 + 1])
    def test_segment_size_argument_sets_file_size(self, endpoint: str, connect: Callable[..., Any], size: int) -> None:
        with sized(connect, endpoint, size):
            assert ring_path(endpoint).stat().st_size == HEADER + size
        assert works(endpoint)

    @both
    @pytest.mark.parametrize("size", [-1, -(2**40), 1, 127, 2**32, 2**40, 2**64, 2**70])
    def test_impossible_segment_size_is_refused(self, endpoint: str, connect: Callable[..., Any], size: int) -> None:
        with pytest.raises(InvalidValueError, match=str(size)) as caught:
            sized(connect, endpoint, size)
        assert caught.value.endpoint == endpoint
        assert not ring_path(endpoint).exists()

    @pytest.mark.parametrize("size", ["4096", None, [1]])
    def test_segment_size_of_wrong_type_is_refused(self, endpoint: str, size: Any) -> None:
        with pytest.raises(TypeError):
            msgq.pub_sock(endpoint, size)
        assert not ring_path(endpoint).exists()

    @both
    def test_existing_segment_keeps_its_size(self, endpoint: str, connect: Callable[..., Any]) -> None:
        with msgq.pub_sock(endpoint, 8192), connect(endpoint):
            assert ring_path(endpoint).stat().st_size == HEADER + 8192
        with sized(connect, endpoint, 8192):
            pass

    @both
    @pytest.mark.parametrize("other", [4096, 16384, 8193])
    def test_error_for_different_segment_size_names_both_sizes(
        self, endpoint: str, connect: Callable[..., Any], other: int
    ) -> None:
        with msgq.pub_sock(endpoint, 8192) as pub, msgq.sub_sock(endpoint) as sub:
            with pytest.raises(SegmentSizeError, match=f"8192.*{other}"):
                sized(connect, endpoint, other)
            pub.send(b"unharmed")
            assert sub.receive(True) == b"unharmed"
            assert ring_path(endpoint).stat().st_size == HEADER + 8192

    @pytest.mark.parametrize("size", [128, 129, 1000, 4096, 65536])
    def test_message_above_third_of_segment_is_refused(self, endpoint: str, size: int) -> None:
        most = (size // 3 & ~7) - 8
        with msgq.pub_sock(endpoint, size) as pub, msgq.sub_sock(endpoint) as sub:
            for i in range(10):
                pub.send(bytes([i]) * most)
                assert sub.receive(True) == bytes([i]) * most
            for data in (bytes(most + 1), bytearray(most + 1), bytes(size), bytes(10 * size)):
                with pytest.raises(MessageTooLargeError, match=f"{len(data)} bytes.*{size}"):
                    pub.send(data)
            assert sub.receive(True) is None
            assert pub.stats().messages == 10

    def test_segment_memory_is_allocated_after_full_lap(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            assert ring_path(endpoint).stat().st_blocks * 512 < 65536
            for _ in range(1100):
                pub.send(bytes(1000))
                assert sub.receive() == bytes(1000)
            found = ring_path(endpoint).stat()
            assert found.st_blocks * 512 >= found.st_size

    def test_segment_memory_is_allocated_at_once_with_prealloc(
        self, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MSGQ_PREALLOC", "1")
        with msgq.pub_sock(endpoint):
            found = ring_path(endpoint).stat()
            assert found.st_blocks * 512 >= found.st_size


def make_directory(path: Path) -> None:
    path.mkdir()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with sockets.socket(sockets.AF_UNIX) as socket:
        socket.bind(str(path))


def make_link(path: Path) -> None:
    path.symlink_to("/dev/shm/nowhere")


STRANGE = {"directory": make_directory, "fifo": make_fifo, "socket": make_socket, "dangling link": make_link}


class TestStrangeFiles:
    @both
    @pytest.mark.parametrize("path_of", [ring_path, side_path], ids=["ring", "side"])
    @pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
    def test_path_of_other_file_type_is_refused(
        self, endpoint: str, connect: Callable[..., Any], path_of: Callable[[str], Path], make: Callable[[Path], None]
    ) -> None:
        path = path_of(endpoint)
        make(path)
        try:
            with pytest.raises(SegmentError, match=endpoint) as caught:
                connect(endpoint)
            assert caught.value.path == str(path)
        finally:
            path.rmdir() if path.is_dir() else path.unlink()
        assert works(endpoint)

    @both
    @pytest.mark.parametrize("path_of", [ring_path, side_path], ids=["ring", "side"])
    def test_segment_symbolic_link_is_not_followed(
        self, endpoint: str, tmp_path: Path, connect: Callable[..., Any], path_of: Callable[[str], Path]
    ) -> None:
        victim = tmp_path / "victim"
        victim.write_bytes(b"precious" * 1000)
        path_of(endpoint).symlink_to(victim)
        with pytest.raises(SegmentError, match="symbolic link") as caught:
            connect(endpoint)
        assert caught.value.errno == errno.ELOOP
        assert victim.read_bytes() == b"precious" * 1000

    @both
    @pytest.mark.parametrize("size", [1, 383, 384, 511, 384 + 2**32])
    def test_truncated_or_giant_ring_is_refused(self, endpoint: str, connect: Callable[..., Any], size: int) -> None:
        with ring_path(endpoint).open("wb") as file:
            file.truncate(size)  # a hole: takes no memory
        with pytest.raises(CorruptSegmentError, match=f"{size} bytes") as caught:
            connect(endpoint)
        assert caught.value.path == str(ring_path(endpoint))
        assert ring_path(endpoint).stat().st_size == size

    @both
    @pytest.mark.parametrize(
        "bad", [ring_position(0, 7), ring_position(5, 4090), ring_position(1, 2**32 - 8), 2**64 - 1]
    )
    def test_ring_file_with_invalid_write_pointer_is_refused(
        self, endpoint: str, connect: Callable[..., Any], bad: int
    ) -> None:
        RingFile.make(endpoint, 4096, write_pointer=bad).bytes.close()
        with pytest.raises(CorruptSegmentError, match="write pointer") as caught:
            connect(endpoint)
        assert caught.value.endpoint == endpoint

    @pytest.mark.parametrize("bad", [ring_position(0, 7), ring_position(1, 2**32 - 8), 2**64 - 1])
    def test_invalid_bytes_in_used_ring_raise_and_socket_can_be_closed(self, endpoint: str, bad: int) -> None:
        with msgq.pub_sock(endpoint, 4096) as pub, msgq.sub_sock(endpoint) as sub, RingFile(endpoint) as ring:
            pub.send(b"x")
            good, ring.write_pointer = ring.write_pointer, bad
            with pytest.raises(CorruptSegmentError, match=endpoint):
                (sub.receive_many(), sub.receive(True))
            ring.write_pointer = good
            sub.receive_many()
            pub.send(b"sane again")
            assert sub.receive(True) == b"sane again"

    @pytest.mark.parametrize("wait", [False, True])
    def test_receive_array_from_truncated_ring_raises(self, endpoint: str, wait: bool) -> None:
        """What is pending is smaller than one record, so nothing is taken that could be found torn."""
        with msgq.pub_sock(endpoint, 4096) as pub, msgq.sub_sock(endpoint, timeout=DEADLINE_MS) as sub:
            pub.send(b"x")
            for size in (HEADER + 2048, HEADER + 4096):
                os.truncate(ring_path(endpoint), size)
            with pytest.raises(SegmentSizeError, match=endpoint):
                sub.receive_array("S100", wait_for_one=wait)

    @pytest.mark.parametrize("size", [1_000_000, 1_000_001])  # the latter has no tail, by which others see it
    def test_truncated_ring_is_not_reported_as_lack_of_memory(self, endpoint: str, size: int) -> None:
        with msgq.pub_sock(endpoint, size) as pub:
            pub.send(b"x")
            os.truncate(ring_path(endpoint), 200_000)
            with pytest.raises(SegmentSizeError, match=endpoint):
                pub.send_many([bytes(1000)] * 1000)

    def test_receive_array_with_impossible_message_size_raises(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, 4096) as pub, msgq.sub_sock(endpoint) as sub:
            pub.send(b"x")
            with ring_path(endpoint).open("r+b") as file:
                file.seek(HEADER)
                file.write(b"\xff" * 7)
            with pytest.raises(CorruptSegmentError, match=endpoint):
                sub.receive_array("S8")

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
    @both
    @pytest.mark.parametrize("path_of", [ring_path, side_path], ids=["ring", "side"])
    def test_file_of_other_user_is_refused(
        self, endpoint: str, connect: Callable[..., Any], path_of: Callable[[str], Path]
    ) -> None:
        msgq.pub_sock(endpoint, 4096).close()
        os.chown(path_of(endpoint), 12345, -1)
        before = path_of(endpoint).read_bytes()
        with pytest.raises(SegmentError, match="12345") as caught:
            connect(endpoint)
        assert caught.value.path == str(path_of(endpoint))
        assert path_of(endpoint).read_bytes() == before

    @both
    def test_empty_file_of_stock_process_gets_size(self, endpoint: str, connect: Callable[..., Any]) -> None:
        ring_path(endpoint).write_bytes(b"")
        with connect(endpoint):
            found = ring_path(endpoint).stat()
            assert found.st_size == HEADER + 2**20
        assert works(endpoint)

    def test_ring_with_holes_gets_first_and_last_page(self, endpoint: str) -> None:
        """Of the rest each publisher of ours sees to what it writes."""
        with ring_path(endpoint).open("wb") as file:
            file.truncate(HEADER + 2**20)
        with msgq.sub_sock(endpoint):
            assert ring_path(endpoint).stat().st_blocks * 512 == 2 * os.sysconf("SC_PAGESIZE")
            assert side_path(endpoint).stat().st_blocks * 512 < SIDE_BYTES
        assert works(endpoint)


class TestSideSegment:
    @both
    def test_missing_side_segment_is_created(self, endpoint: str, connect: Callable[..., Any]) -> None:
        msgq.pub_sock(endpoint, 4096).close()
        side_path(endpoint).unlink()
        with connect(endpoint):
            assert side_path(endpoint).exists()
        assert works(endpoint)

    @both
    @pytest.mark.parametrize("place", [0, 1])
    def test_missing_directory_of_prefix_is_created(
        self, token: str, prefix: str, connect: Callable[..., Any], place: int
    ) -> None:
        """openpilot removes the directory of the rings alone."""
        msgq.pub_sock(token, 4096).close()
        shutil.rmtree(shm_paths.topic_directories(prefix)[place])
        with connect(token):
            assert os.path.exists(shm_paths.ring_path(token, prefix))
            assert os.path.exists(shm_paths.side_segment_path(token, prefix))
        assert works(token)

    @both
    @pytest.mark.parametrize("version", [0, 2, 2**63])
    def test_side_segment_of_other_version_is_refused(
        self, endpoint: str, connect: Callable[..., Any], version: int
    ) -> None:
        msgq.pub_sock(endpoint, 4096).close()
        with Words(side_path(endpoint)) as side:
            side[VERSION] = version
        with pytest.raises(LayoutVersionError, match=f"{version}.*1") as caught:
            connect(endpoint)
        assert caught.value.path == str(side_path(endpoint))

    @both
    @pytest.mark.parametrize("offset", [MAGIC, 16, 24, 32])
    def test_corrupt_side_segment_is_refused(self, endpoint: str, connect: Callable[..., Any], offset: int) -> None:
        msgq.pub_sock(endpoint, 4096).close()
        with Words(side_path(endpoint)) as side:
            side[offset] = 77
        with pytest.raises(CorruptSegmentError) as caught:
            connect(endpoint)
        assert caught.value.path == str(side_path(endpoint))

    @both
    @pytest.mark.parametrize("size", [0, 100, SIDE_BYTES - 1, SIDE_BYTES + 1])
    def test_side_segment_of_other_size_is_refused(self, endpoint: str, connect: Callable[..., Any], size: int) -> None:
        msgq.pub_sock(endpoint, 4096).close()
        os.truncate(side_path(endpoint), size)
        with pytest.raises(CorruptSegmentError, match=f"{size} bytes"):
            connect(endpoint)

    @both
    def test_side_segment_of_removed_ring_is_replaced(self, endpoint: str, connect: Callable[..., Any]) -> None:
        with msgq.pub_sock(endpoint, 4096) as pub:
            pub.send_many([b"x"] * 10)
        ring_path(endpoint).unlink()
        with connect(endpoint), Words(side_path(endpoint)) as side:
            assert side[RING_INODE] == ring_path(endpoint).stat().st_ino
            assert msgq.stats.topic(endpoint).messages == 0
        assert works(endpoint)

    def test_overwritten_side_segment_does_not_crash_sockets(self, endpoint: str) -> None:
        """All of it but the constant head is overwritten while in use."""
        with msgq.pub_sock(endpoint, 4096) as pub, msgq.sub_sock(endpoint) as sub, Words(side_path(endpoint)) as side:
            for value in (0, 2**64 - 1, 0x5A5A5A5A5A5A5A5A):
                for offset in range(ATTENTION, SIDE_BYTES, 8):
                    side[offset] = value
                pub.send(b"x")
                assert sub.receive(True) in (b"x", None)
                assert msgq.stats.topic(endpoint).path == str(ring_path(endpoint))


class TestRemovedWhileInUse:
    """`unlink_topic`, or any rm: who is connected keeps what there is; newcomers start anew."""

    def test_topic_recreated_after_removal_is_separate_from_old_topic(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, 4096) as pub, msgq.sub_sock(endpoint) as sub:
            assert unlink_topic(endpoint)
            assert not unlink_topic(endpoint)
            with msgq.sub_sock(endpoint, segment_size=8192) as newcomer:
                pub.send(b"old")
                assert sub.receive(True) == b"old"
                assert newcomer.receive(True) is None

    def test_removed_side_segment_loses_no_messages(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, 4096) as pub, msgq.sub_sock(endpoint) as sub:
            side_path(endpoint).unlink()
            with msgq.sub_sock(endpoint) as newcomer:
                for i in range(500):
                    pub.send(b"%d" % i)
                    assert sub.receive(True) == b"%d" % i
                    assert newcomer.receive(True) == b"%d" % i
                assert sub.lost == 0

    def test_new_subscriber_after_removal_of_side_segment_is_woken(self, endpoint: str) -> None:
        """The publisher knows only the old side segment; whoever has the new one must not sleep for ever."""
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            side_path(endpoint).unlink()
            with msgq.sub_sock(endpoint) as newcomer:
                newcomer.setTimeout(DEADLINE_MS)
                task = Task(newcomer.receive)
                task.wait_asleep()
                pub.send(b"x")
                assert task.result() == b"x"
                assert sub.receive(True) == b"x"

    def test_new_subscriber_in_reused_slot_is_woken_without_side_segment(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as first, msgq.sub_sock(endpoint) as second:
            side_path(endpoint).unlink()
            first.close()
            pub.send(b"seen by the second")
            with msgq.sub_sock(endpoint) as newcomer:
                task = Task(newcomer.receive)
                task.wait_asleep()
                pub.send(b"x")
                wait_until(lambda: not task.is_alive(), "the sleeper is woken")
                assert task.result() == b"x"
                assert second.receive_many() == [b"seen by the second", b"x"]

    def test_new_publisher_after_removal_of_side_segment_reaches_subscribers(self, endpoint: str) -> None:
        pub = msgq.pub_sock(endpoint)
        with msgq.sub_sock(endpoint, timeout=DEADLINE_MS) as sub:
            side_path(endpoint).unlink()
            task = Task(sub.receive)
            task.wait_asleep()
            with msgq.pub_sock(endpoint) as successor:
                successor.send(b"x")
                assert task.result() == b"x"
        pub.close()

    def test_topic_recreated_after_removal_of_ring_is_separate(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            ring_path(endpoint).unlink()
            with msgq.pub_sock(endpoint) as newcomer:
                pub.send(b"old")
                newcomer.send(b"new")
                assert sub.receive_many() == [b"old"]


class TestMode:
    @both
    @pytest.mark.parametrize("umask", [0, 0o022, 0o077])
    def test_segment_default_mode_allows_owner_only(
        self, endpoint: str, connect: Callable[..., Any], umask: int
    ) -> None:
        old = os.umask(umask)
        try:
            connect(endpoint).close()
        finally:
            os.umask(old)
        for path in (ring_path(endpoint), side_path(endpoint)):
            assert oct(stat.S_IMODE(path.stat().st_mode)) == oct(0o600)

    @pytest.mark.parametrize("role", ["PubSocket", "SubSocket"])
    def test_file_mode_equals_mode_argument_with_any_umask(self, endpoint: str, role: str) -> None:
        old = os.umask(0o077)
        try:
            with getattr(msgq, role)() as socket:
                socket.connect(msgq.context, endpoint, mode=0o664)
        finally:
            os.umask(old)
        for path in (ring_path(endpoint), side_path(endpoint)):
            assert oct(stat.S_IMODE(path.stat().st_mode)) == oct(0o664)

    def test_default_file_mode_is_read_from_environment(self, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_MODE", "640")
        msgq.pub_sock(endpoint).close()
        assert oct(stat.S_IMODE(ring_path(endpoint).stat().st_mode)) == oct(0o640)

    def test_existing_segment_keeps_its_mode(self, endpoint: str) -> None:
        msgq.pub_sock(endpoint).close()
        with msgq.PubSocket() as pub:
            pub.connect(msgq.context, endpoint, mode=0o666)
        assert oct(stat.S_IMODE(ring_path(endpoint).stat().st_mode)) == oct(0o600)

    @pytest.mark.parametrize("mode", [0o777, 0o066, -1])
    def test_invalid_mode_is_refused_and_creates_no_file(self, endpoint: str, mode: int) -> None:
        with pytest.raises(InvalidValueError, match="mode"):
            msgq.PubSocket().connect(msgq.context, endpoint, mode=mode)
        assert not ring_path(endpoint).exists()


class TestNoSpace:
    @pytest.mark.parametrize("limit", [HEADER + 4000, HEADER + 8192])
    def test_connect_above_file_size_limit_leaves_no_file(self, endpoint: str, limit: int) -> None:
        """The ring's own file, or only the side segment, hits the limit; neither is left behind unfinished."""
        name, number, text, closed = run_child(children.file_size_limit, endpoint, limit, 8192)
        assert (name, number, closed) == ("SegmentError", errno.EFBIG, True)
        assert endpoint in text
        assert str(SIDE_BYTES if limit > HEADER + 4096 else HEADER + 8192) in text
        assert not side_path(endpoint).exists()
        assert works(endpoint)

    @pytest.mark.parametrize("size", [2**20, 200 * 1024])
    def test_connect_on_full_file_system_leaves_no_file(self, endpoint: str, size: int) -> None:
        answer = run_child(children.full_file_system, endpoint, size)
        if answer == ["not permitted"]:
            pytest.skip("needs the right to mount")
        name, number, text, closed, left = answer
        assert (name, number, closed) == ("SegmentError", errno.ENOSPC, True)
        assert "bytes free" in text
        assert "msgq clean" in text
        assert "--shm-size" in text
        assert [entry for entry in left if entry.startswith("msgqside")] == []

    @pytest.mark.parametrize("size", [100, 20000, 40000])
    def test_schema_on_full_file_system_raises(self, endpoint: str, size: int) -> None:
        """Without a handler of SIGBUS, a write into a hole of the side segment ends the process."""
        answer = run_child(children.schema_on_full_file_system, endpoint, size, env={"MSGQ_SIGBUS": "0"})
        if answer == ["not permitted"]:
            pytest.skip("needs the right to mount")
        (name, number, text), schema_before, size_after = answer
        assert (name, number) == ("SegmentError", errno.ENOSPC)
        assert "cannot allocate memory for the schema" in text
        assert (schema_before, size_after) == (None, size)

    def test_send_on_full_file_system_raises(self, endpoint: str) -> None:
        """The ring's memory comes chunk by chunk. Without a handler of SIGBUS, a write into a hole ends the process."""
        answer = run_child(children.full_file_system_later, endpoint, env={"MSGQ_SIGBUS": "0"})
        if answer == ["not permitted"]:
            pytest.skip("needs the right to mount")
        early, refused, texts, late, lost = answer
        assert (early, late, lost) == (0, 0, 0), "refused before and after it was full; lost"
        assert refused > 100
        for text in texts:
            assert text.startswith(f"{errno.ENOSPC} {endpoint!r}")
            assert "cannot send a message of N bytes" in text
            assert "bytes free" in text

    def test_message_too_large_for_free_memory_allocates_no_memory(self, endpoint: str) -> None:
        answer = run_child(children.too_large_for_what_is_free, endpoint)
        if answer == ["not permitted"]:
            pytest.skip("needs the right to mount")
        refused, taken = answer
        assert refused == [errno.ENOSPC] * 2
        assert taken[:2] == [0, 0]
        assert 1 << 20 <= taken[2] < 1.1 * (1 << 20)

    def test_publisher_continues_if_free_space_is_below_chunk_size(self, endpoint: str) -> None:
        answer = run_child(children.begins_again_where_little_is_free, endpoint)
        if answer == ["not permitted"]:
            pytest.skip("needs the right to mount")
        came, free = answer
        assert came
        assert free <= 32 << 10

    def test_stage_continues_without_space_for_timing_topic(self, endpoint: str) -> None:
        answer = run_child(children.a_stage_that_cannot_tell, endpoint)
        if answer == ["not permitted"]:
            pytest.skip("needs the right to mount")
        assert answer == [20]

    def test_frame_stream_on_full_file_system_continues(self, token: str) -> None:
        answer = run_child(children.frames_where_memory_is_short, token, env={"MSGQ_SIGBUS": "0"})
        if answer == ["not permitted"]:
            pytest.skip("needs the right to mount")
        assert answer == [3000, 3000]

    def test_connect_without_free_descriptors_raises(self, endpoint: str) -> None:
        *errors, worked = run_child(children.without_descriptors, endpoint)
        assert [error[:2] for error in errors] == [["SegmentError", errno.EMFILE]] * 2
        for error in errors:
            assert "descriptors" in error[2]
            assert "symbolic" not in error[2]
            assert "msgqclock" in error[2]  # the first file that each process opens
        assert worked

    @pytest.mark.needs_shm(80 << 20)
    def test_new_ring_that_cannot_be_mapped_is_removed(self, endpoint: str) -> None:
        size = 64 << 20
        errors = run_child(children.little_address_space, endpoint, size, size // 2)
        assert [error[:2] for error in errors] == [["SegmentError", errno.ENOMEM]] * 2
        assert f"cannot map {size + HEADER} bytes" in errors[0][2]
        assert not ring_path(endpoint).exists()
        assert not side_path(endpoint).exists()

    @both
    def test_new_ring_is_removed_if_side_segment_cannot_be_created(
        self, endpoint: str, connect: Callable[..., Any]
    ) -> None:
        """What is in the place of its side segment cannot be one."""
        side_path(endpoint).write_bytes(b"foreign")
        with pytest.raises(CorruptSegmentError):
            connect(endpoint)
        assert not ring_path(endpoint).exists()
        side_path(endpoint).unlink()
        ring_path(endpoint).write_bytes(b"")  # a stock process's, which it is about to size
        side_path(endpoint).write_bytes(b"foreign")
        with pytest.raises(CorruptSegmentError):
            connect(endpoint)
        assert ring_path(endpoint).exists()

    @both
    def test_segment_errors_name_cause(self, endpoint: str, connect: Callable[..., Any], tmp_path: Path) -> None:
        ring_path(endpoint).symlink_to(tmp_path)
        with pytest.raises(SegmentError, match="a symbolic link is never followed"):
            connect(endpoint)
        ring_path(endpoint).unlink()
        ring_path(endpoint).mkdir()
        with pytest.raises(SegmentError, match="the path is a directory"):
            connect(endpoint)
        ring_path(endpoint).rmdir()

    def test_failed_connect_leaks_no_descriptor(self, endpoint: str) -> None:
        leaks = run_child(children.few_descriptors, endpoint)
        assert len(leaks) > 1
        assert set(leaks) == {0}

    @both
    def test_connected_socket_keeps_no_descriptor_open(self, endpoint: str, connect: Callable[..., Any]) -> None:
        before = os.listdir("/proc/self/fd")
        with connect(endpoint):
            assert os.listdir("/proc/self/fd") == before


class TestCreation:
    def test_two_simultaneous_processes_share_segment(self, prefix: str, tmp_path: Path) -> None:
        """Both connect to fresh endpoints the moment a file appears; each must see the other's sockets."""
        rounds, size = 30, 4096
        go = tmp_path / "go"
        with (
            Child(children.create_at_once, "e", str(go), size, rounds) as one,
            Child(children.create_at_once, "e", str(go), size, rounds) as two,
        ):
            for i in range(rounds):
                for child in (one, two):
                    assert child.hear() == i
                    child.say()
                Path(f"{go}{i}").touch()
                assert (one.hear(), two.hear()) == ("connected", "connected")
                seen = {info.participant.pid for info in msgq.stats.topic(f"e{i}").subscribers}
                assert seen == {one.pid, two.pid}
                one.say()
                two.say()
            assert (one.result(), two.result()) == (rounds, rounds)

    def test_two_simultaneous_threads_share_segment(self, prefix: str) -> None:
        for i in range(30):
            barrier = threading.Barrier(2)

            def connect(name: str = f"e{i}", barrier: threading.Barrier = barrier) -> msgq.SubSocket:
                barrier.wait()
                return msgq.sub_sock(name, segment_size=4096)

            tasks = [Task(connect), Task(connect)]
            subs = [task.result() for task in tasks]
            with msgq.pub_sock(f"e{i}") as pub:
                pub.send(b"x")
                assert [sub.receive(True) for sub in subs] == [b"x", b"x"]
            for sub in subs:
                sub.close()

    def test_child_process_after_exec_inherits_no_descriptor(
        self, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Files are open until their memory is allocated. Another process, which needs no GIL, finds them open."""
        monkeypatch.setenv("MSGQ_PREALLOC", "1")

        def make_anew() -> bool:
            unlink_topic(endpoint)
            msgq.pub_sock(endpoint, 4 << 20).close()
            return child.process.poll() is not None

        with Child(children.find_flags_of_open_files, os.getpid(), endpoint, 3) as child:
            wait_until(make_anew, interval=0)
            assert all(flags & os.O_CLOEXEC for flags in child.result())

    def test_connect_to_locked_topic_raises_after_timeout(self, endpoint: str) -> None:
        import fcntl

        msgq.pub_sock(endpoint, 4096).close()
        with ring_path(endpoint).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(SegmentError, match="locked"):
                msgq.sub_sock(endpoint)
        assert works(endpoint)

    def test_thousand_sockets_in_sequence_leak_no_slot_or_descriptor(self, endpoint: str) -> None:
        """Thousands of sockets, one after another, use up nothing."""
        with msgq.pub_sock(endpoint, 4096) as pub:
            for i in range(1000):
                with msgq.sub_sock(endpoint) as sub:
                    pub.send(b"%d" % i)
                    assert sub.receive(True) == b"%d" % i
            with RingFile(endpoint) as ring:
                assert (ring.num_readers, ring.read_uids()) == (0, [0] * 15)
        assert len(os.listdir("/proc/self/fd")) < 100


class TestUnlink:
    def test_unlink_removes_both_files(self, endpoint: str) -> None:
        msgq.pub_sock(endpoint, 4096).close()
        assert unlink_topic(endpoint)
        assert not [path for path in SHM.iterdir() if endpoint in path.name]

    def test_unlink_error_names_file(self, endpoint: str) -> None:
        ring_path(endpoint).mkdir()
        with pytest.raises(SegmentError, match="cannot remove") as caught:
            unlink_topic(endpoint)
        assert caught.value.path == str(ring_path(endpoint))
        ring_path(endpoint).rmdir()

    def test_unlink_removes_topic_of_given_prefix(self, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
        msgq.pub_sock("topic", 4096).close()
        monkeypatch.delenv("OPENPILOT_PREFIX")
        assert unlink_topic("topic", prefix)


@pytest.mark.parametrize("role", ["pub", "sub"])
def test_connect_to_ring_of_stock_publisher_works(endpoint: str, role: str) -> None:
    with RingFile.make(endpoint, 4096, write_pointer=ring_position(3, 80)) as ring:
        ring.write_uid = STRANGER_UID
    CONNECTS[role](endpoint).close()
    assert works(endpoint)
