"""Frames from a server to clients: what is promised of buffers, leases, time-outs, ends and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import mmap
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq import errors
from msgq.visionipc import (
    FrameFormat,
    OutgoingFrame,
    VisionBuf,
    VisionIpcClient,
    VisionIpcServer,
    VisionStreamType,
    get_endpoint_name,
)
from tests.support import DEADLINE_MS, Child, Task, say, signal_when_asleep, wait_until
from tests.unit import liveness_children
from tests.visionipc.conftest import ALL_BUFFERS, BUFFERS, HEIGHT, SOCKETS, WIDTH
from visionipc import ClientStats, memfd
from visionipc.memfd import is_allocated
from visionipc.server import SPARE_BUFFERS

SIZE = WIDTH * HEIGHT * 3 // 2


def publish(server: VisionIpcServer, value: int, kind: int = 0) -> bool:
    """Send a frame whose bytes all are `value`; False: it was dropped."""
    with server.frame(kind) as frame:
        frame.array[:] = value
    return not frame.dropped


def receive(client: VisionIpcClient) -> VisionBuf:
    frame = client.recv(DEADLINE_MS)
    assert frame is not None
    return frame


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


# ---- stock's API ----


def test_client_receives_sent_frames(server: Any, connect: Any) -> None:
    client = connect()
    data = np.arange(SIZE, dtype=np.uint8)
    assert server.send(0, data, 7, 100, 200)
    frame = receive(client)
    assert (frame.array == data).all()
    assert (frame.frame_id, frame.timestamp_sof, frame.timestamp_eof) == (7, 100, 200)
    assert (client.frame_id, client.timestamp_sof, client.timestamp_eof, client.valid) == (7, 100, 200, True)
    assert (frame.width, frame.height, frame.stride, frame.uv_offset) == (WIDTH, HEIGHT, WIDTH, WIDTH * HEIGHT)
    assert (client.width, client.height, client.stride, client.uv_offset) == (WIDTH, HEIGHT, WIDTH, WIDTH * HEIGHT)
    assert (client.buffer_len, client.num_buffers) == (SIZE, BUFFERS)
    assert 0 <= frame.idx < 4
    assert os.fstat(frame.fd).st_size == SIZE + 8
    assert frame.valid()


def test_frame_layout_with_gaps_is_kept(server: Any, connect: Any) -> None:
    server.create_buffers_with_sizes(1, 2, 60, 40, 64 * 64 * 2, 64, 64 * 44)
    client = connect(1)
    with server.frame(1) as frame:
        luma, chroma = frame.planes
        luma[:], chroma[:, :, 0], chroma[:, :, 1] = 1, 2, 3
    frame = receive(client)
    data = frame.array.reshape(-1, 64)
    assert (data[:40, :60] == 1).all()
    assert (data[44:64, 0:60:2] == 2).all()
    assert (data[44:64, 1:60:2] == 3).all()
    assert (data[:40, 60:] == 0).all()
    with pytest.raises(errors.InvalidValueError, match="planes"):
        frame.image  # noqa: B018


def test_client_before_connection_receives_none(name: Any) -> None:
    """As stock's: programs look at these, and receive, while their server is still starting."""
    with VisionIpcServer(name) as server, VisionIpcClient(name, 0, False) as client:
        assert not client.connect(False)
        assert [client.width, client.height, client.stride, client.uv_offset] == [None] * 4
        assert (client.buffer_len, client.format, client.num_buffers) == (None, None, 0)
        server.create_buffers(0, 2, WIDTH, HEIGHT)
        server.start_listener()
        with VisionIpcClient(name, 0, False) as never:
            assert (never.width, never.num_buffers) == (None, 0)
            publish(server, 1)
            started = time.monotonic()
            assert never.recv(30) is None
            assert time.monotonic() - started >= 0.03
            assert never.recv(0) is None
            assert not never.is_connected()
            with pytest.raises(errors.WaitTimeoutError):
                never.frame(1)
            with pytest.raises(errors.InvalidValueError):
                never.recv(-2)
            with pytest.raises(errors.EndpointClosedError, match="not connected"):
                never.recv(-1)
            waiting = Task(never.recv, 1e6)
            waiting.wait_asleep()
        with pytest.raises(errors.EndpointClosedError, match="closed"):
            waiting.result()
        assert client.connect(False)
        assert (client.width, client.num_buffers) == (WIDTH, 2)


def test_connect_to_missing_stream_returns_false(server: Any, name: Any) -> None:
    with VisionIpcClient(name, 3, False) as client:
        assert client.connect(False) is False
        assert (client.num_buffers, client.width, client.is_connected()) == (0, None, False)
        server.create_buffers(3, 2, 8, 4)
        assert client.connect(False) is True
        assert (client.num_buffers, client.width) == (2, 8)


