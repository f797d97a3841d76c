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

    Structs are dicts. Texts, bytes, lists and structs that a message does not set are missing. Of a union, only the
    active field is present, set or not. All other fields are present. Numbers, truth values and texts are Python's, and
    data is bytes. An enum value with a name is its name. Lists of numbers are read-only NumPy arrays that keep the
    message, lists of unsigned 8-bit numbers are bytes, and other lists are lists. Pointers of any type and capabilities
    are None.

    Messages may have any content: every position is checked before a read. A message may contain the same part many
    times, and elements may have no bytes. Therefore a message gives at most 4 million values, at most 64 levels deep,
    and at most 16 times its own size in bytes and texts.
    """

    def __init__(self, struct: CapnpStruct) -> None:
        """Prepare for a struct."""

    def read(self, message: bytes) -> dict[str, Any]:
        """Return the values of a message: segments after their table, unpacked.

        Raises
        ------
        ValueError : the bytes are not a valid message. The text names the position and the problem.
        """

@final
class FlatBufferReader:
    """Reads messages of one FlatBuffers table. One thread at a time.

    Tables and structs are dicts with all fields. A missing field has the schema's default, or None. Numbers, truth
    values and texts are Python's. An enum value with a name is its name. Vectors of numbers are read-only NumPy arrays
    that keep the message, vectors of unsigned 8-bit numbers are bytes, and other vectors are lists. A union is its
    active member, and the field before it is the member's type.

    Messages may have any content: every position is checked before a read. A message may contain the same part many
    times. Therefore a message gives at most 4 million values, at most 100 levels deep, and at most 16 times its own
    size in bytes and texts.
    """

    def __init__(self, table: FlatbufferTable) -> None:
        """Prepare for a table.

        Raises
        ------
        ValueError : the table has unsupported types.
        """

    def read(self, message: bytes) -> dict[str, Any]:
        """Return the values of a message.

        Raises
        ------
        ValueError : the bytes are not a valid message. The text names the position and the problem.
        """

@final
class CdrReader:
    """Reads messages of one CDR or ROS 1 definition. One thread at a time.

    A struct is a dict. Numbers, truth values and texts are Python's. An enum value with a name is its name. Arrays and
    sequences of numbers are read-only NumPy arrays that keep the message, those of unsigned 8-bit numbers are bytes,
    and others are lists.

    Messages may have any content: every length is checked before its use, and a message gives at most 4 million values.
    """

    def __init__(self, struct: CdrStruct, is_cdr: bool) -> None:
        """Prepare for a definition.

        Parameters
        ----------
        struct : definition of the messages.
        is_cdr : True for CDR (any version and byte order, as each message says), False for ROS 1.

        Raises
        ------
        ValueError : the definition has unsupported types.
        """

    def read(self, message: bytes) -> dict[str, Any]:
        """Return the values of a message.

        CDR has three encodings of wide texts, and a message does not name its encoding. The first encoding that matches
        the message's size is used.

        Raises
        ------
        ValueError : the bytes are not a valid message. The text names the position and the problem.
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

    Parameters
    ----------
    steps : steps of a plan, shape (n, 6): the fields of `mq_cdr_step`, valid as cdr_columns.h requires. The call does
        not check the steps.
    are_offsets : for each column, True if it has list offsets.
    is_cdr : True for CDR, False for ROS 1.
    data : the messages, one after the other.
    message_offsets : shape (messages + 1,): the beginning of each message, and the end of the last one.

    Returns
    -------
    The columns as bytes: numbers in the byte order of this machine, or list offsets (int32), of which the first is 0.
    And for each message, True if it does not match the plan: it is not plain CDR, is too short, or has a text that is
    not UTF-8. The columns omit messages that do not match.

    Raises
    ------
    InvalidValueError : no steps, no messages, or offsets outside the data.

    Notes
    -----
    Releases the GIL. If the data changes during the call, the results are undefined.
    """
