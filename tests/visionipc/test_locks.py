"""One server a name: the lock of its socket, which is a file of its user's, free as soon as its process is dead."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from msgq.common import settings, shm_paths
from msgq.errors import MultiplePublishersError, SegmentError
from tests.support import Child, Task, hear, say
from tests.visionipc.conftest import LOCKS, SOCKETS
from visionipc import VisionIpcServer, wire


def lock_of(name: Any) -> Any:
    return LOCKS / os.path.basename(wire.socket_path(name))


def serve(name: Any) -> None:
    with VisionIpcServer(name) as server:
        server.start_listener()
        say()
        hear()


def test_bound_abstract_socket_name_does_not_block_server(name: Any) -> None:
    """It was the lock once: whoever bound it could keep a server from starting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter, VisionIpcServer(name) as server:
        squatter.bind((b"\0msgq" + wire.socket_path(name).encode())[:108])
        squatter.listen()
        server.start_listener()


def test_server_names_with_different_last_byte_have_separate_locks(name: Any) -> None:
    room = 107 - len(wire.socket_path(name))
    with VisionIpcServer(name + "x" * room) as one, VisionIpcServer(name + "x" * (room - 1) + "y") as other:
        one.start_listener()
        other.start_listener()


def test_prefix_and_name_with_equal_path_share_lock(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would listen at one socket, so there is one lock for them."""
    prefix = settings.get_prefix()
    with VisionIpcServer(f"{name}_visionipc_b") as server:
        server.start_listener()
        monkeypatch.setenv("OPENPILOT_PREFIX", f"{prefix}_visionipc_{name}")
        with (
            VisionIpcServer("b") as same,
            pytest.raises(MultiplePublishersError, match=f"process {os.getpid()} serves"),
        ):
            same.start_listener()
        with VisionIpcServer("c") as other:
            other.start_listener()


def test_server_lock_is_private_and_removed_with_server(name: Any) -> None:
    with VisionIpcServer(name) as server:
        assert not lock_of(name).exists()
        server.start_listener()
        assert lock_of(name).stat().st_mode & 0o777 == 0o600
        assert LOCKS.stat().st_mode & 0o777 == 0o700
    assert not lock_of(name).exists()


def test_next_server_takes_lock_of_killed_server(name: Any) -> None:
    with Child(serve, name) as child:
        child.hear()
        with VisionIpcServer(name) as rival:
            with pytest.raises(MultiplePublishersError, match=f"process {child.pid} serves"):
                rival.start_listener()
            child.kill()
            assert lock_of(name).exists()
            rival.start_listener()
            assert lock_of(name).read_text() == str(os.getpid())


def test_server_lock_error_names_server_with_removed_socket(name: Any) -> None:
    with Child(serve, name) as child:
        child.hear()
        os.unlink(wire.socket_path(name))
        with (
            VisionIpcServer(name) as rival,
            pytest.raises(MultiplePublishersError, match=f"process {child.pid} serves"),
        ):
            rival.start_listener()
        child.say()
        child.result()


def test_recreated_lock_is_not_removed(name: Any) -> None:
    with VisionIpcServer(name) as server:
        server.start_listener()
        lock_of(name).unlink()
        lock_of(name).write_text("another's")
    assert lock_of(name).read_text() == "another's"
    lock_of(name).unlink()


def test_concurrent_servers_exclude_each_other(name: Any) -> None:
    serving = []

    def come_and_go() -> None:
        for _ in range(200):
            with VisionIpcServer(name) as server:
                try:
                    server.start_listener()
                except MultiplePublishersError:
                    continue
                serving.append(server)
                assert serving == [server]
                serving.remove(server)

    tasks = [Task(come_and_go) for _ in range(3)]
    for task in tasks:
        task.result()


def test_lock_directory_open_to_other_users_is_refused(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shm_paths, "SHARED_MEMORY", str(tmp_path))
    (tmp_path / LOCKS.name).mkdir(mode=0o755)
    with VisionIpcServer(name) as server, pytest.raises(SegmentError, match="private directory of this user"):
        server.start_listener()
    assert not (SOCKETS / os.path.basename(wire.socket_path(name))).exists()
