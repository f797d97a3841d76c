"""Records that begin with their publishing time and their origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from msgq.common.dtype_descriptions import numpy_dtype, record_dtype
from msgq.errors import RecordTypeError
from msgq.impl.records.arrays import STAMP_FIELDS, is_tracked_dtype

if TYPE_CHECKING:
    import numpy.typing as npt

    from msgq.records.clocks import StampClock

STAMP_FIELDS_BYTES = 16


def tracked(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return a dtype with the fields of tracked records: publishing time and origin.

    The two fields ``publish_time`` and ``origin_time`` come first. Both are little-endian integers of 8 bytes, in
    nanoseconds of the host's clock (docs/internals/clock.md). The producer of the records fills the fields
    (docs/guides/tracking.md). The recorder, `msgq delay` and the Spark tables read them.

    Args:
        dtype: any dtype that NumPy accepts. A dtype without fields becomes the field ``value``. A tracked dtype is
            returned unchanged.

    Raises:
        RecordTypeError: the dtype is not allowed for records, or has one of these fields elsewhere.
    """
    plain = numpy_dtype(dtype)
    if is_tracked_dtype(plain):
        return plain
    if plain.names is None:
        plain = np.dtype([("value", plain)])
    if existing := set(STAMP_FIELDS) & set(plain.names or ()):
        text = f"dtype {plain} has a field {', '.join(sorted(existing))}, but not both timestamps as first fields"
        raise RecordTypeError(f"{text} ('<i8'); rename the field")
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
    """Return the dtype from which a tracked dtype was created."""
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
    """Set the timestamps of records that are published now. If `origin_time` is 0, each record is its own origin."""
    if origin_time:
        records["publish_time"], records["origin_time"] = clock.time_ns(), origin_time
        return
    first = clock.new_origin_time(len(records))
    records["publish_time"] = records["origin_time"] = np.arange(first, first + len(records))
