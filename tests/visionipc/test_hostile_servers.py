"""Hostile and half-dead servers: a client gets an error or a time-out, loses no descriptor, and can be used again."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import os
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import (
    CorruptSegmentError,
    InvalidValueError,
    IpcError,
    SegmentError,
    StreamNotFoundError,
    WaitTimeoutError,
)
from msgq.impl.base.core import DescriptorMapping
from tests.cases import each_case
from tests.support import DEADLINE_MS, Child, hear, say, wait_until
from tests.visionipc.conftest import HEIGHT, WIDTH
from visionipc import FrameFormat, VisionIpcClient, VisionIpcServer, get_endpoint_name, memfd, wire
from visionipc.formats import Geometry, geometry
from visionipc.impl.core import LEASE_CLIENTS_MAX, LEASE_TABLE_BYTES, VERSION, IncomingStream

COUNT = 3
LAYOUT = geometry(FrameFormat.NV12, WIDTH, HEIGHT)
BYTES = LAYOUT.size + wire.FRAME_ID_BYTES
SERVER_ID = 0x1234_5678_9ABC_DEF0
FIELDS = {
    "len": 0,
    "mmap_len": 8,
    "width": 40,
    "height": 48,
    "stride": 56,
    "uv_offset": 64,
    "server_id": 88,
    "idx": 96,
    "type": 104,
}
WIDTHS = dict.fromkeys(("type", "version", "format", "channels", "row"), "<I")
GRANT_FIELDS = {"magic": 0, "version": 8, "format": 12, "channels": 16, "row": 20}

Behaviour = Callable[[socket.socket, bytes], object]


class Impostor:
    """Listens where a server would, and does with each connection what the test says."""

    def __init__(self, name: str, behave: Behaviour, backlog: int = 128, accepts: bool = True) -> None:
        self.behave = behave
        self._path = wire.socket_path(name)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(self._path)
        self._socket.listen(backlog)
        self._thread = threading.Thread(target=self._run, daemon=True)
        if accepts:
            self._thread.start()

    def _run(self) -> None:
        while client := self._next():
            with client, contextlib.suppress(OSError):  # it has gone
                self.behave(client, client.recv(256))

    def _next(self) -> socket.socket | None:
        """Return the next client; None: we are shut down."""
        while True:
            try:
                return self._socket.accept()[0]
            except OSError as error:
                if error.errno != errno.EMFILE:  # a client in this process has them all, for a moment
                    return None

    def __enter__(self) -> Impostor:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.ident:
            self._thread.join()
        self._socket.close()
        os.unlink(self._path)


def records(count: int = COUNT, layout: Geometry = LAYOUT) -> bytearray:
    return bytearray(b"".join(wire.Record(layout, SERVER_ID, index, 0).pack(-1) for index in range(count)))


def grant(row: int = 0) -> bytearray:
    return bytearray(wire.Grant(FrameFormat.NV12, 1, row, 0, 1).pack(VERSION))


@contextlib.contextmanager
def memory(ours: bool, count: int = COUNT) -> Iterator[list[int]]:
    """Descriptors as a server sends them: of buffers, and of the table if it is one of ours."""
    sizes = [BYTES] * count + [LEASE_TABLE_BYTES] * ours
    fds = [memfd.create_memfd("test", size, "test") for size in sizes]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def serve_answer(data: bytes | bytearray, fds: list[int]) -> Behaviour:
    """Answer any question for a stream so, and list stream 0."""

    def behave(client: socket.socket, request: bytes) -> None:
        if request[:4] == wire.REQUEST_STRUCT.pack(wire.LIST_REQUEST):
            client.send(wire.REQUEST_STRUCT.pack(0))
        else:
            socket.send_fds(client, [data], fds)

    return behave


@pytest.fixture
def client(name: Any) -> Iterator[Any]:
    """A client that is used by the test; afterwards it connects to an honest server."""
    with VisionIpcClient(name, 0, False) as client:
        assert not client.connect(False)  # opens what it keeps
        yield client
        with VisionIpcServer(name) as server:
            server.create_buffers(0, 2, WIDTH, HEIGHT)
            server.start_listener()
            assert client.connect(False)

            def received() -> bool:  # not the first frame, perhaps: who lags in the ring goes to its end
                server.send(0, bytes(LAYOUT.size), 99)
                frame = client.recv(20)
                return frame is not None and frame.frame_id == 99

            wait_until(received, "a frame of an honest server comes")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def refused(client: VisionIpcClient, behave: Behaviour, kind: type[Exception], text: str) -> None:
    """The client says what is wrong, and has closed what came by then."""
    with Impostor(client._name, behave):
        before = descriptors()
        with pytest.raises(kind, match=text) as caught:
            client.connect(kind is StreamNotFoundError)
        assert not client.is_connected()
        wait_until(lambda: descriptors() <= before, "what came is closed")
        assert caught.value  # so far somebody kept the error


def packed(table: dict[str, int], data: bytearray, at: int, **changes: int | bytes) -> bytes:
    """Return the answer with other values in the structure that begins there."""
    for field, value in changes.items():
        word = value if isinstance(value, bytes) else struct.pack(WIDTHS.get(field, "<Q"), value)
        data[at + table[field] : at + table[field] + len(word)] = word
    return bytes(data)


# ---- no answer ----


def test_connect_to_silent_server_ends_after_timeout(client: Any) -> None:
    free = threading.Event()
    with Impostor(client._name, lambda *_: free.wait()):
        with pytest.raises(WaitTimeoutError, match="does not answer; look for a stopped process"):
            client.connect(True)
        with pytest.raises(WaitTimeoutError, match="does not answer"):
            VisionIpcClient.available_streams(client._name)
        free.set()


def test_connect_to_server_with_full_queue_ends_after_timeout(client: Any) -> None:
    with Impostor(client._name, lambda *_: None, backlog=0, accepts=False), contextlib.ExitStack() as stack:
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                waiting.setblocking(False)
                waiting.connect(wire.socket_path(client._name))
        with pytest.raises(WaitTimeoutError, match="does not answer"):
            client.connect(True)


@pytest.mark.parametrize("listed", [False, True], ids=["without any answer", "without stream answer"])
def test_connect_to_server_with_early_close_fails(client: Any, listed: Any) -> None:
    def behave(connection: socket.socket, request: bytes) -> None:
        if listed and request == wire.REQUEST_STRUCT.pack(wire.LIST_REQUEST):
            connection.send(wire.REQUEST_STRUCT.pack(0))

    kind, text = (IpcError, "did not accept the client") if listed else (StreamNotFoundError, "stream 0 not found")
    refused(client, behave, kind, text)


def test_empty_answer_with_descriptors_is_refused(client: Any) -> None:
    with memory(True) as fds:
        refused(client, serve_answer(b"", fds), IpcError, "did not accept the client")


def test_connect_to_server_killed_at_each_request_finds_no_server(client: Any) -> None:
    """As if nobody were there, or no such stream."""
    refused(client, lambda connection, _: connection.shutdown(socket.SHUT_RDWR), StreamNotFoundError, "stream 0 not")
    assert VisionIpcClient.available_streams(client._name, False) == set()


@pytest.mark.parametrize("listing", [b"\0\0\0", bytes(65 * 4), bytes(100_000)], ids=["3", "65 streams", "100 kB"])
def test_stream_list_of_impossible_size_is_refused(client: Any, listing: Any) -> None:
    with memory(True) as fds, Impostor(client._name, lambda connection, _: socket.send_fds(connection, [listing], fds)):
        before = descriptors()
        with pytest.raises(CorruptSegmentError, match=r"list of streams of|truncated answer"):
            VisionIpcClient.available_streams(client._name)
        wait_until(lambda: descriptors() <= before)


# ---- answers that contradict themselves ----


@each_case("ours", [False, True], ids=["stock", "msgq"])
@each_case(
    "changes",
    [
        {"len": 0},
        {"len": 2**64 - 8},
        {"len": LAYOUT.size + 1},
        {"mmap_len": 0},
        {"mmap_len": LAYOUT.size},
        {"len": 2**40, "mmap_len": 2**40 + 8},
        {"idx": 0},
        {"idx": 2},
        {"idx": 2**63},
        {"type": 1},
        {"server_id": 1},
        {"width": WIDTH + 2},
        {"height": 2},
        {"stride": 0},
        {"uv_offset": 0},
    ],
)
def test_contradicting_buffer_records_are_refused(client: Any, ours: Any, changes: Any) -> None:
    data = packed(FIELDS, records() + (grant() if ours else b""), wire.BUFFER_STRUCT.size, **changes)
    with memory(ours) as fds:
        refused(
            client, serve_answer(data, fds), CorruptSegmentError, "invalid buffer 1|different layouts|invalid layout"
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 0},
        {"width": 2**64 - 1},
        {"height": 2**63},
        {"height": 0},
        {"stride": 1},
        {"stride": 2**64 - 1},
        {"uv_offset": 2**64 - 1},
        {"uv_offset": 0},
        {"width": 63},
        {"height": HEIGHT * 2},
    ],
    ids=str,
)
def test_impossible_frame_geometry_is_refused(client: Any, changes: Any) -> None:
    """From ours it is refused. Stock's may send anything as NV12: its bytes can be had, its picture cannot."""
    data = records()
    for index in range(COUNT):
        packed(FIELDS, data, index * wire.BUFFER_STRUCT.size, **changes)
    with memory(True) as fds:
        refused(client, serve_answer(data + grant(), fds), CorruptSegmentError, "invalid layout")
    with memory(False) as fds, Impostor(client._name, serve_answer(data, fds)), publisher(client._name) as pub:
        assert client.connect(False)
        pub.send(wire.FRAME_PACKET_STRUCT.pack(SERVER_ID, 0, 0, 0, 0, 0, 1))
        with client.frame(DEADLINE_MS) as frame:
            assert len(frame.data) == LAYOUT.size
            with pytest.raises(InvalidValueError):
                _ = frame.image
            with pytest.raises(InvalidValueError):
                _ = frame.planes


