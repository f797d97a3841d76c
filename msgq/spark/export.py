"""Rows back to a log, which everything that reads recordings can play."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcap.writer import CompressionType, Writer

import msgq
from msgq.errors import InvalidValueError
from msgq.recording import layout
from msgq.recording.copying import new_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDED = ("endpoint", "log_time", "data")
_KEPT = ("epoch", "sequence", "publish_time", "encoding")


def write_log(rows: DataFrame, path: Path) -> int:
    """Write rows as an MCAP file, in the order of log_time; return how many.

    Parameters
    ----------
    rows : endpoint, log_time, data, and where they are there epoch, sequence, publish_time, encoding. Not collected:
        they come partition by partition.
    path : of the file, which must not exist.

    Raises
    ------
    InvalidValueError : a column is missing.
    RecordingError : the file exists, or cannot be written.
    """
    if missing := [name for name in _NEEDED if name not in rows.columns]:
        text = f"there is no column {missing[0]!r}; messages have {', '.join(_NEEDED)}"
        raise InvalidValueError(f"{text}, as SELECT * FROM messages gives them")
    chosen = rows.select(*_NEEDED, *(name for name in _KEPT if name in rows.columns)).where("data IS NOT NULL")
    count = 0
    with new_file(path) as part, part.open("wb") as file:
        writer = Writer(file, compression=CompressionType.ZSTD)
        writer.start(profile=layout.PROFILE, library=f"msgq-bus {msgq.__version__}")
        channels: dict[tuple[str, int, str], int] = {}
        for row in chosen.orderBy("log_time").toLocalIterator(prefetchPartitions=True):
            values = row.asDict()
            number = _channel(writer, channels, values)
            writer.add_message(
                number, values["log_time"], bytes(values["data"]), values.get("publish_time") or values["log_time"],
                values.get("sequence") or 0,
            )  # fmt: skip
            count += 1
        writer.finish()  # type: ignore[no-untyped-call]
    return count


def _channel(writer: Writer, channels: dict[tuple[str, int, str], int], values: dict[str, Any]) -> int:
    """Return the channel of a row. Schemas are not in the lake; what needs one is known by its encoding alone."""
    key = (values["endpoint"], values.get("epoch") or 0, values.get("encoding") or "")
    if key not in channels:
        metadata = {layout.EPOCH: str(key[1]), layout.SEQUENCE: layout.PUBLISHED}
        channels[key] = writer.register_channel(key[0], key[2], 0, metadata)
    return channels[key]
