"""Frames in a simulation: servers and clients of one bus, in virtual time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

import visionipc
from msgq.errors import (
    ConcurrentUseError,
    DeadlockError,
    EndpointClosedError,
    InvalidValueError,
    MessageSizeError,
    MultiplePublishersError,
    StateError,
    StreamNotFoundError,
    WaitTimeoutError,
)
from msgq.simulation import Fault, Simulation
from visionipc import FrameFormat, FrameSync, VisionIpcClient, VisionIpcServer
from visionipc.image_messages import picture

S = 1_000_000_000
PIXELS: Any = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)


def open_server(pixels: FrameFormat = FrameFormat.RGB24) -> VisionIpcServer:
    """Return a server with one small stream, which clients find."""
    server = VisionIpcServer("cam")
    server.create_buffers(1, 4, 2, 2, pixels)
    server.start_listener()
    return server


def connect_client(conflate: bool = False) -> VisionIpcClient:
    client = VisionIpcClient("cam", 1, conflate)
    assert client.connect(True)
    return client


class TestOneAfterTheOther:
    def test_simulated_client_receives_sent_frame_unchanged(self) -> None:
        with Simulation() as sim, open_server() as server, connect_client() as client:
            sim.clock.sleep(2)
            assert server.send(1, PIXELS, 7, 5, 6)
            with client.frame(1) as frame:
                assert np.array_equal(frame.image, PIXELS)
                assert (frame.frame_id, frame.timestamp_sof, frame.timestamp_eof) == (7, 5, 6)
                assert (frame.format, frame.width, frame.height, frame.stride) == (FrameFormat.RGB24, 2, 2, 6)
                assert frame.valid()
                assert isinstance(frame, visionipc.VisionBuf)
            assert (client.frame_id, client.timestamp_sof, client.lost) == (7, 5, 0)
            with pytest.raises(EndpointClosedError):
                frame.data  # noqa: B018
            assert client.recv(0) is None

    def test_closed_frame_server_raises(self) -> None:
        with Simulation(), open_server() as server:
            frame = server.frame(1)
            with pytest.raises(StateError, match="not entered"):
                frame.__exit__(None, None, None)
            server.close()
            with pytest.raises(EndpointClosedError):
                server.frame(1)

    def test_simulated_frame_can_be_rendered_over_virtual_time(self) -> None:
        with Simulation() as sim, open_server() as server, connect_client() as client:
            sim.clock.sleep(2)
            with server.frame(1) as draft:
                draft.image[:] = PIXELS
                sim.clock.sleep(1)
            with pytest.raises(EndpointClosedError):
                draft.image  # noqa: B018
            with client.frame(1) as frame:
                assert np.array_equal(frame.image, PIXELS)
                assert (frame.frame_id, frame.timestamp_sof, frame.timestamp_eof) == (0, 2 * S, 3 * S)
            with pytest.raises(ConcurrentUseError), draft:
                pass
            assert server.stats(1).published == 1

    def test_simulated_frame_layout_can_have_gaps(self) -> None:
        with Simulation(), VisionIpcServer("cam") as server:
            server.create_buffers_with_sizes(1, 4, 2, 2, 40, 4, 20, FrameFormat.NV12)
            server.start_listener()
            with connect_client() as client:
                assert (client.stride, client.uv_offset, client.buffer_len, client.num_buffers) == (4, 20, 40, 4)
                server.send(1, bytes(range(40)))
                with client.frame(1) as frame:
                    assert [plane.tolist() for plane in frame.planes] == [[[0, 1], [4, 5]], [[[20, 21]]]]

    def test_client_follows_frame_stream_that_is_created_again(self) -> None:
        with Simulation(), open_server() as server, connect_client() as client:
            server.create_buffers(1, 4, 2, 4, FrameFormat.GRAY8)
            server.send(1, bytes(8))
            with client.frame(1) as frame:
                assert frame.image.shape == (4, 2)
            assert (client.height, client.connections) == (4, 2)

    def test_frame_server_refuses_invalid_arguments(self) -> None:
        with Simulation(), open_server() as server:
            with pytest.raises(MessageSizeError, match="12"):
                server.send(1, bytes(11))
            with pytest.raises(InvalidValueError, match="32 bits"):
                server.send(1, bytes(12), 1 << 32)
            with pytest.raises(StreamNotFoundError):
                server.send(2, bytes(12))
            with pytest.raises(MultiplePublishersError):
                VisionIpcServer("cam").start_listener()

    def test_frame_client_connects_only_while_server_exists(self) -> None:
        with Simulation():
            client = VisionIpcClient("cam", 2, False)
            assert not client.connect(False)
            with pytest.raises(DeadlockError, match="cam"):
                client.connect(True)
            with open_server() as server:
                assert VisionIpcClient.available_streams("cam") == {1}
                with pytest.raises(StreamNotFoundError):
                    client.connect(True)
                assert not client.is_connected()
            with pytest.raises(EndpointClosedError):
                server.send(1, bytes(12))
            assert VisionIpcClient.available_streams("cam", False) == set()

    def test_frame_client_waits_in_virtual_time(self) -> None:
        with Simulation() as sim, open_server(), connect_client() as client:
            with pytest.raises(WaitTimeoutError):
                client.frame(5000)
            assert sim.clock.time() == 5
            unconnected = VisionIpcClient("cam", 1, False)
            assert unconnected.recv(1000) is None
            assert sim.clock.time() == 6

    def test_conflating_frame_client_gets_newest_frame(self) -> None:
        with Simulation() as sim, open_server() as server, connect_client(True) as client:
            for number in range(3):
                server.send(1, bytes(12), number)
            sim.run()
            with client.frame(1) as frame:
                assert (frame.frame_id, client.lost) == (2, 2)


class TestNodes:
    def run(self, **options: Any) -> tuple[Any, list[tuple[int, int]]]:
        """Let a camera send four frames, one a second; return the simulation, and which came when."""
        seen: list[tuple[int, int]] = []

        def camera() -> None:
            server = open_server()
            for number in range(4):
                sim.clock.sleep(1)
                with server.frame(1) as frame:
                    frame.image[:] = number
            sim.clock.sleep(10)

        def viewer() -> None:
            client = connect_client()
            while True:
                with client.frame() as frame:
                    seen.append((frame.frame_id, sim.clock.now_ns // S))
                    assert frame.image.max() == frame.frame_id

        with Simulation(**options) as sim:
            sim.add(viewer)
            sim.add(camera)
            sim.run()
        return sim, seen

    def test_frame_server_and_client_nodes_exchange_frames(self) -> None:
        sim, seen = self.run()
        assert seen == [(0, 1), (1, 2), (2, 3), (3, 4)]
        sent = [message for message in sim.sent_messages if message.endpoint == "visionipc_cam_1/image"]
        assert [(message.kind, message.node) for message in sent] == [("frames", "camera")] * 4
        assert [picture(message.data).frame_id for message in sent] == [0, 1, 2, 3]
        assert sent[0].schema is not None
        assert sent[0].schema.name == "sensor_msgs/msg/Image"

    def test_faults_of_frame_stream_drop_and_delay_frames(self) -> None:
        delay = Fault("delay", "visionipc_cam_1", message=3, delay=2.5)
        assert self.run(fault_schedule=[Fault("drop", "visionipc_cam_1", message=2), delay])[1] == [
            (0, 1),
            (2, 5),
            (3, 5),
        ]

    def test_sent_frames_can_be_played(self) -> None:
        sim, seen = self.run()
        again: list[tuple[int, bytes]] = []

        def viewer() -> None:
            client = connect_client()
            while True:
                with client.frame() as frame:
                    again.append((frame.frame_id, bytes(frame.data)))

        from msgq.simulation import PlaybackMessage

        with Simulation() as other:
            other.add(viewer)
            other.play(
                PlaybackMessage(m.time_ns, m.endpoint, m.data, None, m.source, m.schema) for m in sim.sent_messages
            )
            other.run()
        assert again == [(number, bytes([number]) * 12) for number, _ in seen]


def test_sync_of_frames_without_partners_times_out_in_virtual_time() -> None:
    with Simulation() as sim:
        server = VisionIpcServer("cam")
        for stream in (1, 2):
            server.create_buffers(stream, 4, 2, 2, FrameFormat.RGB24)
        server.start_listener()
        clients = [VisionIpcClient("cam", stream, False) for stream in (1, 2)]
        assert all(client.connect(True) for client in clients)

        def film() -> Generator[Any, Any, None]:
            for frame in range(1000):
                server.send(1 + frame % 2, bytes(12), frame, frame, frame)
                yield 0.01

        sim.add(film)
        assert FrameSync(clients, 0).recv(100) is None
        assert sim.clock.now_ns == S // 10
