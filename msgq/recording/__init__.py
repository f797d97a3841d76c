"""Recording a bus, reading recordings, and playing them.

What is heavy, or needs a library of an extra, is imported with the first use of its name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgq.recording.format.problem import Problem
    from msgq.recording.player.player import Player, PlayerStats
    from msgq.recording.player.replaying import replay
    from msgq.recording.player.schedule import played
    from msgq.recording.reader.comparing import Comparison, Difference, Tally, Tolerance, compare
    from msgq.recording.reader.decoders import Undecoded
    from msgq.recording.reader.message import EndpointInfo, Message
    from msgq.recording.reader.reader import LogReader
    from msgq.recording.recorder.output import Limits
    from msgq.recording.recorder.recorder import Recorder, RecorderStats
    from msgq.recording.recorder.ros_images import FrameChoice

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
    "Comparison": "reader.comparing",
    "Difference": "reader.comparing",
    "EndpointInfo": "reader.message",
    "Limits": "recorder.output",
    "FrameChoice": "recorder.ros_images",
    "LogReader": "reader.reader",
    "Message": "reader.message",
    "Player": "player.player",
    "PlayerStats": "player.player",
    "Problem": "format.problem",
    "Recorder": "recorder.recorder",
    "RecorderStats": "recorder.recorder",
    "Tally": "reader.comparing",
    "Tolerance": "reader.comparing",
    "Undecoded": "reader.decoders",
    "compare": "reader.comparing",
    "played": "player.schedule",
    "replay": "player.replaying",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"msgq.recording.{_MODULES[name]}"), name)