def test_reconnect_to_removed_stream_returns_false(name: Any) -> None:
    with VisionIpcClient(name, 0, False) as client:
        for kinds, found in (([0], True), ([1], False), ([0, 1], True)):
            with VisionIpcServer(name) as server:
                for kind in kinds:
                    server.create_buffers(kind, 2, WIDTH, HEIGHT)
                server.start_listener()
                assert client.connect(False) is found
                assert client.num_buffers == found * 2


def test_stock_keywords_are_accepted(name: Any) -> None:
    make_server: Any = VisionIpcServer  # type checkers know our spelling only
    make_client: Any = VisionIpcClient
    with make_server(name=name) as server, make_client(name=name, stream=1, conflate=False) as client:
        server.create_buffers(tp=0, num_buffers=3, width=WIDTH, height=HEIGHT)
        server.create_buffers_with_sizes(
            tp=1, num_buffers=2, width=8, height=4, size=16 * 6, stride=16, uv_offset=16 * 4
        )
        server.start_listener()
        assert client.connect(blocking=True)
        data = bytes(range(96))
        assert server.send(tp=1, data=data, frame_id=3, timestamp_sof=4, timestamp_eof=5)
        with client.frame(timeout_ms=DEADLINE_MS) as frame:
            assert (frame.data.tobytes(), frame.frame_id) == (data, 3)
            assert (frame.array.tobytes(), frame.array.flags.writeable) == (data, False)
        assert VisionIpcClient.available_streams(name=name, block=False) == {0, 1}
        assert server.stats(type=0).buffers == 3
        server.create_buffers(type=0, num=2, width=WIDTH, height=HEIGHT)
        with pytest.raises(TypeError, match="'type' twice, once as 'tp'"):
            server.send(type=1, tp=1, data=data)
        with pytest.raises(TypeError, match="'type' twice"):
            make_client(name, type=1, stream=1, conflate=False)
        with pytest.raises(TypeError, match="multiple values"):
            server.send(1, data, tp=1)


def test_opencl_keyword_other_than_none_is_refused(name: Any) -> None:
    make_client: Any = VisionIpcClient  # type checkers know our spelling only
    make_client(name, 0, False, None).close()
    make_client(name, stream=0, conflate=False, context=None).close()
    with pytest.raises(errors.InvalidValueError, match="OpenCL is not supported"):
        make_client(name, 0, False, object())


def test_stream_types_have_stock_numbers() -> None:
    names = [f"VISION_STREAM_{name}" for name in ("ROAD", "DRIVER", "WIDE_ROAD", "MAP")]
    assert {kind.name: kind.value for kind in VisionStreamType} == {name: i for i, name in enumerate(names)}


IMPORTED_BY_A_FRAME = """
import sys
from visionipc import VisionIpcClient, VisionIpcServer
assert "numpy" not in sys.modules
with VisionIpcServer(sys.argv[1]) as server, VisionIpcClient(sys.argv[1], 0, False) as client:
    server.create_buffers(0, 2, 64, 48)
    server.start_listener()
    client.connect(True)
    before = set(sys.modules)
    server.send(0, bytes(64 * 48 * 3 // 2))
    frame = client.recv(10_000)
    frame.array, frame.image, frame.planes
    print(*set(sys.modules) - before)
"""


