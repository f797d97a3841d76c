"""Running the driver against a topic, and checking what it left."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import msgq
from msgq.impl.ring.core import unlink_topic
from tests.support import DEADLINE, DEADLINE_MS, wait_until

RING = 1024  # data bytes: small, so that a few messages make a lap
WRITES = "*: [!l]*"  # points that change something; the others are called "loaded"


def message(number: int, size: int = 16) -> bytes:
    """Return a message as the driver makes them: its number in every word."""
    return (number.to_bytes(8, "little") * (size // 8 + 1))[:size]


def number_of(data: bytes) -> int:
    """Return the number of a message, which must be whole."""
    number = int.from_bytes(data[:8], "little")
    assert data == message(number, len(data)), f"torn: {data.hex()}"
    return number


T = TypeVar("T")


class Topic:
    """An endpoint with a small ring, and everything that a test opens on it, closed at its end."""

    def __init__(self, tools: Path, endpoint: str) -> None:
        self.tools, self.endpoint = tools, endpoint
        self._stack = contextlib.ExitStack()
        self._stack.callback(unlink_topic, endpoint)
        msgq.sub_sock(endpoint, segment_size=RING).close()  # makes the files
        self.files = [f"/dev/shm/msgq_{endpoint}", f"/dev/shm/msgqside_{endpoint}"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def another(self, name: object) -> Topic:
        """Return a topic of its own for another round of the same test."""
        return Topic(self.tools, f"{self.endpoint}-{name}")

    def enter(self, context: contextlib.AbstractContextManager[T]) -> T:
        """Enter `context`, to be left when the topic is."""
        return self._stack.enter_context(context)

    def side_bytes(self) -> bytes:
        return Path(self.files[1]).read_bytes()

    def pub(self, tracked: bool | None = None) -> msgq.PubSocket:
        return self._stack.enter_context(msgq.pub_sock(self.endpoint, tracked=tracked))

    def sub(self, **options: Any) -> msgq.SubSocket:
        socket = self._stack.enter_context(msgq.SubSocket())
        socket.connect(msgq.context, self.endpoint, **options)
        socket.setTimeout(DEADLINE_MS)
        return socket

    def driver(self, operations: str, point: str = WRITES, at: int = 1, number: int = signal.SIGKILL) -> Driver:
        """Start the driver; it ends at the `at`-th point of this pattern that it passes after the operation "arm"."""
        command = [str(self.tools / "driver"), *self.files, str(int(number)), point, str(at), *operations.split()]
        return self._stack.enter_context(Driver(command))

    def points(self, operations: str) -> list[str]:
        """Return the names of the points that the driver passes."""
        return self.driver(operations, WRITES, 0).ended(0)

    def kill(self, operations: str, point: str = WRITES, at: int = 1) -> None:
        """Run the driver and see it killed at the point."""
        self.driver(operations, point, at).ended(-signal.SIGKILL)


class Driver:
    """A running driver."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_until_ready(self) -> None:
        """Wait for its operation "ready"."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def proceed(self) -> None:
        """Let it go on after its operation "ready"."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ended(self, code: int) -> list[str]:
        """Return the lines that it said, after it ended like this."""
        out, _ = self.process.communicate(timeout=DEADLINE)
        assert self.process.returncode == code, f"{self.process.args!r}: {self.process.returncode}, {out}"
        return out.splitlines()

    def wait_stopped(self) -> None:
        wait_until(lambda: state(self.pid) == "T", "the driver stopped")

    def wait_stopped_or_ended(self) -> bool:
        """Return whether it stopped; False: it has ended (and is not waited for yet)."""
        found = wait_until(lambda: state(self.pid) if state(self.pid) in "TZ" else "", "the driver stopped")
        return bool(found == "T")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def state(pid: int) -> str:
    """Return the state of a process, as one letter of proc_pid_stat(5)."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2]


def drain(sub: msgq.SubSocket) -> list[int]:
    """Return the numbers of all pending messages."""
    return [number_of(data) for data in sub.receive_many()]


def flood(pub: msgq.PubSocket, numbers: Iterable[int]) -> None:
    for number in numbers:
        pub.send(message(number))


def readers(topic: Topic) -> Iterator[tuple[str, msgq.SubSocket]]:
    """Yield living subscribers of each kind that can be in place when somebody dies."""
    yield "with a slot", topic.sub()
    yield "passive", topic.sub(passive=True)