@pytest.mark.parametrize(
    "changes",
    [
        {"magic": b"mqframe2"},
        {"version": VERSION + 1},
        {"version": 0},
        {"format": 10},
        {"format": 2**32 - 1},
        {"channels": 0},
        {"channels": 2**32 - 1},
        {"row": LEASE_CLIENTS_MAX},
        {"row": 2**32 - 1},
    ],
    ids=str,
)
def test_lease_grant_with_wrong_fields_is_refused(client: Any, changes: Any) -> None:
    data = packed(GRANT_FIELDS, records() + grant(), COUNT * wire.BUFFER_STRUCT.size, **changes)
    with memory(True) as fds:
        refused(client, serve_answer(data, fds), SegmentError, "protocol version|invalid layout|not a table")


@pytest.mark.parametrize("size", [1, 63, 64, 111, 113, 112 * 129, 112 * 128 + 65, 100_000])
def test_answer_of_wrong_size_is_refused(client: Any, size: Any) -> None:
    with memory(True) as fds:
        refused(
            client,
            serve_answer(bytes(size), fds),
            CorruptSegmentError,
            "not a list of|truncated answer|protocol version",
        )


def test_random_answers_do_not_crash_client(client: Any) -> None:
    chance = random.Random(3)
    sizes = [wire.BUFFER_STRUCT.size * n + extra for n in range(4) for extra in (0, wire.GRANT_STRUCT.size)]

    def behave(connection: socket.socket, request: bytes) -> None:
        size = chance.choice([*sizes, chance.randrange(1, 2000)])
        socket.send_fds(connection, [chance.randbytes(size)], [0] * chance.randrange(5))

    before = descriptors()
    with Impostor(client._name, behave):
        for _ in range(300):
            with pytest.raises(IpcError):
                client.connect(True)
    wait_until(lambda: descriptors() <= before)


