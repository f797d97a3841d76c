"""Results, back on the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from msgq import PubSocket


class BusSink:
    """Publishes rows: ``stream.writeStream.foreachBatch(BusSink("alarms")).start()``, or ``publish(table)``.

    One socket, on the driver, so that the endpoint has one publisher and the rows keep their order. A batch that failed
    is done again, so that its messages come again: at least once. Each message is JSON with the row's columns and
    `batch`, the number of its batch, by which subscribers can drop repeats; or, with `column`, that column's bytes.
    JSON as Spark writes it: binary is base64, what is no finite number is text ("NaN"), and NULL is null.
    """

    def __init__(self, endpoint: str, column: str | None = None, segment_size: int = 0) -> None:
        """Publish nothing yet.

        Parameters
        ----------
        endpoint : its name. Connected with the first batch.
        column : binary or string; what the messages are, without those that are NULL. None: the whole row as JSON.
        segment_size : as of `pub_sock`. A batch that is larger laps those who read slowly.
        """
        self._endpoint, self._column, self._segment_size = endpoint, column, segment_size
        self._socket: PubSocket | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Publish a batch of a stream, in its order; it has to fit in the driver's memory.

        Raises
        ------
        InvalidValueError : there is no such column, or it has no bytes; or there is a column `batch` already.
        IpcError : as `PubSocket.connect` and `send`; the batch will come again, from its beginning.
        """
        self._publish_rows(frame, batch)

    def publish(self, frame: DataFrame) -> int:
        """Publish a table that is no stream, in its order, without `batch`; return how many messages that was.

        Raises
        ------
        As `__call__`.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
