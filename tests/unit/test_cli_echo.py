"""`msgq echo` on channels, work queues, vectors and boards, with real processes; test_cli_measurement.py has topics."""

from __future__ import annotations

import csv
import io
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
from tests.support import DEADLINE, Child
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


# ---- endpoints that appear later ----


def publish_on_new_topic(name: str) -> None:
    with msgq.pub_sock(name) as publisher:
        publisher.send(b"first")
        publisher.send(b"second")


def publish_on_new_channel(name: str) -> None:
    with Channel(name.removeprefix("channel/")) as channel, channel.publisher() as publisher:
        publisher.send(b"first")
        publisher.send(b"second")


def send_to_new_queue(name: str) -> None:
    with MessageQueue(name.removeprefix("queue/")) as queue:
        queue.send(b"first")
        queue.send(b"second")


@pytest.mark.parametrize(
    ("name", "publish"),
    [
        ("chatter", publish_on_new_topic),
        ("channel/chatter", publish_on_new_channel),
        ("queue/chatter", send_to_new_queue),
    ],
)
def test_echo_shows_first_message_of_endpoint_that_appears_later(
    prefix: str, name: str, publish: Callable[[str], None]
) -> None:
    with start("echo", "--json", name, "-n", "2") as echo:
        assert echo.stderr is not None
        assert echo.stderr.readline() == f"msgq: no endpoint matches {name} yet; waiting\n"
        publish(name)
        found, complaints = echo.end()
        assert ([bytes.fromhex(one["hex"]) for one in found], complaints) == ([b"first", b"second"], "")


def test_echo_shows_only_new_messages_of_existing_topic(prefix: str, listen: Callable[..., Process]) -> None:
    with msgq.pub_sock("chatter") as publisher:
        publisher.send(b"old")
        echo = listen("chatter", "-n", "1", opened=("chatter",))
        publisher.send(b"new")
        ((found,), _) = echo.end()
        assert bytes.fromhex(found["hex"]) == b"new"


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
        echo = listen("channel/cam", "-n", "200", opened=("msgqchan_",))  # all lines fit into the pipe
        while echo.poll() is None:
            publisher.send_many([b"x"] * 100)
        found, complaints = echo.end()
        assert len(found) == 200
        lost = sum(int(line.split("lost ")[1].split()[0].replace(",", "")) for line in complaints.splitlines())
        skipped = found[-1]["position"] - found[0]["position"] - 199
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
        assert echo.stderr.readline() == "msgq: matched 2 endpoints: queue/jobs, queue/other\n"
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
        assert echo.end() == ([], "msgq: matched 4 endpoints: car, channel/car, queue/car, records/car\n")


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


# ---- texts, fields, CSV and truncation ----


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"hello", "hello"),
        ("grüße, 日本".encode(), "grüße, 日本"),
        (b"two\n\tlines", r"two\n\tlines"),
        ("\u202etxt".encode(), r"\u202etxt"),
        (b"", ""),
        (b"\x1b[2J", "1b5b324a"),
        (b"a\x00", "6100"),
        ("\x9b31m".encode(), "c29b3331 6d"),
        (b"\xff\xfe", "fffe"),
    ],
)
def test_echo_shows_utf8_without_control_characters_as_text(prefix: str, data: bytes, text: str) -> None:
    with MessageQueue("jobs") as queue:
        queue.send(data)
        assert command.run("echo", "queue/jobs", "--once").stdout == f"waiting 1, priority 0: {text}\n"
        assert command.run("echo", "queue/jobs", "--once", "--hex").stdout.endswith(f": {data.hex(' ', -4)}\n")
        (line,) = lines("queue/jobs", "--once")
        assert bytes.fromhex(line["hex"]) == data
        assert line.get("text") == (None if text == data.hex(" ", -4) != "" else data.decode())
        assert "text" not in lines("queue/jobs", "--once", "--hex")[0]


def test_echo_shows_undecodable_message_in_hexadecimal_despite_text(prefix: str) -> None:
    with MessageQueue("jobs", schema=Schema("Job", "json")) as queue:
        queue.send(b"not json")
        text = command.run("echo", "queue/jobs", "--once").stdout
        assert text.startswith("waiting 1, priority 0: 6e6f7420 6a736f6e  (json: ")


POSE_JSON = b'{"pose": {"x": 1.5, "at": [1, 2, 3]}, "name": "left, \\"a\\"", "none": null}'


@pytest.fixture
def poses(prefix: str) -> Iterator[None]:
    """A queue with one message of nested fields."""
    with MessageQueue("poses", schema=Schema("Pose", "json")) as queue:
        queue.send(POSE_JSON)
        yield


def echo_fields(*paths: str, more: tuple[str, ...] = (), code: int = 0) -> Any:
    words = [word for path in paths for word in ("--field", path)]
    return command.run("echo", "queue/poses", "--once", *words, *more, code=code)


@pytest.mark.usefixtures("poses")
@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (["pose.x"], "1.5"),
        (["pose.at[2]"], "3"),
        (["pose.at"], "[1, 2, 3]"),
        (["name"], 'left, "a"'),
        (["none"], "-"),
        (["pose.x", "name"], r'{"pose.x": 1.5, "name": "left, \"a\""}'),
    ],
)
def test_echo_with_field_option_prints_only_these_fields(paths: list[str], text: str) -> None:
    done = echo_fields(*paths)
    assert (done.stdout, done.stderr) == (f"{text}\n", "")


