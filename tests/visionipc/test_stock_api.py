"""Stock's own tests of frames, written again from their description, with the imports and calls of stock's programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from msgq.visionipc import VisionIpcClient, VisionIpcServer, VisionStreamType

ROAD = VisionStreamType.VISION_STREAM_ROAD
Setup = Callable[..., tuple[VisionIpcServer, VisionIpcClient]]


@pytest.fixture
def setup(prefix: str, token: str) -> Iterator[Setup]:
    """A function that returns a server of this stream and its connected client."""
    with ExitStack() as stack:

        def start(
            *streams: int, num_buffers: int = 1, width: int = 100, height: int = 100, conflate: bool = False
        ) -> tuple[VisionIpcServer, VisionIpcClient]:
            server = stack.enter_context(VisionIpcServer(token))
            for stream in streams or (ROAD,):
                server.create_buffers(stream, num_buffers, width, height)
            server.start_listener()
            client = stack.enter_context(VisionIpcClient(token, (streams or (ROAD,))[0], conflate))
            assert client.connect(True)
            return server, client

        yield start


def blank(client: VisionIpcClient) -> Any:
    assert client.buffer_len is not None
    return np.zeros(client.buffer_len, dtype=np.uint8)


def test_client_after_connect_is_connected(setup: Setup) -> None:
    _, client = setup()
    assert client.is_connected()


def test_available_streams_of_server_are_its_streams(setup: Setup, token: str) -> None:
    streams = [VisionStreamType.VISION_STREAM_ROAD, VisionStreamType.VISION_STREAM_WIDE_ROAD]
    setup(*streams)
    assert VisionIpcClient.available_streams(token, True) == set(streams)


def test_client_of_five_buffers_reports_picture_and_buffers(setup: Setup) -> None:
    _, client = setup(num_buffers=5)
    assert (client.width, client.height) == (100, 100)
    assert (client.buffer_len, client.num_buffers) == (100 * 100 * 3 // 2, 5)


def test_frame_of_single_send_has_data_and_frame_id(setup: Setup) -> None:
    server, client = setup()
    picture = blank(client)
    picture.view("<i4")[0] = 1234
    server.send(ROAD, picture, frame_id=1337)
    frame = client.recv()
    assert frame is not None
    assert frame.data.cast("i")[0] == 1234
    assert (client.frame_id, frame.frame_id) == (1337, 1337)


def test_client_without_conflation_receives_both_frames(setup: Setup) -> None:
    server, client = setup()
    for number in (1, 2):
        server.send(ROAD, np.full_like(blank(client), number), frame_id=number)
    for number in (1, 2):
        frame = client.recv()
        assert frame is not None
        assert (client.frame_id, frame.data[0]) == (number, number)
        del frame  # the second frame must not depend on the first one
    assert client.lost == 0


def test_client_with_conflation_receives_newest_frame(setup: Setup) -> None:
    server, client = setup(conflate=True)
    for number in (1, 2):
        server.send(ROAD, blank(client), frame_id=number)
    frame = client.recv()
    assert frame is not None
    assert client.frame_id == 2
    assert client.recv() is None


def test_frame_data_is_memoryview(setup: Setup) -> None:
    """The value of an element is a Python int, which no shift truncates to 8 bits."""
    server, client = setup()
    server.send(ROAD, bytes([1, 2]) + bytes(100 * 100 * 3 // 2 - 2))
    frame = client.recv()
    assert frame is not None
    assert isinstance(frame.data, memoryview)
    assert (frame.data.format, frame.data.readonly, frame.data.nbytes) == ("B", True, client.buffer_len)
    assert frame.data[0] << 8 | frame.data[1] == 258
    assert bytes(frame.data[:2]) == b"\1\2"
    assert (frame.array.dtype.name, frame.array.flags.writeable, frame.array.shape) == ("uint8", False, (15000,))


def test_rendered_frame_data_is_writable_memoryview(setup: Setup) -> None:
    server, client = setup()
    with server.frame(ROAD) as frame:
        assert isinstance(frame.data, memoryview)
        frame.data[:2] = b"\1\2"
        frame.array[2:4] = 3
    got = client.recv()
    assert got is not None
    assert bytes(got.data[:4]) == b"\1\2\3\3"