def test_first_frame_imports_no_module(name: Any) -> None:
    """NumPy's import takes as long as some frames, which a client would lose at its first one."""
    done = subprocess.run([sys.executable, "-c", IMPORTED_BY_A_FRAME, name], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_endpoint_name_contains_server_and_stream(name: Any) -> None:
    assert get_endpoint_name("camerad", 2) == "visionipc_camerad_2"
    with pytest.raises(errors.EndpointNameError):
        VisionIpcServer("a/b")
    with pytest.raises(errors.EndpointNameError, match="shorten"):
        VisionIpcServer("n" * 100)


def test_connect_without_server_returns_false(name: Any) -> None:
    client = VisionIpcClient(name, 0, False)
    assert not client.connect(False)
    assert not client.is_connected()
    assert VisionIpcClient.available_streams(name, False) == set()
    client.close()
    with pytest.raises(errors.EndpointClosedError):
        client.recv(0)


def test_available_streams_lists_streams_of_server(server: Any, name: Any) -> None:
    server.create_buffers(5, 1, 2, 2)
    assert VisionIpcClient.available_streams(name, True) == {0, 5}


def test_connect_to_unknown_stream_fails(server: Any, name: Any, connect: Any) -> None:
    client = VisionIpcClient(name, 3, False)
    with pytest.raises(errors.StreamNotFoundError, match=r"\[0\]"):
        client.connect(True)
    client.close()
    with pytest.raises(errors.StreamNotFoundError):
        server.send(3, b"")


def test_recv_without_frame_returns_none(server: Any, connect: Any) -> None:
    client = connect()
    assert client.recv(0) is None
    started = time.monotonic()
    assert client.recv(30) is None
    assert time.monotonic() - started >= 0.03
    with pytest.raises(errors.WaitTimeoutError):
        client.frame(1)


def test_send_with_wrong_size_raises_message_size_error(server: Any) -> None:
    with pytest.raises(errors.MessageSizeError, match=str(SIZE)):
        server.send(0, b"too short")
    assert server.send(0, bytes(SIZE))  # and the buffer is free again


@pytest.mark.needs_shm(80 << 20)
def test_server_with_64_streams_serves_all(name: Any) -> None:
    with VisionIpcServer(name) as server:
        for kind in range(64):
            server.create_buffers(kind, 1, 2, 2)
        with pytest.raises(errors.InvalidValueError, match="64"):
            server.create_buffers(64, 1, 2, 2)
        server.start_listener()
        assert VisionIpcClient.available_streams(name, False) == set(range(64))
        with VisionIpcClient(name, 63, False) as client:
            client.connect(True)
            publish(server, 9, 63)
            assert receive(client).array[0] == 9


@pytest.mark.parametrize("count", [0, 129, -1])
def test_impossible_buffer_count_is_refused(server: Any, count: Any) -> None:
    with pytest.raises(errors.InvalidValueError):
        server.create_buffers(1, count, 2, 2)


def test_stream_with_128_buffers_works(server: Any, connect: Any) -> None:
    server.create_buffers(1, 128, 2, 2)
    client = connect(1)
    assert client.num_buffers == 128
    held = []
    for value in range(128):
        publish(server, value, 1)
        held.append(receive(client))
    assert [frame.array[0] for frame in held] == list(range(128))
    assert not publish(server, 0, 1)


# ---- views ----


@pytest.mark.parametrize(
    ("pixels", "channels", "shape", "dtype"),
    [
        (FrameFormat.NV12, 1, (72, 64), np.uint8),
        (FrameFormat.YUV420P, 1, (72, 64), np.uint8),
        (FrameFormat.RGB24, 1, (48, 64, 3), np.uint8),
        (FrameFormat.BGR24, 1, (48, 64, 3), np.uint8),
        (FrameFormat.RGBA, 1, (48, 64, 4), np.uint8),
        (FrameFormat.GRAY8, 1, (48, 64), np.uint8),
        (FrameFormat.GRAY16, 1, (48, 64), np.uint16),
        (FrameFormat.BAYER8, 1, (48, 64), np.uint8),
        (FrameFormat.FLOAT32, 5, (48, 64, 5), np.float32),
    ],
)
def test_all_frame_formats_are_transferred(
    server: Any, connect: Any, pixels: Any, channels: Any, shape: Any, dtype: Any
) -> None:
    server.create_buffers(1, 2, 64, 48, pixels, channels)
    client = connect(1)
    picture = np.random.default_rng(1).integers(0, 255, shape).astype(dtype)
    with server.frame(1) as frame:
        assert frame.image.flags.writeable
        frame.image[:] = picture
    frame = receive(client)
    assert client.format == frame.format == pixels
    assert frame.image.dtype == dtype
    assert (frame.image == picture).all()
    assert not frame.image.flags.writeable


def test_raw_frames_are_transferred(server: Any, connect: Any) -> None:
    server.create_buffers(1, 2, 100_000, 1, FrameFormat.RAW)
    client = connect(1)
    server.send(1, bytes(range(250)) * 400)
    assert receive(client).image.tobytes() == bytes(range(250)) * 400


def test_yuv420p_frame_has_three_planes(server: Any, connect: Any) -> None:
    server.create_buffers(1, 2, 4, 2, FrameFormat.YUV420P)
    client = connect(1)
    server.send(1, bytes(range(12)))
    y, u, v = receive(client).planes
    assert (y.tolist(), u.tolist(), v.tolist()) == ([[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9]], [[10, 11]])


def test_frame_views_are_read_only(server: Any, connect: Any) -> None:
    client = connect()
    publish(server, 1)
    frame = receive(client)
    with pytest.raises(ValueError, match="read-only"):
        frame.array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        frame.array.flags.writeable = True
    with pytest.raises((BufferError, TypeError), match=r"not writable|read-write"):
        os.readv(0, [frame.data])
    with pytest.raises(PermissionError):
        mmap.mmap(frame.fd, SIZE, prot=mmap.PROT_WRITE | mmap.PROT_READ)


def test_frame_view_stays_readable_after_server_and_client_close(name: Any) -> None:
    server = VisionIpcServer(name)
    server.create_buffers(0, 2, WIDTH, HEIGHT)
    server.start_listener()
    client = VisionIpcClient(name, 0, False)
    client.connect(True)
    publish(server, 42)
    row = receive(client).image[3, 5:9]
    client.close()
    server.close()
    del client, server
    gc.collect()
    assert row.tolist() == [42] * 4


def test_released_frame_has_no_data(server: Any, connect: Any) -> None:
    client = connect()
    publish(server, 1)
    with client.frame(DEADLINE_MS) as frame:
        kept = frame.array
    with pytest.raises(errors.EndpointClosedError, match="released"):
        frame.image  # noqa: B018
    with pytest.raises(errors.EndpointClosedError, match="released"):
        frame.data  # noqa: B018
    assert server.stats(0).held == 1
    assert kept[0] == 1
    del kept
    assert server.stats(0).held == 0


# ---- leases ----


def test_held_frame_is_not_overwritten(server: Any, connect: Any) -> None:
    client = connect()
    publish(server, 100)
    held = receive(client)
    for value in range(20):
        assert publish(server, value)
        assert receive(client).array[0] == value
    assert (held.array == 100).all()
    assert held.valid()
    assert client.lost == 0


def test_server_with_all_buffers_held_counts_drops(server: Any, connect: Any) -> None:
    client = connect()
    held = []
    for value in range(ALL_BUFFERS):
        publish(server, value)
        held.append(receive(client))
    assert not publish(server, 50)
    assert server.send(0, bytes(SIZE)) is False
    with pytest.raises(errors.MessageSizeError):
        server.send(0, b"too short")
    stats = server.stats(0)
    assert (stats.held, stats.published, stats.dropped) == (ALL_BUFFERS, ALL_BUFFERS, 2)
    assert (client.lost, client.dropped) == (0, 2)
    assert [frame.array[0] for frame in held] == list(range(ALL_BUFFERS))
    held.pop(1)
    assert publish(server, 60)
    assert receive(client).array[0] == 60


@pytest.fixture
def one_buffer(name: str) -> Iterator[VisionIpcServer]:
    """A server whose stream 0 has one buffer, as stock's test helper makes it."""
    with VisionIpcServer(name) as made:
        made.create_buffers(0, 1, WIDTH, HEIGHT)
        made.start_listener()
        yield made


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_stream_with_one_buffer_serves_clients_that_hold_frames(one_buffer: Any, connect: Any, clients: int) -> None:
    """`while True: frame = client.recv()` holds the previous frame until the next one is there."""
    readers = [connect() for _ in range(clients)]
    held: list[Any] = [None] * clients
    for value in range(200):
        assert publish(one_buffer, value)
        for index, reader in enumerate(readers):
            held[index] = reader.recv(0)
            assert held[index].array[0] == value
    assert [(reader.lost, reader.dropped) for reader in readers] == [(0, 0)] * clients


def test_clients_that_keep_frames_do_not_block_other_clients(one_buffer: Any, connect: Any) -> None:
    kept = []
    for value, keeper in enumerate([connect() for _ in range(SPARE_BUFFERS)]):
        publish(one_buffer, value)
        for _ in range(value):
            keeper.recv(0)  # skips the frame
        kept.append(keeper.recv(0))
    reader = connect()
    for value in range(20):
        assert publish(one_buffer, value)
        with reader.frame(0) as frame:
            assert frame.array[0] == value
    assert reader.lost == 0
    assert [frame.array[0] for frame in kept] == list(range(SPARE_BUFFERS))


def test_spare_buffer_gets_memory_when_all_other_buffers_are_held(server: Any, connect: Any) -> None:
    client, held = connect(), []
    for value in range(2 * BUFFERS):
        publish(server, value)
        receive(client)
    assert server.stats(0).buffers == BUFFERS
    assert [is_allocated(fd, SIZE) for fd in client._stream.fds] == [True] * BUFFERS + [False] * SPARE_BUFFERS
    for value in range(BUFFERS + 1):
        publish(server, value)
        held.append(receive(client))
    assert server.stats(0).buffers == BUFFERS + 1
    assert held[-1].idx == BUFFERS


def test_client_stats_count_losses_and_connections(server: Any, connect: Any) -> None:
    client = connect()
    publish(server, 1)
    assert receive(client) is not None
    assert client.stats() == ClientStats(0, 0, 1, client.num_buffers)
    client.close()
    assert client.stats().buffers == 0


def test_spare_buffer_without_memory_drops_frame(server: Any, connect: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(memfd, "allocate", lambda _: False)
    client, held = connect(), []
    for value in range(BUFFERS):
        publish(server, value)
        held.append(receive(client))
    assert not publish(server, 50)
    assert (server.stats(0).dropped, client.dropped) == (1, 1)


def test_publish_while_another_thread_adds_spare_buffer_raises_concurrent_use(
    server: Any, connect: Any, monkeypatch: Any
) -> None:
    client, held, before = connect(), [], memfd.allocate

    def allocate(fd: int) -> bool:
        monkeypatch.setattr(memfd, "allocate", before)
        with pytest.raises(errors.ConcurrentUseError):
            Task(publish, server, 1).result()
        raise KeyboardInterrupt

    for value in range(BUFFERS):
        publish(server, value)
        held.append(receive(client))
    monkeypatch.setattr(memfd, "allocate", allocate)
    with pytest.raises(KeyboardInterrupt):
        publish(server, 1)
    assert publish(server, 1)
    assert server.stats(0).buffers == BUFFERS + 1


def test_new_client_after_stream_restart_has_zero_dropped_frames(server: Any, connect: Any) -> None:
    client = connect()
    for life in (1, 2):
        held = []
        for value in range(ALL_BUFFERS):
            publish(server, value)
            held.append(receive(client))
        assert not publish(server, 50)
        assert client.dropped == life
        server.create_buffers(0, BUFFERS, WIDTH, HEIGHT)
    late = connect()
    assert publish(server, 60)
    assert receive(late).array[0] == receive(client).array[0] == 60
    assert (client.dropped, late.dropped) == (2, 0)
    client.close()
    assert client.dropped == 2


def test_two_clients_may_hold_the_same_frame(server: Any, connect: Any) -> None:
    first, second = connect(), connect()
    publish(server, 1)
    left, right = receive(first), receive(second)
    del left
    assert server.stats(0).held == 1
    for value in range(10):
        publish(server, value)
    assert right.array[0] == 1
    assert sorted(server.stats(0).clients) == [os.getpid()] * 2


def test_slow_client_continues_at_newest_position(server: Any, connect: Any) -> None:
    client = connect()
    for value in range(100):
        publish(server, value)
    frame = receive(client)
    assert frame.array[0] == 99
    assert client.lost == 99


def test_conflating_client_receives_newest_frame(server: Any, connect: Any) -> None:
    client = connect(conflate=True)
    for value in range(3):
        publish(server, value)
    assert receive(client).array[0] == 2
    assert client.recv(0) is None
    assert client.lost == 2


def hold(name: str, then: Callable[[], object] = signal.pause) -> int:
    """Child: hold every buffer of the stream until killed, or until `then` ends."""
    client = VisionIpcClient(name, 0, False)
    client.connect(True)
    say("connected")
    held = [receive(client) for _ in range(ALL_BUFFERS)]
    say("holding")
    then()
    return len(held)


def holds(server: VisionIpcServer, buffers: int) -> bool:
    return server.stats(0).held == buffers


def publish_until_all_are_held(server: VisionIpcServer) -> None:
    """Publish each frame after the client holds the previous one."""
    for held in range(ALL_BUFFERS):
        wait_until(functools.partial(holds, server, held))
        publish(server, held)


def test_leases_of_killed_client_are_reclaimed(server: Any, name: Any) -> None:
    with Child(hold, name) as child:
        assert child.hear() == "connected"
        publish_until_all_are_held(server)
        assert child.hear() == "holding"
        assert not publish(server, 5)
        assert server.stats(0).clients == [child.pid]
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: publish(server, 6))
        assert (server.stats(0).held, server.stats(0).taken_back, server.stats(0).clients) == (0, 1, [])


def hold_in_namespace(kind: int, name: str) -> None:
    """Child: the same in another namespace."""
    liveness_children.run_in_namespace(kind, lambda: hold(name))


def hold_and_exec(name: str) -> None:
    """Child: hold every buffer, then become another program."""
    hold(name, liveness_children.exec_into_sleep)


def test_leases_of_client_after_exec_are_reclaimed(server: Any, name: Any) -> None:
    """It keeps its pid and its start time, and nothing else."""
    with Child(hold_and_exec, name) as child:
        assert child.hear() == "connected"
        publish_until_all_are_held(server)
        assert child.hear() == "holding"
        assert not publish(server, 5)
        child.say()
        assert child.hear() == "another program"
        wait_until(lambda: publish(server, 6))
        assert (server.stats(0).held, server.stats(0).taken_back, server.stats(0).clients) == (0, 1, [])


@pytest.mark.parametrize("kind", [liveness_children.PID, liveness_children.TIME], ids=["pid", "time"])
def test_leases_of_client_in_other_pid_namespace_are_reclaimed(server: Any, name: Any, kind: Any) -> None:
    with Child(hold_in_namespace, kind, name) as child:
        if (pid := child.hear()) == "not permitted":
            pytest.skip("needs the right to make namespaces")
        assert child.hear() == "connected"
        publish_until_all_are_held(server)
        assert child.hear() == "holding"
        assert not publish(server, 5)
        assert server.stats(0).clients == [pid]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: publish(server, 6))
        assert (server.stats(0).held, server.stats(0).taken_back, server.stats(0).clients) == (0, 1, [])


