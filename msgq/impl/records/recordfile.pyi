"""The file of a vector or board: opened or made, mapped, locked. For handles, and for those who look on."""

from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.impl.base.endpointfile import EndpointFile

@disjoint_base
class RecordFile(EndpointFile):
    """A mapped vector or board, for as long as somebody has this. Made between the compiled modules only."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of the process that made it."""

    @property
    def created_ns(self) -> int:
        """When it was made, nanoseconds of the host's clock."""

    @property
    def schema(self) -> Schema | None:
        """What describes the values."""

def unlink_records(name: str, in_prefix: str) -> None:
    """Remove the name of a vector or board. Those that have it open go on among themselves.

    Raises
    ------
    SegmentError : it is not there, or may not be removed.
    """
