"""Sends played messages, in compiled code."""

from typing import Any, final

import numpy as np

from msgq.recording.reader.column_batches import MessageBatch

#: Age of a message whose age is unknown.
UNKNOWN_AGE: int

def order_publish_times(
    log_time: np.ndarray[Any, np.dtype[np.int64]],
    publish_time: np.ndarray[Any, np.dtype[np.int64]],
    code: np.ndarray[Any, np.dtype[np.int32]],
    endpoints: np.ndarray[Any, np.dtype[np.int32]],
    latest: np.ndarray[Any, np.dtype[np.int64]],
    max_skew_ns: int,
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the publish times of messages. For an implausible publish time, the log_time is returned.

    Messages of one endpoint keep their order.

    Args:
        log_time: log_time of each message, in ascending order.
        publish_time: publish_time of each message, in the order of log_time.
        code: code of each message, in the order of log_time.
        endpoints: for each code, the index of its endpoint.
        latest: for each endpoint, the time of its last message; updated by the call.
        max_skew_ns: maximum difference of publish_time and log_time. If the difference is larger, log_time is used.
    """

@final
class RingSender:
    """Sends messages to the rings of topics, without a Python object for each message. One thread at a time.

    Attributes:
        sent_messages: number of sent messages.
        sent_bytes: bytes of their payloads.
    """

    sent_messages: int
    sent_bytes: int

    def __init__(self) -> None: ...
    def __len__(self) -> int:
        """Return the number of added codes."""

    def add_socket(self, socket: object) -> None:
        """Set the publisher of the next code.

        If the publisher is not a `PubSocket` of shared memory, this object does not send messages of the code.
        """

    def has_ring(self, code: int) -> bool:
        """Return True if this object sends messages of this code."""

    def send_rows(
        self, batch: MessageBatch, ages: np.ndarray[Any, np.dtype[np.int64]], row: int, end: int, most: int
    ) -> int:
        """Send rows, one after the other. Returns the first row that was not sent.

        Args:
            batch: the messages.
            ages: for each message, the age of its origin when it was published; `UNKNOWN_AGE`: unknown.
            row: first row.
            end: row at which to stop. The call stops earlier at a row that this object does not send, at a row that
                does not fit into its ring, and after `most` bytes.
            most: limit of payload bytes.

        Raises:
            MultiplePublishersError: another process took over an endpoint.
            InvalidValueError: a payload is outside its content.
        """