def test_rows_of_closed_clients_are_reused(server: Any, name: Any, connect: Any) -> None:
    for _ in range(300):
        with VisionIpcClient(name, 0, False) as client:
            client.connect(False)
    del client
    assert server.stats(0).clients == []
    last = connect()
    publish(server, 3)
    assert receive(last).array[0] == 3


def test_held_frame_keeps_client_row(server: Any, name: Any) -> None:
    client = VisionIpcClient(name, 0, False)
    client.connect(True)
    publish(server, 8)
    held = receive(client)
    client.close()
    del client
    for value in range(10):
        publish(server, value)
    assert (held.array == 8).all()
    assert server.stats(0).held == 1
    del held
    assert (server.stats(0).held, server.stats(0).clients) == (0, [])


def test_server_with_256_clients_refuses_next_client(server: Any, name: Any, connect: Any) -> None:
    crowd = []
    for _ in range(256):
        client = VisionIpcClient(name, 0, False)
        assert client._open_stream()  # without a subscriber each: descriptors are not the point
        crowd.append(client)
    late = VisionIpcClient(name, 0, False)
    with pytest.raises(errors.IpcError, match="256 clients"):
        late._open_stream()
    del client
    crowd.pop()
    assert late._open_stream()


# ---- rendering ----


def test_exception_in_frame_block_publishes_no_frame(server: Any, connect: Any) -> None:
    client = connect()
    with contextlib.suppress(ZeroDivisionError), server.frame(0) as frame:
        frame.array[:] = 1
        raise ZeroDivisionError
    assert client.recv(0) is None
    publish(server, 2)
    assert receive(client).array[0] == 2


