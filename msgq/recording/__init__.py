"""Recording a bus, reading recordings, and playing them."""

from msgq.recording.decode import Undecoded
from msgq.recording.files import Problem
from msgq.recording.message import EndpointInfo, Message
from msgq.recording.reader import LogReader

__all__ = ["EndpointInfo", "LogReader", "Message", "Problem", "Undecoded"]
