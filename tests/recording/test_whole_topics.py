"""A topic that is taken from its very first message on: each is there, or counted as lost, or nobody can tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import msgq
from msgq import errors
from msgq.common import shm_paths
from msgq.impl.ring.core import unlink_topic
from msgq.impl.sources import EndpointSource
from msgq.kinds.opening import open_source
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.recorder.core import Capture
from tests.unit.ringfile import STRANGER_UID, RingFile, lap_end, message_bytes_in_ring

SIZE = 4096  # bytes of the ring


def take_all(source: EndpointSource) -> tuple[int, int | None]:
    """Return how many messages a source gives, and how many it has lost."""
    capture, chunk = Capture(), ChunkBuffer(1 << 20, 1 << 10)
    capture.add_source(source)
    while capture.list_sources_with_new_schema():
        assert source.schema is None
        capture.accept_schema(0)
    capture.capture_messages(chunk, 0)
    return len(chunk), source.lost


def send_numbers(count: int, endpoint: str = "e") -> None:
    with msgq.pub_sock(endpoint, segment_size=SIZE) as pub:
        for number in range(count):
            pub.send(b"%56d" % number)


def per_lap() -> int:
    return lap_end(SIZE) // message_bytes_in_ring(56)


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_unwrapped_ring_gives_all_messages(prefix: str, count: int) -> None:
    send_numbers(count)
    assert take_all(open_source("e", whole=True)) == (count, 0)
    assert take_all(open_source("e")) == (0, 0)


@pytest.mark.parametrize("more", [0, 1, 7, 40])
@pytest.mark.parametrize("laps", [1, 2, 9])
def test_wrapped_ring_gives_current_messages_and_counts_overwritten_messages(prefix: str, laps: int, more: int) -> None:
    send_numbers(laps * per_lap() + more)
    found, lost = take_all(open_source("e", whole=True))
    assert (found, lost) == ((more, laps * per_lap()) if more else (per_lap(), (laps - 1) * per_lap()))


def test_wrapped_ring_of_several_publishers_counts_all_losses(prefix: str) -> None:
    for _ in range(5):
        send_numbers(per_lap() // 2 + 3)
    found, lost = take_all(open_source("e", whole=True))
    assert lost is not None
    assert 0 < found < per_lap() < found + lost == 5 * (per_lap() // 2 + 3)


def test_messages_written_during_join_are_counted(prefix: str) -> None:
    with msgq.pub_sock("e", segment_size=SIZE) as pub:
        sources = []
        for number in range(4 * per_lap()):
            pub.send(b"%56d" % number)
            sources.append(open_source("e", whole=True))
        for source in sources[:: per_lap() // 3]:
            found, lost = take_all(source)
            assert lost is not None
            assert found + lost == 4 * per_lap()


def test_unwrapped_stock_ring_gives_all_messages(prefix: str) -> None:
    """It counts nothing, but everything is there."""
    send_numbers(20)
    ring = RingFile(f"{prefix}/e")
    ring.write_uid = STRANGER_UID
    assert take_all(open_source("e", whole=True)) == (20, 0)


def test_wrapped_stock_ring_has_unknown_losses(prefix: str) -> None:
    send_numbers(2 * per_lap() + 5)
    ring = RingFile(f"{prefix}/e")
    ring.write_uid = STRANGER_UID
    assert take_all(open_source("e", whole=True)) == (5, None)


def test_ring_with_new_side_segment_has_unknown_losses(prefix: str) -> None:
    """The side segment was removed, and its successor counts from the present on."""
    send_numbers(per_lap() + 5)
    os.unlink(shm_paths.side_segment_path("e", prefix))
    send_numbers(2)
    assert take_all(open_source("e", whole=True)) == (7, None)


def test_ring_without_side_segment_is_refused(prefix: str) -> None:
    """It says whether messages begin with stamps. Stock publishers, which have none, are no such case."""
    send_numbers(3)
    os.unlink(shm_paths.side_segment_path("e", prefix))
    with pytest.raises(errors.SegmentError, match="its side segment"):
        open_source("e", whole=True)


def test_unlinked_ring_is_opened(prefix: str) -> None:
    paths = shm_paths.ring_path("e", prefix), shm_paths.side_segment_path("e", prefix)
    send_numbers(per_lap() + 5)
    files = {path: os.open(path, os.O_RDONLY) for path in paths}
    unlink_topic("e")
    send_numbers(1)
    source = open_source("e", whole=True, files=files)
    for descriptor in files.values():
        os.close(descriptor)
    assert take_all(source) == (5, per_lap())
    assert take_all(open_source("e", whole=True)) == (1, 0)


def test_unlinked_ring_without_side_segment_is_refused(prefix: str) -> None:
    path = Path(shm_paths.ring_path("e", prefix))
    with msgq.pub_sock("e") as pub:
        pub.send(b"x")
        with path.open("rb") as file:
            unlink_topic("e")
            with pytest.raises(errors.SegmentError, match="its side segment"):
                open_source("e", whole=True, files={str(path): file.fileno()})
