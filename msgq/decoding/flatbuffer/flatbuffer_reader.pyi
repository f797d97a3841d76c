"""Messages of FlatBuffers as Python values."""

from typing import Any, final

from msgq.decoding.flatbuffer.schema_types import Table

@final
class TableReader:
    """Reads messages of one table. One thread at a time.

    Tables and structs are dicts with all fields: one that is missing has the value that the schema says, or None.
    Numbers, truth values and texts are Python's; a number that has a name is that name. Vectors of numbers are NumPy
    arrays, read-only ones that keep the message alive, and of unsigned numbers of 8 bits bytes; of all else they are
    lists. A union is what it has, and the field before it says what that is.

    Messages may be anybody's bytes: every place is checked before it is read. Parts of a message may be in it many
    times; so no more than 4 million values are made of it, at most 100 levels deep, and no more bytes and texts than 16
    times its own size.
    """

    def __init__(self, table: Table) -> None:
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