def test_second_frame_block_raises_concurrent_use_error(server: Any) -> None:
    with server.frame(0), pytest.raises(errors.ConcurrentUseError), server.frame(0):
        pass
    with server.frame(0) as frame:
        pass
    with pytest.raises(errors.EndpointClosedError, match="with block"):
        frame.image  # noqa: B018


def test_frame_times_are_transferred(server: Any, connect: Any) -> None:
    client = connect()
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    with server.frame(0) as frame:
        pass
    with server.frame(0) as frame:
        frame.frame_id, frame.timestamp_sof, frame.timestamp_eof, frame.valid = 9, 8, 7, False
    first, second = receive(client), receive(client)
    assert first.frame_id == 0
    assert before < first.timestamp_sof <= first.timestamp_eof <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert (second.frame_id, second.timestamp_sof, second.timestamp_eof, client.valid) == (9, 8, 7, False)


def test_frame_values_are_sent_as_read_and_set_in_block(server: Any, connect: Any) -> None:
    """The defaults exist as Python numbers only if a program reads them."""
    client = connect()
    with server.frame(0) as frame:
        read = frame.frame_id, frame.timestamp_sof, frame.timestamp_eof
        frame.timestamp_eof = 7
    sent = receive(client)
    assert read == (0, sent.timestamp_sof, 0)
    assert (sent.frame_id, sent.timestamp_eof, frame.timestamp_eof) == (0, 7, 7)
    with server.frame(0) as frame:
        frame.timestamp_sof = 5
    sent = receive(client)
    assert (sent.frame_id, sent.timestamp_sof, frame.frame_id) == (1, 5, 1)
    assert sent.timestamp_eof > 7


