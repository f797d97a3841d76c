"""Counts a topic's messages."""

from typing_extensions import disjoint_base

from msgq.impl.base.core import Context
from msgq.impl.meter.meter import Meter

@disjoint_base
class TopicMeter(Meter):
    """Counts the messages of a topic, see `Meter`.

    Parameters
    ----------
    context : of the connection.
    endpoint : the topic's name; it must exist.
    stamp_offset : the byte of the payload at which a u64 says when it was published, in ns; None: it does not, but
        the stamps of a tracked topic do.
    clock : which clock that time is from: "host" (docs/clock.md), "realtime" or "monotonic".
    """

    def __init__(
        self, context: Context, endpoint: str | bytes, stamp_offset: int | None = None, clock: str = "host"
    ) -> None: ...
