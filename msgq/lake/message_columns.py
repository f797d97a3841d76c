"""Columns of messages in recordings and in lakes."""

from __future__ import annotations

import pyarrow as pa

#: Columns of a message. Times are ns since the epoch. `publisher` and `key` are NULL if there is none.
MESSAGE_COLUMNS = pa.schema(
    [
        ("run", pa.string()),
        ("host", pa.string()),
        ("endpoint", pa.string()),
        ("epoch", pa.int64()),
        ("sequence", pa.int64()),
        ("publish_time", pa.int64()),
        ("log_time", pa.int64()),
        ("origin_time", pa.int64()),
        ("encoding", pa.string()),
        ("schema", pa.string()),
        ("data", pa.binary()),
        ("kind", pa.string()),
        ("publisher", pa.string()),
        ("key", pa.string()),
        ("lost_before", pa.int64()),
        ("lost_after", pa.int64()),
    ]
)
#: Columns that exist only if they are selected: the file, the offset of the message's chunk in the file, the id of the
#: schema's text, and the options to create the endpoint again.
OPTIONAL_COLUMNS = pa.schema(
    [("file", pa.string()), ("byte_offset", pa.int64()), ("schema_id", pa.int64()), ("options", pa.string())]
)
#: Columns of messages that are added to a lake.
INGEST_COLUMNS = pa.schema([*MESSAGE_COLUMNS, OPTIONAL_COLUMNS.field("schema_id"), OPTIONAL_COLUMNS.field("options")])
#: Columns of messages in a lake; the last two are in paths.
BRONZE_COLUMNS = pa.schema(
    [
        *INGEST_COLUMNS,
        ("size_bytes", pa.int64()),
        ("picture", pa.string()),
        ("date", pa.date32()),
        ("size_class", pa.string()),
    ]
)
#: Unreadable parts of files: the file, the position, and the reason.
READ_ERRORS_SCHEMA = pa.schema([("file", pa.string()), ("byte_offset", pa.int64()), ("reason", pa.string())])