def test_frame_objects_start_without_values_of_earlier_frames(server: Any, connect: Any) -> None:
    """The memory of deleted frames is used again."""
    client = connect()
    for number in range(1, 20):
        with server.frame(0) as frame:
            frame.frame_id, frame.timestamp_sof, frame.timestamp_eof, frame.valid = 9, 8, 7, False
        del frame
        receive(client)
        fresh = server.frame(0)
        assert (fresh.frame_id, fresh.timestamp_sof, fresh.valid, fresh.dropped) == (None, None, True, False)
        with pytest.raises(errors.EndpointClosedError, match="with block"):
            _ = fresh.data
        with fresh:
            assert (fresh.frame_id, fresh.timestamp_eof) == (2 * number - 1, 0)
        assert receive(client).valid_frame
        del fresh


@pytest.mark.parametrize("frame_id", [-1, 1 << 32])
def test_frame_id_above_32_bits_is_refused(server: Any, frame_id: Any) -> None:
    with pytest.raises(errors.InvalidValueError, match="32 bits"):
        server.send(0, bytes(SIZE), frame_id)
    assert server.send(0, bytes(SIZE), (1 << 32) - 1)


def test_huge_pages_are_used_or_raise_error(server: Any, connect: Any) -> None:
    free = int(Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").read_text())
    if free < 2:
        with pytest.raises(errors.SegmentError, match="huge"):
            server.create_buffers(1, 2, WIDTH, HEIGHT, huge_pages=True)
        return
    server.create_buffers(1, 2, WIDTH, HEIGHT, huge_pages=True)
    client = connect(1)
    publish(server, 5, 1)
    assert receive(client).array[0] == 5


def test_frame_block_can_be_entered_once(server: Any, connect: Any) -> None:
    client = connect()
    frame = server.frame(0)
    with frame:
        frame.array[:] = 7
        with pytest.raises(errors.ConcurrentUseError, match="another with block"), frame:
            pass
    with pytest.raises(errors.ConcurrentUseError, match="another with block"), frame:
        pass
    assert server.stats(0).published == 1
    publish(server, 8)
    assert [receive(client).array[0] for _ in range(2)] == [7, 8]


def test_frame_block_exit_without_enter_is_refused(server: Any) -> None:
    """Else a buffer would go out that clients may hold."""
    frame = server.frame(0)
    with pytest.raises(errors.StateError, match="not entered"):
        frame.__exit__(None, None, None)
    with frame:
        pass
    with pytest.raises(errors.StateError, match="has ended"):
        frame.__exit__(None, None, None)
    assert server.stats(0).published == 1


@pytest.mark.parametrize("attribute", ["valid", "timestamp_eof", "frame_id"])
def test_unsendable_value_discards_only_its_frame(server: Any, attribute: str) -> None:
    with pytest.raises((ValueError, TypeError)), server.frame(0) as frame:
        setattr(frame, attribute, np.array([1, 2]))
    with pytest.raises((ValueError, TypeError)):
        server.send(0, bytes(SIZE), np.array([1, 2]))
    publish(server, 8)
    assert server.stats(0).published == 1


def test_outgoing_frame_without_server_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"VisionIpcServer\.frame"):
        OutgoingFrame()
    with pytest.raises(TypeError, match=r"VisionIpcServer\.frame"), OutgoingFrame.__new__(OutgoingFrame):
        pass
    with pytest.raises(errors.EndpointClosedError, match="with block"):
        _ = OutgoingFrame.__new__(OutgoingFrame).image

    class Bare(OutgoingFrame):
        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError, match=r"VisionIpcServer\.frame"), Bare():
        pass