@pytest.mark.usefixtures("poses")
def test_echo_with_field_and_json_prints_fields_by_path() -> None:
    line = json.loads(echo_fields("pose.x", "pose.at[0]", more=("--json",)).stdout)
    assert (line["fields"], line["endpoint"]) == ({"pose.x": 1.5, "pose.at[0]": 1}, "queue/poses")
    assert "value" not in line


@pytest.mark.usefixtures("poses")
def test_echo_with_unknown_field_suggests_similar_field_and_fails() -> None:
    done = echo_fields("pose.z", "name", code=1)
    assert done.stdout == '{"pose.z": null, "name": "left, \\"a\\""}\n'
    said = "field 'pose.z' not found in a message of queue/poses; did you mean pose.x"
    assert [said in line for line in done.stderr.splitlines()] == [True, True]
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "pose.at[7]" in echo_fields("pose.at[7]", code=1).stderr
    assert "the fields are pose.x, pose.at, name, none" in echo_fields("wheels", code=1).stderr


@pytest.mark.parametrize("path", ["", "a..b", "a[b]", "a[1", ".a", "a.[0]"])
def test_echo_with_invalid_field_path_exits_with_usage_error(prefix: str, path: str) -> None:
    assert "give a path such as pose.x or ranges[3]" in echo_fields(path, code=2).stderr


def test_echo_with_field_of_text_message_explains_missing_schema(prefix: str) -> None:
    with MessageQueue("poses") as queue:
        queue.send(b"hello")
        assert "queue/poses has no schema; give --schema" in echo_fields("x", code=1).stderr


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.usefixtures("poses")
def test_echo_with_csv_option_prints_keys_of_json_as_columns() -> None:
    (row,) = read_csv(command.run("echo", "queue/poses", "--once", "--csv").stdout)
    (line,) = lines("queue/poses", "--once")
    others = [name for name in line if name != "value"]
    assert [*row] == [*others, "value.pose.x", "value.pose.at", "value.name", "value.none"]
    assert (row["endpoint"], row["priority"], row["value.none"]) == ("queue/poses", "0", "")
    assert (row["value.pose.x"], row["value.pose.at"], row["value.name"]) == ("1.5", "[1, 2, 3]", 'left, "a"')
    (row,) = read_csv(echo_fields("pose.x", "name", more=("--csv",)).stdout)
    assert [*row] == ["endpoint", "time_ns", "pose.x", "name"]
    assert (row["endpoint"], row["pose.x"], row["name"]) == ("queue/poses", "1.5", 'left, "a"')


def test_echo_with_csv_option_reports_columns_that_header_lacks(prefix: str) -> None:
    with MessageQueue("jobs", schema=Schema("Job", "json")) as queue:
        for data in (b'{"a": 1}', b'{"b": 2}', b'{"b": 3, "a": 4}'):
            queue.send(data)
        done = command.run("echo", "queue/jobs", "-n", "3", "--csv")
        assert [row["value.a"] for row in read_csv(done.stdout)] == ["1", "", "4"]
        assert done.stderr == "msgq: queue/jobs: 'value.b' left out, because the first message had no such column\n"


def test_echo_truncates_texts_and_lists_only_on_request_in_pipe(prefix: str) -> None:
    with MessageQueue("jobs", schema=Schema("Job", "json")) as queue:
        queue.send(json.dumps({"a": [*range(1000)], "b": "x" * 1000}).encode())
        whole = command.run("echo", "queue/jobs", "--once").stdout
        assert json.loads(whole.partition(": ")[2]) == {"a": [*range(1000)], "b": "x" * 1000}
        short = command.run("echo", "queue/jobs", "--once", "--truncate", "2").stdout
        assert short == 'waiting 1, priority 0: {"a": [0, 1, "... 998 more"], "b": "xx... 998 more"}\n'
    with MessageQueue("bytes") as queue:
        queue.send(b"\xff" * 8000)
        short = command.run("echo", "queue/bytes", "--once", "--truncate", "4").stdout
        assert short == "waiting 1, priority 0: ffffffff ... 7,996 more\n"


def test_echo_on_terminal_truncates_to_128_characters(prefix: str) -> None:
    leader, terminal = os.openpty()
    try:
        with MessageQueue("jobs") as queue:
            queue.send(b"x" * 8000)
            with start("echo", "queue/jobs", "--once", stdout=terminal) as process:
                assert process.wait(DEADLINE) == 0
        assert os.read(leader, 1 << 16).decode() == f"waiting 1, priority 0: {'x' * 128}... 7,872 more\r\n"
    finally:
        os.close(leader)
        os.close(terminal)


@pytest.mark.parametrize(
    "words", ["--csv --json", "--csv --hex", "--csv --raw", "--field a --raw", "--field a --hex", "--truncate 3 --json"]
)
def test_echo_with_contradicting_options_exits_with_usage_error(prefix: str, words: str) -> None:
    assert "omit --" in (said := command.run("echo", "x", *words.split(), code=2).stderr) or "give one" in said


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
        with ReservedChannel("jobs:events") as channel, channel.publisher(slot_bytes=128) as publisher:
            echo = listen("queue/jobs", "-n", "3", opened=(f"msgqchan_{prefix}/jobs:events",))
            for data in (b"", b"\xff" * 48, b"\x00" * 100):
                publisher.send(data)
            found, _ = echo.end()
            assert [(one["event"], one["size"]) for one in found] == [("none", 0), ("none", 48), ("none", 100)]
