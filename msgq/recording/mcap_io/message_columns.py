"""Messages as columns, of NumPy or Arrow, on their way into a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from msgq.errors import InvalidValueError
from msgq.recording.mcap_io.core import CHANNEL_IDS, ROW_DTYPE, TIME_MAX

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_BATCH_ROWS = 1 << 16
_Array = np.ndarray[Any, np.dtype[Any]]


class PayloadColumn:
    """Payloads in some bytes.

    Attributes
    ----------
    content : the bytes.
    begins : where each payload begins in it, and the last one ends.
    """

    def __init__(self, content: _Array, begins: _Array) -> None:
        self.content, self.begins = content, begins

    def __len__(self) -> int:
        return len(self.begins) - 1


def payload_columns(data: Any) -> list[PayloadColumn]:
    """Return payloads in their order, uncopied where that can be.

    Parameters
    ----------
    data : see `Writer.write_columns`.

    Raises
    ------
    InvalidValueError : it is nothing of that, or has nulls.
    """
    if isinstance(data, np.ndarray):
        return [_convert_array(data)]
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _convert_arrow(data)
    try:
        content = b"".join(data)
        lengths = np.fromiter(map(len, data), np.int64, len(data))
    except TypeError as error:
        text = f"payloads of {type(data).__name__}: {error}; give an Arrow column, a NumPy array, or a list of bytes"
        raise InvalidValueError(text) from None
    begins = np.concatenate(([0], np.cumsum(lengths)))
    if begins[-1] != len(content):
        raise InvalidValueError("payloads of elements that are no bytes; give bytes, or a NumPy array")
    return [PayloadColumn(np.frombuffer(content, np.uint8), begins)]


def _convert_array(data: _Array) -> PayloadColumn:
    if not data.ndim or data.dtype.hasobject:
        raise InvalidValueError(
            f"payloads of {data.ndim} dimensions and dtype {data.dtype}; give one or more, of bytes"
        )
    size = data.nbytes // len(data) if len(data) else 0
    content = np.ascontiguousarray(data).reshape(-1).view(np.uint8) if data.nbytes else np.empty(0, np.uint8)
    return PayloadColumn(content, np.arange(len(data) + 1, dtype=np.int64) * size)


def _convert_arrow(data: Any) -> list[PayloadColumn]:
    import pyarrow as pa  # late: who has no Arrow columns needs none

    try:
        chunks = pa.chunked_array(data) if hasattr(data, "__arrow_c_stream__") else pa.chunked_array([pa.array(data)])
        if not pa.types.is_fixed_size_binary(chunks.type):
            chunks = chunks.cast(pa.large_binary())
    except pa.ArrowException as error:
        raise InvalidValueError(f"payloads of an Arrow column that are no binaries: {error}") from None
    if chunks.null_count:
        raise InvalidValueError(f"payloads with {chunks.null_count} nulls; a message has at least no bytes")
    return [_convert_binaries(chunk) for chunk in chunks.chunks]


def _convert_binaries(chunk: Any) -> PayloadColumn:
    _, *buffers = chunk.buffers()
    content = np.empty(0, np.uint8) if buffers[-1] is None else np.frombuffer(buffers[-1], np.uint8)
    if len(buffers) == 1:  # of one size
        rows = np.arange(chunk.offset, chunk.offset + len(chunk) + 1, dtype=np.int64)
        return PayloadColumn(content, rows * chunk.type.byte_width)
    if not len(chunk):
        return PayloadColumn(content, np.zeros(1, np.int64))
    return PayloadColumn(content, np.frombuffer(buffers[0], np.int64)[chunk.offset :][: len(chunk) + 1])


class MessageColumns:
    """All of messages but the payloads, as arrays.

    Attributes
    ----------
    channel, log_time, publish_time : of each message.
    sequence : the same; None: they have none so far.
    """

    def __init__(
        self,
        count: int,
        channel: ArrayLike,
        log_time: ArrayLike,
        publish_time: ArrayLike | None,
        sequence: ArrayLike | None,
    ) -> None:
        """Check them; see `Writer.write_columns`.

        Raises
        ------
        InvalidValueError : one has another length than `count`, or a value is not possible.
        """
        self.channel = _check_integers("channel", channel, count, CHANNEL_IDS)
        self.log_time = _check_times("log_time", log_time, count)
        self.publish_time = self.log_time if publish_time is None else _check_times("publish_time", publish_time, count)
        self.sequence = None if sequence is None else _check_integers("sequence", sequence, count, TIME_MAX)

    def rows(self, payloads: Sequence[PayloadColumn], numbers: _Array) -> Iterator[tuple[_Array, _Array]]:
        """Give them as rows of dtype ROW_DTYPE, some at a time, each with the bytes that their payloads lie in.

        Parameters
        ----------
        payloads : of all messages.
        numbers : what their `sequence` is to be.
        """
        first = 0
        for column in payloads:
            for begin in range(0, len(column), _BATCH_ROWS):
                begins = column.begins[begin : begin + _BATCH_ROWS + 1]
                selection = slice(first, first + len(begins) - 1)
                rows = np.zeros(len(begins) - 1, ROW_DTYPE)
                rows["offset"], rows["length"] = begins[:-1], np.diff(begins)
                rows["channel"], rows["sequence"] = self.channel[selection], numbers[selection]
                rows["log_time"], rows["publish_time"] = self.log_time[selection], self.publish_time[selection]
                yield rows, column.content
                first = selection.stop


def _check_times(name: str, values: ArrayLike, count: int) -> _Array:
    array = np.asarray(values)
    if array.dtype.kind == "M":
        array = array.astype("M8[ns]").view(np.int64)
    return _check_integers(name, array, count, TIME_MAX)


def _check_integers(name: str, values: ArrayLike, count: int, end: int) -> _Array:
    """Return `count` numbers from 0 to before `end`."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidValueError(f"{name} of dtype {array.dtype}; give integers")
    if array.ndim > 1 or (array.ndim == 1 and len(array) != count):
        raise InvalidValueError(f"{name} of shape {array.shape} for {count} payloads; give as many, or one number")
    if array.size and not (int(array.min()) >= 0 and int(array.max()) < end):
        raise InvalidValueError(f"{name} from {array.min()} to {array.max()}; give 0 to {end - 1}")
    return np.broadcast_to(array.astype(np.int64), (count,))
