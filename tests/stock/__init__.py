"""A stock msgq process for the tests: `peer.c`, built once a test process and driven line by line.

``MSGQ_STOCK_PEER`` may name an executable that speaks the same lines instead: a wrapper of a real stock build.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import select
import signal
import struct
import subprocess
import termios
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from tests.support import DEADLINE, SHM, asleep, wait_until
from tools.fuzz.build import cached_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DATA_SIZE = 1 << 20
SLOTS = 15
EXIT_ABORT, EXIT_AT_POINT = 70, 71
_START = struct.Struct("<III")  # checksum of what follows, sequence, size
_NOISE = random.Random(7).randbytes(1 << 20)


class PeerError(Exception):
    """The peer refused a command; `errno` says why."""

    def __init__(self, errno: int) -> None:
        super().__init__(os.strerror(errno))
        self.errno = errno


class PeerDiedError(Exception):
    """The peer is gone; `code` as in `subprocess.Popen.returncode`."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the stock peer ended with {code}")
        self.code = code


def message(sequence: int, size: int = 64) -> bytes:
    """Return a message of `size` bytes (at least 12) in the form that the peer checks (see payload.h)."""
    start = sequence * 61 % (len(_NOISE) // 2)
    rest = _START.pack(0, sequence, size)[4:] + _NOISE[start : start + size - _START.size]
    return struct.pack("<I", zlib.crc32(rest)) + rest


def sequence_of(data: bytes) -> int | None:
    """Return the sequence number that a message carries, or None when it is torn."""
    if len(data) < _START.size:
        return None
    checksum, sequence, size = _START.unpack_from(data)
    return sequence if size == len(data) and checksum == zlib.crc32(memoryview(data)[4:]) else None


def number_in(data: bytes | None) -> int:
    """Return the sequence number of a message that came, whole."""
    assert data is not None, "nothing came"
    number = sequence_of(data)
    assert number is not None, f"torn: {data[:40]!r}"
    return number


@dataclass
class Tally:
    """What a subscriber got, counted in the order of arrival as the peer counts it."""

    count: int = 0
    torn: int = 0
    duplicated: int = 0
    reordered: int = 0
    lost: int = 0
    first: int = -1
    last: int = -1

    def add(self, messages: Iterable[bytes]) -> Self:
        for data in messages:
            self.count += 1
            sequence = sequence_of(data)
            if sequence is None:
                self.torn += 1
                continue
            if self.first < 0:
                self.first = sequence
            elif sequence > self.last:
                self.lost += sequence - self.last - 1
            self.duplicated += sequence == self.last
            self.reordered += sequence < self.last
            self.last = sequence
        return self

    @property
    def harm(self) -> tuple[int, int, int]:
        """Return (torn, duplicated, reordered): nothing excuses these."""
        return self.torn, self.duplicated, self.reordered


@dataclass(frozen=True)
class Received:
    """One answer of `receive`: size 0 is "nothing came"; `how` is what ended the wait: ready, signal or timeout."""

    size: int
    sequence: int
    good: bool
    how: str


@dataclass(frozen=True)
class Header:
    """The 48 words of the ring's header."""

    num_readers: int
    write_pointer: int
    write_uid: int
    read_pointers: tuple[int, ...]
    read_valids: tuple[int, ...]
    read_uids: tuple[int, ...]

    @classmethod
    def of(cls, words: Iterable[int]) -> Self:
        w = tuple(words)
        return cls(w[0], w[1], w[2], w[3:18], w[18:33], w[33:48])

    @classmethod
    def read(cls, endpoint: str) -> Self:
        with segment_path(endpoint).open("rb") as file:
            return cls.of(struct.unpack("<48Q", file.read(384)))


def segment_path(endpoint: str) -> Path:
    prefix = os.environ.get("OPENPILOT_PREFIX")
    return SHM / (f"msgq_{prefix}/{endpoint}" if prefix else f"msgq_{endpoint}")


@functools.cache
def executable(source: str = "peer.c") -> str:
    """Return the path of a compiled peer."""
    if source == "peer.c" and (ready := os.environ.get("MSGQ_STOCK_PEER")):
        return ready
    return str(cached_program(Path(__file__).with_name(source), "-O2"))


class Driven:
    """A process that takes commands as lines and answers each with a line; kill, stop and resume it as you like."""

    def __init__(self, program: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([program], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._pending = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def begin(self, *words: object) -> None:
        """Give a command without waiting for its answer."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write((" ".join(map(str, words)) + "\n").encode())

    def command(self, *words: object) -> list[str]:
        self.begin(*words)
        return self.reply()

    def answered(self, within: float = 0.0) -> bool:
        """Say whether an answer (or the end of the peer) can be read, waiting up to that many seconds."""
        return bool(select.select([self._stdout], [], [], within)[0])

    def reply(self) -> list[str]:
        """Return the words of the next answer; PeerDiedError when none will come, PeerError when it is a refusal."""
        deadline = time.monotonic() + DEADLINE
        while b"\n" not in self._pending:
            if not self.answered(max(0.0, deadline - time.monotonic())):
                raise AssertionError("the stock peer does not answer")
            piece = self._stdout.read(65536)
            if not piece:
                raise PeerDiedError(self.wait())
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        kind, *words = line.decode().split()
        if kind == "error":
            raise PeerError(int(words[0]))
        return words

    def wait_stopped(self) -> None:
        stat = Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: ") T " in stat.read_text(), "the stock peer stops")

    def wait_asleep(self) -> None:
        """Wait until the peer took its command and sleeps over it."""
        wait_until(lambda: self._command_taken() and asleep(self.pid), "the stock peer sleeps")

    def _command_taken(self) -> bool:
        unread = bytearray(4)
        fcntl.ioctl(self._stdin, termios.FIONREAD, unread)
        return not any(unread)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        return self.process.wait(DEADLINE)

    def kill(self) -> int:
        self.process.kill()
        return self.wait()

    def close(self) -> None:
        """End the peer, in the way stock processes end: without leaving their slot."""
        self.process.kill()
        self._stdin.close()
        self._stdout.close()
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(eq=False)
class StockPeer(Driven):
    """A stock process with one open queue.

    `arm` is ``(point, "stop" | "exit", bytes)``: the peer stops itself or ends there, once. The points, in order of
    their passing: publisher ``uid_checked``, ``wrapped``, ``mid_send`` (after that many bytes), ``payload_written``,
    ``published`` (before the signals); subscriber ``slot_taken``, ``reset_loaded``, ``size_trusted``, ``copied``.
    """

    endpoint: str
    data_size: int = DATA_SIZE
    conflate: bool = False
    arm: tuple[str, str, int] | None = None
    role: ClassVar[str]

    def __post_init__(self) -> None:
        super().__init__(executable())
        try:
            if self.arm:
                self.arm_point(*self.arm)
            self.begin("open", self.role, self.endpoint, self.data_size, int(self.conflate))
            if not self.arm:  # otherwise it may not come
                self.reply()
        except BaseException:
            self.close()
            raise

    def arm_point(self, point: str, action: str, after_bytes: int = 0) -> None:
        self.command("arm", point, action, after_bytes)

    def header(self) -> Header:
        return Header.of(map(int, self.command("header")))


class StockPublisher(StockPeer):
    role = "pub"

    def send(self, sequence: int, size: int = 64) -> None:
        self.command("send", sequence, size)

    def begin_flood(self, count: int, smallest: int = 64, largest: int = 64, *, first: int = 0, seed: int = 1) -> None:
        """Start publishing `count` messages of seeded sizes at full speed; `reply` waits for the end."""
        self.begin("flood", first, count, smallest, largest, seed)

    def flood(self, count: int, smallest: int = 64, largest: int = 64, *, first: int = 0, seed: int = 1) -> None:
        self.begin_flood(count, smallest, largest, first=first, seed=seed)
        self.reply()

    def all_readers_updated(self) -> bool:
        return self.command("state")[2] == "1"


class StockSubscriber(StockPeer):
    role = "sub"

    def begin_receive(self, timeout_ms: int = 0) -> None:
        self.begin("receive", timeout_ms)

    def end_receive(self) -> Received:
        size, sequence, good, how = self.reply()
        return Received(int(size), int(sequence), good == "1", how)

    def receive(self, timeout_ms: int = 0) -> Received:
        self.begin_receive(timeout_ms)
        return self.end_receive()

    def begin_collect(self, last: int, nap_ms: int = 20, spin: int = 0) -> None:
        """Start receiving until sequence `last` came, with naps of that length and `spin` loops of work a message."""
        self.begin("collect", last, nap_ms, spin)

    def end_collect(self, repeat_last: Callable[[], object] | None = None) -> Tally:
        """Wait for the count; `repeat_last` publishes the last message once more, as often as a lapped reader needs."""
        while repeat_last and not self.answered(within=0.05):
            repeat_last()
        return Tally(*map(int, self.reply()))

    def drain(self) -> Tally:
        """Receive what is there now."""
        self.begin_collect(2**32, nap_ms=0)
        return self.end_collect()

    def slot(self) -> int:
        return int(self.command("state")[0])

    def resets(self) -> int:
        """Return how often this reader went to the write pointer; joining does it once."""
        return int(self.command("state")[1])

    def become(self, program: str) -> None:
        """Replace the program of the process, which keeps its thread id and loses its signal handlers."""
        self.command("exec", program)
