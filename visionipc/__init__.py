"""Frames between processes of one machine without copies; compatible with stock's visionipc in both directions."""

import enum

from visionipc.buffers import VisionBuf
from visionipc.client import VisionIpcClient
from visionipc.convert import to_rgb
from visionipc.formats import FrameFormat, Geometry
from visionipc.server import OutgoingFrame, StreamStats, VisionIpcServer
from visionipc.sync import FrameSync
from visionipc.wire import get_endpoint_name

__all__ = [
    "FrameFormat",
    "FrameSync",
    "Geometry",
    "OutgoingFrame",
    "StreamStats",
    "VisionBuf",
    "VisionIpcClient",
    "VisionIpcServer",
    "VisionStreamType",
    "get_endpoint_name",
    "to_rgb",
]


class VisionStreamType(enum.IntEnum):
    """Stock's names for types of streams, those of former versions included. Any number will do."""

    VISION_STREAM_ROAD = 0
    VISION_STREAM_DRIVER = 1
    VISION_STREAM_WIDE_ROAD = 2
    VISION_STREAM_MAP = 3
