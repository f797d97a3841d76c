"""Stock servers and clients of frames (`tests/stock/frames_peer.c`) with ours, both ways, restarts included."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from msgq.errors import MultiplePublishersError, StreamNotFoundError
from tests.stock.frames import SMALL, Layout, StockClient, StockFrame, StockServer, nv12, picture
from tests.support import DEADLINE_MS, wait_until
from tests.visionipc.conftest import mappings
from visionipc import FrameFormat, VisionIpcClient, VisionIpcServer, wire
from visionipc.server import SPARE_BUFFERS, with_spare

pytest_plugins = ("tests.stock.fixtures",)
PADDED = Layout(buffers=3, width=60, height=40, stride=64, uv_offset=64 * 48, size=64 * 48 * 2)
LAYOUTS = pytest.mark.parametrize("layout", [SMALL, PADDED], ids=["dense", "padded"])


@pytest.fixture
def name(prefix: str) -> Iterator[Any]:
    """A server of this test alone; stock servers leave their socket behind."""
    yield "camera"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(wire.socket_path("camera"))


class OurServer:
    """Ours with the face of a StockServer."""

    def __init__(self, name: str, streams: dict[int, Layout]) -> None:
        self.server = VisionIpcServer(name)
        self.streams = streams
        for kind, g in streams.items():
            self.server.create_buffers_with_sizes(kind, g.buffers, g.width, g.height, g.size, g.stride, g.uv_offset)
        self.server.start_listener()

    def publish(self, kind: int, first: int, count: int = 1) -> None:
        for i in range(first, first + count):
            assert self.server.send(kind, picture(i, self.streams[kind].size), i, 1000 * i, 2000 * i)

    def __enter__(self) -> OurServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()


def mapped(layout: Layout, kind: str = "msgq") -> Layout:
    """Return what a client maps of a stream: a server of ours adds spare buffers."""
    return dataclasses.replace(layout, buffers=with_spare(layout.buffers)) if kind == "msgq" else layout


SERVERS = {"msgq": OurServer, "stock": StockServer}


def connected(stack: Any, name: Any, kind: int = 0, **options: Any) -> Any:
    client = stack.enter_context(VisionIpcClient(name, kind, options.get("conflate", False)))
    assert client.connect(True)
    return client


def connected_stock(stack: Any, name: Any, kind: int = 0, conflate: bool = False) -> Any:
    client = stack.enter_context(StockClient(name, kind, conflate))
    assert client.connect().buffers
    return client


def expect(frame: Any, frame_id: Any, layout: Any) -> None:
    """The frame is the one that was sent, in every byte, whoever received it."""
    if isinstance(frame, StockFrame):
        assert frame.trailing == frame_id
        assert frame.valid == 1
        data = frame.data
    else:
        assert frame is not None, f"frame {frame_id} did not come"
        assert frame.valid()
        data = frame.data.tobytes()
    assert frame.frame_id == frame_id
    assert (frame.timestamp_sof, frame.timestamp_eof) == (1000 * frame_id, 2000 * frame_id)
    assert data == picture(frame_id, layout.size)


# ---- our server, stock's clients ----


@LAYOUTS
def test_stock_client_receives_frames_of_msgq_server(name: Any, stack: Any, layout: Any) -> None:
    server = stack.enter_context(OurServer(name, {5: layout}))
    client = stack.enter_context(StockClient(name, 5))
    assert client.connect() == mapped(layout)
    for frame_id in range(20):
        server.publish(5, frame_id)
        expect(client.receive(DEADLINE_MS), frame_id, layout)
    assert client.receive() == "nothing"


def test_stock_client_next_to_holding_client_receives_each_frame(name: Any, stack: Any) -> None:
    """With one buffer, as stock's test helper makes it."""
    layout = nv12(64, 48, buffers=1)
    server = stack.enter_context(OurServer(name, {0: layout}))
    ours, stock = connected(stack, name), connected_stock(stack, name)
    for frame_id in range(200):
        server.publish(0, frame_id)
        held = ours.recv(0)
        expect(held, frame_id, layout)
        expect(stock.receive(DEADLINE_MS), frame_id, layout)


