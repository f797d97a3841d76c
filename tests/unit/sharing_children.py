"""A process of another user, which does what it is told: for the tests of sharing between users."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import msgq
import msgq.common.file_permissions
import msgq.impl.ring.core
import msgq.topic.fake_events
import visionipc
import visionipc.client
import visionipc.server
from msgq.cli.app import app
from msgq.errors import IpcError
from msgq.stats import topics
from tests import command
from tests.support import DEADLINE_MS, hear, say

PR_SET_DUMPABLE = 4
_kept: dict[str, Any] = {}


def become(user: int, groups: list[int]) -> None:
    """Give up the rights of root. What is imported later could not be read by this user, so it is imported now."""
    for words in (["list", "--json", "--duration", 0], ["clean", "--dry-run", "nobody-has-this-name"]):
        command.run(*words, code=int("clean" in words))
    for verb in ("info", "echo", "stat"):
        command.run(verb, "--help")
    os.setgroups(groups)
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # same state as after an exec; else /proc/self is root's


def obey(user: int, groups: list[int], environment: dict[str, str]) -> None:
    """Do what is asked for, by name, until told to end; an error is said as the name of its type and its text."""
    become(user, groups)
    os.umask(0o077)
    os.environ.update(environment)
    say(os.geteuid())
    while (asked := hear()) is not None:
        name, *arguments = asked
        action: Callable[..., Any] = getattr(sys.modules[__name__], name)
        try:
            answer = {"value": action(*arguments)}
        except (IpcError, TypeError, OSError) as error:
            answer = {"error": [type(error).__name__, str(error)]}
        say(answer)
    while _kept:
        _kept.popitem()[1].close()


def environ(values: dict[str, str]) -> None:
    os.environ.update(values)


def publish(endpoint: str, text: str, trust: str | None = None) -> None:
    if f"pub {endpoint}" not in _kept:
        _kept[f"pub {endpoint}"] = msgq.pub_sock(endpoint, trust=trust)
    _kept[f"pub {endpoint}"].send(text.encode())


def subscribe(endpoint: str, trust: str | None = None, passive: bool = False) -> None:
    subscriber = msgq.SubSocket()
    subscriber.setTimeout(DEADLINE_MS)
    subscriber.connect(msgq.context, endpoint, passive=passive, trust=trust)
    _kept[f"sub {endpoint}"] = subscriber


def receive(endpoint: str) -> str:
    return (_kept[f"sub {endpoint}"].receive() or b"").decode()


def leave() -> None:
    while _kept:
        _kept.popitem()[1].close()


def die_publishing(endpoint: str) -> int:
    """Leave a topic whose publisher was killed; its process id."""
    if (pid := os.fork()) == 0:
        publisher = msgq.pub_sock(endpoint)
        publisher.send(b"last")
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def listed() -> list[str]:
    return [topic.endpoint for topic in topics()]


def cli(*words: str) -> list[Any]:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    return [result.exit_code, result.output]


def unlink(path: str) -> None:
    os.unlink(path)


def write(path: str, text: str) -> None:
    Path(path).write_text(text)


def link(source: str, target: str) -> None:
    os.link(source, target)


def make_gate(endpoint: str) -> list[int]:
    handle = msgq.fake_event_handle(endpoint, enable=True)
    _kept[f"gate {endpoint}"] = handle
    fd: int = handle.recv_called_event.fd
    path = f"/dev/shm/msgqgate_{os.environ.get('OPENPILOT_PREFIX', '')}::{endpoint}"
    return [fd >= 0, *(stat.S_IMODE(os.stat(path + suffix).st_mode) for suffix in ("", ":called"))]


def step(endpoint: str) -> bool:
    """Wait until a receive is called, and let it through."""
    handle = _kept[f"gate {endpoint}"]
    handle.recv_called_event.wait(DEADLINE_MS / 1000)
    handle.recv_called_event.clear()
    handle.recv_ready_event.set()
    return True


def serve_frames(name: str) -> list[int]:
    """Serve one stream; mode and group of the socket."""
    server = visionipc.VisionIpcServer(name)
    server.create_buffers(0, 2, 8, 4, visionipc.FrameFormat.GRAY8)
    server.start_listener()
    _kept[f"server {name}"] = server
    found = os.stat(visionipc.wire.socket_path(name))
    return [stat.S_IMODE(found.st_mode), found.st_gid]


def send_frame(name: str, grey: int) -> bool:
    sent: bool = _kept[f"server {name}"].send(0, bytes([grey]) * 32)
    return sent


def connect_frames(name: str) -> bool:
    client = visionipc.VisionIpcClient(name, 0, False)
    connected = client.connect(False)
    if connected:
        _kept[f"client {name}"] = client
    return connected


def see_frame(name: str) -> int:
    with _kept[f"client {name}"].frame(timeout_ms=DEADLINE_MS) as frame:
        return int(frame.image[0, 0])


def reopen_for_writing(name: str) -> list[str]:
    """Try to get write access to the pictures that a client was lent; what became of each try."""
    outcomes = []
    for fd in _kept[f"client {name}"]._stream.fds:
        try:
            os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR))
            outcomes.append("open")
        except PermissionError:
            outcomes.append("refused")
    return outcomes


def put(queue: str, text: str, trust: str | None = None) -> None:
    msgq.MessageQueue(queue, trust=trust).send(text.encode())


def take(queue: str) -> str:
    with msgq.MessageQueue(queue) as taker:
        message = taker.receive(DEADLINE_MS / 1000)
        return message.data.decode() if message else ""


def take_and_die(queue: str) -> None:
    """Leave a queue with a message that a dead process had taken."""
    if (pid := os.fork()) == 0:
        msgq.MessageQueue(queue).take(DEADLINE_MS / 1000)
        os._exit(0)
    os.waitpid(pid, 0)
