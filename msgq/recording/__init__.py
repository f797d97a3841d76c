"""Recording a bus, reading recordings, and playing them.

What is heavy, or needs a library of an extra, is imported with the first use of its name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgq.common.extras import extra_of, lacking

if TYPE_CHECKING:
    from msgq.decoding.decoders import Undecoded
    from msgq.decoding.schemas import Schemas
    from msgq.recording.format.doctor import Finding, examine
    from msgq.recording.format.new_log import Writer
    from msgq.recording.format.problem import Problem
    from msgq.recording.format.recover import Recovery, recover, reindex
    from msgq.recording.player.player import Player, PlayerStats
    from msgq.recording.player.replaying import replay
    from msgq.recording.player.schedule import playback_messages
    from msgq.recording.reader.comparing import Comparison, Difference, Tally, Tolerance, compare
    from msgq.recording.reader.extras import Attachment, Header, Metadata
    from msgq.recording.reader.message import EndpointInfo, Message
    from msgq.recording.reader.reader import LogReader
    from msgq.recording.reader.tables import DecodedBatch
    from msgq.recording.recorder.output import RecordingLimits
    from msgq.recording.recorder.recorder import Recorder, RecorderStats
    from msgq.recording.recorder.ros_images import FrameStream

__all__ = [
    "Attachment",
    "Comparison",
    "DecodedBatch",
    "Difference",
    "EndpointInfo",
    "Finding",
    "FrameStream",
    "Header",
    "LogReader",
    "Message",
    "Metadata",
    "Player",
    "PlayerStats",
    "Problem",
    "Recorder",
    "RecorderStats",
    "RecordingLimits",
    "Recovery",
    "Schemas",
    "Tally",
    "Tolerance",
    "Undecoded",
    "Writer",
    "compare",
    "examine",
    "playback_messages",
    "recover",
    "reindex",
    "replay",
]

_MODULES = {
    "Attachment": "recording.reader.extras",
    "Comparison": "recording.reader.comparing",
    "DecodedBatch": "recording.reader.tables",
    "Difference": "recording.reader.comparing",
    "EndpointInfo": "recording.reader.message",
    "Finding": "recording.format.doctor",
    "Recovery": "recording.format.recover",
    "examine": "recording.format.doctor",
    "recover": "recording.format.recover",
    "reindex": "recording.format.recover",
    "RecordingLimits": "recording.recorder.output",
    "Header": "recording.reader.extras",
    "Metadata": "recording.reader.extras",
    "FrameStream": "recording.recorder.ros_images",
    "LogReader": "recording.reader.reader",
    "Message": "recording.reader.message",
    "Player": "recording.player.player",
    "PlayerStats": "recording.player.player",
    "Problem": "recording.format.problem",
    "Recorder": "recording.recorder.recorder",
    "RecorderStats": "recording.recorder.recorder",
    "Schemas": "decoding.schemas",
    "Tally": "recording.reader.comparing",
    "Tolerance": "recording.reader.comparing",
    "Undecoded": "decoding.decoders",
    "Writer": "recording.format.new_log",
    "compare": "recording.reader.comparing",
    "playback_messages": "recording.player.schedule",
    "replay": "recording.player.replaying",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"msgq.{_MODULES[name]}"), name)
    except ModuleNotFoundError as missing:
        if extra := extra_of(missing):
            raise lacking(f"msgq.recording.{name}", extra, str(missing.name).partition(".")[0]) from missing
        raise
