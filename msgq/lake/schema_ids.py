"""Numbers that identify schemas."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from msgq.common.schema import Schema


@lru_cache(maxsize=4096)
def compute_schema_id(schema: Schema) -> int | None:
    """Return a number that identifies a schema and its text, equal on all machines; None: the schema has no text."""
    if not schema.data:
        return None
    hashed_bytes = b"\0".join((schema.encodings.encode(), schema.name.encode(), schema.data))
    return int.from_bytes(sha256(hashed_bytes).digest()[:8], "little", signed=True)
