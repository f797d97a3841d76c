"""The meter: counts, distributions, losses, and that nobody notices it."""

from __future__ import annotations

import struct
import time

import pytest

import msgq
from msgq import Schema
from msgq.errors import EndpointClosedError, InvalidValueError, SegmentError
from msgq.impl.meter import run_meters
from msgq.impl.ring.core import TopicObserver
from msgq.kinds.opening import open_meter
from msgq.kinds.source import PayloadTime
from msgq.stats import topic, topic_inodes
from tests.support import SHM, Task


def test_meter_counts_messages_bytes_and_sizes(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as publisher:
        publisher.send(b"before")
        meter = open_meter(endpoint)
        publisher.send_many([bytes(10), bytes(20), bytes(60)])
        run_meters([meter], 0.01)
        reading = meter.take_reading()
    assert (reading.messages, reading.bytes, reading.lost) == (3, 90, 0)
    assert reading.sizes is not None
    assert (reading.sizes.min, reading.sizes.mean, reading.sizes.max) == (10, 30, 60)
    assert reading.sizes.p50 == 20
    assert reading.delays_us is None


def test_meter_counts_waiting_messages_of_each_schema(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, schema=Schema("A", "struct", b'"<u4"')) as publisher:
        meter = open_meter(endpoint)
        publisher.send_many([bytes(4)] * 2)
    for name in ("B", "C"):
        with msgq.pub_sock(endpoint, schema=Schema(name, "struct", b'"<u8"')) as publisher:
            publisher.send(bytes(8))
    run_meters([meter], 0)
    reading = meter.take_reading()
    assert (reading.messages, reading.bytes, reading.lost) == (4, 24, 0)


def test_reading_of_closed_meter_keeps_losses(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as publisher:
        meter = open_meter(endpoint)
        publisher.send_many([bytes(1000)] * 5000)
        run_meters([meter], 0)
        meter.close()
    reading = meter.take_reading()
    assert reading.lost
    assert reading.messages + reading.lost == 5000


def test_meter_without_messages_has_no_rate(endpoint: str) -> None:
    with msgq.pub_sock(endpoint):
        meter = open_meter(endpoint)
        run_meters([meter], 0.001)
    reading = meter.take_reading()
    assert (reading.messages, reading.rate, reading.byte_rate, reading.periods_us) == (0, None, None, None)


def test_meter_measures_period_since_last_message_before_reset(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as publisher:
        meter = open_meter(endpoint)
        publisher.send(b"a")
        run_meters([meter], 0.001)
        meter.reset_counts()
        assert meter.take_reading().messages == 0
        publisher.send(b"b")
        run_meters([meter], 0.001)
    reading = meter.take_reading()
    assert reading.messages == 1
    assert reading.periods_us is not None
    assert reading.periods_us.count == 1
    assert reading.rate is not None


def test_meter_percentiles_are_within_one_percent(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, 4 << 20) as publisher:
        meter = open_meter(endpoint)
        sizes = [17 * i for i in range(500)]
        publisher.send_many([bytes(size) for size in sizes])
        run_meters([meter], 0.001)
    found = meter.take_reading().sizes
    assert found is not None
    assert found.p50 == pytest.approx(sizes[250], rel=0.01)
    assert found.p90 == pytest.approx(sizes[450], rel=0.01)
    assert found.p99 == pytest.approx(sizes[495], rel=0.01)
    assert found.max == sizes[-1]


@pytest.mark.parametrize("spin", [False, True])
def test_meter_mean_period_is_exact_with_and_without_spinning(endpoint: str, spin: bool) -> None:
    def publish() -> None:
        for _ in range(49):
            time.sleep(0.001)
            publisher.send(b"tick")

    with msgq.pub_sock(endpoint) as publisher:
        meter = open_meter(endpoint)
        publisher.send(b"tick")
        run_meters([meter], 0.001, spin)  # periods begin with what is found first, be it one message or several
        task = Task(publish)
        while meter.take_reading().messages < 50:
            run_meters([meter], 0.01, spin)
        task.result()
    reading = meter.take_reading()
    assert reading.periods_us is not None
    assert reading.periods_us.count == 49
    assert reading.periods_us.mean * 49 == pytest.approx(reading.span_s * 1e6, rel=1e-6)
    assert reading.periods_us.mean >= 950  # 1 ms of sleep, and a look that may be late by a nap


def test_meter_counts_overwritten_messages_in_losses_and_rate(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as publisher:
        meter = open_meter(endpoint)
        publisher.send(b"first")
        run_meters([meter], 0.001)
        publisher.send_many([bytes(1000)] * 5000)  # five laps
        publisher.send(b"last")
        run_meters([meter], 0.001)
        publisher.send(b"after")
        run_meters([meter], 0.001)
    reading = meter.take_reading()
    assert reading.lost
    assert reading.messages + reading.lost == 5003
    assert reading.rate is not None
    assert reading.periods_us is not None
    assert reading.rate == pytest.approx((reading.periods_us.count + reading.lost) / reading.span_s)


def test_meter_measures_delays_from_time_in_payload(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as publisher:
        meter = open_meter(endpoint, PayloadTime(4, "host"))
        now = time.time_ns()
        for stamp in (now - 5_000_000, now + 3_600_000_000_000):
            publisher.send(b"head" + struct.pack("<Q", stamp))
        publisher.send(b"head" + bytes(7))
        run_meters([meter], 0.001)
    reading = meter.take_reading()
    assert (reading.messages, reading.without_timestamp, reading.negative_delays) == (3, 1, 1)
    assert reading.delays_us is not None
    assert reading.delays_us.count == 2
    assert reading.delays_us.min == 0
    assert reading.delays_us.max >= 5000


def test_meter_measures_delays_with_monotonic_clock(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as publisher:
        meter = open_meter(endpoint, PayloadTime(0, "monotonic"))
        publisher.send(struct.pack("<Q", time.monotonic_ns()))
        run_meters([meter], 0.001)
    delays = meter.take_reading().delays_us
    assert delays is not None
    assert 0 < delays.max < 60e6


def test_run_meters_measures_150_topics_at_once(prefix: str) -> None:
    publishers = [msgq.pub_sock(f"e{i}") for i in range(150)]  # more than one futex call takes
    meters = [open_meter(f"e{i}") for i in range(150)]
    for publisher in publishers:
        publisher.send(b"x")
    run_meters([*meters], 0.005)
    assert [meter.take_reading().messages for meter in meters] == [1] * 150


def test_topic_meter_does_not_change_files(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as publisher:
        publisher.send(b"x")
        files = [(SHM / f"{kind}{endpoint}") for kind in ("msgq_", "msgqside_")]
        before = [path.read_bytes() for path in files]
        meter = open_meter(endpoint)
        run_meters([meter], 0.005)
        assert [path.read_bytes() for path in files] == before
        assert topic(endpoint).subscribers == ()


def test_meter_errors_name_the_endpoint(endpoint: str) -> None:
    with pytest.raises(SegmentError, match=endpoint):
        open_meter(endpoint)
    with msgq.pub_sock(endpoint):
        with pytest.raises(InvalidValueError, match="publish time is -1"):
            open_meter(endpoint, PayloadTime(-1, "host"))
        meter = open_meter(endpoint)
        meter.close()
        with pytest.raises(EndpointClosedError, match=endpoint):
            run_meters([meter], 0.001)


def test_topic_observer_counts_messages_and_subscribers(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as publisher:
        look = TopicObserver(endpoint, "")
        before = look.counts()
        with msgq.sub_sock(endpoint) as subscriber:
            publisher.send_many([bytes(100)] * 3)
            assert subscriber.receive() is not None
            now = look.counts()
            assert look.stats() == topic(endpoint)
    assert (before.messages, before.subscribers, before.lost) == (0, 0, 0)
    assert (now.messages, now.bytes, now.subscribers, now.lost) == (3, 300, 1, 0)
    assert now.position_bytes - before.position_bytes == 3 * 112


def test_topic_inode_changes_when_ring_is_recreated(prefix: str) -> None:
    with msgq.pub_sock("x"):
        before = topic_inodes(prefix)
    for kind in ("msgq_", "msgqside_"):
        (SHM / f"{kind}{prefix}" / "x").rename(SHM / f"{kind}{prefix}" / "old")
    with msgq.pub_sock("x"):
        now = topic_inodes(prefix)
    assert set(before) == {"x"}
    assert set(now) == {"old", "x"}
    assert now["x"] != before["x"] == now["old"]