def test_msgq_client_maps_all_buffers_before_first_frame(name: Any, stack: Any) -> None:
    """Page by page, at the first look at each buffer, it takes milliseconds of a large frame."""
    stack.enter_context(OurServer(name, {0: nv12(256, 256, 2)}))
    connected(stack, name)
    spare = [("r--s", 0)] * SPARE_BUFFERS, [("rw-s", 0)] * SPARE_BUFFERS
    assert mappings(100) == [*spare[0], *[("r--s", 100)] * 2, *spare[1], *[("rw-s", 100)] * 2]


def test_read_of_unallocated_stock_buffer_allocates_no_memory(name: Any, stack: Any) -> None:
    server = stack.enter_context(StockServer(name, {0: nv12(256, 320, 2)}))
    connected(stack, name)
    assert mappings(124) == [("r--s", 0)] * 2
    server.publish(0, 0, 2)
    connected(stack, name)
    assert mappings(124) == [("r--s", 0)] * 2 + [("r--s", 124)] * 2


def test_msgq_server_frame_wakes_stock_client(name: Any, stack: Any) -> None:
    server = stack.enter_context(OurServer(name, {0: SMALL}))
    client = connected_stock(stack, name)
    client.begin("receive", DEADLINE_MS)
    client.wait_asleep()
    server.publish(0, 7)
    assert client.reply()[:3] == ["frame", "0", "7"]


def test_conflating_stock_client_receives_newest_msgq_frame(name: Any, stack: Any) -> None:
    server = stack.enter_context(OurServer(name, {0: SMALL}))
    client = connected_stock(stack, name, conflate=True)
    server.publish(0, 1, 4)
    expect(client.receive(), 4, SMALL)


def test_stock_client_lists_streams_of_msgq_server(name: Any, stack: Any) -> None:
    kinds = [0, 1, 2, 77, wire.LIST_REQUEST - 1]
    stack.enter_context(OurServer(name, dict.fromkeys(kinds, SMALL)))
    assert StockClient.streams(stack.enter_context(StockClient(name, 0))) == kinds


def test_stock_client_of_missing_msgq_stream_gets_no_buffers(name: Any, stack: Any) -> None:
    stack.enter_context(OurServer(name, {0: SMALL}))
    client = stack.enter_context(StockClient(name, 3))
    assert client.connect().buffers == 0


def test_stock_client_with_128_buffers_receives_frames(name: Any, stack: Any) -> None:
    layout = nv12(16, 16, buffers=wire.BUFFERS_MAX)
    server = stack.enter_context(OurServer(name, {0: layout}))
    client = stack.enter_context(StockClient(name, 0))
    assert client.connect() == layout
    server.publish(0, 0, 130)
    for frame_id in (128, 129):  # their buffers were written twice
        frames = [client.receive() for _ in range(128)] if frame_id == 128 else []
        assert len(frames) in (0, 128)
        expect(client.receive(), frame_id, layout)


def test_stock_client_and_leasing_clients_do_not_block_each_other(name: Any, stack: Any) -> None:
    """Stock leases nothing: what ours hold is not written, the other buffers go round."""
    server = stack.enter_context(OurServer(name, {0: SMALL}))
    ours, stock = connected(stack, name), connected_stock(stack, name)
    server.publish(0, 1)
    held = ours.recv(0)
    expect(stock.receive(), 1, SMALL)
    for frame_id in range(2, 50):
        server.publish(0, frame_id)
        expect(stock.receive(), frame_id, SMALL)
        expect(ours.recv(0), frame_id, SMALL)
    expect(held, 1, SMALL)


