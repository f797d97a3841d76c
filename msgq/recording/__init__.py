"""Recording a bus, reading recordings, and playing them.

What is heavy, or needs a library of an extra, is imported with the first use of its name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgq.recording.comparing import Comparison, Difference, Tally, Tolerance, compare
    from msgq.recording.decode import Undecoded
    from msgq.recording.files import Problem
    from msgq.recording.frames import FrameChoice
    from msgq.recording.message import EndpointInfo, Message
    from msgq.recording.output import Limits
    from msgq.recording.player import Player, PlayerStats
    from msgq.recording.reader import LogReader
    from msgq.recording.recorder import Recorder, RecorderStats
    from msgq.recording.replaying import replay
    from msgq.recording.schedule import played

__all__ = [
    "Comparison",
    "Difference",
    "EndpointInfo",
    "FrameChoice",
    "Limits",
    "LogReader",
    "Message",
    "Player",
    "PlayerStats",
    "Problem",
    "Recorder",
    "RecorderStats",
    "Tally",
    "Tolerance",
    "Undecoded",
    "compare",
    "played",
    "replay",
]

_MODULES = {
    "Comparison": "comparing",
    "Difference": "comparing",
    "EndpointInfo": "message",
    "Limits": "output",
    "FrameChoice": "frames",
    "LogReader": "reader",
    "Message": "message",
    "Player": "player",
    "PlayerStats": "player",
    "Problem": "files",
    "Recorder": "recorder",
    "RecorderStats": "recorder",
    "Tally": "comparing",
    "Tolerance": "comparing",
    "Undecoded": "decode",
    "compare": "comparing",
    "played": "schedule",
    "replay": "replaying",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"msgq.recording.{_MODULES[name]}"), name)
