"""Frames between processes of one machine, without copies. Compatible with stock's visionipc in both directions."""

from __future__ import annotations

import enum
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from visionipc.backend import register_fake

if TYPE_CHECKING:
    from visionipc.client import ClientStats, VisionIpcClient
    from visionipc.convert import to_rgb
    from visionipc.formats import FrameFormat, Geometry
    from visionipc.impl.core import OutgoingFrame, VisionBuf
    from visionipc.server import StreamStats, VisionIpcServer
    from visionipc.sync import FrameSync
    from visionipc.wire import get_endpoint_name
else:
    _MODULES = {
        "ClientStats": "client",
        "FrameFormat": "formats",
        "FrameSync": "sync",
        "Geometry": "formats",
        "OutgoingFrame": "impl.core",
        "StreamStats": "server",
        "VisionBuf": "impl.core",
        "VisionIpcClient": "client",
        "VisionIpcServer": "server",
        "get_endpoint_name": "wire",
        "to_rgb": "convert",
    }

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "ClientStats",
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
    """Stock's names for types of streams, including those of earlier versions. Any other number is allowed, too."""

    VISION_STREAM_ROAD = 0
    VISION_STREAM_DRIVER = 1
    VISION_STREAM_WIDE_ROAD = 2
    VISION_STREAM_MAP = 3


def __dir__() -> list[str]:
    return sorted(__all__)


def _load_fake() -> ModuleType:
    from visionipc import fake  # late: only simulations use it

    return fake


register_fake(_load_fake)