def test_server_with_failing_stream_lookup_raises_error(name: str) -> None:
    class Blind(VisionIpcServer):
        def _stream(self, kind: int) -> Any:
            return None

    with Blind(name) as server, pytest.raises(TypeError):
        server.frame(0)


# ---- restarts ----


def test_failed_buffer_creation_keeps_previous_buffers(server: Any, connect: Any) -> None:
    client = connect()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(errors.SegmentError, match="cannot allocate"):
            server.create_buffers(0, 2, 2048, 2048)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    publish(server, 3)
    assert receive(client).array[0] == 3
    assert client.connections == 1


def test_client_follows_recreated_stream(server: Any, connect: Any) -> None:
    client = connect()
    publish(server, 1)
    held = receive(client)
    server.create_buffers(0, 3, 32, 24, FrameFormat.GRAY8)
    publish(server, 2)
    frame = receive(client)
    assert (frame.image.shape, client.num_buffers, client.connections) == ((24, 32), 3, 2)
    assert (held.array == 1).all()


def test_client_follows_restarted_server(name: Any) -> None:
    client = VisionIpcClient(name, 0, False)
    for life in range(3):
        with VisionIpcServer(name) as server:
            server.create_buffers(0, 2 + life, WIDTH, HEIGHT)
            server.start_listener()
            if life == 0:
                client.connect(True)
            publish(server, life)
            assert receive(client).array[0] == life
            assert (client.connections, client.num_buffers) == (life + 1, 2 + life)
    client.close()


def test_frames_before_listener_start_are_counted(name: Any) -> None:
    client = VisionIpcClient(name, 0, False)
    with VisionIpcServer(name) as server:
        server.create_buffers(0, 2, WIDTH, HEIGHT)
        server.start_listener()
        client.connect(True)
    with VisionIpcServer(name) as server:
        server.create_buffers(0, 2, WIDTH, HEIGHT)
        publish(server, 1)
        assert client.recv(0) is None
        assert not client.is_connected()
        server.start_listener()
        publish(server, 2)
        assert receive(client).array[0] == 2
        assert client.lost == 1
    client.close()


def test_second_server_of_same_name_is_refused(server: Any, name: Any) -> None:
    rival = VisionIpcServer(name)
    with pytest.raises(errors.MultiplePublishersError, match=str(os.getpid())):
        rival.start_listener()
    rival.close()
    assert VisionIpcClient.available_streams(name, False) == {0}


