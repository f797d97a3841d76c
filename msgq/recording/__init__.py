"""Recording a bus, reading recordings, and playing them.

What is heavy, or needs a library of an extra, is imported with the first use of its name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgq.recording.decode import Undecoded
    from msgq.recording.files import Problem
    from msgq.recording.frames import FrameChoice
    from msgq.recording.message import EndpointInfo, Message
    from msgq.recording.output import Limits
    from msgq.recording.reader import LogReader
    from msgq.recording.recorder import Recorder, RecorderStats

__all__ = ["EndpointInfo", "FrameChoice", "Limits", "LogReader", "Message", "Problem", "Recorder", "RecorderStats", "Undecoded"]

_MODULES = {
    "EndpointInfo": "message",
    "Limits": "output",
    "FrameChoice": "frames",
    "LogReader": "reader",
    "Message": "message",
    "Problem": "files",
    "Recorder": "recorder",
    "RecorderStats": "recorder",
    "Undecoded": "decode",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"msgq.recording.{_MODULES[name]}"), name)
