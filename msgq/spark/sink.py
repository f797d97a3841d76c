"""Results of a stream, back on the bus."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from msgq import PubSocket


class Publisher:
    """Publishes each row of each batch: ``stream.writeStream.foreachBatch(Publisher("alarms")).start()``.

    One socket, on the driver, so that the endpoint has one publisher and the rows keep their order. A batch that failed
    is done again, so that its messages come again: at least once. Each message is JSON with the row's columns and
    `batch`, the number of its batch, by which subscribers can drop repeats; or, with `column`, that column's bytes.
    """

    def __init__(self, endpoint: str, column: str | None = None, segment_size: int = 0) -> None:
        """Publish nothing yet.

        Parameters
        ----------
        endpoint : its name. Connected with the first batch.
        column : binary or string; what the messages are. None: the whole row as JSON.
        segment_size : as of `pub_sock`. A batch that is larger laps those who read slowly.
        """
        self._endpoint, self._column, self._segment_size = endpoint, column, segment_size
        self._socket: PubSocket | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Publish a batch, in its order; it has to fit in the driver's memory.

        Raises
        ------
        InvalidValueError : there is no such column.
        """
        from pyspark.sql import functions

        from msgq import pub_sock

        if self._column is None:
            row = functions.struct(functions.lit(batch).alias("batch"), *frame.columns)
            chosen = frame.select(functions.to_json(row).cast("binary").alias("message"))
        elif self._column in frame.columns:
            chosen = frame.select(functions.col(self._column).cast("binary").alias("message"))
        else:
            text = f"there is no column {self._column!r} to publish; there are {', '.join(frame.columns)}"
            raise InvalidValueError(text, self._endpoint)
        messages = chosen.toArrow().column("message").drop_null().to_pylist()
        if self._socket is None:
            self._socket = pub_sock(self._endpoint, self._segment_size)
        self._socket.send_many(messages)

    def close(self) -> None:
        """Close the socket, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
