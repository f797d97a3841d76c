"""Simulations play to all kinds of endpoints, hand what comes there to functions, and say what was sent there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.common.record_changes import RecordChange, make_record_change_schema, pack_change
from msgq.errors import InvalidValueError, KeyTakenError, MultipleWritersError, SegmentError
from msgq.simulation import Fault, MessageSource, PlaybackMessage, Simulation
from msgq.workqueue.playback import encode_sent_event

S = 1_000_000_000
VECTOR = '{"form": "vector", "length": 4, "copies": 2, "exclusive": false}'
BOARD = '{"form": "board", "keys": 4, "value_bytes": 16}'
INTEGERS = make_record_change_schema(np.dtype("i8"))


def change(index: int, value: int, count: int = 1, time_ns: int = 0) -> bytes:
    return pack_change(RecordChange(index, count, time_ns), value.to_bytes(8, "little"))


class TestPlaying:
    def test_play_writes_data_to_existing_endpoints_of_all_kinds(self) -> None:
        with Simulation() as sim:
            numbers = msgq.SeqlockVector("numbers", "i8", 4)
            board = msgq.Board("board", 4, 16)
            jobs = msgq.MessageQueue("jobs")
            scans = msgq.Channel("scans").subscriber()
            sim.play(
                [
                    (0.0, "records/numbers", change(2, 7)),
                    (0.1, "records/board", b"mode\0on"),
                    (0.2, "queue/jobs", b"job"),
                    (0.3, "channel/scans", b"scan"),
                ]
            )
            sim.run()
            assert numbers[2] == 7
            assert dict(board.items()) == {"mode": b"on"}
            assert jobs.receive(0) == (b"job", 0)
            assert scans.receive(0) == b"scan"
            assert {message.node for message in sim.sent_messages} == {"play"}

    def test_play_with_message_source_creates_missing_endpoints(self) -> None:
        with Simulation() as sim:
            sim.play(
                [
                    PlaybackMessage(
                        1, "records/numbers", change(3, 9), None, MessageSource("records", options=VECTOR), INTEGERS
                    ),
                    PlaybackMessage(
                        2, "records/board", b"on", None, MessageSource("records", key="mode", options=BOARD)
                    ),
                    PlaybackMessage(3, "queue/jobs", encode_sent_event(b"job", 5, 1, 3), None, MessageSource("queue")),
                    PlaybackMessage(
                        4, "channel/scans", b"scan", None, MessageSource("channel", "lidar", options='{"capacity": 8}')
                    ),
                ]
            )
            sim.run()
            assert msgq.SeqlockVector("numbers").read().tolist() == [0, 0, 0, 9]
            assert msgq.Board("board", create=False).capacity == 4
            assert msgq.MessageQueue("jobs", 0).receive(0) == (b"job", 5)
            assert msgq.Channel("scans", create=False).capacity == 8

    def test_play_to_missing_vector_without_source_is_refused(self) -> None:
        with Simulation() as sim:
            sim.play([(0.0, "records/numbers", change(2, 7))])
            with pytest.raises(InvalidValueError, match="how to create them"):
                sim.run()

    @pytest.mark.parametrize("data", [b"", change(4, 1), change(1, 1) + b"x"])
    def test_play_of_invalid_record_changes_is_refused(self, data: bytes) -> None:
        with Simulation() as sim:
            msgq.SeqlockVector("numbers", "i8", 4)
            sim.play([(0.0, "records/numbers", data)])
            with pytest.raises(InvalidValueError, match="cannot be played"):
                sim.run()

    def test_play_to_exclusively_owned_records_raises(self) -> None:
        with Simulation() as sim:
            numbers = msgq.SeqlockVector("numbers", "i8", 4, exclusive=True)
            numbers.claim()
            entry = msgq.Board("board", 4, 16).declare("mode")
            sim.play([(0.0, "records/numbers", change(2, 7))])
            with pytest.raises(MultipleWritersError):
                sim.run()
            sim.play([(0.0, "records/board", b"mode\0on")])
            with pytest.raises(KeyTakenError):
                sim.run()
            entry.close()

    def test_fault_schedule_applies_to_played_records(self) -> None:
        with Simulation(fault_schedule=[Fault("drop", "records/numbers", message=1)]) as sim:
            numbers = msgq.SeqlockVector("numbers", "i8", 4)
            sim.play([(float(i), "records/numbers", change(i, 7)) for i in range(2)])
            sim.run()
            assert numbers.read().tolist() == [0, 7, 0, 0]


class TestFunctions:
    def test_function_node_receives_changes_of_records(self) -> None:
        got: list[Any] = []
        with Simulation() as sim:
            msgq.SeqlockVector("numbers", "i8", 4)
            msgq.Board("board", 4, 16)
            sim.on("records/numbers", lambda changes: got.append((changes.indices.tolist(), changes.rows.tolist())))
            sim.on("records/board", lambda changes: got.append({key: value.data for key, value in changes.items()}))
            sim.play([(0.0, "records/numbers", change(2, 7)), (1.0, "records/board", b"mode\0on")])
            sim.run()
        assert got == [([2], [7]), {"mode": b"on"}]

    def test_function_node_on_missing_records_raises(self) -> None:
        with Simulation() as sim, pytest.raises(SegmentError):
            sim.on("records/numbers", print)


class TestSent:
    def test_write_of_several_elements_sends_one_change_per_element(self) -> None:
        with Simulation() as sim:
            numbers = msgq.SeqlockVector("numbers", "i8", 4)
            sim.clock.sleep(2)
            numbers.write([1, 3, 1], [5, 6, 7])
            numbers[1] = 8
            assert sim.sent_on("records/numbers") == [
                change(1, 5, 1, 2 * S),
                change(3, 6, 1, 2 * S),
                change(1, 7, 2, 2 * S),
                change(1, 8, 3, 2 * S),
            ]
            assert {message.schema for message in sim.sent_messages} == {INTEGERS}
            assert json.loads(sim.sent_messages[0].source.options) == json.loads(VECTOR)

    def test_dropped_record_write_is_listed_as_sent(self) -> None:
        with Simulation(fault_schedule=[Fault("drop", "records/numbers", message=1)]) as sim:
            numbers = msgq.SeqlockVector("numbers", "i8", 4)
            numbers[1] = numbers[2] = 5
            assert [sent.kind for sent in sim.sent_messages] == ["records", "records"]
            assert numbers.read().tolist() == [0, 0, 5, 0]

    def test_sent_messages_have_publisher_key_and_priority(self) -> None:
        schema = msgq.Schema("text", "json")

        def program() -> None:
            with msgq.Channel("scans", capacity=4, node="lidar", schema=schema).publisher() as named:
                named.send(b"1")
            with msgq.Channel("scans").publisher() as unnamed:
                unnamed.send(b"2")
            msgq.Board("board", 4, 16).declare("mode").write(b"on")
            msgq.MessageQueue("jobs").send(b"job", priority=3)

        with Simulation() as sim:
            sim.add(program)
        scans = [message for message in sim.sent_messages if message.endpoint == "channel/scans"]
        assert [(message.publisher, message.schema) for message in scans] == [("lidar", schema), ("program", schema)]
        assert json.loads(scans[0].source.options) == {"capacity": 4, "slot_bytes": 4096, "stamps": True}
        written, sent = sim.sent_messages[2:]
        assert (written.kind, written.key, written.data) == ("records", "mode", b"on")
        assert json.loads(written.source.options) == json.loads(BOARD)
        assert (sent.kind, sent.priority, sent.data) == ("queue", 3, b"job")
