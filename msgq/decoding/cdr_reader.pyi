"""Messages of CDR and of ROS 1 as Python values."""

from typing import Any, final

from msgq.decoding.type_model import Struct

@final
class ValueReader:
    """Reads messages of one definition. One thread at a time.

    A struct is a dict. Numbers, truth values and texts are Python's; a number that has a name is that name. Arrays and
    sequences of numbers are NumPy arrays, read-only ones that keep the message alive, and of unsigned numbers of 8 bits
    bytes; of all else they are lists.

    Messages may be anybody's bytes: what one says of lengths is checked before it is believed, and no more than 4
    million values are made of it.
    """

    def __init__(self, struct: Struct, is_cdr: bool) -> None:
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
