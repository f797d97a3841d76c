"""What the tests of echo, pub, hz, bw and delay have running beside them: who writes to channels, queues, records."""

from __future__ import annotations

import numpy as np

import msgq
from msgq.channel import Channel
from msgq.workqueue import MessageQueue
from tests.support import hear, say

POSE = np.dtype([("x", "<f8"), ("id", "<u4")])


def publish_on_channel(name: str, node: str) -> int:
    """Publish so many messages as each word heard says, numbered; 0 ends."""
    with Channel(name, node=node) as channel, channel.publisher() as publisher:
        say("up")
        sent = 0
        while count := hear():
            for _ in range(count):
                publisher.send(b"%d" % sent)
                sent += 1
        return sent


def work_in_queue(name: str) -> int:
    """For each word heard send so many messages, and receive them; 0 ends."""
    with MessageQueue(name) as queue:
        say("up")
        sent = 0
        while count := hear():
            for _ in range(count):
                queue.send(b"%d" % sent, sent % 3)
                sent += 1
            while queue.receive(0):
                pass
            say(sent)
        return sent


def write_vector(name: str, length: int) -> int:
    """For each index heard write that element once more; -1 ends."""
    with msgq.SeqlockVector(name, POSE, length) as vector:
        say("up")
        writes = 0
        while (index := hear()) >= 0:
            writes += 1
            vector[index] = (writes / 2, writes)
            say(writes)
        return writes
