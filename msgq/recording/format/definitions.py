"""What describes messages: schemas and channels, and how much of that a file may have."""

from __future__ import annotations

from msgq.schema import Schema

#: Of a file's schemas, channels and metadata together: they are kept, and compressed bytes can be any number of bytes.
DESCRIBING_BYTES_MAX = 32 << 20
#: Other descriptions of channels that a file already had: MCAP wants that there are none, files in a row have some.
CHANGES_MAX = 1 << 16
_OVERHEAD_BYTES = 256  # of Python, for each


class Room:
    """Counts what a file's descriptions take."""

    def __init__(self) -> None:
        self._taken: dict[tuple[int, bytes], int] = {}
        self._bytes = 0

    def takes(self, key: tuple[int, bytes], size: int) -> bool:
        """Return whether there is room for a description, instead of an earlier one with this key."""
        more = size + _OVERHEAD_BYTES - self._taken.get(key, 0)
        if self._bytes + more > DESCRIBING_BYTES_MAX:
            return False
        self._taken[key] = size + _OVERHEAD_BYTES
        self._bytes += more
        return True


class _ForeignSchema(Schema):
    """A schema that is larger than what an endpoint can have, or has no name."""

    __slots__ = ()

    def __post_init__(self) -> None:
        pass


def schema_of(name: str, encoding: str, data: bytes) -> Schema:
    """Return a schema as files have it, of any size."""
    try:
        return Schema(name, encoding, data)
    except ValueError:
        return _ForeignSchema(name, encoding, data)
