"""Meters of channels, vectors, boards and work queues, and `msgq hz`, `bw`, `delay` on them, beside real processes."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq import Schema, stats
from msgq.channel import Channel
from msgq.errors import EndpointClosedError, SegmentError, SegmentSizeError
from msgq.impl.base import clock
from msgq.impl.meter import EndpointMeter, run_meters
from msgq.kinds.opening import open_meter
from msgq.kinds.source import PayloadTime
from msgq.workqueue import MessageQueue
from tests import command
from tests.support import Child, Task, repeating
from tests.unit import traffic_children
from tests.unit.traffic_children import POSE


def lines(*words: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.run(*words, "--json", code=code).stdout.splitlines()]


def seen_by(meter: EndpointMeter, messages: int) -> None:
    """Count until so many messages were seen or lost."""
    while (now := meter.take_reading()).messages + (now.lost or 0) < messages:
        run_meters([meter], 0.01)


# ---- channels ----


def test_channel_meter_counts_messages_of_two_publishers_exactly(prefix: str) -> None:
    with (
        Child(traffic_children.publish_on_channel, "cam", "left") as left,
        Child(traffic_children.publish_on_channel, "cam", "right") as right,
    ):
        assert left.hear() == right.hear() == "up"
        meter = open_meter("channel/cam")
        left.say(1)
        seen_by(meter, 1)  # periods begin with what is found first
        for child in (left, right):
            child.say(5000)
        seen_by(meter, 10_001)
        run_meters([meter], 0.01)
        reading = meter.take_reading()
        assert reading.lost is not None
        assert reading.messages + reading.lost == 10_001
        assert (reading.endpoint, reading.measured_until) == ("channel/cam", "seen")
        assert reading.sizes is not None
        assert reading.sizes.max == 4
        assert reading.delays_us is not None
        assert (reading.delays_us.count, reading.negative_delays) == (reading.messages, 0)
        assert reading.rate == pytest.approx((reading.periods_us.count + reading.lost) / reading.span_s)  # type: ignore[union-attr]
        there = stats.channel("cam")
        assert (there.messages, there.subscribers, there.viewers) == (10_001, (), ())
        left.say(0)
        right.say(0)


def test_channel_meter_counts_evicted_messages_exactly(prefix: str) -> None:
    with Channel("cam", capacity=8) as channel, channel.publisher() as publisher:
        meter = open_meter("channel/cam")
        publisher.send_many([b"x"] * 1000)
        run_meters([meter], 0.001)
        reading = meter.take_reading()
        assert reading.lost is not None
        assert 0 < reading.messages <= 8
        assert reading.messages + reading.lost == 1000
        meter.reset_counts()
        publisher.send(b"x")
        run_meters([meter], 0.001)
        assert (meter.take_reading().messages, meter.take_reading().lost) == (1, 0)


def test_channel_meter_with_zero_duration_polls_once(prefix: str) -> None:
    with Channel("cam") as channel, channel.publisher() as publisher:
        meter = open_meter("channel/cam")
        publisher.send_many([b"1", b"2"])
        run_meters([meter], 0)
        assert meter.take_reading().messages == 2


def test_channel_meter_measures_delays_from_time_in_payload(prefix: str) -> None:
    with Channel("cam", stamps=False) as channel, channel.publisher() as publisher:
        meter = open_meter("channel/cam", PayloadTime(4, "host"))
        publisher.send(b"head" + struct.pack("<Q", clock.time_ns() - 5_000_000))
        publisher.send(b"head" + struct.pack("<Q", clock.time_ns() + 3_600_000_000_000))
        publisher.send(b"short")
        run_meters([meter], 0.001)
        reading = meter.take_reading()
        assert (reading.messages, reading.without_timestamp, reading.negative_delays) == (3, 1, 1)
        assert reading.delays_us is not None
        assert (reading.delays_us.count, reading.delays_us.max >= 5000) == (2, True)
        bare = open_meter("channel/cam")
        publisher.send(b"x")
        run_meters([bare], 0.001)
        assert bare.take_reading().delays_us is None


# ---- records ----


def test_records_meter_counts_writes_of_vector_exactly(prefix: str) -> None:
    with Child(traffic_children.write_vector, "poses", 10) as child:
        assert child.hear() == "up"
        child.say(1)
        child.hear()  # before we looked
        meter = open_meter("records/poses")
        for i in range(500):
            child.say(i % 10)
        for _ in range(500):
            child.hear()
        seen_by(meter, 500)
        reading = meter.take_reading()
        assert reading.lost is not None
        assert reading.messages + reading.lost == 500
        assert reading.sizes is not None
        assert (reading.sizes.min, reading.sizes.max) == (POSE.itemsize, POSE.itemsize)
        assert reading.delays_us is not None
        assert (reading.delays_us.count, reading.negative_delays) == (reading.messages, 0)
        assert [one.participant.pid for one in stats.record("poses").writers] == [child.pid]
        child.say(-1)


def test_records_meter_counts_overwritten_values_as_lost(prefix: str) -> None:
    with msgq.Seqlock("speed", np.float64) as record:
        meter = open_meter("records/speed")
        for value in range(100):
            record.value = value
        run_meters([meter], 0.001)
        assert (meter.take_reading().messages, meter.take_reading().lost) == (1, 99)


def test_records_meter_counts_values_and_sizes_of_board(prefix: str) -> None:
    with msgq.Board("state", 100, 1000) as board:
        meter = open_meter("records/state")
        board.declare("small").write(bytes(10))
        board.declare("large").write(bytes(1000))
        run_meters([meter], 0.001)
        reading = meter.take_reading()
        assert (reading.messages, reading.bytes, reading.lost) == (2, 1010, 0)


# ---- queues ----


def test_queue_meter_with_events_measures_sizes_and_waiting_times(prefix: str) -> None:
    with MessageQueue("jobs", events=True) as queue, Child(traffic_children.work_in_queue, "jobs") as child:
        assert child.hear() == "up"
        meter = open_meter("queue/jobs")  # their channel is still to come
        run_meters([meter], 0.001)
        queue.send(bytes(100))
        time.sleep(0.02)  # it waits so long
        with queue.take():
            pass
        child.say(50)
        child.hear()
        seen_by(meter, 51)
        reading = meter.take_reading()
        assert (reading.messages, reading.lost, reading.measured_until) == (51, 0, "taken")
        assert reading.sizes is not None
        assert (reading.sizes.min, reading.sizes.max) == (1, 100)
        assert reading.delays_us is not None
        assert reading.delays_us.count == 51
        assert reading.delays_us.max >= 20_000
        assert reading.delays_us.min < 20_000
        child.say(0)


def test_queue_meter_measures_delay_of_returned_message_once(prefix: str) -> None:
    with MessageQueue("jobs", events=True) as queue:
        queue.send(b"x")
        meter = open_meter("queue/jobs")
        queue.take().nack()
        queue.take().ack()
        run_meters([meter], 0.001)
        reading = meter.take_reading()
        assert (reading.messages, reading.delays_us and reading.delays_us.count) == (0, 1)


def test_queue_meter_without_events_measures_counts_and_current_delays(prefix: str) -> None:
    with MessageQueue("jobs") as queue, Child(traffic_children.work_in_queue, "jobs") as child:
        assert child.hear() == "up"
        queue.send(b"before")
        meter = open_meter("queue/jobs")
        child.say(100)
        child.hear()
        seen_by(meter, 100)
        queue.send(b"x")
        time.sleep(0.01)  # it waits so long
        run_meters([meter], 0.001)
        reading = meter.take_reading()
        assert (reading.messages, reading.lost, reading.bytes, reading.sizes, reading.measured_until) == (
            101,
            0,
            None,
            None,
            "now",
        )
        assert reading.delays_us is not None
        assert (reading.delays_us.count, reading.delays_us.min >= 10_000) == (1, True)
        there = stats.queue("jobs")
        assert (there.depth, len(there.handles)) == (1, 2)
        child.say(0)


# ---- all of them ----


def test_run_meters_measures_endpoints_of_all_kinds_at_once(prefix: str) -> None:
    with (
        msgq.pub_sock("car") as topic,
        Channel("car") as channel,
        channel.publisher() as publisher,
        MessageQueue("car") as queue,
        MessageQueue("bus", events=True) as events,
        msgq.Seqlock("car", POSE) as record,
    ):
        meters: list[EndpointMeter] = [
            open_meter("car"),
            open_meter("channel/car"),
            open_meter("records/car"),
            open_meter("queue/car"),
            open_meter("queue/bus"),
        ]
        for _ in range(3):
            topic.send(b"t")
            publisher.send(b"c")
            queue.send(b"q")
            events.send(b"e")
            record.value = (1, 2)
            run_meters(meters, 0.06)
        found = {one.endpoint: one.messages for one in (meter.take_reading() for meter in meters)}
        assert found == {"car": 3, "channel/car": 3, "records/car": 3, "queue/car": 3, "queue/bus": 3}
        for meter in meters:
            meter.close()
            with pytest.raises(EndpointClosedError):
                run_meters([meter], 0.001)


def test_meters_of_all_kinds_do_not_change_files(prefix: str) -> None:
    with (
        Channel("car") as channel,
        channel.publisher() as publisher,
        MessageQueue("car", events=True) as queue,
        MessageQueue("bus") as other,
        msgq.Seqlock("car", POSE) as record,
    ):
        publisher.send(b"c")
        queue.send(b"q")
        other.send(b"q")
        record.value = (1, 2)
        files = [path for path in Path("/dev/shm").glob(f"msgq*_{prefix}/*") if path.is_file()]
        before = [path.read_bytes() for path in files]
        meters = [
            *(open_meter("channel/car"), open_meter("records/car")),
            *(open_meter("queue/bus"), open_meter("queue/car")),
        ]
        run_meters(meters, 0.01)
        assert [meter.take_reading().endpoint for meter in meters] == [
            "channel/car",
            "records/car",
            "queue/bus",
            "queue/car",
        ]
        assert [path.read_bytes() for path in files] == before
        assert len(files) == 7  # two files and their pools, two queues, a record


@pytest.mark.parametrize("kind", ["channel", "records", "queue"])
def test_opening_meter_of_missing_endpoint_raises(prefix: str, kind: str) -> None:
    with pytest.raises(SegmentError, match="none"):
        open_meter(f"{kind}/none")


def test_meter_of_truncated_file_raises(endpoint: str) -> None:
    with MessageQueue(endpoint, max_messages=1000) as queue, msgq.SeqlockVector(endpoint, POSE, 10_000) as vector:
        jobs, poses = open_meter(f"queue/{endpoint}"), open_meter(f"records/{endpoint}")
        os.truncate(queue.path, 57344)
        os.truncate(vector.path, 65536)
        with pytest.raises(SegmentSizeError):
            jobs.take_reading()
        with pytest.raises(SegmentSizeError):
            run_meters([poses], 0.2)


# ---- the command ----


@pytest.fixture
def traffic(prefix: str) -> Any:
    """Write to an endpoint of each kind while the test runs, some hundred times a second."""
    with (
        Channel("car") as channel,
        channel.publisher() as publisher,
        MessageQueue("car", events=True) as queue,
        MessageQueue("bus") as other,
        msgq.Seqlock("car", POSE) as record,
    ):
        over: list[None] = []

        def work() -> None:
            while not over:
                publisher.send(bytes(100))
                queue.send(bytes(50))
                other.send(bytes(50))
                queue.receive(0)
                other.receive(0)
                record.value = (1, 2)
                time.sleep(0.002)

        other.send(b"stays", 0)
        task = Task(work)
        yield
        over.append(None)
        task.result()


def test_hz_bw_and_delay_measure_endpoints_of_every_kind(traffic: None) -> None:
    names = ["channel/car", "queue/bus", "queue/car", "records/car"]
    hz = lines("hz", *names, "--once", "--interval", "0.5")
    assert sorted(one["endpoint"] for one in hz) == names
    for one in hz:
        assert one["rate"] == pytest.approx(hz[0]["rate"], rel=0.5)
        assert one["periods_us"]["min"] <= one["periods_us"]["p50"] <= one["periods_us"]["max"]
    sizes = {one["endpoint"]: one["sizes"] and one["sizes"]["mean"] for one in lines("bw", ".*/...", "--once")}
    assert [sizes[name] for name in names] == [100, None, 50, POSE.itemsize]
    delays = {one["endpoint"]: one for one in lines("delay", *names, "--once", "--interval", "0.5")}
    assert [delays[name]["measured_until"] for name in names] == ["seen", "now", "taken", "seen"]
    assert all(0 < one["delays_us"]["p50"] < 60e6 and one["negative_delays"] == 0 for one in delays.values())
    text = command.run("bw", "queue/bus", "--once", "--interval", "0.1").output
    assert " - " in text
    assert "taken" in command.run("delay", "queue/car", "--once", "--interval", "0.1").output


def test_delay_requires_offset_option_for_channel_without_timestamps(prefix: str) -> None:
    said = Schema("Car", "struct", json.dumps([["publish_time", "<u8"]]).encode())
    with Channel("bare", stamps=False) as bare, Channel("said", stamps=False, schema=said) as channel:
        assert "--offset" in command.run("delay", "channel/bare", "--once", code=1).stderr
        with channel.publisher() as publisher, bare.publisher() as other:

            def send_times() -> None:
                publisher.send(struct.pack("<Q", clock.time_ns()))
                other.send(struct.pack("<Q", clock.time_ns()))

            with repeating(send_times, 0.002):
                (found,) = lines("delay", "channel/said", "--once", "--interval", "0.5")
                assert found["delays_us"]["count"] == found["messages"] > 0
                (found,) = lines("delay", "channel/bare", "--offset", "0", "--once", "--interval", "0.5")
                assert found["delays_us"]["count"] == found["messages"] > 0


def test_delay_refuses_offset_option_for_records_and_queues(prefix: str) -> None:
    with msgq.Seqlock("speed", np.float64), MessageQueue("jobs"):
        for name in ("records/speed", "queue/jobs"):
            assert name in command.run("delay", name, "--offset", "0", "--once", code=2).stderr


@pytest.mark.parametrize("verb", ["hz", "bw", "delay"])
@pytest.mark.parametrize("kind", ["channel/", "records/", "queue/"])
def test_measuring_command_on_silent_endpoint_exits_with_3(prefix: str, verb: str, kind: str) -> None:
    Channel("silent").close()
    MessageQueue("silent").close()
    msgq.Seqlock("silent", POSE).close()
    result = command.run(verb, f"{kind}silent", "--timeout", "0.1", "--interval", "0.05", code=3)
    assert "no message within 0.1 s" in result.stderr
