"""What has stages: messages with stamps, timing records, and processes that publish them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import msgq
from msgq import Schema
from msgq.common import timing
from msgq.impl.base import clock
from msgq.records.tracing_rules import TIMING_DTYPE
from tests.support import hear, say

STEP = np.dtype([("value", "<f8"), ("publish_time", "<i8"), ("origin_time", "<i8"), ("tail", "<u4")])
STEP_SCHEMA = Schema("Step", "struct", json.dumps(np.lib.format.dtype_to_descr(STEP)).encode())


def publisher(name: str, schema: Schema | None = None, size: int = 0) -> msgq.PubSocket:
    socket = msgq.PubSocket()
    socket.connect(msgq.context, name, size, schema=schema)
    return socket


def step_publisher(name: str) -> msgq.PubSocket:
    return publisher(name, STEP_SCHEMA)


def step(origin: int = 0, published: int = 0) -> bytes:
    """Return a message; its own origin unless there is another one."""
    published = published or clock.time_ns()
    return np.array((0, published, origin or published, 0), STEP).tobytes()


def timing_publisher(stage: str, endpoint: str, size: int = 0) -> msgq.PubSocket:
    return publisher(timing.make_timing_topic(stage, endpoint), timing.TIMING_SCHEMA, size)


def timing_record(sent: int, received: int, ended: int, origin: int) -> bytes:
    return np.array((ended, origin, received, sent), TIMING_DTYPE).tobytes()


def publish_chain(names: list[str], count: int) -> list[tuple[str, int, int]]:
    """When told to, publish messages that lead from each endpoint to the next; return endpoint, time and origin."""
    sockets = [step_publisher(name) for name in names]
    say("up")
    hear()
    sent: list[tuple[str, int, int]] = []
    for _ in range(count):
        origin = clock.time_ns()
        for name, socket in zip(names, sockets, strict=True):
            now: Any = origin if name == names[0] else clock.time_ns()
            socket.send(step(origin, now))
            sent.append((name, now, origin))
    say("sent")
    hear()
    return sent
