"""Streams of frames: names. A topic announces the frames of each stream; recordings hold their pictures."""

from __future__ import annotations

import re

from msgq.common import naming
from msgq.kinds import Kind

KIND = Kind(
    name="frames",
    package="visionipc",
    validate=naming.validate_endpoint_name,
    plural="frames",
    heading="frames",
    names_senders=False,
    announced_by=re.compile(r"visionipc_.+_\d+", re.DOTALL),  # stock's: server, stream
    recorded_as=re.compile(r"visionipc_.+_\d+/(image|compressed)", re.DOTALL),
    # docs/guides/frames.md: where the message has it; since boot, by default
    delay_hint="of frames --offset 32 --clock monotonic: from their timestamp_eof, where it is of the system's clock",
)
