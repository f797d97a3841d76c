"""When servers and clients end, whoever lets go of them last."""

from __future__ import annotations

import gc
import os
import struct
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from msgq.impl.base.core import DescriptorMapping, MappedView
from tests.support import DEADLINE, in_fork, wait_until
from visionipc import VisionIpcClient, VisionIpcServer, memfd, wire
from visionipc.impl.core import LEASE_BUFFERS_MAX, LEASE_TABLE_BYTES, ClientLeases, IncomingStream
from visionipc.listener import Answer, Request


def test_server_referenced_only_by_answer_thread_is_closed(name: Any) -> None:
    asked, go_on = threading.Event(), threading.Event()

    class Slow(VisionIpcServer):
        def _answer_request(self, request: Request) -> Answer | None:
            asked.set()
            go_on.wait(10)
            return super()._answer_request(request)

    server = Slow(name)
    server.create_buffers(0, 2, 8, 8)
    server.start_listener()
    listener = server._listener
    assert listener is not None
    client = threading.Thread(target=VisionIpcClient.available_streams, args=(name, False))
    client.start()
    assert asked.wait(DEADLINE)
    del server
    go_on.set()
    client.join()
    wait_until(lambda: not listener._thread.is_alive())
    assert not os.path.exists(wire.socket_path(name))
    VisionIpcServer(name).start_listener()


def test_shrunk_memory_of_stock_server_reads_as_zeros() -> None:
    """Zeros come instead, and whoever asks is told: frame 0 must not pass for valid because its id is 0 as well."""
    fd = os.memfd_create("frame")
    try:
        os.ftruncate(fd, 1 << 16)
        os.pwrite(fd, b"\7" * 8, (1 << 16) - 8)
        region = DescriptorMapping(fd, 1 << 16, False, "frames")
        view = memoryview(MappedView(region, 1 << 15, False))
        assert region.read_u64((1 << 16) - 8) == int.from_bytes(b"\7" * 8)
        assert not region.lost
        os.ftruncate(fd, 0)
        assert region.read_u64((1 << 16) - 8) == 0
        assert region.lost
        assert not any(view)
    finally:
        os.close(fd)


def test_garbage_cycle_of_frame_and_client_returns_lease() -> None:
    """The lease is returned into memory that the client has mapped, in whatever order the collector takes them."""
    table, buffer = os.memfd_create("table"), os.memfd_create("buffer")
    generation, row = 7, 4 * LEASE_BUFFERS_MAX + 64

    def child() -> None:
        gc.disable()
        leases = ClientLeases(DescriptorMapping(table, LEASE_TABLE_BYTES, True, "frames"), table, 0, 0, "frames")
        record: Any = SimpleNamespace(server_id=5, geometry=SimpleNamespace(size=100))
        incoming = IncomingStream([record], [DescriptorMapping(buffer, 4096, False, "frames")], [buffer], leases)
        packet = wire.FRAME_PACKET_STRUCT.pack(5, 0, 0, generation, 0, 0, True)
        garbage: list[Any] = [incoming.take(packet), incoming]
        assert struct.unpack("8xI", os.pread(table, 12, row)) == (generation,)
        garbage.append(garbage)
        del leases, incoming, garbage
        gc.collect()

    try:
        os.ftruncate(table, LEASE_TABLE_BYTES)
        os.ftruncate(buffer, 4096)
        os.pwrite(table, struct.pack("I", generation), 0)
        assert in_fork(child) == 0
        assert struct.unpack("8xI", os.pread(table, 12, row)) == (0,)
    finally:
        os.close(table)
        os.close(buffer)


def test_signal_during_allocation_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    def interrupt(fd: int, size: int) -> None:
        assert token in os.readlink(f"/proc/self/fd/{fd}")
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "ftruncate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        memfd.create_memfd(token, 4096, "frames")
    files = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert not [path for path in files if token in path]
