"""What the tests of the live verbs have running beside them: publishers in processes of their own."""

from __future__ import annotations

import json
import time

import numpy as np

import msgq
from msgq import Schema
from tests.support import hear, say

CAR = np.dtype([("publish_time", "<u8"), ("speed", "<f4"), ("wheels", "<i2", (2,))])
CAR_SCHEMA = Schema("Car", "struct", json.dumps(np.lib.format.dtype_to_descr(CAR)).encode())
BLOCK = 100  # messages


def publisher(endpoint: str) -> msgq.PubSocket:
    schema = {"car": CAR_SCHEMA, "weather": Schema("Weather", "json")}.get(endpoint)
    socket = msgq.PubSocket()
    socket.connect(msgq.context, endpoint, schema=schema)
    return socket


def payload(endpoint: str, i: int) -> bytes:
    if endpoint == "car":
        return np.array([(time.time_ns(), i, (i, -1))], CAR).tobytes()
    if endpoint == "weather":
        return json.dumps({"i": i, "text": "grüß"}).encode()
    return b"\x00\x01" + bytes([i % 256]) * 8


def publish_steadily(endpoints: list[str], period_s: float = 0.002) -> None:
    """Publish on each endpoint, until told to end."""
    sockets = [publisher(endpoint) for endpoint in endpoints]
    say("up")
    _watch_end()
    i = 0
    while True:
        for socket in sockets:
            socket.send(payload(socket.endpoint, i))
        time.sleep(period_s)
        i += 1


def publish_blocks(endpoint: str, count: int) -> int:
    """Publish blocks when told to, as fast as it goes; returns how many messages those were."""
    socket = publisher(endpoint)
    say("up")
    hear()
    block = [bytes(64)] * BLOCK
    for _ in range(count):
        socket.send_many(block)
        time.sleep(0.0001)
    return count * BLOCK


def die_publishing(endpoint: str) -> None:
    import os

    publisher(endpoint).send(b"last words")
    os.kill(os.getpid(), 9)


def _watch_end() -> None:
    """End with the parent, whatever it dies of."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
