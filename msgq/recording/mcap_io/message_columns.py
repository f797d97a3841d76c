"""Messages as NumPy or Arrow columns, for writing into a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from msgq.errors import InvalidValueError
from msgq.recording.mcap_io.core import CHANNEL_ID_COUNT, TIME_MAX, message_row_dtype

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_FINE_UNITS = ("ps", "fs", "as")  # units of datetime64 that are shorter than ns
_BATCH_ROWS = 1 << 16
_NumpyArray = np.ndarray[Any, np.dtype[Any]]


class PayloadColumn:
    """Payloads in one buffer.

    Attributes:
        payload_bytes: the buffer.
        payload_offsets: byte offset of each payload in the buffer, and the end of the last payload.
    """

    def __init__(self, content: _NumpyArray, begins: _NumpyArray) -> None:
        self.payload_bytes, self.payload_offsets = content, begins

    def __len__(self) -> int:
        return len(self.payload_offsets) - 1


def build_payload_columns(data: Any) -> list[PayloadColumn]:
    """Return the payloads in their order, if possible without a copy.

    Args:
        data: see `Writer.write_columns`.

    Raises:
        InvalidValueError: the data has an unsupported type, or contains nulls.
    """
    if isinstance(data, np.ndarray):
        return [_convert_numpy_payloads(data)]
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _convert_arrow_payloads(data)
    try:
        content = b"".join(data)
        lengths = np.fromiter(map(len, data), np.int64, len(data))
    except TypeError as error:
        text = (
            f"payloads have type {type(data).__name__}: {error}; use an Arrow column, a NumPy array, or a list of bytes"
        )
        raise InvalidValueError(text) from None
    begins = np.concatenate(([0], np.cumsum(lengths)))
    if begins[-1] != len(content):
        raise InvalidValueError("payloads have elements that are not bytes; use bytes or a NumPy array")
    return [PayloadColumn(np.frombuffer(content, np.uint8), begins)]


def _convert_numpy_payloads(data: _NumpyArray) -> PayloadColumn:
    if not data.ndim or data.dtype.hasobject:
        raise InvalidValueError(
            f"payloads have {data.ndim} dimensions and dtype {data.dtype}; "
            "use one or more dimensions of a dtype without objects"
        )
    size = data.nbytes // len(data) if len(data) else 0
    content = np.ascontiguousarray(data).reshape(-1).view(np.uint8) if data.nbytes else np.empty(0, np.uint8)
    return PayloadColumn(content, np.arange(len(data) + 1, dtype=np.int64) * size)


def _convert_arrow_payloads(data: Any) -> list[PayloadColumn]:
    import pyarrow as pa  # late: who has no Arrow columns needs none

    try:
        chunks = pa.chunked_array(data) if hasattr(data, "__arrow_c_stream__") else pa.chunked_array([pa.array(data)])
        if not pa.types.is_fixed_size_binary(chunks.type):
            chunks = chunks.cast(pa.large_binary())
    except pa.ArrowException as error:
        raise InvalidValueError(f"payloads are an Arrow column of another type than binary: {error}") from None
    if chunks.null_count:
        raise InvalidValueError(f"payloads contain {chunks.null_count} nulls; use empty bytes for empty messages")
    return [_convert_arrow_binaries(chunk) for chunk in chunks.chunks]


def _convert_arrow_binaries(chunk: Any) -> PayloadColumn:
    _, *buffers = chunk.buffers()
    content = np.empty(0, np.uint8) if buffers[-1] is None else np.frombuffer(buffers[-1], np.uint8)
    if len(buffers) == 1:  # elements of a fixed size
        rows = np.arange(chunk.offset, chunk.offset + len(chunk) + 1, dtype=np.int64)
        return PayloadColumn(content, rows * chunk.type.byte_width)
    if not len(chunk):
        return PayloadColumn(content, np.zeros(1, np.int64))
    return PayloadColumn(content, np.frombuffer(buffers[0], np.int64)[chunk.offset :][: len(chunk) + 1])


class MessageColumns:
    """Arrays with all fields of messages except the payloads.

    Attributes:
        channel_ids: channel id of each message.
        log_times: log_time of each message.
        publish_times: publish_time of each message.
        sequences: sequence of each message; None: not assigned yet.
    """

    def __init__(
        self,
        count: int,
        channel: ArrayLike,
        log_time: ArrayLike,
        publish_time: ArrayLike | None,
        sequence: ArrayLike | None,
    ) -> None:
        """Check the arrays, and store them; see `Writer.write_columns`.

        Raises:
            InvalidValueError: an array does not have `count` elements, or a value is out of range.
        """
        self.channel_ids = _check_integer_column("channel", channel, count, CHANNEL_ID_COUNT)
        self.log_times = _check_time_column("log_time", log_time, count)
        self.publish_times = (
            self.log_times if publish_time is None else _check_time_column("publish_time", publish_time, count)
        )
        self.sequences = None if sequence is None else _check_integer_column("sequence", sequence, count, TIME_MAX)

    def iter_row_batches(
        self, payloads: Sequence[PayloadColumn], numbers: _NumpyArray
    ) -> Iterator[tuple[_NumpyArray, _NumpyArray]]:
        """Yield batches of rows with dtype `message_row_dtype()`, each with the buffers of its payloads.

        Args:
            payloads: payloads of all messages.
            numbers: values for the field `sequence`.
        """
        first = 0
        for column in payloads:
            for begin in range(0, len(column), _BATCH_ROWS):
                begins = column.payload_offsets[begin : begin + _BATCH_ROWS + 1]
                selection = slice(first, first + len(begins) - 1)
                rows = np.zeros(len(begins) - 1, message_row_dtype())
                rows["offset"], rows["length"] = begins[:-1], np.diff(begins)
                rows["channel"], rows["sequence"] = self.channel_ids[selection], numbers[selection]
                rows["log_time"], rows["publish_time"] = self.log_times[selection], self.publish_times[selection]
                yield rows, column.payload_bytes
                first = selection.stop


def _check_time_column(name: str, values: ArrayLike, count: int) -> _NumpyArray:
    array = np.asarray(values)
    if array.dtype.kind == "M":
        times = array.astype("M8[ns]")
        wrapped = times.astype(array.dtype) != array  # NumPy's conversion discards the upper bits
        if np.datetime_data(array.dtype)[0] not in _FINE_UNITS and (wrapped & ~np.isnat(array)).any():
            text = f"{name} has values from {np.nanmin(array)} to {np.nanmax(array)}"
            raise InvalidValueError(f"{text}; use times from 1970 to {np.datetime64(TIME_MAX - 1, 'ns')}")
        array = times.view(np.int64)
    return _check_integer_column(name, array, count, TIME_MAX)


def _check_integer_column(name: str, values: ArrayLike, count: int, end: int) -> _NumpyArray:
    """Return the values as an array of `count` integers. Each value must be at least 0 and less than `end`."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidValueError(f"{name} has dtype {array.dtype}; use integers")
    if array.ndim > 1 or (array.ndim == 1 and len(array) != count):
        raise InvalidValueError(
            f"{name} has shape {array.shape} for {count} payloads; use one number per payload, or a single number"
        )
    if array.size and not (int(array.min()) >= 0 and int(array.max()) < end):
        raise InvalidValueError(f"{name} has values from {array.min()} to {array.max()}; use 0 to {end - 1}")
    return np.broadcast_to(array.astype(np.int64), (count,))
