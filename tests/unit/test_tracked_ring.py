"""Tracked topics of the ring: foreign bytes, stock programs, files that were cut, and who looks from outside."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any

import pytest

import msgq
from msgq import stats
from msgq.errors import CorruptSegmentError, StateError
from msgq.impl.base import clock
from msgq.impl.meter import run_meters
from msgq.impl.ring import SubSocket
from msgq.kinds.opening import open_meter
from msgq.kinds.source import PayloadTime
from tests.command import run, start
from tests.unit.ringfile import HEADER, SIDE_BYTES, Words, ring_path, side_path

TRACKED = 224  # offset of `tracked` in the side segment


def passive(endpoint: str) -> SubSocket:
    sub = SubSocket()
    sub.connect(msgq.context, endpoint, passive=True)
    sub.setTimeout(0)
    return sub


CALLS: dict[str, Callable[[Any], Any]] = {
    "receive": lambda sub: sub.receive(),
    "receive_tracked": lambda sub: sub.receive_tracked(),
    "receive_many": lambda sub: sub.receive_many(),
    "receive_into": lambda sub: sub.receive_into(bytearray(100)),
    "receive_array": lambda sub: sub.receive_array("u1"),
}


@pytest.mark.parametrize("size", [0, 8, 15])
@pytest.mark.parametrize("call", CALLS)
def test_tracked_message_too_short_for_timestamps_raises(endpoint: str, call: str, size: int) -> None:
    with msgq.pub_sock(endpoint, tracked=True) as pub, passive(endpoint) as sub:
        pub.send_many([b"x", b"y"])
        Words(ring_path(endpoint))[HEADER] = size
        with pytest.raises(CorruptSegmentError, match="no message at offset 0"):
            CALLS[call](sub)
        pub.send(b"z")
        assert sub.receive() == b"z", "it goes on at the present"


def test_topic_with_invalid_tracked_word_is_untracked(endpoint: str) -> None:
    msgq.sub_sock(endpoint).close()
    Words(side_path(endpoint))[TRACKED] = 2
    with msgq.pub_sock(endpoint) as pub, passive(endpoint) as sub:
        pub.send(b"x")
        assert not pub.tracked
        assert sub.receive() == b"x"


@pytest.mark.parametrize("tracked", [True, False])
def test_tracked_topic_remains_tracked_after_truncation(endpoint: str, tracked: bool) -> None:
    """A stock process sets the file to a size of its own; the next participant makes a new side segment."""
    with msgq.pub_sock(endpoint, 4096, tracked=tracked) as pub:
        pub.send(b"x" * 1000)
    os.truncate(ring_path(endpoint), HEADER + 1024)
    if not tracked:
        with pytest.raises(StateError, match="cannot become tracked"):
            msgq.pub_sock(endpoint, tracked=True)
    with msgq.sub_sock(endpoint, timeout=0) as sub, msgq.pub_sock(endpoint) as pub:
        assert pub.tracked == sub.tracked == tracked
        pub.send(b"y")
        assert sub.receive() == b"y"


def test_passive_subscriber_without_side_segment_reads_tracked_topic(endpoint: str) -> None:
    ring_path(endpoint).write_bytes(bytes(HEADER + 4096))  # state of a ring that a stock subscriber created
    with passive(endpoint) as sub:
        assert sub.receive() is None
        assert not side_path(endpoint).exists()
        with msgq.pub_sock(endpoint, tracked=True) as pub:
            pub.send(b"x", origin_time=5)
            sub.setTimeout(1000)
            assert sub.receive_tracked() == (b"x", sub_time(endpoint), 5)
            assert side_path(endpoint).stat().st_size == SIDE_BYTES


def sub_time(endpoint: str) -> int:
    """Return the publish time of the ring's first message."""
    return int(struct.unpack_from("<q", ring_path(endpoint).read_bytes(), HEADER + 8)[0])


def test_forked_subscriber_receives_tracked_message(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, tracked=True) as pub, msgq.sub_sock(endpoint, timeout=0) as sub:
        pub.send(b"x", origin_time=5)
        child = os.fork()
        if not child:
            found = sub.receive_tracked()
            os._exit(0 if found is not None and (found.data, found.origin_time) == (b"x", 5) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_topic_stats_show_if_topic_is_tracked(endpoint: str) -> None:
    with msgq.pub_sock(endpoint):
        assert not stats.topic(endpoint).tracked
    with msgq.pub_sock(endpoint, tracked=True) as pub:
        assert stats.topic(endpoint).tracked
        pub.send(b"abc")
        assert stats.topic(endpoint).bytes == 3
    shown = run("info", endpoint)
    assert "tracked      yes (messages have publish and origin times)" in shown.stdout


def test_meter_excludes_timestamps_from_size_of_tracked_messages(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, tracked=True) as pub:
        meter = open_meter(endpoint)
        before = clock.time_ns()
        pub.send_many([bytes(10), bytes(20)])
        run_meters([meter], 0.01)
        reading = meter.take_reading()
        after = clock.time_ns()
    assert (reading.messages, reading.bytes, reading.without_timestamp, reading.negative_delays) == (2, 30, 0, 0)
    assert reading.delays_us is not None
    assert reading.delays_us.count == 2
    assert 0 <= reading.delays_us.max <= (after - before) / 1000


def test_meter_with_offset_measures_delay_from_payload_of_tracked_topic(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, tracked=True) as pub:
        meter = open_meter(endpoint, PayloadTime(2, "host"))
        pub.send(b"--" + struct.pack("<q", clock.time_ns() - 5_000_000_000))
        run_meters([meter], 0.01)
        delays = meter.take_reading().delays_us
    assert delays is not None
    assert delays.min > 4e6


def test_echo_of_tracked_topic_shows_only_payload(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, tracked=True) as pub, start("echo", "--raw", "--once", endpoint) as process:
        process.wait_opened(f"msgq_{endpoint}")
        pub.send(b"payload")
        assert process.communicate() == ("payload", "")
