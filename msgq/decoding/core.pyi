"""Messages as Python values and columns, below Python."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from msgq.decoding.capnproto.capnp_types import CapnpStruct
from msgq.decoding.cdr_types import CdrStruct
from msgq.decoding.flatbuffer.flatbuffer_types import FlatbufferTable

@final
class CapnpReader:
    """Reads messages of one struct. One thread at a time.

    Structs are dicts: without texts, bytes, lists and structs that a message does not set, and of a union with the
    field that it has, set or not; all else is there. Numbers, truth values and texts are Python's, data is bytes; a
    number that has a name is that name. Lists of numbers are NumPy arrays, read-only ones that keep the message alive,
    and of unsigned numbers of 8 bits bytes; of all else they are lists. Pointers to anything and capabilities are None.

    Messages may be anybody's bytes: every place is checked before it is read. Parts of a message may be in it many
    times, and elements may have no bytes; so no more than 4 million values are made of it, at most 64 levels deep, and
    no more bytes and texts than 16 times its own size.
    """

    def __init__(self, struct: CapnpStruct) -> None:
        """Prepare for a struct."""

    def read(self, message: bytes) -> dict[str, Any]:
        """Return what a message says: segments behind their table, unpacked.

        Raises
        ------
        ValueError : these bytes are no such message; with the place and what is wrong there.
        """

@final
class FlatBufferReader:
    """Reads messages of one table. One thread at a time.

    Tables and structs are dicts with all fields: one that is missing has the value that the schema says, or None.
    Numbers, truth values and texts are Python's; a number that has a name is that name. Vectors of numbers are NumPy
    arrays, read-only ones that keep the message alive, and of unsigned numbers of 8 bits bytes; of all else they are
    lists. A union is what it has, and the field before it says what that is.

    Messages may be anybody's bytes: every place is checked before it is read. Parts of a message may be in it many
    times; so no more than 4 million values are made of it, at most 100 levels deep, and no more bytes and texts than 16
    times its own size.
    """

    def __init__(self, table: FlatbufferTable) -> None:
        """Prepare for a table.

        Raises
        ------
        ValueError : it has what is not read here.
        """

    def read(self, message: bytes) -> dict[str, Any]:
        """Return what a message says.

        Raises
        ------
        ValueError : these bytes are no such message; with the place and what is wrong there.
        """

@final
class CdrReader:
    """Reads messages of one definition. One thread at a time.

    A struct is a dict. Numbers, truth values and texts are Python's; a number that has a name is that name. Arrays and
    sequences of numbers are NumPy arrays, read-only ones that keep the message alive, and of unsigned numbers of 8 bits
    bytes; of all else they are lists.

    Messages may be anybody's bytes: what one says of lengths is checked before it is believed, and no more than 4
    million values are made of it.
    """

    def __init__(self, struct: CdrStruct, is_cdr: bool) -> None:
        """Prepare for a definition.

        Parameters
        ----------
        struct : of the messages.
        is_cdr : whether they are CDR (of either version and byte order, as each message says) or those of ROS 1.

        Raises
        ------
        ValueError : it has what is not decoded here.
        """

    def read(self, message: bytes) -> dict[str, Any]:
        """Return what a message says.

        Wide texts in CDR are written in three ways, and no message says in which; the first one is taken by which it is
        a message of its size.

        Raises
        ------
        ValueError : these bytes are no such message; with the place and what is wrong there.
        """

#: Repetitions that may be within each other.
CDR_REPEAT_DEPTH_MAX: int
#: What a step does; see cdr_columns.h.
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
    """Take messages apart.

    Parameters
    ----------
    steps : of a plan, shape (n, 6): the fields of `mq_cdr_step`, valid as `mq_cdr_step` in cdr_columns.h
        requires. They are not checked here.
    are_offsets : of each column, whether it has list offsets.
    is_cdr : else the messages are of ROS 1.
    data : the messages, one behind the other.
    message_offsets : shape (messages + 1,), where each one begins, and the last one ends.

    Returns
    -------
    The columns as bytes: numbers in the byte order of this machine, or list offsets, int32, the first of which is 0.
    And of each message whether it does not fit the plan: it is no plain CDR, ends too early, or has a text that is not
    UTF-8. Such messages have no part in the columns.

    Raises
    ------
    InvalidValueError : no steps, no messages, or offsets that are not within the data.

    Notes
    -----
    Releases the GIL; the data must not change meanwhile, or what comes out makes no sense.
    """
