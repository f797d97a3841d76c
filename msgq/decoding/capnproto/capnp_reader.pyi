"""Messages of Cap'n Proto as Python values."""

from typing import Any, final

from msgq.decoding.capnproto.schema_types import Struct

@final
class StructReader:
    """Reads messages of one struct. One thread at a time.

    Structs are dicts: without texts, bytes, lists and structs that a message does not set, and of a union with the
    field that it has, set or not; all else is there. Numbers, truth values and texts are Python's, data is bytes; a
    number that has a name is that name. Lists of numbers are NumPy arrays, read-only ones that keep the message alive,
    and of unsigned numbers of 8 bits bytes; of all else they are lists. Pointers to anything and capabilities are None.

    Messages may be anybody's bytes: every place is checked before it is read. Parts of a message may be in it many
    times, and elements may have no bytes; so no more than 4 million values are made of it, at most 64 levels deep, and
    no more bytes and texts than 16 times its own size.
    """

    def __init__(self, struct: Struct) -> None:
        """Prepare for a struct."""

    def read(self, message: bytes) -> dict[str, Any]:
        """Return what a message says: segments behind their table, unpacked.

        Raises
        ------
        ValueError : these bytes are no such message; with the place and what is wrong there.
        """
