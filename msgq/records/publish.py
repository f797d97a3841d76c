"""Writing elements of vectors and values of boards from the command line."""

from __future__ import annotations

import errno

import numpy as np

from msgq.common.dtypes import struct_schema
from msgq.common.texts import format_count_noun
from msgq.errors import BoardKeyError, RecordMismatchError, SegmentError
from msgq.impl.records import Board, SeqlockVector
from msgq.kinds.publish import KindPublish, PublishOptions, PublishRefusedError, PublishTarget, PublishUsageError


class VectorPublishTarget(PublishTarget):
    """An element of an existing vector."""

    def __init__(self, options: PublishOptions, vector: SeqlockVector) -> None:
        super().__init__(options, struct_schema(vector.dtype))
        self._vector = vector
        if options.key is not None:
            raise PublishUsageError(f"{options.endpoint} is a vector without keys; give --index")
        if options.index is None and len(vector) > 1:
            raise PublishUsageError(
                f"{options.endpoint} has {format_count_noun(len(vector), 'element')}; "
                f"give --index, 0 to {len(vector) - 1}"
            )
        self._index = options.index or 0

    def _open_endpoint(self) -> None:
        self._vector.claim()

    def read_previous_value(self) -> bytes | None:
        """Return the value of the element; None: never written."""
        written = self._vector.counts([self._index])[0]
        return self._vector.read([self._index]).tobytes() if written else None

    def _send_message(self, data: bytes) -> None:
        dtype = self._vector.dtype
        if len(data) != dtype.itemsize:
            text = f"{self._options.endpoint} has elements of {dtype.itemsize} bytes, but the message has {len(data)}"
            raise PublishRefusedError(text)
        row = np.frombuffer(data, dtype)
        self._vector.write([self._index], row, timeout=self._options.timeout)

    def _close_endpoint(self) -> None:
        self._vector.close()


class BoardPublishTarget(PublishTarget):
    """A value of an existing board."""

    def __init__(self, options: PublishOptions, board: Board) -> None:
        super().__init__(options, board.schema)
        self._board = board
        if options.key is None:
            text = "a board without indexes" if options.index is not None else "a board"
            raise PublishUsageError(f"{options.endpoint} is {text}; give --key")
        self._key = options.key

    def _open_endpoint(self) -> None:
        self._entry = self._board.declare(self._key)

    def read_previous_value(self) -> bytes | None:
        """Return the value of the key; None: never written."""
        try:
            return self._board[self._key]
        except BoardKeyError:
            return None

    def _send_message(self, data: bytes) -> None:
        self._entry.write(data)

    def _close_endpoint(self) -> None:
        self._board.close()


def open_publish_target(options: PublishOptions) -> PublishTarget:
    """Return a vector or board.

    If none exists, raise PublishRefusedError, because messages do not define its layout.
    """
    try:
        return VectorPublishTarget(options, SeqlockVector(options.name, create=False))
    except RecordMismatchError:
        return BoardPublishTarget(options, Board(options.name, create=False))
    except SegmentError as error:
        if error.errno != errno.ENOENT:
            raise
        text = f"{options.endpoint} not found, and pub does not know its dtype and sizes; create it with"
        raise PublishRefusedError(f"{text} msgq.SeqlockVector or msgq.Board") from None


PUBLISH = KindPublish(open_publish_target, frozenset({"index", "key"}))
