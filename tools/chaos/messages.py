"""Messages whose every byte follows from their number and their sender, and the check that a subscriber gets them."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tools.chaos.history import INCARNATIONS_MAX, History

if TYPE_CHECKING:
    from typing_extensions import Buffer

STAMP = 12  # bytes of a message's start that tell its number and size
_MASK = 2**64 - 1
_ORIGIN = struct.Struct("<IQ")  # origin after the stamp: the incarnation that sent it, and the number of its message
_TRACEABLE = STAMP + _ORIGIN.size  # bytes of the smallest message that tells its origin
_HEAD = struct.Struct("<IQI")  # head of a message without a number: sender, index there, checksum of the rest


def make_message(sender: int, index: int, size: int) -> bytes:
    """Return the message of a sender with this index, and `size` bytes more."""
    body = random.Random(sender << 32 | index).randbytes(size)
    return _HEAD.pack(sender, index, zlib.crc32(body)) + body


def read_message(data: Buffer) -> tuple[int, int]:
    """Return the sender and the index of a message, which must be whole."""
    view = memoryview(data).cast("B")
    sender, index, checksum = _HEAD.unpack_from(view)
    assert zlib.crc32(view[_HEAD.size :]) == checksum, "torn"
    return sender, index


def largest_message_size(ring_bytes: int) -> int:
    """Return the size of the largest message: three of its kind must fit, each with 8 bytes before it."""
    return (ring_bytes // 3 & ~7) - 8


class Stream:
    """The messages of a topic, by number: one half are small, one in eight has any size up to the largest.

    Every other stretch of 1000 messages carries bytes that are all ones, which look like the ring's own wrap marks.
    """

    def __init__(self, seed: int, largest: int, smallest: int = 1) -> None:
        self.seed, self.smallest, self.largest = seed, smallest, largest
        self._noise = random.Random(seed).randbytes(largest + 4096)

    def message(self, number: int) -> bytes:
        """Return the message of this number."""
        word = (number + self.seed) * 0x9E3779B97F4A7C15 & _MASK
        word ^= word >> 29
        most = (64, 64, 64, 64, self.largest // 8, self.largest // 8, self.largest // 8, self.largest)[word & 7]
        size = min(self.smallest + (word >> 8) % max(most, 1), self.largest)
        stamp = number.to_bytes(8, "little") + size.to_bytes(4, "little")
        if number // 1000 % 2:
            return (stamp + b"\xff" * (size - STAMP))[:size]
        start = (word >> 40) % 4096
        return (stamp + self._noise[start : start + size])[:size]

    def agrees(self, message: bytes, number: int) -> bool:
        """Whether this is the message of that number, whole."""
        return message == self.message(number)


class Messages(Stream):
    """The messages of a topic in a run, which also tell their origin: the incarnation and the index there.

    Args:
        incarnation: of the publisher that makes messages; a subscriber needs none.
    """

    def __init__(self, history: History, seed: int, largest: int, smallest: int = 1, incarnation: int = 0) -> None:
        super().__init__(seed, largest, smallest)
        self._history, self._incarnation, self._record = history, incarnation, history[incarnation]

    def message(self, number: int) -> bytes:
        """Make a message of this publisher, and write down that it is about to be sent."""
        index = number - (self._record.base or 0)
        self._record.begun = index + 1
        return self._of(number, self._incarnation, index)

    def agrees(self, message: bytes, number: int) -> bool:
        """Whether this is the message of that number, whole, and of a publisher that made it."""
        if len(message) < _TRACEABLE:
            plain = super().message(number)
            return len(message) == len(plain) and message[:STAMP] == plain[:STAMP]
        incarnation, index = _ORIGIN.unpack_from(message, STAMP)
        if not 0 < incarnation < INCARNATIONS_MAX:
            return False
        record = self._history[incarnation]
        return (
            record.base == number - index and index < record.begun and message == self._of(number, incarnation, index)
        )

    def _of(self, number: int, incarnation: int, index: int) -> bytes:
        plain = super().message(number)
        return (plain[:STAMP] + _ORIGIN.pack(incarnation, index) + plain[_TRACEABLE:])[: len(plain)]


def number_of(message: bytes) -> int | None:
    """Return the number that a message carries; None when it is too short."""
    return int.from_bytes(message[:8], "little") if len(message) >= STAMP else None


class Ledger:
    """What one subscriber got.

    Args:
        kind: of the subscriber, for texts.
        first: the number of the first message that was sent after it joined; None: found out from what arrives.
    """

    def __init__(self, stream: Stream, first: int | None = 0, kind: str = "") -> None:
        self.stream, self.first, self.kind = stream, first, kind
        self.received = 0
        self.last = -1
        self.lost_before = 0

    def take(self, messages: Iterable[bytes], lost: int | None, one_by_one: bool = True) -> None:
        """Check what one call returned. `lost` is the socket's count after it, which must be exact.

        A call that takes many may be lapped in the middle or at its end: then only what the messages say counts.
        """
        messages = list(messages)
        assert lost is not None, "the count of lost messages became unknown, but every publisher is ours"
        assert lost >= self.lost_before
        exact = one_by_one or lost == self.lost_before
        if messages and exact and self.first is None and (number := number_of(messages[0])) is not None:
            self.first = number - self.received - lost
        for message in messages:
            number = number_of(message) if self.first is None or not exact else self.first + self.received + lost
            if number is None:  # too short to tell: it cannot be older than this
                number = self.last + 1
            elif not self.stream.agrees(message, number):
                self._complain(message, number, lost)
            assert number > self.last, f"message {number} came after {self.last}"
            self.last = number
            self.received += 1
        self.lost_before = lost
        assert self.first is None or self.last < self.first + self.received + lost, (
            f"message {self.last} after {self.received} received and {lost} lost"
        )

    def _complain(self, message: bytes, number: int, lost: int) -> None:
        found = number_of(message)
        whole = found is not None and self.stream.agrees(message, found)
        kind = f"is message {found}, whole" if whole else f"is torn: {message[:STAMP].hex()}..., {len(message)} bytes"
        so_far = f"{self.received} received, {lost} lost so far"
        raise AssertionError(f"{self.kind}: expected message {number}; this {kind} ({so_far})")