def test_writes_of_stock_client_change_only_current_buffers(name: Any, stack: Any) -> None:
    """Stock lets clients write, and asks for it: a server of ours cannot take that away from stock's clients."""
    server = stack.enter_context(OurServer(name, {0: SMALL}))
    stock, ours = connected_stock(stack, name), connected(stack, name)
    stock.scribble(0xEE)
    server.publish(0, 1)
    expect(ours.recv(0), 1, SMALL)
    expect(stock.receive(), 1, SMALL)


def test_killed_stock_client_leaves_server_usable(name: Any, stack: Any) -> None:
    server = stack.enter_context(OurServer(name, {0: SMALL}))
    ours = connected(stack, name)
    for round_ in range(5):
        client = connected_stock(stack, name)
        server.publish(0, round_)
        client.kill()
        expect(ours.recv(0), round_, SMALL)
    assert server.server.stats(0).held == 0


# ---- stock's server, our clients ----


@LAYOUTS
def test_msgq_client_receives_frames_of_stock_server(name: Any, stack: Any, layout: Any) -> None:
    server = stack.enter_context(StockServer(name, {5: layout}))
    client = connected(stack, name, 5)
    told = (client.num_buffers, client.width, client.height, client.stride, client.uv_offset, client.buffer_len)
    assert Layout(*told) == layout
    assert client.format is FrameFormat.NV12
    for frame_id in range(20):
        server.publish(5, frame_id)
        frame = client.recv(DEADLINE_MS)
        expect(frame, frame_id, layout)
        assert frame.idx == frame_id % layout.buffers
        luma, chroma = frame.planes
        rows = np.frombuffer(picture(frame_id, layout.size), np.uint8)[: layout.stride * layout.height]
        assert (luma == rows.reshape(layout.height, layout.stride)[:, : layout.width]).all()
        assert chroma.shape == (layout.height // 2, layout.width // 2, 2)
    assert client.recv(0) is None
    assert client.lost in (0, None)


def test_msgq_clients_of_two_1080p_streams_reconnect_after_stock_server_kill(name: Any, stack: Any) -> None:
    layout = nv12(1920, 1080)
    first = stack.enter_context(StockServer(name, {0: layout, 2: layout}))
    clients = {kind: connected(stack, name, kind) for kind in (0, 2)}
    newest = connected(stack, name, 2, conflate=True)
    for server in (first, None):
        if server is None:
            first.kill()
            server = stack.enter_context(StockServer(name, {0: layout, 2: layout}))
        for kind, client in clients.items():
            server.publish(kind, 10 * kind, 3)
            for frame_id in range(10 * kind, 10 * kind + 3):
                expect(client.recv(DEADLINE_MS), frame_id, layout)
        expect(newest.recv(DEADLINE_MS), 22, layout)
        assert newest.recv(0) is None
    assert [client.connections for client in (*clients.values(), newest)] == [2, 2, 2]


def test_stock_frames_are_read_only(name: Any, stack: Any) -> None:
    server = stack.enter_context(StockServer(name, {0: SMALL}))
    client = connected(stack, name)
    server.publish(0, 1)
    with pytest.raises(ValueError, match="read-only"):
        client.recv(DEADLINE_MS).array[0] = 1


def test_msgq_client_lists_streams_of_stock_server(name: Any, stack: Any) -> None:
    stack.enter_context(StockServer(name, dict.fromkeys(range(64), nv12(2, 2, buffers=1))))
    assert VisionIpcClient.available_streams(name, False) == set(range(64))


def test_msgq_client_of_missing_stock_stream_is_not_connected(name: Any, stack: Any) -> None:
    stack.enter_context(StockServer(name, {0: SMALL, 2: SMALL}))
    client = stack.enter_context(VisionIpcClient(name, 1, False))
    with pytest.raises(StreamNotFoundError, match=r"stream 1 not found; the server has \[0, 2\]"):
        client.connect(True)
    assert not client.is_connected()


def test_msgq_client_with_socket_of_dead_stock_server_finds_no_server(name: Any, stack: Any) -> None:
    """A stock server leaves its socket behind when it ends."""
    stack.enter_context(StockServer(name, {0: SMALL})).kill()
    client = stack.enter_context(VisionIpcClient(name, 0, False))
    assert client.connect(False) is False
    assert VisionIpcClient.available_streams(name, False) == set()


def test_conflating_msgq_client_receives_newest_stock_frame(name: Any, stack: Any) -> None:
    server = stack.enter_context(StockServer(name, {0: SMALL}))
    client = connected(stack, name, conflate=True)
    server.publish(0, 1, 4)
    expect(client.recv(DEADLINE_MS), 4, SMALL)
    assert client.recv(0) is None


def test_overwritten_stock_frame_is_marked(name: Any, stack: Any) -> None:
    """Stock writes into its buffers in turn, whoever looks at them."""
    server = stack.enter_context(StockServer(name, {0: SMALL}))
    client = connected(stack, name)
    server.publish(0, 1)
    frame = client.recv(DEADLINE_MS)
    copy = frame.array.copy()
    assert frame.valid()
    server.publish(0, 2, SMALL.buffers - 1)
    expect(frame, 1, SMALL)
    server.publish(0, 5)
    assert not frame.valid()
    assert frame.data.tobytes() == picture(5, SMALL.size)
    assert copy.tobytes() == picture(1, SMALL.size)


def test_stock_frames_overwritten_before_receive_are_marked(name: Any, stack: Any) -> None:
    server = stack.enter_context(StockServer(name, {0: SMALL}))
    client = connected(stack, name)
    server.publish(0, 0, 10)
    frames = [client.recv(0) for _ in range(10)]
    assert [frame.frame_id for frame in frames] == list(range(10))
    assert [frame.valid() for frame in frames] == [False] * 6 + [True] * 4
    assert client.recv(0) is None


def test_stock_frames_stay_readable_after_server_and_client_close(name: Any, stack: Any) -> None:
    server = stack.enter_context(StockServer(name, {0: SMALL}))
    client = connected(stack, name)
    server.publish(0, 3)
    frame = client.recv(DEADLINE_MS)
    data = frame.data
    client.close()
    server.kill()
    expect(frame, 3, SMALL)
    del frame, client
    assert data.tobytes() == picture(3, SMALL.size)


# ---- restarts ----


RESTARTS = pytest.mark.parametrize(
    "kinds", [("msgq", "msgq"), ("stock", "msgq"), ("msgq", "stock"), ("stock", "stock")], ids="->".join
)
ENDINGS = pytest.mark.parametrize("layout", [SMALL, PADDED], ids=["same geometry", "other geometry"])


def end(server: Any) -> None:
    if isinstance(server, OurServer):
        server.server.close()
    else:
        server.kill()


@RESTARTS
@ENDINGS
def test_msgq_client_follows_restarted_server(name: Any, stack: Any, kinds: Any, layout: Any) -> None:
    first = stack.enter_context(SERVERS[kinds[0]](name, {0: SMALL}))
    client = connected(stack, name)
    first.publish(0, 1)
    held = client.recv(DEADLINE_MS)
    end(first)
    second = stack.enter_context(SERVERS[kinds[1]](name, {0: layout}))
    for frame_id in (2, 3):
        second.publish(0, frame_id)
        expect(client.recv(DEADLINE_MS), frame_id, layout)
    assert client.connections == 2
    assert (client.width, client.num_buffers) == (layout.width, layout.buffers)
    expect(held, 1, SMALL)


@RESTARTS
@ENDINGS
def test_stock_client_follows_restarted_server(name: Any, stack: Any, kinds: Any, layout: Any) -> None:
    first = stack.enter_context(SERVERS[kinds[0]](name, {0: SMALL}))
    client = connected_stock(stack, name)
    first.publish(0, 1)
    expect(client.receive(), 1, SMALL)
    end(first)
    second = stack.enter_context(SERVERS[kinds[1]](name, {0: layout}))

    def told_of_the_change() -> bool:
        """A stock reader whose place a stock publisher wiped loses a frame before it joins anew."""
        second.publish(0, 2)
        return bool(client.receive() == "lost")

    wait_until(told_of_the_change)
    assert client.connect() == mapped(layout, kinds[1])
    second.publish(0, 3)
    expect(client.receive(DEADLINE_MS), 3, layout)


@pytest.mark.parametrize("kinds", [("stock", "msgq"), ("msgq", "stock")], ids="->".join)
def test_queued_frames_of_ended_server_are_skipped(name: Any, stack: Any, kinds: Any) -> None:
    """They were queued when it ended; their buffers are gone with the connection to it."""
    first = stack.enter_context(SERVERS[kinds[0]](name, {0: SMALL}))
    client = connected(stack, name)
    first.publish(0, 1, 3)
    end(first)
    second = stack.enter_context(SERVERS[kinds[1]](name, {0: SMALL}))
    second.publish(0, 10)
    got = [frame.frame_id for frame in iter(lambda: client.recv(0), None)]
    assert got[-1] == 10
    assert set(got) <= {1, 2, 3, 10}
    second.publish(0, 11)
    expect(client.recv(DEADLINE_MS), 11, SMALL)


def test_client_reconnects_to_each_of_seven_servers(name: Any, stack: Any) -> None:
    client: Any = None
    stock: Any = None
    for life, kind in enumerate(["msgq", "stock", "msgq", "msgq", "stock", "stock", "msgq"], 1):
        layout = nv12(16 * life, 16, buffers=2 + life)
        server = stack.enter_context(SERVERS[kind](name, {0: layout}))
        if client is None:
            client, stock = connected(stack, name), stack.enter_context(StockClient(name, 0))
        assert stock.connect() == mapped(layout, kind)
        stock.receive()  # a stock reader that a stock publisher has wiped joins again at its next call
        for frame_id in range(10):
            server.publish(0, frame_id)
            expect(client.recv(DEADLINE_MS), frame_id, layout)
            expect(stock.receive(DEADLINE_MS), frame_id, layout)
        assert client.connections == life
        end(server)


def test_msgq_server_does_not_replace_live_stock_server(name: Any, stack: Any) -> None:
    stock = stack.enter_context(StockServer(name, {0: SMALL}))
    with pytest.raises(MultiplePublishersError, match=f"process {stock.pid} serves"):
        stack.enter_context(OurServer(name, {1: SMALL}))
    client = connected(stack, name)
    stock.publish(0, 1)
    expect(client.recv(DEADLINE_MS), 1, SMALL)


def test_stock_server_replaces_msgq_server_and_keeps_its_socket(name: Any, stack: Any) -> None:
    """It unlinks whatever is there; our server must not unlink the newcomer's socket in turn."""
    ours = stack.enter_context(OurServer(name, {0: SMALL}))
    client = connected(stack, name)
    stock = stack.enter_context(StockServer(name, {0: PADDED}))
    ours.server.close()
    stock.publish(0, 1)
    expect(client.recv(DEADLINE_MS), 1, PADDED)
    assert connected(stack, name).num_buffers == PADDED.buffers


def test_recreated_msgq_stream_reaches_stock_and_msgq_clients(name: Any, stack: Any) -> None:
    server = stack.enter_context(OurServer(name, {0: SMALL}))
    ours, stock = connected(stack, name), connected_stock(stack, name)
    server.publish(0, 1)
    held = ours.recv(0)
    expect(stock.receive(), 1, SMALL)
    server.server.create_buffers(0, 2, 32, 16)
    server.streams[0] = small = nv12(32, 16, buffers=2)
    server.publish(0, 2)
    expect(ours.recv(0), 2, small)
    assert stock.receive() == "lost"
    assert stock.connect() == mapped(small)
    server.publish(0, 3)
    expect(stock.receive(), 3, small)
    expect(held, 1, SMALL)
