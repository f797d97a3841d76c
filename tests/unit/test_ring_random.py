"""Random work on a ring beside a plain list that models it: nothing torn, doubled or reordered, losses exact."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice

import pytest

import msgq
from tests.unit.ringfile import RingFile, announced_chunk_bytes, lap_end, message_bytes_in_ring, ring_position

SEEDS = pytest.mark.seeds(2, 25, 50)


@dataclass
class Reader:
    """A subscriber and what the model knows of it: the number of the message that comes next."""

    socket: msgq.SubSocket
    conflate: bool
    next: int
    unread_bytes: int = 0  # bytes in the ring, with the bytes that wrapping wastes


class World:
    """A publisher (now and then a new one), subscribers that come and go, and all messages ever sent."""

    def __init__(self, endpoint: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.endpoint = endpoint
        self.size = self.random.choice([256, 1000, 1024, 4096, 10007])
        start = self.random.choice([0, ring_position(5, 0), ring_position(2**32 - 3, 64), ring_position(2**32 - 1, 0)])
        self.ring = RingFile.make(endpoint, self.size, start)
        self.largest = min(self.random.choice([16, self.size // 8, self.size]), (self.size // 3 & ~7) - 8)
        self.sent: list[bytes] = []
        self.retired: list[msgq.PubSocket] = []
        self.readers: list[Reader] = []
        self.pub = msgq.pub_sock(endpoint)

    def message(self) -> bytes:
        most = min(self.random.choice([0, 8, 40, self.largest]), self.largest)
        number = len(self.sent).to_bytes(4, "little")
        return (number + self.random.randbytes(most))[: self.random.randint(0, most)]

    def account(self, messages: list[bytes]) -> None:
        self.sent += messages
        for reader in self.readers:
            reader.unread_bytes += sum(message_bytes_in_ring(len(message)) for message in messages)

    def send(self) -> None:
        message = self.message()
        how = self.random.randrange(3)
        if how == 0:
            self.pub.send(message)
        elif how == 1:
            self.pub.send(memoryview(message))
        else:
            with self.pub.reserve(len(message)) as view:
                view[:] = message
        self.account([message])

    def send_many(self) -> None:
        messages = []
        for _ in range(self.random.choice([1, 3, 20, 100])):
            messages.append(self.message())
        assert self.pub.send_many(self.random.choice([list(messages), tuple(messages), iter(messages)])) == len(
            messages
        )
        self.account(messages)

    def abandon(self) -> None:
        reservation = self.pub.reserve(size := self.random.randint(0, self.largest))
        reservation.__enter__()[:] = self.random.randbytes(size)
        reservation.__exit__(KeyError, KeyError(), None)
        for reader in self.readers:  # the announced bytes may be gone
            reader.unread_bytes += message_bytes_in_ring(self.largest)

    def restart(self) -> None:
        if self.random.random() < 0.5:
            self.pub.close()
        else:
            self.retired.append(self.pub)
        if len(self.retired) > 5:
            self.retired.pop(0).close()
        self.pub = msgq.pub_sock(self.endpoint)
        if self.retired:
            with pytest.raises(msgq.MultiplePublishersError):
                self.random.choice(self.retired).send(b"never seen")

    def join(self) -> None:
        if len(self.readers) < 20:
            socket, conflate = msgq.SubSocket(), self.random.random() < 0.2
            socket.connect(msgq.context, self.endpoint, conflate=conflate, passive=self.random.random() < 0.3)
            self.readers.append(Reader(socket, conflate, len(self.sent)))

    def leave(self) -> None:
        if self.readers:
            self.readers.pop(self.random.randrange(len(self.readers))).socket.close()

    def receive(self) -> None:
        if self.readers:
            reader = self.random.choice(self.readers)
            lost_before = reader.socket.lost
            assert lost_before is not None
            most = self.random.choice([1, 2, 10, 1000])
            received = self.take(reader.socket, most)
            lost = reader.socket.lost
            assert lost is not None
            self.check(reader, received, lost - lost_before, drained=len(received) < most)

    def take(self, socket: msgq.SubSocket, most: int) -> list[bytes]:
        how = self.random.randrange(4)
        if how == 0:
            return socket.receive_many(most)
        if how == 1:
            socket.setTimeout(0)
            return list(islice(socket, most))
        messages: list[bytes] = []
        buffer = bytearray(self.size)
        while len(messages) < most:
            if how == 2:
                message = socket.receive(non_blocking=True)
            else:
                size = socket.receive_into(buffer, non_blocking=True)
                message = None if size is None else bytes(buffer[:size])
            if message is None:
                break
            messages.append(message)
        return messages

    def check(self, reader: Reader, received: list[bytes], lost: int, drained: bool) -> None:
        """Compare with the list: what came is the newest of it after exactly `lost` messages."""
        end = reader.next + lost + len(received)
        assert end <= len(self.sent)
        if reader.conflate:
            assert len(received) <= 1
            if received:
                assert received == [self.sent[end - 1]]
                assert end == len(self.sent)
        else:
            # Losses come first, or the call would have stopped: nobody sends meanwhile.
            assert received == self.sent[end - len(received) : end]
            usable = (
                lap_end(self.size) - announced_chunk_bytes(self.size) - message_bytes_in_ring(self.largest)
            )  # a lap may end that much early
            assert lost == 0 or reader.unread_bytes > usable, "lost although there was room"
        if drained:
            assert end == len(self.sent)
        reader.next = end
        reader.unread_bytes = sum(message_bytes_in_ring(len(message)) for message in self.sent[end:])

    def step(self) -> None:
        work = [self.send, self.send_many, self.receive, self.abandon, self.restart, self.join, self.leave]
        self.random.choices(work, [30, 8, 40, 2, 2, 3, 1])[0]()

    def close(self) -> None:
        for pub in (self.pub, *self.retired):
            pub.close()
        for reader in self.readers:
            reader.socket.close()
        self.ring.bytes.close()


@SEEDS
def test_random_ring_operations_equal_list_operations(endpoint: str, seed: int) -> None:
    world = World(endpoint, seed)
    for _ in range(3):
        world.join()
    for _ in range(600):
        world.step()
    for reader in world.readers:
        before = reader.socket.lost
        received = reader.socket.receive_many()
        assert before is not None
        assert reader.socket.lost is not None
        world.check(reader, received, reader.socket.lost - before, drained=True)
    if world.sent:
        assert world.pub.stats().messages == len(world.sent)
        assert world.pub.stats().bytes == sum(map(len, world.sent))
    world.close()


@SEEDS
def test_random_array_batches_deliver_or_count_each_number(endpoint: str, seed: int) -> None:
    """receive_array validates block by block: every number once, in order, or counted."""
    rng = random.Random(seed)
    size = rng.choice([256, 1024, 4096, 2**17])
    with msgq.pub_sock(endpoint, size) as pub, msgq.sub_sock(endpoint) as sub:
        import numpy as np

        sent, expected = 0, 0
        for _ in range(60):
            count = rng.choice([1, 5, size // 40, size // 16, size // 5])
            assert pub.send_many(np.arange(sent, sent + count)) == count
            sent += count
            lost_before = sub.lost
            assert lost_before is not None
            got = sub.receive_array(np.int64, limit=rng.choice([None, None, 3, 1000])).tolist()
            assert sub.lost is not None
            expected += sub.lost - lost_before
            assert got == list(range(expected, expected + len(got)))
            expected += len(got)
        assert expected <= sent
        rest = sub.receive_array(np.int64).tolist()
        assert sub.lost is not None
        assert sub.lost + sub.stats().received == sent
        assert not rest or rest[-1] == sent - 1