def test_client_accepts_or_refuses_answer_with_one_random_byte(client: Any) -> None:
    """Connected or refused, nothing else; and nothing that is unsafe to look at."""
    chance = random.Random(5)
    connected = 0
    for round_ in range(200):
        ours = bool(round_ % 2)
        data = records() + (grant() if ours else b"")
        data[chance.randrange(len(data))] = chance.randrange(256)
        suppressed = contextlib.suppress(CorruptSegmentError, SegmentError)
        with memory(ours) as fds, Impostor(client._name, serve_answer(bytes(data), fds)), suppressed:
            connected += client.connect(False)
            assert client.buffer_len == LAYOUT.size
    assert 0 < connected < 200


# ---- descriptors ----


@pytest.mark.parametrize("ours", [False, True], ids=["stock", "msgq"])
@pytest.mark.parametrize("count", [0, 1, COUNT - 1, COUNT + 2, 127])
def test_answer_with_wrong_number_of_descriptors_is_refused(client: Any, ours: Any, count: Any) -> None:
    data = bytes(records() + (grant() if ours else b""))
    with memory(True, count) as fds:
        refused(
            client, serve_answer(data, fds[:count]), CorruptSegmentError, f"{count} descriptors for {COUNT} buffers"
        )


def test_answer_with_too_many_descriptors_is_refused(client: Any) -> None:
    with memory(False, 1) as fds:
        refused(client, serve_answer(bytes(records()), fds * 250), CorruptSegmentError, "truncated answer")


