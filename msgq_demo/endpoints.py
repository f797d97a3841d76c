"""Endpoints of the demo. Several programs open the vector and the queue, so one function for each has the settings."""

import msgq
from visionipc import get_endpoint_name

FRAME_SERVER, FRAME_STREAM = "load", 0
PULSE, BUSY = "pulse", "busy"
ALERTS, GAUGES, JOBS = "channel/alerts", "records/gauges", "queue/jobs"
FRAMES = get_endpoint_name(FRAME_SERVER, FRAME_STREAM)
#: Board of the demo itself: the state of each process, and the start signal.
STATUS_BOARD, START_KEY = "status", "start"

STEP_DTYPE = [("percent", "<f8")]  # sensor, estimate and command
GAUGE_COUNT = 8
_JOBS_MAX, _JOB_BYTES_MAX = 1024, 512


def open_gauges() -> msgq.SeqlockVector:
    """Open the vector with the newest values of the machine. Writers overwrite the values."""
    return msgq.SeqlockVector("gauges", "<f8", GAUGE_COUNT)


def open_jobs() -> msgq.MessageQueue:
    """Open the queue with paths of files. Each file is read by exactly one worker. The recorder needs the events."""
    return msgq.MessageQueue("jobs", max_messages=_JOBS_MAX, max_message_size=_JOB_BYTES_MAX, events="payload")
