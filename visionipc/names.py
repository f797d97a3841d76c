"""Names of frame streams. A topic announces the frames of each stream, and recordings contain the pictures."""

from __future__ import annotations

import re

from msgq.common import naming
from msgq.kinds import Kind

KIND = Kind(
    name="frames",
    package="visionipc",
    validate_name=naming.validate_endpoint_name,
    plural_name="frames",
    column_heading="frames",
    names_senders=False,
    announcer_name_regex=re.compile(r"visionipc_.+_\d+", re.DOTALL),  # stock's: server, stream
    recorded_name_regex=re.compile(r"visionipc_.+_\d+/(image|compressed)", re.DOTALL),
    latency_limit_factor=10,  # a picture of 3 MB takes up to 100 ms to copy and compress while the machine is busy
    # Offset in the message: docs/internals/frames-protocol.md. By default, the time since boot.
    delay_hint="for frames, --offset 32 --clock monotonic: their timestamp_eof, if it is from the system clock",
)
