"""Counts what is written in a vector or board."""

from typing_extensions import disjoint_base

from msgq.impl.meter.meter import Meter

@disjoint_base
class RecordsMeter(Meter):
    """Counts the writes of a vector's elements, or of a board's values, see `Meter`.

    Of an element that was written several times between two looks the last write is seen, and the others are `lost`:
    the count of all is exact. The delay is from the time of a write until it was seen. A look is at all elements, and a
    rest of four times as long follows it.

    Parameters
    ----------
    name, in_prefix : of the vector or board; it must exist.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...
