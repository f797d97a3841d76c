"""One process of socket fuzzing: rounds of calls on a topic that a process scribbles on. Started by `parent`.

Every call must end in time (see rounds.py), with a result or an IpcError; anything else ends the process, with the
reason on its standard error. Half of the rounds scribble between the calls only, and can be replayed exactly; in the
others a second process scribbles all the time.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgq
from msgq import stats
from msgq.common import settings, shm_paths
from msgq.impl.ring.core import unlink_topic

from .rounds import run_rounds, watchdog
from .scribble import Scribbler

ENDPOINT = "topic"
STEPS = 80
SIZES = (128, 200, 1024, 4096, 65536, 2**20)
DTYPES = ("u1", "u8", "S24", "S100")


def paths() -> tuple[Path, Path]:
    """Return the files of the topic."""
    prefix = settings.get_prefix()
    return Path(shm_paths.ring_path(ENDPOINT, prefix)), Path(shm_paths.side_segment_path(ENDPOINT, prefix))


class ScribblerProcess:
    """The process that scribbles all the time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tools.fuzz.scribble"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send_order(self, line: str) -> None:
        """Send an order and wait until it is obeyed."""
        self._process.stdin.write(line + "\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        if self._process.stdout.readline() != "done\n":  # type: ignore[union-attr]
            raise RuntimeError("the scribbler died")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class Round:
    """Sockets on one topic, and what may be called on them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._context = msgq.Context()
        self._size = chance.choice(SIZES)
        self.publishers: list[msgq.PubSocket] = []
        self.subscribers: list[msgq.SubSocket] = []
        self._poller = msgq.Poller()
        self._calls: list[Callable[[], object]] = [
            self.send,
            self.send,
            self.send,
            self.send_many,
            self.reserve,
            self.publisher_waits,
            self.receive,
            self.receive,
            self.receive_many,
            self.receive_into,
            self.receive_array,
            self.receive_array,
            self.poll,
            self.look,
            self.leave,
            self.connect_publisher,
            self.connect_subscriber,
        ]
        self.connect_publisher()
        self.connect_subscriber()

    def call(self) -> None:
        """Make one call."""
        call = self._chance.choice(self._calls)
        if not self.publishers:
            call = self.connect_publisher
        elif not self.subscribers:
            call = self.connect_subscriber
        with watchdog():
            call()

    def connect_publisher(self) -> None:
        """Take the topic over, in the way that a restart does."""
        if len(self.publishers) == 3:
            self.publishers.pop(0).close()
        socket = msgq.PubSocket()
        schema = msgq.Schema("a", "b", b"c" * 99) if self._chance.random() < 0.1 else None
        socket.connect(self._context, ENDPOINT, self._size, schema=schema)
        self.publishers.append(socket)

    def connect_subscriber(self) -> None:
        """Add a subscriber of any kind; its polls and receives wait 2 ms."""
        if len(self.subscribers) == 5:
            self.subscribers.pop(0).close()
            self._poller = msgq.Poller()
        socket = msgq.SubSocket()
        socket.setTimeout(2)
        conflate, passive = self._chance.random() < 0.3, self._chance.random() < 0.2
        socket.connect(self._context, ENDPOINT, conflate=conflate, passive=passive)
        self.subscribers.append(socket)
        self._poller.registerSocket(socket)

    def leave(self) -> None:
        """Close somebody."""
        sockets: list[msgq.PubSocket | msgq.SubSocket] = [*self.publishers, *self.subscribers]
        socket = self._chance.choice(sockets)
        socket.close()
        self.publishers = [pub for pub in self.publishers if pub is not socket]
        self.subscribers = [sub for sub in self.subscribers if sub is not socket]
        self._poller = msgq.Poller()
        for sub in self.subscribers:
            self._poller.registerSocket(sub)

    def _message(self) -> bytes:
        return bytes(self._chance.choice((0, 1, 8, 24, 24, 24, 100, self._size // 3 - 16, self._size // 3)))

    def send(self) -> None:
        """Send one message."""
        self._chance.choice(self.publishers).send(self._message())

    def send_many(self) -> None:
        """Send a batch."""
        self._chance.choice(self.publishers).send_many([self._message() for _ in range(self._chance.randrange(200))])

    def reserve(self) -> None:
        """Write in place."""
        with self._chance.choice(self.publishers).reserve(len(message := self._message())) as view:
            view[:] = message

    def publisher_waits(self) -> None:
        """Ask who has read."""
        publisher = self._chance.choice(self.publishers)
        publisher.all_readers_updated()
        publisher.wait_for_readers(timeout=0.002)

    def receive(self) -> None:
        """Receive, blocking or not."""
        self._chance.choice(self.subscribers).receive(self._chance.random() < 0.5)

    def receive_many(self) -> None:
        """Drain."""
        self._chance.choice(self.subscribers).receive_many(wait_for_one=self._chance.random() < 0.5)

    def receive_into(self) -> None:
        """Receive into a buffer that may be too small."""
        buffer = bytearray(self._chance.choice((0, 24, 5000)))
        self._chance.choice(self.subscribers).receive_into(buffer, self._chance.random() < 0.5)

    def receive_array(self) -> None:
        """Receive records."""
        dtype, wait = self._chance.choice(DTYPES), self._chance.random() < 0.5
        self._chance.choice(self.subscribers).receive_array(dtype, wait_for_one=wait)

    def poll(self) -> None:
        """Poll all subscribers."""
        self._poller.poll(self._chance.choice((0, 2)))

    def look(self) -> None:
        """Read all that can be read about the topic."""
        stats.topics()
        subscriber = self._chance.choice(self.subscribers)
        subscriber.stats(), subscriber.lost, repr(subscriber), repr(self.publishers)

    def close(self) -> None:
        """Close everybody."""
        sockets: list[msgq.PubSocket | msgq.SubSocket] = [*self.publishers, *self.subscribers]
        for socket in sockets:
            with watchdog():
                socket.close()


def check_fresh_topic() -> None:
    """With the files gone, the same name and the same process must work as if nothing had been."""
    unlink_topic(ENDPOINT)
    with msgq.pub_sock(ENDPOINT) as publisher, msgq.sub_sock(ENDPOINT, timeout=0) as subscriber:
        publisher.send(b"after the storm")
        received = subscriber.receive()
    unlink_topic(ENDPOINT)
    if received != b"after the storm":
        raise AssertionError(f"a fresh topic delivered {received!r}")


def run_round(chance: random.Random, process: ScribblerProcess) -> None:
    """Run one round on a topic of its own."""
    topic = Round(chance)
    scribbler = Scribbler(*paths(), chance)
    beside = chance.random() < 0.5
    if beside:
        process.send_order(f"{paths()[0]} {paths()[1]} {chance.getrandbits(32)}")
    for _ in range(STEPS):
        if not beside:
            scribbler.write(chance.choice((0, 1, 3)))
        topic.call()
    if beside:
        process.send_order("rest")
    topic.close()
    scribbler.close()
    check_fresh_topic()


def main() -> None:
    """Run rounds until the time or their number is over."""
    process = ScribblerProcess()
    run_rounds(lambda chance: run_round(chance, process))
    process.close()


if __name__ == "__main__":
    main()
