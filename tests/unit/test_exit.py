"""Ends of a Python process with open endpoints, daemon threads and views: no crash, no error, and no row is left."""

from __future__ import annotations

import subprocess
import sys

import pytest

import msgq
from tests.support import ROOT

# Each wait is an expression, or statements, that a daemon thread of the ending process runs.
WAITS = {
    "subscriber": "msgq.sub_sock(name).receive()",
    "poller": "poll([msgq.sub_sock(name), msgq.MessageQueue(name)])",
    "channel subscriber": "msgq.Channel(name).subscriber().receive()",
    "queue": "msgq.MessageQueue(name).receive()",
    "full queue": "fill(msgq.MessageQueue(name, max_messages=1, max_message_size=1))",
    "vector": "msgq.SeqlockVector(name, 'f8', 4).wait()",
    "board": "msgq.Board(name).wait()",
    "asyncio": "asyncio.run(wait_async(msgq.sub_sock(name)))",
}
PROGRAM = """
import asyncio, sys, threading, msgq

def poll(sockets):
    poller = msgq.Poller()
    for socket in sockets:
        poller.registerSocket(socket)
    poller.poll(100_000)

def fill(queue):
    while True:
        queue.send(b"1")

async def wait_async(socket):
    await socket.areceive()

def is_asleep():
    with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"

def run():
    WAIT

name = sys.argv[1]
thread = threading.Thread(target=run, daemon=True)
thread.start()
for _ in range(20):  # also after short sleeps, such as those for a lock
    while not is_asleep():
        pass
"""
USES = {
    "topic": "pub = msgq.pub_sock(name)\nwhile True: pub.send(b'1')",
    "channel": "pub = msgq.Channel(name).publisher()\nwhile True: pub.send(b'1')",
    "queue": "queue = msgq.MessageQueue(name)\nwhile True: queue.send(b'1'); queue.receive()",
    "vector": "vector = msgq.SeqlockVector(name, 'f8', 4)\nwhile True: vector[0] = vector[1]",
}
LOOP = """
import sys, threading, msgq

def run():
    BODY

name = sys.argv[1]
threading.Thread(target=run, daemon=True).start()
"""
VIEWS = """
import sys, msgq, numpy

name = sys.argv[1]
sub, pub = msgq.sub_sock(name), msgq.pub_sock(name)
channel = msgq.Channel(name)
receiver, sender = channel.subscriber(), channel.publisher()
queue = msgq.MessageQueue(name)
vector = msgq.SeqlockVector(name, "f8", 4)
for each in (pub, sender, queue):
    each.send(b"12345678")
reservation = pub.reserve(8)
room = reservation.__enter__()
sample = receiver.receive_view()
kept = [numpy.frombuffer(sample, "u1"), sample, memoryview(sample), queue.take(), room]
kept.append(kept)
sys.kept = kept
"""


def run_program(program: str, *arguments: str) -> tuple[int, str]:
    """Return the exit code and the errors of a new Python process."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("wait", WAITS)
def test_daemon_thread_that_waits_at_exit_prints_no_error(wait: str, endpoint: str) -> None:
    assert run_program(PROGRAM.replace("WAIT", WAITS[wait]), endpoint) == (0, "")


@pytest.mark.parametrize("use", USES)
def test_daemon_thread_that_works_at_exit_prints_no_error(use: str, endpoint: str) -> None:
    assert run_program(LOOP.replace("BODY", USES[use].replace("\n", "\n    ")), endpoint) == (0, "")


def test_views_that_remain_at_exit_cause_no_error(endpoint: str) -> None:
    assert run_program(VIEWS, endpoint) == (0, "")
    assert msgq.stats.topic(endpoint).subscribers == ()
