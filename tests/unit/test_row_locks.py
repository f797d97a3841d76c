"""The lock of a row ends with its handle and its process, whatever other handles, mappings and children remain."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from tests.support import Child, wait_until
from tests.unit import liveness_children, row_lock_children
from tests.unit.c_programs import Program
from tests.unit.ringfile import side_path
from tests.unit.row_lock_children import HOLDERS, locked_bytes
from visionipc import VisionIpcClient, VisionIpcServer

PUBLISHERS = 16  # rows of a topic

#: Kinds whose handles hold rows of one file.
NEIGHBOURS = [
    ("publisher", "subscriber", "subscriber"),
    ("channel-publisher", "channel-subscriber", "channel-viewer"),
    ("queue", "queue", "queue"),
    ("vector", "vector", "vector"),
    ("board", "board", "board"),
]

each_kind = pytest.mark.parametrize("kind", HOLDERS)


@contextlib.contextmanager
def killed_at_the_end(children: list[int]) -> Iterator[None]:
    """Children that their parent has left run in the block."""
    try:
        assert all(os.path.exists(f"/proc/{child}") for child in children)
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


@pytest.fixture
def other_bytes(kind: str, endpoint: str) -> Iterator[set[int]]:
    """The locked bytes of a file that another handle without a row of its own keeps."""
    with msgq.Channel(endpoint) if kind.startswith("channel") else contextlib.nullcontext():
        HOLDERS[kind][0](endpoint).close()
        yield locked_bytes(HOLDERS[kind][1](endpoint))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("kinds", NEIGHBOURS, ids=lambda kinds: kinds[0])
def test_row_is_free_after_its_handle_is_closed_in_any_order(
    kinds: tuple[str, ...], order: tuple[int, ...], endpoint: str
) -> None:
    path = HOLDERS[kinds[0]][1](endpoint)
    rows: list[set[int]] = []
    with msgq.Channel(endpoint) if kinds[0].startswith("channel") else contextlib.nullcontext():
        handles = []
        for kind in kinds:
            before = locked_bytes(path) if path.exists() else set()
            handles.append(HOLDERS[kind][0](endpoint))
            rows.append(locked_bytes(path) - before)
        common = locked_bytes(path).difference(*rows)
        for closed, i in enumerate(order, 1):
            handles[i].close()
            assert locked_bytes(path) - common == set().union(*(rows[j] for j in order[closed:]))


@each_kind
def test_row_is_free_after_close_while_a_forked_child_lives(kind: str, endpoint: str, other_bytes: set[int]) -> None:
    open_handle, locate = HOLDERS[kind]
    handle = open_handle(endpoint)
    with killed_at_the_end(children := liveness_children.leave_children()):
        assert locked_bytes(locate(endpoint)) > other_bytes
        handle.close()
        assert locked_bytes(locate(endpoint)) == other_bytes
    for child in children:
        os.waitpid(child, 0)


@each_kind
def test_row_of_killed_parent_is_free_while_its_children_live(kind: str, endpoint: str, other_bytes: set[int]) -> None:
    path = HOLDERS[kind][1](endpoint)
    with Child(row_lock_children.hold, kind, endpoint) as parent, killed_at_the_end(parent.hear()):
        assert locked_bytes(path) > other_bytes
        parent.kill()
        assert locked_bytes(path) == other_bytes


@each_kind
def test_row_of_zombie_is_free_while_its_children_live(kind: str, endpoint: str, other_bytes: set[int]) -> None:
    path = HOLDERS[kind][1](endpoint)
    with Child(row_lock_children.hold, kind, endpoint) as parent, killed_at_the_end(parent.hear()):
        os.kill(parent.pid, signal.SIGKILL)
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        assert locked_bytes(path) == other_bytes


@each_kind
def test_row_is_free_after_exec_while_children_live(kind: str, endpoint: str, other_bytes: set[int]) -> None:
    path = HOLDERS[kind][1](endpoint)
    with Child(row_lock_children.hold_and_exec, kind, endpoint) as parent, killed_at_the_end(parent.hear()):
        assert locked_bytes(path) > other_bytes
        parent.say()
        assert parent.hear() == "another program"
        assert locked_bytes(path) == other_bytes


@pytest.mark.parametrize("namespace", [liveness_children.PID, liveness_children.TIME], ids=["pid", "time"])
@each_kind
def test_row_of_process_in_another_namespace_is_locked_until_its_death(
    kind: str, namespace: int, endpoint: str, other_bytes: set[int]
) -> None:
    path = HOLDERS[kind][1](endpoint)
    with Child(row_lock_children.hold_in_namespace, namespace, kind, endpoint) as child:
        if (pid := child.hear()) == "not permitted":
            pytest.skip("needs the right to make namespaces")
        assert child.hear() == "connected"
        assert locked_bytes(path) > other_bytes
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: locked_bytes(path) == other_bytes)


def test_processes_that_close_their_publisher_and_keep_a_subscriber_hold_no_row_of_a_publisher(endpoint: str) -> None:
    """Failure would mean: the seventeenth publisher is refused, although no publisher is open."""
    with contextlib.ExitStack() as stack:
        for _ in range(PUBLISHERS + 1):
            child = stack.enter_context(Child(row_lock_children.close_publisher_and_keep_subscriber, endpoint))
            assert child.hear() == "closed"
        msgq.pub_sock(endpoint).close()


def test_closed_publisher_has_no_lock_although_the_mapping_of_its_side_segment_remains(endpoint: str) -> None:
    publisher = msgq.pub_sock(endpoint)
    before = locked_bytes(side_path(endpoint))
    with msgq.sub_sock(endpoint):  # shares the mapping
        publisher.close()
        assert not before & locked_bytes(side_path(endpoint))
        assert str(side_path(endpoint)) in Path("/proc/self/maps").read_text()


def test_subscriber_of_process_after_exec_is_dead_in_stats_while_children_live(endpoint: str) -> None:
    with Child(row_lock_children.hold_and_exec, "subscriber", endpoint) as parent, killed_at_the_end(parent.hear()):
        assert [one.participant.alive for one in msgq.stats.topic(endpoint).subscribers] == [True]
        parent.say()
        assert parent.hear() == "another program"
        assert [one.participant.alive for one in msgq.stats.topic(endpoint).subscribers] == [False]


# ---- C ----

#: Kinds that the program closes, and their rows in the files of a name.
C_KINDS = ("publisher", "subscriber", "channel-publisher", "channel-subscriber", "queue", "vector", "board")


def locate_c_rows(endpoint: str) -> dict[str, Path]:
    """Return the file of the rows of each kind in the C program."""
    paths = {kind: HOLDERS[kind][1](endpoint) for kind in C_KINDS}
    return {**paths, "board": HOLDERS["board"][1](f"{endpoint}-board")}


@pytest.mark.parametrize("step", [1, -1], ids=["as opened", "reversed"])
def test_row_of_c_handle_is_free_after_close_while_others_and_a_forked_child_live(
    programs: Path, prefix: str, token: str, step: int
) -> None:
    with Program(programs / "c-rows", token) as program, killed_at_the_end([int(program.hear())]):
        paths = locate_c_rows(f"{prefix}/{token}")
        for kind in C_KINDS[::step]:
            before = locked_bytes(paths[kind])
            assert program.ask(kind) == "closed"
            assert len(locked_bytes(paths[kind])) < len(before)
        assert not any(locked_bytes(path) for path in paths.values())


def test_rows_of_killed_c_program_are_free_while_its_child_lives(programs: Path, prefix: str, token: str) -> None:
    with Program(programs / "c-rows", token) as program, killed_at_the_end([int(program.hear())]):
        paths = locate_c_rows(f"{prefix}/{token}")
        assert all(locked_bytes(path) for path in paths.values())
        program.kill()
        assert not any(locked_bytes(path) for path in paths.values())


# ---- frames ----


@pytest.fixture
def server(token: str, prefix: str) -> Iterator[VisionIpcServer]:
    with VisionIpcServer(token) as server:
        server.create_buffers(0, 2, 8, 8)
        server.start_listener()
        yield server


def test_frames_client_is_dead_after_its_parent_is_killed_while_children_live(
    server: VisionIpcServer, token: str
) -> None:
    with Child(row_lock_children.hold_frames_client, token) as parent, killed_at_the_end(parent.hear()):
        assert server.stats(0).clients == [parent.pid]
        parent.kill()
        assert server.stats(0).clients == []


@pytest.mark.parametrize("first", [0, 1])
def test_frames_client_that_closes_leaves_the_rows_of_others(server: VisionIpcServer, token: str, first: int) -> None:
    clients: list[Any] = [VisionIpcClient(token, 0, False) for _ in range(2)]
    for client in clients:
        client.connect(True)
    clients[first].close()
    assert server.stats(0).clients == [os.getpid()]
    clients[1 - first].close()
    assert server.stats(0).clients == []
