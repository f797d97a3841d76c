"""Names of frame streams. A topic announces the frames of each stream, and recordings contain the pictures."""

from __future__ import annotations

import re

from msgq.errors import EndpointNameError
from msgq.kinds import Kind

_ANNOUNCER_NAME_REGEX = re.compile(r"visionipc_.+_\d+", re.DOTALL)  # stock's: server, stream
_RECORDED_NAME_REGEX = re.compile(r"visionipc_.+_\d+/(image|compressed)", re.DOTALL)


def _validate_recorded_name(name: str | bytes) -> str:
    text = name if isinstance(name, str) else name.decode(errors="surrogateescape")
    if not _RECORDED_NAME_REGEX.fullmatch(text):
        raise EndpointNameError(
            f"endpoint name {text!r} is not possible for frames; give visionipc_SERVER_STREAM/image"
        )
    return text


class _FramesKind(Kind):
    latency_limit_factor = 10  # a picture of 3 MB takes up to 100 ms to copy and compress while the machine is busy
    # Offset in the message: docs/internals/frames-protocol.md. By default, the time since boot.
    delay_hint = "for frames, --offset 32 --clock monotonic: their timestamp_eof, if it is from the system clock"

    def is_announced_by(self, endpoint: str) -> bool:
        return _ANNOUNCER_NAME_REGEX.fullmatch(endpoint) is not None

    def is_recorded_as(self, endpoint: str) -> bool:
        return _RECORDED_NAME_REGEX.fullmatch(endpoint) is not None


KIND = _FramesKind(
    name="frames",
    package="visionipc",
    validate_name=_validate_recorded_name,
    plural_name="frames",
    names_senders=False,
)
