"""Processes that hold locks of rows, and then become another program, leave children, or end in another namespace."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgq
from tests.support import SHM, hear, say
from tests.unit import liveness_children
from tests.unit.ringfile import side_path
from visionipc import VisionIpcClient

LOCKED_BYTES = 512  # every row's byte is below this one
_numbers = itertools.count()


def open_writer(name: str) -> Any:
    """Return a vector that has taken a row of the file, because it has written."""
    vector = msgq.SeqlockVector(name, "f8", 4)
    vector[0] = 1.0
    return vector


def open_owner(name: str) -> Any:
    """Return a board that has taken a row of the file, because it owns a key."""
    handles = contextlib.ExitStack()
    board = handles.enter_context(msgq.Board(name))
    handles.enter_context(board.declare(f"key {next(_numbers)}"))
    return handles


def open_viewer(name: str) -> Any:
    """Return a subscriber that has a viewer's row, too, because it has received a view."""
    channel = msgq.Channel(name)
    with channel.publisher() as publisher:
        subscriber = channel.subscriber()
        publisher.send(b"seen")
        subscriber.receive_view(timeout=0).release()
    return subscriber


#: Opener of the handles of a kind that hold a row, and the file of the rows.
HOLDERS: dict[str, tuple[Callable[[str], Any], Callable[[str], Path]]] = {
    "publisher": (msgq.pub_sock, side_path),
    "subscriber": (msgq.sub_sock, side_path),
    "channel-publisher": (lambda name: msgq.Channel(name).publisher(), lambda name: SHM / f"msgqchan_{name}"),
    "channel-subscriber": (lambda name: msgq.Channel(name).subscriber(), lambda name: SHM / f"msgqchan_{name}"),
    "channel-viewer": (open_viewer, lambda name: SHM / f"msgqchan_{name}"),
    "queue": (msgq.MessageQueue, lambda name: SHM / f"msgqjobs_{name}"),
    "vector": (open_writer, lambda name: SHM / f"msgqrec_{name}"),
    "board": (open_owner, lambda name: SHM / f"msgqrec_{name}"),
}


def locked_bytes(path: Path) -> set[int]:
    """Return the bytes of the file that any process has locked by an open file description."""
    locked = set()
    with path.open("rb") as file:
        for byte in range(LOCKED_BYTES):
            wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            kind = struct.unpack_from("h", fcntl.fcntl(file, fcntl.F_OFD_GETLK, wanted))[0]
            if kind != fcntl.F_UNLCK:
                locked.add(byte)
    return locked


def hold(kind: str, name: str) -> None:
    """Hold a row, leave children by each kind of fork, and say their pids."""
    handle = HOLDERS[kind][0](name)
    say(liveness_children.leave_children())
    hear()
    assert handle


def hold_and_exec(kind: str, name: str) -> None:
    """Hold a row, leave children, say their pids, and at the next word become another program."""
    handle = HOLDERS[kind][0](name)
    say(liveness_children.leave_children())
    liveness_children.exec_into_sleep()
    assert handle


def hold_in_namespace(namespace: int, kind: str, name: str) -> None:
    """Hold a row as a process of another namespace."""
    liveness_children.run_in_namespace(namespace, lambda: _keep(HOLDERS[kind][0](name)))


def _keep(handle: Any) -> None:
    say("connected")
    hear()
    assert handle


def close_publisher_and_keep_subscriber(name: str) -> None:
    """Keep the mapping of the side segment, but not the row."""
    publisher, subscriber = msgq.pub_sock(name), msgq.sub_sock(name)
    publisher.close()
    say("closed")
    hear()
    assert subscriber


def hold_frames_client(name: str) -> None:
    """Hold a row of a server of frames, leave children, and say their pids."""
    client = VisionIpcClient(name, 0, False)
    client.connect(True)
    say(liveness_children.leave_children())
    hear()
    assert client
