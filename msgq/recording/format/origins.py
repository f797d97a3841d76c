"""The origins of tracked messages in a file: a record before each chunk, which readers that do not know it pass over.

It has an opcode that MCAP leaves to applications, and stands outside of chunks, where every reader expects such. It
belongs to the chunk that begins where it ends; anywhere else it means nothing.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from msgq.recording.format.container import HEAD
from msgq.recording.format.walk import TooLargeError

OPCODE = 0x8A
_MAGIC = b"msgqorig"  # other applications have the same opcodes
_ROW = np.dtype([("channel", "<u2"), ("sequence", "<u4"), ("origin_time", "<i8")])


def origins_record(entries: Any) -> bytes:
    """Return the record for a chunk with these entries (chunk.ENTRY); b"": no message has an origin."""
    having = entries[entries["origin_time"] != 0]
    if not len(having):
        return b""
    rows = np.empty(len(having), _ROW)
    for name in _ROW.names or ():
        rows[name] = having[name]
    return HEAD.pack(OPCODE, len(_MAGIC) + rows.nbytes) + _MAGIC + rows.tobytes()


class Origins:
    """The origins of a chunk's messages, by channel and sequence."""

    def __init__(self, record: bytes, codes: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        """Take them from a record, whose bytes may be anybody's. codes : of messages, by channel.

        Raises
        ------
        ValueError : the record is not one of these.
        """
        content = memoryview(record)[HEAD.size :]
        if bytes(content[: len(_MAGIC)]) != _MAGIC or (len(content) - len(_MAGIC)) % _ROW.itemsize:
            raise ValueError("it has no origins")
        rows = np.frombuffer(content[len(_MAGIC) :], _ROW)
        rows = rows[rows["channel"] < len(codes)]
        keys = _keys(codes[rows["channel"]], rows["sequence"])
        order = np.argsort(keys, kind="stable")
        self._keys, self._times = keys[order], rows["origin_time"][order]

    @classmethod
    def read(cls, fd: int, place: tuple[int, int], most: int, codes: np.ndarray[Any, np.dtype[np.int32]]) -> Origins:
        """Return those of a file. place : from where to where the record is; most : bytes that it may have.

        Raises
        ------
        ValueError : there is no such record, or it is too large.
        """
        start, end = place
        if end - start > most:
            raise TooLargeError(end - start, most)
        return cls(os.pread(fd, end - start, start), codes)

    def of(self, code: Any, sequence: Any) -> Any:
        """Return the origin of each message, ns since the epoch; 0: it has none. code, sequence : arrays of theirs."""
        if not len(self._keys):
            return np.zeros(len(code), np.int64)
        keys = _keys(code, sequence)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._times[at], 0)


def _keys(code: Any, sequence: Any) -> Any:
    return code.astype(np.int64) << 32 | sequence.astype(np.int64)
