"""Recording a bus, reading recordings, and playing them."""

from msgq.recording.recorder import Recorder, RecorderStats

__all__ = ["Recorder", "RecorderStats"]
