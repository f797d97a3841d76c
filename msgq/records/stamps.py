"""Records that begin with the times of their publishing and of their origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from msgq.common.dtypes import numpy_dtype, record_dtype
from msgq.errors import RecordTypeError
from msgq.impl.records.arrays import STAMP_FIELDS, is_tracked_dtype

if TYPE_CHECKING:
    import numpy.typing as npt

    from msgq.records.clocks import StampClock

STAMP_FIELDS_BYTES = 16


def tracked(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the dtype of records that say when they were published, and when that came about which they come from.

    It has two fields more, in front: ``publish_time`` and ``origin_time``, little-endian integers of 8 bytes:
    nanoseconds of the host's clock (clock.md). Whoever produces such records fills them (tracking.md); the recorder,
    `msgq delay` and the tables of Spark read them.

    Parameters
    ----------
    dtype : whatever NumPy makes a dtype of. One without fields becomes the field ``value``; one that is tracked stays
        as it is.

    Raises
    ------
    RecordTypeError : it cannot be that of records, or has one of these fields elsewhere.
    """
    plain = numpy_dtype(dtype)
    if is_tracked_dtype(plain):
        return plain
    if plain.names is None:
        plain = np.dtype([("value", plain)])
    if existing := set(STAMP_FIELDS) & set(plain.names or ()):
        text = f"{plain} has a field {', '.join(sorted(existing))} already, but does not begin with both"
        raise RecordTypeError(f"{text}, as '<i8'; give it another name")
    return record_dtype(_add_stamp_fields(plain))


def _add_stamp_fields(plain: np.dtype[Any]) -> np.dtype[Any]:
    names, fields_by_name = plain.names or (), dict(plain.fields or {})
    fields = [fields_by_name[name] for name in names]
    return np.dtype(
        {
            "names": [*STAMP_FIELDS, *names],
            "formats": ["<i8", "<i8", *(field[0] for field in fields)],
            "offsets": [0, 8, *(field[1] + STAMP_FIELDS_BYTES for field in fields)],
            "itemsize": plain.itemsize + STAMP_FIELDS_BYTES,
        }
    )


def remove_stamp_fields(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return what a tracked dtype was made from."""
    names, fields_by_name = (dtype.names or ())[len(STAMP_FIELDS) :], dict(dtype.fields or {})
    fields = [fields_by_name[name] for name in names]
    if names == ("value",) and fields[0][0].subdtype is None:
        return fields[0][0]
    return np.dtype(
        {
            "names": list(names),
            "formats": [field[0] for field in fields],
            "offsets": [field[1] - STAMP_FIELDS_BYTES for field in fields],
            "itemsize": dtype.itemsize - STAMP_FIELDS_BYTES,
        }
    )


def fill_stamps(records: npt.NDArray[Any], origin_time: int, clock: StampClock) -> None:
    """Write the stamps of records that are published now: one origin for all if there is one, else each its own."""
    if origin_time:
        records["publish_time"], records["origin_time"] = clock.time_ns(), origin_time
        return
    first = clock.new_origin_time(len(records))
    records["publish_time"] = records["origin_time"] = np.arange(first, first + len(records))
