"""`msgq echo` on channels, work queues, vectors and boards, with real processes; test_cli_measurement.py has topics."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import msgq
from msgq import Schema, stats
from msgq.channel import Channel, Node
from msgq.channel.channel import ReservedChannel
from msgq.workqueue import MessageQueue
from tests import command
from tests.command import Process, start
from tests.support import Child
from tests.unit import traffic_children
from tests.unit.traffic_children import POSE


def lines(*words: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.run("echo", *words, "--json", code=code).stdout.splitlines()]


@pytest.fixture
def listen(prefix: str) -> Iterator[Callable[..., Process]]:
    """Start `msgq echo --json`, and return when it listens to files whose paths have these parts."""
    with ExitStack() as stack:

        def listen(*words: str, opened: tuple[str, ...]) -> Process:
            process = stack.enter_context(start("echo", "--json", *words))
            process.wait_opened(*opened)
            return process

        yield listen


# ---- channels ----


def test_echo_of_channel_shows_publisher_of_each_message(prefix: str, listen: Callable[..., Process]) -> None:
    with (
        Child(traffic_children.publish_on_channel, "cam", "left") as left,
        Child(traffic_children.publish_on_channel, "cam", "right") as right,
    ):
        assert left.hear() == right.hear() == "up"
        echo = listen("channel/cam", "-n", "50", opened=(f"msgqchan_{prefix}/cam",))
        for child in (left, right):
            child.say(25)
        found, complaints = echo.end()
        assert (len(found), complaints) == (50, "")
        positions = [one["position"] for one in found]
        assert positions == list(range(positions[0], positions[0] + 50))
        for node, child in (("left", left), ("right", right)):
            mine = [one for one in found if one["publisher"] == {"name": node, "pid": child.pid}]
            assert [bytes.fromhex(one["hex"]) for one in mine] == [b"%d" % i for i in range(25)]
        assert all(0 < one["publish_time"] <= one["time_ns"] for one in found)
        assert {one["endpoint"] for one in found} == {"channel/cam"}
        there = stats.channel("cam")
        assert (there.subscribers, there.viewers) == ((), ())
        left.say(0)
        right.say(0)


def test_echo_decodes_a_channel_by_its_schema(prefix: str, listen: Callable[..., Process]) -> None:
    with Channel("cam", schema=Schema("Image", "json")) as channel, channel.publisher() as publisher:
        echo = listen("channel/cam", "-n", "1", opened=("msgqchan_",))
        publisher.send(b'{"a": 1}', origin_time=7)
        ((found,), _) = echo.end()
        assert (found["schema"], found["value"], found["origin_time"]) == ("Image", {"a": 1}, 7)


def test_echo_reports_losses_of_a_channel(prefix: str, listen: Callable[..., Process]) -> None:
    with Channel("cam", capacity=4) as channel, channel.publisher() as publisher:
        echo = listen("channel/cam", "-n", "300", opened=("msgqchan_",))
        while echo.poll() is None:
            publisher.send_many([b"x"] * 100)
        found, complaints = echo.end()
        assert len(found) == 300
        lost = sum(int(line.split("lost ")[1].split()[0].replace(",", "")) for line in complaints.splitlines())
        skipped = found[-1]["position"] - found[0]["position"] - 299
        assert 0 < skipped <= lost


def test_echo_of_broadcast_shows_its_messages(prefix: str, listen: Callable[..., Process]) -> None:
    with Node("left") as node:
        broadcast = node.join_broadcast("all")
        echo = listen("channel/all:broadcast", "-n", "1", opened=("msgqchan_",))
        broadcast.publisher.send(b"hello")
        ((found,), _) = echo.end()
        assert found["publisher"]["name"] == "left"


# ---- records ----


def test_echo_of_vector_shows_existing_values_then_changes(prefix: str, listen: Callable[..., Process]) -> None:
    with Child(traffic_children.write_vector, "poses", 4) as child:
        assert child.hear() == "up"
        for index in (2, 2, 3):
            child.say(index)
            child.hear()
        echo = listen("records/poses", "-n", "4", opened=(f"msgqrec_{prefix}/poses",))
        there = [echo.line(), echo.line()]
        assert [(one["index"], one["count"]) for one in there] == [(2, 2), (3, 1)]
        assert there[0]["value"] == {"x": 1.0, "id": 2}
        for index in (0, 2):
            child.say(index)
            child.hear()
        (first, second), complaints = echo.end()
        assert [(one["index"], one["count"], one["value"]["id"]) for one in (first, second)] == [(0, 1, 4), (2, 3, 5)]
        assert first["age_ns"] == pytest.approx(first["time_ns"] - first["publish_time"], abs=1e9)
        assert complaints == ""
        assert [one.participant.pid for one in stats.record("poses").writers] == [child.pid]
        child.say(-1)


def test_echo_of_board_shows_existing_values_then_changes(prefix: str, listen: Callable[..., Process]) -> None:
    with msgq.Board("state", 8, 100, schema=Schema("State", "json")) as board:
        mode, speed = board.declare("mode"), board.declare("speed")
        speed.write(b"1.5")
        echo = listen("records/state", "-n", "2", opened=("msgqrec_",))
        first = echo.line()
        assert (first["key"], first["count"], first["value"], first["schema"]) == ("speed", 1, 1.5, "State")
        mode.write(b'"auto"')
        ((second,), _) = echo.end()
        assert (second["key"], second["count"], second["value"]) == ("mode", 1, "auto")


def test_echo_of_seqlock_shows_a_number(prefix: str) -> None:
    with msgq.Seqlock("speed", np.float64) as record:
        record.value = 2.5
        (found,) = lines("records/speed", "--once")
        assert (found["index"], found["value"]) == (0, 2.5)
        text = command.run("echo", "records/speed", "--once").output
        assert text.startswith("0, write 1, ")
        assert text.endswith(" us ago: 2.5\n")
        assert command.run("echo", "records/speed", "--once", "--raw").stdout_bytes == np.float64(2.5).tobytes()


# ---- queues ----


def test_echo_of_queue_shows_waiting_messages_without_taking_them(prefix: str, listen: Callable[..., Process]) -> None:
    with MessageQueue("jobs", schema=Schema("Job", "json")) as queue:
        queue.send(b"1", 1)
        queue.send(b"2", 5)
        echo = listen("queue/jobs", "-n", "4", opened=(f"msgqjobs_{prefix}/jobs",))
        assert [(one["event"], one["value"], one["priority"]) for one in (echo.line(), echo.line())] == [
            ("waiting", 2, 5),
            ("waiting", 1, 1),
        ]
        job = queue.take()
        queue.send(b"3")
        assert echo.line()["value"] == 3
        job.nack()
        queue.send(b"4")
        ((last,), complaints) = echo.end()
        assert (last["value"], complaints) == (4, "")
        there = stats.queue("jobs")
        assert (there.depth, there.in_flight, there.received, len(there.handles)) == (4, 0, 1, 1)


def test_echo_of_queue_counts_messages_taken_between_polls(prefix: str, listen: Callable[..., Process]) -> None:
    with Child(traffic_children.work_in_queue, "jobs") as child, MessageQueue("other") as other:
        assert child.hear() == "up"
        echo = listen("queue/.*", "-n", "1", opened=("/jobs", "/other"))
        child.say(100)
        assert child.hear() == 100
        assert echo.stderr is not None
        complaint = echo.stderr.readline()
        assert "queue/jobs: " in complaint
        assert "not shown, because they were taken first" in complaint
        assert 0 < int(complaint.split(": ")[2].split()[0]) <= 100
        other.send(b"x")
        child.say(0)
        echo.end()


# ---- several at once ----


def test_echo_shows_messages_of_several_endpoint_kinds(prefix: str, listen: Callable[..., Process]) -> None:
    with (
        msgq.pub_sock("car") as topic,
        Channel("car") as channel,
        channel.publisher() as publisher,
        MessageQueue("car") as queue,
        msgq.Seqlock("car", POSE) as record,
    ):
        echo = listen(".*car", "-n", "8", opened=("msgq_", "msgqchan_", "msgqjobs_", "msgqrec_"))
        sends: tuple[Callable[[], object], ...] = (
            lambda: topic.send(b"t"),
            lambda: publisher.send(b"c"),
            lambda: queue.send(b"q"),
            lambda: setattr(record, "value", (1, 2)),
        )
        seen = []
        for _ in range(2):
            for send in sends:
                send()
                seen.append(echo.line())
        assert [one["endpoint"] for one in seen] == ["car", "channel/car", "queue/car", "records/car"] * 2
        assert echo.end() == ([], "")


def test_echo_of_several_endpoints_shows_endpoint_name_in_each_line(prefix: str) -> None:
    with MessageQueue("a") as one, MessageQueue("b") as other:
        one.send(b"\x01")
        other.send(b"\x02", 3)
        text = command.run("echo", "queue/a", "queue/b", "-n", "2").output
        assert text == "queue/a: waiting 1, priority 0: 01\nqueue/b: waiting 1, priority 3: 02\n"


def test_echo_shows_endpoints_created_later(prefix: str, listen: Callable[..., Process]) -> None:
    echo = listen("records/later", "queue/later", "-n", "2", opened=())
    assert echo.stderr is not None
    assert "no endpoint matches records/later, queue/later yet; waiting" in echo.stderr.readline()
    with MessageQueue("later") as queue, msgq.Seqlock("later", POSE) as record:
        queue.send(b"x")
        record.value = (1, 2)
        found, complaints = echo.end()
        assert {one["endpoint"] for one in found} == {"records/later", "queue/later"}
        assert complaints == ""


@pytest.mark.parametrize("kind", ["channel/", "records/", "queue/"])
def test_echo_timeout_exits_with_3(prefix: str, kind: str) -> None:
    Channel("silent").close()
    MessageQueue("silent").close()
    msgq.Seqlock("silent", POSE).close()
    result = command.run("echo", f"{kind}silent", "--timeout", "0.1", code=3)
    assert "no message within 0.1 s" in result.stderr
    assert sorted(os.listdir(f"/dev/shm/msgqchan_{prefix}")) == ["silent"]


# ---- queues with events ----


def event_numbers(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(one["event"], one["number"]) for one in found]


def test_echo_of_queue_with_events_shows_all_events(prefix: str, listen: Callable[..., Process]) -> None:
    with MessageQueue("jobs", events="payload", schema=Schema("Job", "json")) as queue:
        queue.send(b"0")
        echo = listen("queue/jobs", "-n", "7", opened=(f"msgqjobs_{prefix}/jobs", f"msgqchan_{prefix}/jobs:events"))
        there = echo.line()
        assert (there["event"], there["value"]) == ("waiting", 0)
        queue.send(b"1", 3)
        job = queue.take()
        job.nack()
        with queue.take():
            pass
        queue.receive(0)
        found, complaints = echo.end()
        assert complaints == ""
        assert [one["event"] for one in found] == ["sent", "taken", "returned", "taken", "acknowledged", "received"]
        sent, taken, *_, acknowledged, received = found
        assert {one["number"] for one in found[:-1]} == {sent["number"]}
        assert (sent["value"], sent["priority"], sent["size"], "value" in taken) == (1, 3, 1, False)
        assert (received["number"], received["deliveries"], acknowledged["deliveries"]) == (there["number"], 1, 2)
        assert {one["pid"] for one in found} == {os.getpid()}
        there_now = stats.channel("jobs:events")
        assert there_now.subscribers == ()


def test_echo_of_queue_waits_for_the_first_event(prefix: str, listen: Callable[..., Process]) -> None:
    """What: the channel of events is made by the first one, which is shown as well, once."""
    with MessageQueue("jobs", events=True) as queue:
        echo = listen("queue/jobs", "-n", "3", opened=(f"msgqjobs_{prefix}/jobs",))
        queue.send(b"0")
        queue.receive(0)
        queue.send(b"1")
        found, complaints = echo.end()
        assert complaints == ""
        assert event_numbers(found) in (
            [("sent", 1), ("received", 1), ("sent", found[-1]["number"])],
            [("waiting", 1), ("received", 1), ("sent", found[-1]["number"])],  # it looked in between
        )
        assert all("hex" not in one and one["size"] == 1 for one in found if one["event"] != "waiting")


def test_echo_of_busy_queue_shows_all_events(prefix: str, listen: Callable[..., Process]) -> None:
    with MessageQueue("jobs", events=True), Child(traffic_children.work_in_queue, "jobs") as child:
        assert child.hear() == "up"
        child.say(1)  # makes the channel of events
        child.hear()
        echo = listen("queue/jobs", "-n", "400", opened=(f"msgqchan_{prefix}/jobs:events",))
        for _ in range(2):
            child.say(100)
            child.hear()
        found, complaints = echo.end()
        assert complaints == ""
        assert [one["event"] for one in found] == (["sent"] * 100 + ["received"] * 100) * 2
        assert {one["number"] for one in found if one["event"] == "sent"} == {
            one["number"] for one in found if one["event"] == "received"
        }
        child.say(0)


def test_echo_of_pattern_shows_each_event_once(prefix: str, listen: Callable[..., Process]) -> None:
    with MessageQueue("jobs", events=True) as queue:
        queue.send(b"0")
        queue.receive(0)
        echo = listen(".*", "-n", "2", opened=(f"msgqchan_{prefix}/jobs:events",))
        queue.send(b"1")
        queue.receive(0)
        found, _ = echo.end()
        assert [(one["endpoint"], one["event"]) for one in found] == [
            ("queue/jobs", "sent"),
            ("queue/jobs", "received"),
        ]


def test_echo_of_queue_skips_invalid_events(prefix: str, listen: Callable[..., Process]) -> None:
    """Anybody may publish on the channel of events."""
    with MessageQueue("jobs", events=True) as queue:
        queue.send(b"0")
        queue.receive(0)
        with ReservedChannel("jobs:events") as channel, channel.publisher() as publisher:
            echo = listen("queue/jobs", "-n", "3", opened=(f"msgqchan_{prefix}/jobs:events",))
            for data in (b"", b"\xff" * 48, b"\x00" * 100):
                publisher.send(data)
            found, _ = echo.end()
            assert [(one["event"], one["size"]) for one in found] == [("none", 0), ("none", 48), ("none", 100)]
