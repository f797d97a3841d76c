"""Logs of all kinds of endpoints, written as recorders write them; and random histories of work queues."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from msgq.common.dtypes import struct_schema
from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.queue_events import EVENT_HEAD_FORMAT, QUEUE_EVENT_SCHEMA, Event
from msgq.common.schema import Schema
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.log_writer import Writer
from tests.spark.rows import SECOND

RUN = "ab" * 16
BEGIN = 1_700_000_000 * SECOND
ITEM = np.dtype([("x", "<f8"), ("origin_time", "<i8")])
CHANGE = np.dtype([("index", "<u4"), ("count", "<u8"), ("publish_time", "<i8"), ("value", ITEM)])
OPTIONS = {
    "channel": json.dumps({"capacity": 64, "slot_bytes": 256, "stamps": True}),
    "vector": json.dumps({"form": "vector", "length": 4, "copies": 2, "exclusive": False}),
    "board": json.dumps({"form": "board", "keys": 8, "value_bytes": 64}),
    "queue": json.dumps({"max_messages": 16, "max_message_size": 64}),
}


class RecordedMessage(NamedTuple):
    """A message of a log."""

    endpoint: str
    sequence: int
    log_time: int
    data: bytes
    source: MessageSource = TOPIC_SOURCE
    schema: Schema | None = None
    epoch: int = 1
    publish_time: int | None = None
    origin_time: int = 0


def write_kinds(path: Path, messages: Iterable[RecordedMessage], run: str = RUN) -> Path:
    """Write a log in the order of log_time; messages of one endpoint, epoch, schema and source have one channel."""
    numbers: dict[Any, int] = {}
    with Writer(path) as writer:
        writer.add_metadata(metadata_keys.RECORDING_METADATA, {"run": run, "host": "h"})
        for said in sorted(messages, key=lambda said: said.log_time):
            key = (said.endpoint, said.epoch, said.schema, said.source)
            if key not in numbers:
                state = said.source.kind == "records"
                counting = metadata_keys.RECORDER_SEQUENCE if state else metadata_keys.PUBLISHER_SEQUENCE
                metadata = metadata_keys.build_channel_metadata(said.epoch, counting, source=said.source)
                numbers[key] = writer.channel(said.endpoint, said.schema, metadata=metadata)
            times = said.log_time, said.publish_time
            writer.write(numbers[key], said.data, *times, said.sequence, said.origin_time)
    return path


def on_channel(
    name: str, publisher: str, sequence: int, log_time: int, data: bytes = b"data", **fields: Any
) -> RecordedMessage:
    return RecordedMessage(
        f"channel/{name}",
        sequence,
        log_time,
        data,
        MessageSource("channel", publisher, "", OPTIONS["channel"]),
        **fields,
    )


def of_vector(name: str, number: int, log_time: int, index: int, count: int, epoch: int = 1) -> RecordedMessage:
    data = np.array((index, count, log_time, (index + count / 10, 0)), CHANGE).tobytes()
    source = MessageSource("records", options=OPTIONS["vector"])
    return RecordedMessage(f"records/{name}", number, log_time, data, source, struct_schema(CHANGE), epoch)


def of_board(
    name: str, key: str, count: int, log_time: int, epoch: int, data: bytes = b'{"key": 5}'
) -> RecordedMessage:
    source = MessageSource("records", key=key, options=OPTIONS["board"])
    return RecordedMessage(f"records/{name}", count, log_time, data, source, Schema("Limit", "json", b"{}"), epoch)


class QueueEvent(NamedTuple):
    """An event of a queue."""

    event: Event
    number: int
    time: int
    deliveries: int = 0
    sent_time: int = 0
    taken_time: int = 0
    row: int = 0
    pid: int = 0
    publisher: str = ""
    priority: int = 0
    size: int = 5
    epoch: int = 1

    def data(self, payload: bytes = b"") -> bytes:
        """Return the message of the event."""
        fields = (self.event, self.row, self.priority, self.deliveries, self.number, self.time)
        return struct.pack(EVENT_HEAD_FORMAT, *fields, self.sent_time, self.taken_time, self.size, self.pid) + payload


def of_queue(
    name: str, events: Sequence[QueueEvent], late: Iterable[int] | None = None, payload: bytes = b""
) -> list[RecordedMessage]:
    """Return the messages of events, numbered in their order; late : how long after each one it was recorded, ns."""
    return [
        RecordedMessage(
            f"queue/{name}",
            sequence,
            event.time + delay,
            event.data(payload),
            MessageSource("queue", event.publisher, "", OPTIONS["queue"]),
            QUEUE_EVENT_SCHEMA,
            event.epoch,
            event.time,
        )
        for sequence, (event, delay) in enumerate(zip(events, late or [1000] * len(events), strict=True))
    ]


class History(NamedTuple):
    """What happened to a queue.

    Attributes:
        events: in the order in which it happened.
        waits: how many messages waited after each time, by that time.
    """

    events: list[QueueEvent]
    waits: list[tuple[int, int]]


def random_history(rng: random.Random, steps: int, room: int = 8) -> History:
    """Let a queue be used: its messages sent, refused, taken, received, acknowledged, returned, by four rows."""
    time, number = BEGIN, 0
    waiting: list[tuple[int, int, int, int, int]] = []  # priority, number, sent, size, deliveries so far
    held: list[tuple[tuple[int, int, int, int, int], int, int]] = []  # message, taken, row
    events: list[QueueEvent] = []
    waits = []
    for _ in range(steps):
        time += rng.choice((1, 50, 1000, SECOND // 7, 2 * SECOND))
        row = rng.randrange(4)
        actor: dict[str, Any] = {"row": row, "pid": 100 + row, "publisher": f"node{row % 2}"}
        doing = rng.choice(("send", "send", "take", "take", "receive", "end", "end"))
        if doing == "send" and len(waiting) + len(held) >= room:
            events.append(QueueEvent(Event.REFUSED, 0, time, **actor, size=7))
        elif doing == "send":
            sample = (rng.randrange(3), number, time, rng.randrange(60), 0)
            waiting.append(sample)
            events.append(QueueEvent(Event.SENT, number, time, 0, time, **actor, priority=sample[0], size=sample[3]))
            number += 1
        elif doing in ("take", "receive") and waiting:
            sample = min(waiting, key=lambda sample: (-sample[0], sample[1]))
            waiting.remove(sample)
            sample = (*sample[:4], sample[4] + 1)
            event = Event.TAKEN if doing == "take" else Event.RECEIVED
            events.append(
                QueueEvent(
                    event, sample[1], time, sample[4], sample[2], time, **actor, priority=sample[0], size=sample[3]
                )
            )
            if doing == "take":
                held.append((sample, time, row))
        elif doing == "end" and held:
            sample, taken_time, by = held.pop(rng.randrange(len(held)))
            event = rng.choice((Event.ACKNOWLEDGED, Event.ACKNOWLEDGED, Event.RETURNED))
            taker: dict[str, Any] = {"row": by, "pid": 100 + by, "publisher": f"node{by % 2}"}
            about: dict[str, Any] = {"priority": sample[0], "size": sample[3]}
            events.append(
                QueueEvent(
                    event,
                    sample[1],
                    time,
                    sample[4],
                    sample[2],
                    taken_time,
                    **(actor if event == 4 else taker),
                    **about,
                )
            )
            if event == Event.RETURNED:
                waiting.append(sample)
        waits.append((time, len(waiting)))
    return History(events, waits)
