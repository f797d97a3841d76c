"""What the tests run in other processes; apart from them, so that a child starts without Spark."""

from __future__ import annotations

import faulthandler
import struct
from functools import partial

import msgq
from msgq.recording import Recorder
from msgq.recording.recorder.rolling_writer import RecordingLimits
from tests.support import hear, say, wait_until

LIFETIME = 800  # seconds after which a forgotten child ends by itself; Spark takes longer than others


def record(path: str) -> None:
    """Record all there is, in small segments; whenever the parent says a number, wait until there are so many."""
    faulthandler.dump_traceback_later(LIFETIME, exit=True)
    limits = RecordingLimits(split_bytes=20_000)
    with Recorder(path, chunk_seconds=0.02, chunk_bytes=4096, limits=limits) as recorder:
        say()
        while (wanted := hear()) is not None:
            wait_until(partial(wait_recorded, recorder, wanted))
            say()


def wait_recorded(recorder: Recorder, messages: int) -> bool:
    return recorder.stats().messages >= messages


def publish(endpoint: str, segment_size: int = 0) -> None:
    """Send numbers, as many as the parent says, each time; a life of a publisher begins with 0."""
    faulthandler.dump_traceback_later(LIFETIME, exit=True)
    with msgq.pub_sock(endpoint, segment_size) as pub:
        say()
        sent = 0
        while (wanted := hear()) is not None:
            pub.send_many([struct.pack("<q", number) for number in range(sent, sent + wanted)])
            sent += wanted
            say()


def subscribe(endpoints: list[str], count: int) -> list[tuple[str, int]]:
    """Return which numbers came where: of each endpoint in their order."""
    faulthandler.dump_traceback_later(LIFETIME, exit=True)
    poller = msgq.Poller()
    for endpoint in endpoints:
        poller.registerSocket(msgq.sub_sock(endpoint))
    say()
    messages: list[tuple[str, int]] = []
    while len(messages) < count:
        for sub in poller.poll(1000):
            messages += [(sub.endpoint, int(data)) for data in msgq.drain_sock_raw(sub)]
    return messages
