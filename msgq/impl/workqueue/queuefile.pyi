"""A queue's file: opened or made, mapped, locked. For handles, and for those who look on."""

from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.impl.base.endpointfile import EndpointFile

@disjoint_base
class QueueFile(EndpointFile):
    """A queue's file, mapped and open for as long as somebody has this. Made between the compiled modules only."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of the process that made it."""

    @property
    def created_ns(self) -> int:
        """When it was made, nanoseconds of the host's clock."""

    @property
    def schema(self) -> Schema | None:
        """What describes the messages."""

    def describe(self, schema: Schema) -> None:
        """Set the schema, unless there is one.

        Raises
        ------
        SegmentError : others have the lock for 5 s.
        """

def unlink_queue(name: str, in_prefix: str) -> None:
    """Remove a queue's name, and its channel of events. Those that have it open go on among themselves.

    Raises
    ------
    SegmentError : it is not there, or may not be removed.
    """
