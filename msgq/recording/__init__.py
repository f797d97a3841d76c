"""Recording a bus, reading recordings, and playing them."""

from msgq.recording.decode import Undecoded
from msgq.recording.files import Problem
from msgq.recording.message import EndpointInfo, Message
from msgq.recording.output import Limits
from msgq.recording.reader import LogReader
from msgq.recording.recorder import Recorder, RecorderStats

__all__ = ["EndpointInfo", "Limits", "LogReader", "Message", "Problem", "Recorder", "RecorderStats", "Undecoded"]
