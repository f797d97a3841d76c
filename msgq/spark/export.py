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

_INTEGER = ("bigint", "int", "smallint", "tinyint")
_NEEDED = {"endpoint": ("string",), "log_time": _INTEGER, "data": ("binary", "string")}
_KEPT = {"epoch": _INTEGER, "sequence": _INTEGER, "publish_time": _INTEGER, "encoding": ("string",)}
_ORDER = ("log_time", "endpoint", "epoch", "sequence")
_PART_BYTES = 64 << 20  # of rows that are on the driver at once; the next ones are fetched meanwhile
_ROW_BYTES = 100  # without the payload


def write_log(rows: DataFrame, path: Path) -> int:
    """Write rows as an MCAP file, in the order of log_time; return how many.

    Parameters
    ----------
    rows : endpoint, log_time, data, and where they are there epoch, sequence, publish_time, encoding. Those in which
        one of the first three is NULL are left out. Never all collected: the driver holds about 128 MiB of them.
    path : of the file, which must not exist.

    Raises
    ------
    InvalidValueError : a column is missing, or has a type or a value that a message cannot have.
    RecordingError : the file exists, or cannot be written.
    """
    ordered = _ordered(_messages(rows))
    count = 0
    with new_file(path) as part, part.open("wb") as file:
        writer = Writer(file, compression=CompressionType.ZSTD)
        writer.start(profile=layout.PROFILE, library=f"msgq-bus {msgq.__version__}")
        channels: dict[tuple[str, int, str], int] = {}
        for row in ordered.toLocalIterator(prefetchPartitions=True):
            values = row.asDict()
            number, time = _channel(writer, channels, values), values["log_time"]
            published, sequence = values.get("publish_time"), (values.get("sequence") or 0) % 2**32
            published = time if published is None else published
            if min(time, published) < 0:
                text = f"a message has log_time {time}, publish_time {published}; times are ns since 1970"
                raise InvalidValueError(text, values["endpoint"])
            writer.add_message(number, time, bytes(values["data"]), published, sequence)
            count += 1
        writer.finish()  # type: ignore[no-untyped-call]
    return count


def _messages(rows: DataFrame) -> DataFrame:
    """Return the columns that make messages. Raises InvalidValueError where they cannot."""
    types = dict(rows.dtypes)
    if missing := [name for name in _NEEDED if name not in types]:
        text = f"there is no column {missing[0]!r}; messages have {', '.join(_NEEDED)}"
        raise InvalidValueError(f"{text}, as SELECT * FROM messages gives them")
    known = {name: fit for name, fit in (_NEEDED | _KEPT).items() if name in types}
    for name, fit in known.items():
        if types[name] not in fit:
            raise InvalidValueError(f"the column {name!r} is {types[name]}; of a message it is {' or '.join(fit)}")
    chosen = rows.select(*known).dropna(subset=list(_NEEDED))
    return chosen.withColumn("data", chosen["data"].cast("binary"))


def _ordered(messages: DataFrame) -> DataFrame:
    """Return them in order, in partitions of about the same size."""
    from pyspark.sql import functions as F

    size = messages.agg(F.sum(F.octet_length("data") + _ROW_BYTES)).collect()[0][0] or 0
    parts = messages.repartitionByRange(size // _PART_BYTES + 1, "log_time")
    return parts.sortWithinPartitions(*(name for name in _ORDER if name in messages.columns))


def _channel(writer: Writer, channels: dict[tuple[str, int, str], int], values: dict[str, Any]) -> int:
    """Return the channel of a row. Schemas are not in the lake; what needs one is known by its encoding alone."""
    key = (values["endpoint"], values.get("epoch") or 0, values.get("encoding") or "")
    if key not in channels:
        metadata = {layout.EPOCH: str(key[1]), layout.SEQUENCE: layout.PUBLISHED}
        channels[key] = writer.register_channel(key[0], key[2], 0, metadata)
    return channels[key]