def test_server_replaces_socket_of_dead_server(name: Any, prefix: str, connect: Any) -> None:
    path = SOCKETS / f"{prefix}_visionipc_{name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(path))
    with VisionIpcServer(name) as server:
        server.create_buffers(0, 2, WIDTH, HEIGHT)
        server.start_listener()
        connect()


def test_closed_server_refuses_calls(server: Any, name: Any) -> None:
    server.close()
    server.close()
    assert not VisionIpcClient(name, 0, False).connect(False)
    with pytest.raises(errors.EndpointClosedError):
        server.send(0, bytes(SIZE))
    with pytest.raises(errors.EndpointClosedError):
        server.create_buffers(1, 1, 2, 2)


def test_unreferenced_server_is_closed(name: Any) -> None:
    server = VisionIpcServer(name)
    server.create_buffers(0, 2, WIDTH, HEIGHT)
    server.start_listener()
    del server
    gc.collect()
    assert VisionIpcClient.available_streams(name, False) == set()


def test_closed_server_and_client_leave_no_descriptor(name: Any) -> None:
    def life() -> None:
        with VisionIpcServer(name) as server, VisionIpcClient(name, 0, False) as client:
            server.create_buffers(0, 4, WIDTH, HEIGHT)
            server.start_listener()
            client.connect(True)
            publish(server, 1)
            receive(client)

    life()
    before = descriptors()
    for _ in range(5):
        life()
    assert descriptors() == before


# ---- threads, forks, event loops ----


def test_blocking_connect_releases_gil(name: Any) -> None:
    client = VisionIpcClient(name, 0, False)
    task = Task(client.connect, True)
    with VisionIpcServer(name) as server:
        server.create_buffers(0, 2, WIDTH, HEIGHT)
        server.start_listener()
        assert task.result()
    client.close()


def test_signal_ends_blocking_connect(name: Any) -> None:
    client = VisionIpcClient(name, 0, False)

    def ring(*_: Any) -> None:
        raise InterruptedError("the bell")

    with signal_when_asleep(ring), pytest.raises(InterruptedError):
        client.connect(True)
    client.close()


def test_close_ends_wait_of_other_thread(server: Any, connect: Any) -> None:
    client = connect()
    task = Task(client.recv, -1)
    task.wait_asleep()
    client.close()
    with pytest.raises(errors.EndpointClosedError):
        task.result()


def test_forked_client_reconnects(server: Any, connect: Any) -> None:
    client = connect()
    publish(server, 1)
    held = receive(client)

    def child() -> None:
        nonlocal held
        del held  # does not give the parent's lease back
        publish_again.recv()
        assert receive(client).array[0] == 2
        assert client.connections == 2

    publish_again, go = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child()
            code = 0
        finally:
            os._exit(code)
    publish(server, 2)
    go.send(None)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert server.stats(0).held == 1
    assert receive(client).array[0] == 2
    assert held.array[0] == 1


def test_forked_child_does_not_keep_server_name(name: Any) -> None:
    server = VisionIpcServer(name)
    server.create_buffers(0, 2, WIDTH, HEIGHT)
    server.start_listener()
    ready, go = os.pipe()
    runs, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.write(told, b"!")
        os.read(ready, 1)
        os._exit(0)
    os.read(runs, 1)
    for end in (ready, runs, told):
        os.close(end)
    server.close()
    with VisionIpcServer(name) as successor:
        successor.create_buffers(0, 2, WIDTH, HEIGHT)
        successor.start_listener()
    os.close(go)
    os.waitpid(pid, 0)


def test_descriptors_in_unstarted_child_do_not_keep_server_name(name: Any) -> None:
    server = VisionIpcServer(name)
    server.create_buffers(0, 2, WIDTH, HEIGHT)
    server.start_listener()
    copies = [os.dup(int(fd)) for fd in descriptors() if os.path.exists(f"/proc/self/fd/{fd}")]
    server.close()
    with VisionIpcServer(name) as successor:
        successor.start_listener()
    for fd in copies:
        os.close(fd)


def test_asyncio_client_receives_frames(server: Any, connect: Any) -> None:
    client = connect()

    async def main() -> list[int]:
        seen = []
        publish(server, 1)
        async for frame in client:
            seen.append(int(frame.array[0]))
            if len(seen) == 3:
                return seen
            publish(server, len(seen) + 1)
        return seen

    assert asyncio.run(main()) == [1, 2, 3]


def test_poller_reports_frames(server: Any, connect: Any) -> None:
    client = connect()
    poller: msgq.Poller[tuple[Any, int]] = msgq.Poller()
    poller.register(client, msgq.POLLIN)
    assert dict(poller.poll(0)) == {}
    publish(server, 4)
    assert client in dict(poller.poll(DEADLINE_MS))
    assert receive(client).array[0] == 4
