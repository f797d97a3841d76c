"""Calls, results, errors and dead letters as messages of work queues.

Such a message is the payload, then a text, then a tail of 20 bytes. A message of plain `send` has no tail.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from msgq.errors import InvalidTypeError
from msgq.impl.base.core import copy_message

REPLIES_INFIX = ":replies:"
REASON_BYTES_MAX = 500
#: number, type, bytes of the text, and a mark. The mark is no UTF-8, so no text payload ends with it.
_TAIL_STRUCT = struct.Struct("<QHH8s")
_TAIL_MARK = b"\xf5msgqJOB"
ENVELOPE_BYTES_MAX = _TAIL_STRUCT.size + REASON_BYTES_MAX


class EnvelopeType(IntEnum):
    """Type of a message. `PLAIN`: the message has no tail."""

    PLAIN = 0
    CALL = 1  # the text is the client's id, the number is the number of the call
    RESULT = 2  # the number is the number of the call
    ERROR = 3  # the same, and the text is the reason
    DEAD_LETTER = 4  # the text is the reason, the number is the number of deliveries


class Envelope(NamedTuple):
    """Parts of a message; see `EnvelopeType`."""

    data: bytes
    type: EnvelopeType = EnvelopeType.PLAIN
    number: int = 0
    text: str = ""


class DeadLetter(NamedTuple):
    """Parts of a message that a `Worker` moved to the dead letters.

    Attributes:
        data: payload of the message, as its sender sent it.
        reason: type and text of the last error; "": the message has no reason, because another program sent it.
        deliveries: number of deliveries before the move; 0: unknown.
    """

    data: bytes
    reason: str
    deliveries: int


def parse_dead_letter(message: bytes) -> DeadLetter:
    """Return the parts of a message from a queue of dead letters."""
    envelope = split_envelope(message)
    if envelope.type != EnvelopeType.DEAD_LETTER:
        return DeadLetter(message, "", 0)
    return DeadLetter(envelope.data, envelope.text, envelope.number)


def split_envelope(message: bytes) -> Envelope:
    """Return the parts of a message. A message without a valid tail is plain."""
    if not message.endswith(_TAIL_MARK) or len(message) < _TAIL_STRUCT.size:
        return Envelope(message)
    number, envelope_type, text_bytes, _ = _TAIL_STRUCT.unpack_from(message, len(message) - _TAIL_STRUCT.size)
    data_bytes = len(message) - _TAIL_STRUCT.size - text_bytes
    if data_bytes < 0 or not EnvelopeType.CALL <= envelope_type <= EnvelopeType.DEAD_LETTER:
        return Envelope(message)
    text = message[data_bytes : data_bytes + text_bytes].decode(errors="replace")
    return Envelope(message[:data_bytes], EnvelopeType(envelope_type), number, text)


def join_envelope(data: object, envelope_type: EnvelopeType, number: int, text: str = "") -> bytes:
    """Return a message with a tail. `data` has contiguous bytes; None: no bytes.

    Raises:
        InvalidTypeError: `data` has no bytes, or contains Python objects.
    """
    encoded = text.encode(errors="replace")[:REASON_BYTES_MAX]
    tail = _TAIL_STRUCT.pack(number, envelope_type, len(encoded), _TAIL_MARK)
    try:
        payload = b"" if data is None else copy_message(data, "")
    except InvalidTypeError as error:
        if envelope_type != EnvelopeType.RESULT:
            raise
        raise InvalidTypeError(f"result of the job cannot be sent: {error}") from None
    return b"".join((payload, encoded, tail))


def describe_error(error: BaseException) -> str:
    """Return type and text of an error, also if the error's `__str__` raises."""
    try:
        text = str(error)
    except Exception:
        text = "(the text of this error cannot be read)"
    return f"{type(error).__name__}: {text}"


def name_reply_queue(queue_name: str, client_id: str) -> str:
    """Return the name of a client's queue of replies."""
    return f"{queue_name}{REPLIES_INFIX}{client_id}"


def parse_reply_queue(name: str) -> str | None:
    """Return the name of the queue whose replies a queue receives; None: not a queue of replies."""
    queue_name, infix, client_id = name.rpartition(REPLIES_INFIX)
    return queue_name if infix and queue_name and client_id else None