def unsealed(size: int) -> int:
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd


def write_only(folder: Path, size: int) -> int:
    path = folder / "file"
    path.write_bytes(bytes(size))
    return os.open(path, os.O_WRONLY)


STRANGE = {
    "pipe": lambda folder: os.pipe()[0],
    "directory": lambda folder: os.open(folder, os.O_RDONLY),
    "device": lambda folder: os.open("/dev/zero", os.O_RDWR),
    "path": lambda folder: os.open(folder, os.O_PATH),
    "short": lambda folder: memfd.create_memfd("short", BYTES - 1, "test"),
    "empty": lambda folder: os.memfd_create("empty"),
    "write only": lambda folder: write_only(folder, max(BYTES, LEASE_TABLE_BYTES)),
}


@pytest.mark.parametrize("ours", [False, True], ids=["stock", "msgq"])
@pytest.mark.parametrize("place", [0, COUNT - 1, COUNT], ids=["first", "last", "table"])
@pytest.mark.parametrize("strange", STRANGE)
def test_answer_with_descriptors_of_other_files_is_refused(
    client: Any, tmp_path: Path, ours: Any, place: int, strange: Any
) -> None:
    if place == COUNT and not ours:
        pytest.skip("stock has no table")
    fd = STRANGE[strange](tmp_path)
    with memory(ours) as fds:
        bad = [*fds[:place], fd, *fds[place + 1 :]]
        answer = serve_answer(bytes(records() + (grant() if ours else b"")), bad)
        refused(client, answer, SegmentError, "not memory of|without a seal against shrinking|cannot map")
    os.close(fd)


@pytest.mark.parametrize("place", [0, COUNT], ids=["buffer", "table"])
def test_shrinkable_memory_is_refused(client: Any, tmp_path: Path, place: int) -> None:
    """Whoever reads behind the end of a file dies of SIGBUS."""
    for fd in (unsealed(LEASE_TABLE_BYTES), os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)):
        os.truncate(fd, LEASE_TABLE_BYTES)
        with memory(True) as fds:
            bad = [*fds[:place], fd, *fds[place + 1 :]]
            refused(
                client,
                serve_answer(bytes(records() + grant()), bad),
                CorruptSegmentError,
                "without a seal against shrinking",
            )
        os.close(fd)


def test_too_short_buffer_is_refused() -> None:
    """Nothing of it may be shown: reading beyond a mapping ends the process."""
    fd = memfd.create_memfd("a buffer", 4096, "e")
    try:
        region, record = DescriptorMapping(fd, 4096, False, "e"), wire.Record(LAYOUT, SERVER_ID, 0, 0)
        with pytest.raises(SegmentError, match="4096"):
            IncomingStream([record], [region], [fd], None)
    finally:
        os.close(fd)


