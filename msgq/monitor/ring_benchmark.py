"""Benchmark of the ring on this machine: round-trip latency and throughput between two processes."""

import multiprocessing
import os
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import msgq
from msgq.impl.ring.core import unlink_topic

RING_BYTES = 8 << 20
_WARM_UP_ROUND_TRIPS = 50  # round trips
_WAIT_TIMEOUT_MS = 5000
_IDLE_TIMEOUT_MS = 20
_BLOCK_BYTES = 1 << 16  # bytes that a call sends


class BenchmarkError(RuntimeError):
    """The other process of a measurement died or did not answer."""


@dataclass(frozen=True)
class RingBenchmarkResult:
    """Result for one message size.

    The latency is one-way (half a round trip), in microseconds. The throughput is in published messages per second.
    `received_share` is the share of messages that the subscriber received, because a slower subscriber is lapped.
    """

    size: int
    round_trips: int
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    rate: float
    byte_rate: float
    received_share: float


def measure_ring(sizes: Sequence[int], seconds: float) -> Generator[RingBenchmarkResult]:
    """Yield latency and throughput for each message size, measured for `seconds` each.

    Raises:
        BenchmarkError: the other process died or did not answer.
    """
    names = tuple(f"bench-{os.getpid()}-{way}" for way in ("there", "back"))
    start = multiprocessing.get_context("spawn")  # a fork would carry the sockets along
    control, peer_end = start.Pipe()
    peer = start.Process(target=_run_peer, args=(*names, peer_end), daemon=True)
    try:
        peer.start()
        peer_end.close()  # so that we notice when the other process dies
        control.recv()
        with _open_publisher(names[0]) as publisher, _open_subscriber(names[1], _WAIT_TIMEOUT_MS) as answers:
            publisher.wait_for_readers(timeout=_WAIT_TIMEOUT_MS / 1000, n=1)
            for size in sizes:
                yield _measure_message_size(publisher, answers, control, size, seconds)
            control.send("end")
        peer.join()
    except EOFError:
        raise BenchmarkError("second process of the benchmark died") from None
    finally:
        if peer.pid is not None:  # it has started
            peer.kill()
            peer.join()
        for name in names:
            unlink_topic(name)


def _open_publisher(name: str) -> msgq.PubSocket:
    return msgq.pub_sock(name, RING_BYTES)


def _open_subscriber(name: str, timeout_ms: int) -> msgq.SubSocket:
    return msgq.sub_sock(name, timeout=timeout_ms, segment_size=RING_BYTES)


def _measure_message_size(
    publisher: msgq.PubSocket, answers: msgq.SubSocket, peer: Connection, size: int, seconds: float
) -> RingBenchmarkResult:
    trips = sorted(_measure_round_trips(publisher, answers, bytes(size), seconds))
    rate, byte_rate, share = _measure_throughput(publisher, peer, bytes(size), seconds)
    p50, p90, p99, most = (trips[int(part * (len(trips) - 1))] / 2000 for part in (0.5, 0.9, 0.99, 1.0))
    return RingBenchmarkResult(size, len(trips), p50, p90, p99, most, rate, byte_rate, share)


def _measure_round_trips(
    publisher: msgq.PubSocket, answers: msgq.SubSocket, message: bytes, seconds: float
) -> list[int]:
    """Return the duration of each round trip in ns."""
    trips: list[int] = []
    until_ns = time.monotonic_ns() + int(seconds * 1e9)
    while (now_ns := time.monotonic_ns()) < until_ns or len(trips) <= _WARM_UP_ROUND_TRIPS:
        publisher.send(message)
        if answers.receive() is None:
            raise BenchmarkError(f"no answer within {_WAIT_TIMEOUT_MS} ms")
        trips.append(time.monotonic_ns() - now_ns)
    return trips[_WARM_UP_ROUND_TRIPS:]


def _measure_throughput(
    publisher: msgq.PubSocket, peer: Connection, message: bytes, seconds: float
) -> tuple[float, float, float]:
    """Return messages per second, bytes per second, and the received share."""
    block = [message] * max(1, _BLOCK_BYTES // len(message))
    peer.send("count")
    peer.recv()
    began_ns = now_ns = time.monotonic_ns()
    sent = 0
    while now_ns - began_ns < seconds * 1e9:
        publisher.send_many(block)
        sent += len(block)
        now_ns = time.monotonic_ns()
    passed_s = (now_ns - began_ns) / 1e9
    peer.send("answer")
    received = peer.recv()
    return sent / passed_s, sent * len(message) / passed_s, received / sent


def _run_peer(request_topic: str, reply_topic: str, control: Connection) -> None:
    """Run the other process: answer each message, or count the messages.

    `control` selects one of both during pauses.
    """
    with _open_publisher(reply_topic) as answers, _open_subscriber(request_topic, _IDLE_TIMEOUT_MS) as messages:
        control.send("up")
        counting, count = False, 0
        while True:
            if counting and (block := messages.receive_many(wait_for_one=True)):
                count += len(block)
            elif not counting and (message := messages.receive()) is not None:
                answers.send(message)
            elif control.poll():
                request = control.recv()
                if request == "end":
                    return
                counting = request == "count"
                control.send(count)
                count = 0
