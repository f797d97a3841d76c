"""When servers and clients end, whoever lets go of them last."""

from __future__ import annotations

import os
import threading

from tests.support import wait_until
from visionipc import VisionIpcClient, VisionIpcServer, wire
from visionipc.impl.memory import Region, View
from visionipc.listener import Answer, Request


def test_a_server_whose_last_user_is_its_own_answer_is_closed(name):
    asked, go_on = threading.Event(), threading.Event()

    class Slow(VisionIpcServer):
        def _answer(self, request: Request) -> Answer | None:
            asked.set()
            go_on.wait(10)
            return super()._answer(request)

    server = Slow(name)
    server.create_buffers(0, 2, 8, 8)
    server.start_listener()
    listener = server._listener
    client = threading.Thread(target=VisionIpcClient.available_streams, args=(name, False))
    client.start()
    assert asked.wait(10)
    del server
    go_on.set()
    client.join()
    wait_until(lambda: not listener._thread.is_alive())
    assert not os.path.exists(wire.socket_path(name))
    VisionIpcServer(name).start_listener()


def test_memory_that_a_stock_server_makes_smaller_does_not_kill():
    """Zeros come instead, and whoever asks is told: frame 0 must not pass for valid because its id is 0 as well."""
    fd = os.memfd_create("frame")
    try:
        os.ftruncate(fd, 1 << 16)
        os.pwrite(fd, b"\7" * 8, (1 << 16) - 8)
        region = Region(fd, 1 << 16, False, "frames")
        view = memoryview(View(region, 1 << 15, False))
        assert region.read_u64((1 << 16) - 8) == int.from_bytes(b"\7" * 8)
        assert not region.lost
        os.ftruncate(fd, 0)
        assert region.read_u64((1 << 16) - 8) == 0
        assert region.lost
        assert not any(view)
    finally:
        os.close(fd)
