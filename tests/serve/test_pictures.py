"""Pictures of frame servers for clients of `msgq serve`."""

from __future__ import annotations

import asyncio

import cv2
import numpy as np

from msgq.recording.recorder.frame_receiver import FrameStream
from tests.serve.foxglove_client import FoxgloveClient, Server, connect
from tests.serve.test_websocket import run_client
from visionipc import FrameFormat, VisionIpcServer
from visionipc.image_messages import COMPRESSED_IMAGE

WIDTH, HEIGHT = 64, 48


def open_camera(prefix: str) -> VisionIpcServer:
    server = VisionIpcServer(f"camera-{prefix}")
    server.create_buffers(0, 4, WIDTH, HEIGHT, FrameFormat.RGB24)
    server.start_listener()
    return server


def decode_picture(payload: bytes) -> np.ndarray:
    """Return the picture in a message as an array of RGB values."""
    begin = payload.index(b"\xff\xd8\xff")
    picture = cv2.imdecode(np.frombuffer(payload[begin:], np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    return picture[:, :, ::-1]


def test_picture_has_pixels_and_number_of_frame(prefix: str) -> None:
    picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    picture[:, :, 2] = 250
    topic = FrameStream(f"camera-{prefix}", 0, None, "jpeg").endpoint

    async def use(client: FoxgloveClient) -> None:
        await client.subscribe(topic)
        channel = client.channels[topic]
        assert (channel["encoding"], channel["schemaName"]) == ("cdr", COMPRESSED_IMAGE.name)
        assert channel["schema"].encode() == COMPRESSED_IMAGE.data
        message = await client.take_after(lambda: camera.send(0, picture.tobytes(), frame_id=7))
        assert b"7\0" in message.payload
        shown = decode_picture(message.payload)
        assert shown.shape == picture.shape
        assert np.abs(shown.astype(int) - picture).max() < 16

    with open_camera(prefix) as camera, Server() as server:
        run_client(server, use)


def test_pictures_continue_after_restart_of_frame_server(prefix: str) -> None:
    topic = FrameStream(f"camera-{prefix}", 0, None, "jpeg").endpoint
    dark, bright = bytes(WIDTH * HEIGHT * 3), b"\xff" * (WIDTH * HEIGHT * 3)

    async def use(server: Server) -> None:
        async with connect(server) as client:
            with open_camera(prefix) as camera:
                await client.subscribe(topic)
                await client.take_after(lambda: camera.send(0, dark))
            with open_camera(prefix) as camera:
                message = await client.take_after(lambda: camera.send(0, bright))
                while decode_picture(message.payload).mean() < 250:
                    message = await client.take_after(lambda: camera.send(0, bright))

    with Server() as server:
        asyncio.run(use(server))
