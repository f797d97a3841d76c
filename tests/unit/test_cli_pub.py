"""`msgq pub` on channels, work queues, vectors and boards; topics are in test_cli_measurement.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import msgq
from msgq import Schema, stats
from msgq.channel import Channel
from msgq.common.dtypes import struct_schema
from msgq.workqueue import MessageQueue
from tests import command
from tests.support import DEADLINE, Child, wait_until
from tests.unit import traffic_children
from tests.unit.traffic_children import POSE


def pub(*words: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command.run("pub", "--json", *words, code=code).stdout)
    return found


def run_refused_pub(*words: object, code: int = 1) -> str:
    result = command.run("pub", *words, code=code)
    assert result.stdout == ""
    return result.stderr


# ---- channels ----


def test_pub_to_channel_publishes_in_addition_to_other_publishers(prefix: str) -> None:
    with Child(traffic_children.publish_on_channel, "cam", "left") as child:
        assert child.hear() == "up"
        with Channel("cam") as channel, channel.subscriber() as subscriber:
            assert pub("channel/cam", "grüß", "-n", "3", "--rate", "500") == {
                "endpoint": "channel/cam",
                "messages": 3,
                "bytes": 18,
                "subscribers": 1,
            }
            child.say(2)
            child.say(0)
            child.result()
            assert subscriber.receive_many() == ["grüß".encode()] * 3 + [b"0", b"1"]
        assert stats.channel("cam").messages == 5


def test_pub_to_missing_channel_creates_it(prefix: str) -> None:
    assert pub("channel/cam", '{"a": [1]}', "--format", "json")["messages"] == 1
    with Channel("cam", create=False) as channel, channel.subscriber(history=9) as subscriber:
        assert subscriber.receive_many() == [b'{"a":[1]}']
        assert channel.schema == Schema("json", "json")
    assert [one.left for one in stats.channel("cam").publishers] == [True]


def test_pub_with_lines_option_sends_each_line_to_channel(prefix: str) -> None:
    with Channel("cam") as channel, channel.subscriber() as subscriber:
        command.run("pub", "channel/cam", "--lines", "--format", "hex", stdin="00 ff\n01\n")
        assert subscriber.receive_many() == [b"\x00\xff", b"\x01"]


def test_pub_waits_for_subscribers_of_a_channel(prefix: str) -> None:
    assert "after 0.1 s, 0 subscribers attached, 1 requested" in run_refused_pub(
        "channel/cam", "x", "--wait-for-subscribers", "1", "--timeout", "0.1", code=3
    )
    with Channel("cam") as channel, channel.subscriber() as subscriber:
        assert pub("channel/cam", "x", "--wait-for-subscribers", "1", "--timeout", "20")["messages"] == 1
        assert subscriber.receive(0) == b"x"


def test_pub_prints_numbers_of_messages_and_subscribers(prefix: str) -> None:
    def said(*words: str) -> str:
        return str(command.run("pub", *words).stderr)

    hint = "no subscribers (passive subscribers such as `msgq echo` do not count)"
    assert said("car", "hello") == f"published 1, {hint}\n"
    assert said("queue/jobs", "hello", "-n", "2", "-r", "500") == f"published 2, {hint}\n"
    with msgq.sub_sock("car", timeout=0) as first, msgq.sub_sock("car", timeout=0):
        assert said("car", "hello", "-n", "1000") == "published 1,000, 2 subscribers\n"
        assert len(first.receive_many()) == 1000
    with msgq.Seqlock("speed", np.float64):
        assert said("records/speed", "2.5") == "published 1\n"  # readers leave no trace
    with msgq.Node("left").advertise("imu[0]"), Channel("imu[0]") as channel, channel.subscriber():
        assert said("channel/imu[0]", "hello") == "published 1, 1 subscriber\n"


@pytest.mark.parametrize("backend", ["zmq", "fake"])
def test_pub_on_other_backend_does_not_guess_subscribers(prefix: str, backend: str) -> None:
    environment = {**os.environ, "MSGQ_BACKEND": backend, "MSGQ_ZMQ_TRANSPORT": "ipc"}
    called = [sys.executable, "-m", "msgq", "pub", "car", "hello"]
    done = subprocess.run(called, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.stdout, done.stderr, done.returncode) == ("", "published 1\n", 0)


# ---- queues ----


def test_pub_to_queue_sends_message_with_given_priority(prefix: str) -> None:
    assert pub("queue/jobs", "a", "-n", "2") == {
        "endpoint": "queue/jobs",
        "messages": 2,
        "bytes": 2,
        "subscribers": 0,
    }
    pub("queue/jobs", "b", "--priority", "7")
    with MessageQueue("jobs", 0) as queue:
        assert [tuple(one) for one in queue.receive_many()] == [(b"b", 7), (b"a", 0), (b"a", 0)]
        assert queue.schema is None


def test_pub_to_queue_converts_json_by_schema_of_queue(prefix: str) -> None:
    schema = Schema("Pose", "struct", json.dumps(np.lib.format.dtype_to_descr(POSE)).encode())
    with MessageQueue("jobs", schema=schema) as queue:
        pub("queue/jobs", '{"x": 2.5, "id": 3}', "--format", "json")
        assert np.frombuffer(queue.receive().data, POSE).tolist() == [(2.5, 3)]


def test_pub_to_full_queue_waits_for_free_slot(prefix: str) -> None:
    with MessageQueue("jobs", max_messages=1) as queue:
        queue.send(b"first")
        assert "holds 1 message," in run_refused_pub("queue/jobs", "x", "--timeout", "0.1", code=3)
        with command.start("pub", "queue/jobs", "second") as running:
            wait_until(lambda: "sending" in {what for one in stats.queue("jobs").handles for what in one.waits})
            assert queue.receive(0) == (b"first", 0)
            assert running.wait(DEADLINE) == 0
        assert queue.receive(0) == (b"second", 0)


def test_pub_to_full_queue_ends_on_signal(prefix: str) -> None:
    with MessageQueue("jobs", max_messages=1) as queue:
        queue.send(b"first")
        with command.start("pub", "queue/jobs", "x") as running:
            wait_until(lambda: "sending" in {what for one in stats.queue("jobs").handles for what in one.waits})
            assert running.end(signal.SIGINT)[1].startswith("published 0, no subscribers")
        assert stats.queue("jobs").sent == 1


# ---- records ----


def test_pub_to_vector_writes_element_at_given_index(prefix: str) -> None:
    with msgq.SeqlockVector("poses", POSE, 4) as vector:
        assert pub("records/poses", '{"x": 2.5, "id": 7}', "--index", 2, "-n", 3)["messages"] == 3
        assert vector[2].tolist() == (2.5, 7)
        assert vector.counts().tolist() == [0, 0, 3, 0]
        pub("records/poses", vector[2].tobytes().hex(), "--format", "hex", "--index", 0)
        assert vector[0] == vector[2]


def test_pub_json_to_record_keeps_values_of_omitted_fields(prefix: str) -> None:
    with msgq.SeqlockVector("poses", POSE, 4) as vector:
        vector[1] = (2.5, 7)
        pub("records/poses", '{"x": 9}', "--index", 1)
        assert vector[1].tolist() == (9.0, 7)
        pub("records/poses", '{"id": 8}', "--index", 1, "-n", 2)
        assert vector[1].tolist() == (9.0, 8)


def test_pub_json_to_unwritten_record_requires_all_fields(prefix: str) -> None:
    with msgq.SeqlockVector("poses", POSE, 4) as vector:
        assert "id missing; give all fields" in run_refused_pub("records/poses", '{"x": 9}', "--index", 1)
        assert vector.counts().tolist() == [0, 0, 0, 0]


def test_pub_json_to_tracked_record_does_not_require_timestamps(prefix: str) -> None:
    with msgq.Seqlock("speed", msgq.tracked([("v", "<f8")])) as record:
        pub("records/speed", '{"v": 2.5}')
        assert record.value["v"] == 2.5
        assert record.value["publish_time"] == record.time


def test_pub_json_to_board_keeps_values_of_omitted_fields(prefix: str) -> None:
    with msgq.Board("state", 8, 100, schema=struct_schema(np.dtype(POSE))) as board:
        assert "id missing" in run_refused_pub("records/state", '{"x": 9}', "--format", "json", "--key", "car")
        pub("records/state", '{"x": 9, "id": 3}', "--format", "json", "--key", "car")
        pub("records/state", '{"x": 8}', "--format", "json", "--key", "car")
        assert board["car"] == np.array([(8, 3)], POSE).tobytes()
        with board.declare("car") as entry:
            entry.write(b"short")
        assert "has 5 bytes" in run_refused_pub("records/state", '{"x": 8}', "--format", "json", "--key", "car")


def test_pub_converts_json_by_struct_schema_without_as_option(prefix: str) -> None:
    schema = struct_schema(np.dtype(POSE))
    packed = np.array([(9, 3)], POSE).tobytes()
    with msgq.Board("state", 8, 100, schema=schema) as board, MessageQueue("poses", schema=schema) as queue:
        pub("records/state", '{"x": 9, "id": 3}', "--key", "car")
        assert board["car"] == packed
        pub("queue/poses", '{"x": 9, "id": 3}')
        message = queue.receive(0)
        assert message is not None
        assert message.data == packed
        assert "cannot be encoded from JSON" in run_refused_pub("queue/poses", "text")


NESTED = [("at", [("x", "<f8"), ("y", "<f8")]), ("wheels", [("speed", "<f4")], 2)]


def test_pub_converts_each_field_of_nested_json(prefix: str) -> None:
    with msgq.Seqlock("car", NESTED) as record:
        pub("records/car", '{"at": {"x": 1, "y": 2}, "wheels": [{"speed": 3}, {"speed": 4}]}')
        assert record.read()["at"].tolist() == (1.0, 2.0)
        assert record.read()["wheels"]["speed"].tolist() == [3.0, 4.0]
        pub("records/car", '{"at": {"y": 5}}')
        assert record.read()["at"].tolist() == (1.0, 5.0)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ('{"at": {"x": "far"}}', "at.x: could not convert string to float: 'far'"),
        ('{"at": {"z": 1}}', "at has no field z; its fields are x, y"),
        ('{"at": 3}', "at needs an object with the fields x, y, not 3"),
        ('{"at": {"x": 1}}', "wheels, at.y missing; give all fields"),
        ('{"wheels": [{"speed": 3}]}', "wheels needs a list of 2 elements"),
        ("[1]", "Record needs an object with the fields at, wheels, not [1]"),
    ],
)
def test_pub_with_invalid_json_field_names_the_field(prefix: str, message: str, text: str) -> None:
    with msgq.Seqlock("car", NESTED) as record:
        assert text in run_refused_pub("records/car", message)
        assert record.count == 0


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ('{"three": [1]}', "three: [1] has the shape (1,), but the field has (3,)"),
        ('{"three": 5}', "three: 5 has the shape (), but the field has (3,)"),
        ('{"three": [1, 2, 2.5]}', "three: [1, 2, 2.5] has fractions"),
        ('{"count": 1.5}', "count: 1.5 has fractions"),
        ('{"count": [1]}', "count: [1] has the shape (1,), but the field has ()"),
    ],
)
def test_pub_refuses_values_of_wrong_shape_or_range(prefix: str, message: str, text: str) -> None:
    with msgq.Seqlock("e", np.dtype([("three", "<i4", (3,)), ("count", "<u8")])) as record:
        pub("records/e", '{"three": [1, 2, 3], "count": 18446744073709551615}')
        assert text in run_refused_pub("records/e", message)
        pub("records/e", '{"count": 2.0}')
        found = record.read()
        assert (found["three"].tolist(), int(found["count"])) == ([1, 2, 3], 2)


def test_pub_json_message_requires_all_fields(prefix: str) -> None:
    with MessageQueue("poses", schema=struct_schema(np.dtype(POSE))) as queue:
        assert "id missing; give all fields" in run_refused_pub("queue/poses", '{"x": 9}', "--format", "json")
        assert queue.receive(0) is None


def test_pub_to_seqlock_requires_no_index(prefix: str) -> None:
    with msgq.Seqlock("speed", np.int32) as record:
        pub("--", "records/speed", "-5")
        assert record.value == -5
        assert "cannot be encoded from JSON" in run_refused_pub("records/speed", "fast")
        assert "has elements of 4 bytes, but the message has 3" in run_refused_pub(
            "records/speed", "abc", "--format", "text"
        )
        assert record.count == 1


def test_pub_to_board_writes_value_of_given_key(prefix: str) -> None:
    with msgq.Board("state", 8, 100, schema=Schema("State", "json")) as board:
        assert pub("records/state", "1.5", "--format", "json", "--key", "speed")["bytes"] == 3
        assert board.items() == [("speed", b"1.5")]
        with board.declare("mode"):
            assert str(os.getpid()) in run_refused_pub("records/state", "x", "--key", "mode")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("records/none x", 1, "records/none not found, and pub does not know its dtype and sizes"),
        ("records/poses x", 2, "records/poses has 4 elements; give --index, 0 to 3"),
        ("records/poses x --key k", 2, "records/poses is a vector without keys; give --index"),
        ("records/poses {} --index 4", 1, "4"),
        (
            'records/poses {"x":1,"id":2} --index 0 --wait-for-subscribers 1',
            2,
            "--wait-for-subscribers cannot be used with records/poses",
        ),
        ("records/state x", 2, "records/state is a board; give --key"),
        ("records/state x --index 0", 2, "records/state is a board without indexes; give --key"),
        ("queue/jobs x --index 0", 2, "--index cannot be used with queue/jobs; use --index for records/NAME"),
        (
            "queue/jobs x --wait-for-subscribers 1",
            2,
            "--wait-for-subscribers cannot be used with queue/jobs",
        ),
        ("channel/cam x --priority 1", 2, "--priority cannot be used with channel/cam; use --priority for queue/NAME"),
        ("channel/cam x --force", 2, "--force cannot be used with channel/cam; use --force for topics"),
        ("car x --key k", 2, "--key cannot be used with car; use --key for records/NAME"),
        ("queue/a/b x", 1, "a/b"),
    ],
)
def test_pub_refuses_invalid_arguments_with_one_line_error(prefix: str, words: str, code: int, text: str) -> None:
    with msgq.SeqlockVector("poses", POSE, 4), msgq.Board("state", 8, 100):
        before = set(stats.endpoint_inodes())
        said = run_refused_pub(*words.split(), code=code)
        assert text in said.splitlines()[-1]
        assert "Traceback" not in said
        assert set(stats.endpoint_inodes()) - before <= {"queue/jobs"}


def test_two_simultaneous_pub_commands_deliver_all_messages(prefix: str) -> None:
    with MessageQueue("jobs", max_messages=4) as queue:
        with ExitStack() as stack:
            words = "pub", "queue/jobs", "-n", "200", "--json"
            both = [stack.enter_context(command.start(*words, text)) for text in ("a", "b")]
            found = [queue.receive().data for _ in range(400)]
            assert [one.line()["messages"] for one in both] == [200, 200]
        assert sorted(found) == [b"a"] * 200 + [b"b"] * 200


def test_pub_refuses_tiny_rate(prefix: str) -> None:
    assert "1e-300 is not in the range" in run_refused_pub("t", "x", "--rate", "1e-300", code=2)


def test_pub_publishes_bytes_that_are_not_utf8_unchanged(prefix: str) -> None:
    with MessageQueue("jobs") as queue:
        command.run("pub", "queue/jobs", b"\xff\xfe".decode(errors="surrogateescape"))
        words = [sys.executable, "-m", "msgq", "pub", "queue/jobs", "--lines"]
        subprocess.run(words, input=b"\xffa\r\nb\n\nlast", check=True, timeout=DEADLINE)
        found = [queue.receive(0) for _ in range(5)]
        assert [message and message.data for message in found] == [b"\xff\xfe", b"\xffa", b"b", b"", b"last"]


def test_pub_of_json_that_is_not_utf8_fails(prefix: str) -> None:
    assert "cannot be encoded from JSON" in run_refused_pub("t", r'"\ud800"', "--format", "json")


def test_pub_lines_without_input_ends_after_duration(prefix: str) -> None:
    with command.start("pub", "t", "--lines", "--duration", "0.05", stdin=subprocess.PIPE) as running:
        assert running.wait(DEADLINE) == 0
