"""Publishes results of Spark on the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgq.common.closing import ClosingContext
from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from msgq import PubSocket


class BusSink(ClosingContext):
    """Publishes rows: ``stream.writeStream.foreachBatch(BusSink("alarms")).start()``, or ``publish(table)``.

    The driver has one socket, so the endpoint has one publisher and the rows keep their order. Spark repeats a failed
    batch, so each message is published at least once. A message is JSON with the columns of the row and `batch`, the
    number of its batch, by which subscribers can drop repeats. With `column`, a message has the bytes of that column.
    In JSON, binary values are base64, numbers that are not finite are texts ("NaN"), and NULL is null.
    """

    def __init__(self, endpoint: str, column: str | None = None, segment_size: int = 0) -> None:
        """Set the endpoint. The first batch connects the socket.

        Args:
            endpoint: name of the topic.
            column: a binary or string column with the messages; rows with NULL are skipped. None: the whole row as
                JSON.
            segment_size: as in `pub_sock`. A batch that exceeds the ring laps slow subscribers.
        """
        self._endpoint, self._column, self._segment_size = endpoint, column, segment_size
        self._socket: PubSocket | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Publish a batch of a stream, in its order. The batch must fit in the driver's memory.

        Raises:
            InvalidValueError: the column is missing or not bytes, or a column `batch` exists already.
            IpcError: as `PubSocket.connect` and `send`. Spark repeats the whole batch.
        """
        self._publish_rows(frame, batch)

    def publish(self, frame: DataFrame) -> int:
        """Publish a table that is not a stream, in its order and without `batch`. Return the number of messages.

        Raises:
            Exception: errors of `__call__`.
        """
        return self._publish_rows(frame, None)

    def _publish_rows(self, frame: DataFrame, batch: int | None) -> int:
        from msgq import pub_sock

        column = (
            self._make_json_column(frame, batch)
            if self._column is None
            else self._make_payload_column(frame, self._column)
        )
        messages = frame.select(column.alias("message")).toArrow().column("message").drop_null().to_pylist()
        if self._socket is None:
            self._socket = pub_sock(self._endpoint, self._segment_size)
        return self._socket.send_many(messages)

    def _make_json_column(self, frame: DataFrame, batch: int | None) -> Column:
        from pyspark.sql import functions as F

        if batch is not None and "batch" in frame.columns:
            raise InvalidValueError(
                "column 'batch' exists already, but is reserved for the batch number; rename your column",
                self._endpoint,
            )
        first = [] if batch is None else [F.lit(batch).alias("batch")]
        return F.to_json(F.struct(*first, "*"), {"ignoreNullFields": "false"}).cast("binary")

    def _make_payload_column(self, frame: DataFrame, name: str) -> Column:
        types = dict(frame.dtypes)
        if name not in types:
            text = f"column {name!r} does not exist; columns: {', '.join(types)}"
            raise InvalidValueError(text, self._endpoint)
        if types[name] not in ("binary", "string"):
            text = f"column {name!r} has type {types[name]}; use binary or string"
            raise InvalidValueError(text, self._endpoint)
        return frame[name].cast("binary")

    def close(self) -> None:
        """Close the socket, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
