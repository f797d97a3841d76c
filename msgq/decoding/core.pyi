"""Messages as Python values and columns, in compiled code."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from msgq.decoding.capnproto.capnp_types import CapnpStruct
from msgq.decoding.cdr_types import CdrStruct
from msgq.decoding.flatbuffer.flatbuffer_types import FlatbufferTable

@final
class CapnpReader:
    """Reads messages of one Cap'n Proto struct. One thread at a time.

    A struct becomes a dict. The dict omits texts, bytes, lists and structs that the message does not set. The dict also
    omits the inactive fields of a union, but has the active field even if the message does not set this field. Numbers,
    truth values and texts become Python objects, and data becomes bytes. An enum value with a name becomes a str with
    this name. A list of numbers becomes a read-only NumPy array that keeps the message alive. A list of unsigned 8-bit
    numbers becomes bytes. Any other list becomes a Python list. Capabilities and pointers of any type become None.

    Messages may have any content: every position is checked before a read. A small message can describe a very large
    result, because its pointers may refer to the same part many times. Therefore the result is limited to 4 million
    values, to 64 levels of nesting, and to bytes and texts of 16 times the message's size.
    """

    def __init__(self, struct: CapnpStruct) -> None:
        """Prepare for a struct."""

    def read(self, message: bytes) -> dict[str, Any]:
        """Return the values of a message, which consists of a segment table and segments without packing.

        Raises:
            ValueError: the bytes are not a valid message. The text names the position and the problem.
        """

@final
class FlatBufferReader:
    """Reads messages of one FlatBuffers table. One thread at a time.

    A table or struct becomes a dict with all fields. A missing field has the schema's default, or None. Numbers, truth
    values and texts become Python objects. An enum value with a name becomes a str with this name. A vector of numbers
    becomes a read-only NumPy array that keeps the message alive. A vector of unsigned 8-bit numbers becomes bytes. Any
    other vector becomes a Python list. A union becomes the value of its active member. The field before the union has
    the type of this member.

    Messages may have any content: every position is checked before a read. A small message can describe a very large
    result, because its offsets may refer to the same part many times. Therefore the result is limited to 4 million
    values, to 100 levels of nesting, and to bytes and texts of 16 times the message's size.
    """

    def __init__(self, table: FlatbufferTable) -> None:
        """Prepare for a table.

        Raises:
            ValueError: the table has unsupported types.
        """

    def read(self, message: bytes) -> dict[str, Any]:
        """Return the values of a message.

        Raises:
            ValueError: the bytes are not a valid message. The text names the position and the problem.
        """

@final
class CdrReader:
    """Reads messages of one CDR or ROS 1 definition. One thread at a time.

    A struct becomes a dict. Numbers, truth values and texts become Python objects. An enum value with a name becomes a
    str with this name. An array or sequence of numbers becomes a read-only NumPy array that keeps the message alive. An
    array or sequence of unsigned 8-bit numbers becomes bytes. Any other array or sequence becomes a Python list.

    Messages may have any content: every length is checked before its use. The result is limited to 4 million values.
    """

    def __init__(self, struct: CdrStruct, is_cdr: bool) -> None:
        """Prepare for a definition.

        Args:
            struct: definition of the messages.
            is_cdr: True for CDR, False for ROS 1. A CDR message names its version and byte order.

        Raises:
            ValueError: the definition has unsupported types.
        """

    def read(self, message: bytes) -> dict[str, Any]:
        """Return the values of a message.

        CDR has three encodings of wide texts, and a message does not name its encoding. The first encoding that matches
        the message's size is used.

        Raises:
            ValueError: the bytes are not a valid message. The text names the position and the problem.
        """

#: Maximum nesting of repetitions.
CDR_REPEAT_DEPTH_MAX: int
#: Types of steps; see cdr_columns.h.
CDR_STEP_NUMBERS: int
CDR_STEP_SEQUENCE: int
CDR_STEP_TEXT: int
CDR_STEP_REPEAT_BEGIN: int
CDR_STEP_REPEAT_END: int

def unpack_columns(
    steps: np.ndarray[Any, np.dtype[np.int64]],
    are_offsets: Sequence[bool],
    is_cdr: bool,
    data: np.ndarray[Any, np.dtype[np.uint8]],
    message_offsets: np.ndarray[Any, np.dtype[np.int32]],
) -> tuple[list[np.ndarray[Any, np.dtype[np.uint8]]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Convert messages into columns.

    Args:
        steps: steps of a plan, shape (n, 6). Each row has the fields of `mq_cdr_step`. The steps must satisfy the rules
            in cdr_columns.h, and the call does not check them.
        are_offsets: for each column, True if it has list offsets.
        is_cdr: True for CDR, False for ROS 1.
        data: the messages, one after the other.
        message_offsets: byte offset of each message in `data`, and of the end of the last message; shape (messages +
            1,).

    Returns:
        The columns as bytes, and an array with True for each message that does not match the plan. A column has numbers
        in the byte order of this machine, or list offsets (int32, the first is 0). A message does not match if the
        message is too short, is not plain CDR, or has a text that is not UTF-8. The columns omit these messages.

    Raises:
        InvalidValueError: no steps, no messages, or offsets outside the data.

    Notes:
        Releases the GIL. If the data changes during the call, the results are undefined.
    """