def test_read_only_lease_table_is_refused(client: Any) -> None:
    with memory(True) as fds:
        table = memfd.reopen_read_only(fds[-1])
        answer = serve_answer(bytes(records() + grant()), [*fds[:-1], table])
        refused(client, answer, SegmentError, "cannot map")
        os.close(table)


@contextlib.contextmanager
def room_for(count: int) -> Iterator[None]:
    """Let the process open so many descriptors more."""
    gc.collect()  # or garbage of earlier tests could give descriptors back within the block
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.dup(0) for _ in range(count)]  # not one after the other, perhaps
    for fd in free:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def connect_with_few_descriptors(name: str) -> None:
    """Child, because no other thread may open or close descriptors: connect with too few of them."""
    with VisionIpcClient(name, 0, False) as client:
        assert not client.connect(False)  # opens what it keeps
        say()
        hear()
        before = descriptors()
        for room in range(1, COUNT + 2):  # the client's socket, and too few for the buffers and the table
            with room_for(room), pytest.raises(IpcError, match=r"truncated answer|descriptors for"):
                client.connect(False)
            assert descriptors() == before


def test_client_without_free_descriptors_raises_error(name: Any) -> None:
    """The client closes what it received of the server's descriptors; the kernel closes the others."""
    with Child(connect_with_few_descriptors, name) as child:
        child.hear()
        with memory(True) as fds, Impostor(name, serve_answer(bytes(records() + grant()), fds)):
            child.say()
            child.result()


def connect_without_descriptors(name: str) -> list[bool]:
    with VisionIpcClient(name, 0, False) as client:
        assert not client.connect(False)  # opens what it keeps
        say()
        hear()
        with room_for(2), pytest.raises(IpcError, match="truncated answer"):
            client.connect(False)
        say()
        hear()
        return [client.is_connected(), client.connect(False)]


def test_client_without_free_descriptors_releases_its_row(name: Any) -> None:
    with VisionIpcServer(name) as server, Child(connect_without_descriptors, name) as child:
        server.create_buffers(0, 2, WIDTH, HEIGHT)
        child.hear()
        server.start_listener()
        child.say()
        child.hear()
        wait_until(lambda: server.stats(0).clients == [], "nobody has a row")
        child.say()
        assert child.result() == [False, True]


# ---- packets ----


@contextlib.contextmanager
def publisher(name: str) -> Iterator[msgq.PubSocket]:
    with msgq.PubSocket() as pub:
        pub.connect(msgq.Context(), get_endpoint_name(name, 0))
        yield pub


def good(ours: bool, index: int = 0) -> bytes:
    return wire.FRAME_PACKET_STRUCT.pack(SERVER_ID, index, 5, int(ours), 1, 2, 1)


@pytest.fixture(params=[False, True], ids=["stock", "msgq"])
def topic(request: pytest.FixtureRequest, client: Any) -> Iterator[Any]:
    """A client of an impostor whose buffers all hold frame 5, and the publisher of its topic."""
    ours = request.param
    with memory(ours) as fds, Impostor(client._name, serve_answer(bytes(records() + (grant() if ours else b"")), fds)):
        for fd in fds[:COUNT]:
            os.pwrite(fd, struct.pack("<Q", 5), LAYOUT.size)
        if ours:
            os.pwrite(fds[-1], struct.pack(f"<{COUNT}I", *[1] * COUNT), 0)
        with publisher(client._name) as pub:
            assert client.connect(False)
            yield client, pub, ours


