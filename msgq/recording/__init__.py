"""Recorders, readers and players of recordings.

Names that load large modules or optional libraries are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgq.common.optional import find_extra_of_package, missing_library

if TYPE_CHECKING:
    from msgq.decoding.payload_decoder import Undecoded
    from msgq.decoding.schemas import Schemas
    from msgq.recording.comparison.compare import Comparison, Difference, EndpointComparison, Tolerance, compare
    from msgq.recording.export.decoded_tables import DecodedBatch
    from msgq.recording.log_reader import LogReader
    from msgq.recording.mcap_io.log_writer import Writer
    from msgq.recording.mcap_io.problem import Problem
    from msgq.recording.player.player import Player, PlayerStats
    from msgq.recording.player.replay import replay
    from msgq.recording.player.timed_messages import playback_messages
    from msgq.recording.reader.attachments import Attachment, Header, Metadata
    from msgq.recording.reader.message import EndpointInfo, Message
    from msgq.recording.recorder.frame_receiver import FrameStream
    from msgq.recording.recorder.recorder import Recorder
    from msgq.recording.recorder.rolling_writer import RecordingLimits
    from msgq.recording.recorder.stats import RecorderStats
    from msgq.recording.repair.doctor import Finding, examine
    from msgq.recording.repair.recover import Recovery, recover, reindex

__all__ = [
    "Attachment",
    "Comparison",
    "DecodedBatch",
    "Difference",
    "EndpointComparison",
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

_MODULES_BY_NAME = {
    "Attachment": "recording.reader.attachments",
    "Comparison": "recording.comparison.compare",
    "DecodedBatch": "recording.export.decoded_tables",
    "Difference": "recording.comparison.compare",
    "EndpointInfo": "recording.reader.message",
    "Finding": "recording.repair.doctor",
    "Recovery": "recording.repair.recover",
    "examine": "recording.repair.doctor",
    "recover": "recording.repair.recover",
    "reindex": "recording.repair.recover",
    "RecordingLimits": "recording.recorder.rolling_writer",
    "Header": "recording.reader.attachments",
    "Metadata": "recording.reader.attachments",
    "FrameStream": "recording.recorder.frame_receiver",
    "LogReader": "recording.log_reader",
    "Message": "recording.reader.message",
    "Player": "recording.player.player",
    "PlayerStats": "recording.player.player",
    "Problem": "recording.mcap_io.problem",
    "Recorder": "recording.recorder.recorder",
    "RecorderStats": "recording.recorder.stats",
    "Schemas": "decoding.schemas",
    "EndpointComparison": "recording.comparison.compare",
    "Tolerance": "recording.comparison.compare",
    "Undecoded": "decoding.payload_decoder",
    "Writer": "recording.mcap_io.log_writer",
    "compare": "recording.comparison.compare",
    "playback_messages": "recording.player.timed_messages",
    "replay": "recording.player.replay",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"msgq.{_MODULES_BY_NAME[name]}"), name)
    except ModuleNotFoundError as missing:
        if extra := find_extra_of_package(missing):
            raise missing_library(f"msgq.recording.{name}", extra, str(missing.name).partition(".")[0]) from missing
        raise
