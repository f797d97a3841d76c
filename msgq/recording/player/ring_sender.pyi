"""What is done with each message that is played, below Python."""

from typing import Any, final

import numpy as np

from msgq.recording.reader.column_batches import MessageBatch

#: The age of what nobody knows the age of.
UNKNOWN_AGE: int

def order_publish_times(
    log_time: np.ndarray[Any, np.dtype[np.int64]],
    publish_time: np.ndarray[Any, np.dtype[np.int64]],
    code: np.ndarray[Any, np.dtype[np.int32]],
    endpoints: np.ndarray[Any, np.dtype[np.int32]],
    latest: np.ndarray[Any, np.dtype[np.int64]],
    max_skew_ns: int,
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return when messages were published, as far as that is believed; those of an endpoint keep their order.

    Parameters
    ----------
    log_time, publish_time, code : of each message, in the order of log_time.
    endpoints : of each code, the index of its endpoint.
    latest : of each endpoint, the time of its last message so far; brought up to date.
    max_skew_ns : how far publish_time may be from log_time; beyond that, log_time counts.
    """

@final
class RingSender:
    """Sends messages to the rings of topics, without a Python object for each. One thread at a time.

    Attributes
    ----------
    sent_messages, sent_bytes : sent so far, and of their payloads.
    """

    sent_messages: int
    sent_bytes: int

    def __init__(self) -> None: ...
    def __len__(self) -> int:
        """How many codes were added."""

    def add_socket(self, socket: object) -> None:
        """Say what publishes the messages of the next code; what is no `PubSocket` of rings, publishes none here."""

    def has_ring(self, code: int) -> bool:
        """Whether messages of this code are sent here."""

    def send_rows(
        self, batch: MessageBatch, ages: np.ndarray[Any, np.dtype[np.int64]], row: int, end: int, most: int
    ) -> int:
        """Send rows, one after the other; return which row is the first that was not sent.

        Parameters
        ----------
        batch : the messages.
        ages : of each, how old what it comes from was when it was published; `UNKNOWN_AGE`: nobody knows.
        row : to begin with.
        end : before which it stops; earlier at a row that is not sent here, at one that does not fit into its ring, and
            when enough was sent.
        most : bytes of payloads, from which on it is enough.

        Raises
        ------
        MultiplePublishersError : another process took an endpoint over.
        InvalidValueError : a payload is not within its content.
        """