@each_case(
    "packet",
    [
        b"\0",
        bytes(47),
        bytes(49),
        bytes(4096),
        bytes(48),
        b"\xff" * 48,
        wire.FRAME_PACKET_STRUCT.pack(SERVER_ID, COUNT, 0, 1, 0, 0, 1),
        wire.FRAME_PACKET_STRUCT.pack(SERVER_ID, 2**64 - 1, 0, 1, 0, 0, 1),
        wire.FRAME_PACKET_STRUCT.pack(SERVER_ID, 2**32, 0, 1, 0, 0, 1),
        wire.FRAME_PACKET_STRUCT.pack(SERVER_ID + 1, 0, 0, 1, 0, 0, 1),
    ],
    ids=["1", "47", "49", "4096", "zeros", "ones", "index", "largest index", "index of 33 bits", "server"],
)
def test_invalid_frame_packets_are_skipped(topic: Any, packet: Any) -> None:
    client, pub, ours = topic
    for _ in range(3):
        pub.send(packet)
    assert client.recv(0) is None
    pub.send(packet)
    pub.send(good(ours))
    with client.frame(DEADLINE_MS) as frame:
        assert frame.frame_id == 5
        assert frame.valid()


def test_random_frame_packets_do_not_crash_client(topic: Any) -> None:
    client, pub, ours = topic
    chance = random.Random(6)
    for _ in range(300):
        start = good(ours)[: chance.choice([0, 8, 16, 24])]
        pub.send(start + chance.randbytes(48 - len(start)))
        if frame := client.recv(0):
            assert frame.array.sum() == 0
            frame.release()
    pub.send(good(ours))
    assert client.frame(DEADLINE_MS).frame_id == 5


@pytest.mark.parametrize("generation", [0, 2, 2**32 - 1])
def test_frame_packet_with_wrong_generation_is_skipped(topic: Any, generation: Any) -> None:
    client, pub, ours = topic
    if not ours:
        pytest.skip("stock has none")
    for _ in range(5000):  # each sends the client to the newest that is there
        pub.send(wire.FRAME_PACKET_STRUCT.pack(SERVER_ID, 0, 0, generation, 0, 0, 1))
    assert client.recv(0) is None
    pub.send(good(ours))
    assert client.frame(DEADLINE_MS).frame_id == 5


def test_duplicate_announcement_does_not_invalidate_held_frame(topic: Any) -> None:
    client, pub, ours = topic
    pub.send(good(ours))
    pub.send(good(ours))
    held = client.recv(0)
    again = client.recv(0)
    assert (again is None) == ours
    assert held.valid()
    pub.send(good(ours, 1))
    assert client.frame(DEADLINE_MS).idx == 1


def flood(name: str, other_servers: bool) -> None:
    """Publish packets that are no frames for ever, each of another server or all of one generation."""
    with publisher(name) as pub:
        for i in itertools.count(1):
            pub.send(wire.FRAME_PACKET_STRUCT.pack((SERVER_ID + other_servers * i) % 2**64, 0, 0, 7, 0, 0, 1))
            if i == 1:
                say()


@pytest.mark.parametrize("other_servers", [True, False], ids=["other servers", "other generations"])
@pytest.mark.parametrize("timeout_ms", [0, 50])
def test_recv_with_endless_invalid_packets_ends_at_timeout(topic: Any, other_servers: Any, timeout_ms: Any) -> None:
    client, _, ours = topic
    if not other_servers and not ours:
        pytest.skip("stock has no generations")
    with Child(flood, client._name, other_servers) as child:
        child.hear()
        begin = time.monotonic()
        for _ in range(10):
            assert client.recv(timeout_ms) is None
        assert client.connections <= 2 + (time.monotonic() - begin) / 0.02  # not one for each packet


def test_recv_with_silent_new_server_does_not_wait(topic: Any) -> None:
    client, pub, _ = topic
    path = wire.socket_path(client._name)
    os.rename(path, f"{path}.former")
    try:
        asked: list[bytes] = []
        with Impostor(client._name, lambda connection, _: asked.append(connection.recv(1))):
            for index in range(100):
                pub.send(wire.FRAME_PACKET_STRUCT.pack(index, 0, 0, 0, 0, 0, 1))
            assert client.recv(10) is None
        assert len(asked) <= 2  # not one time-out for each packet
    finally:
        os.rename(f"{path}.former", path)
