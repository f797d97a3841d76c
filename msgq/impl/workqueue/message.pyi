"""Messages of work queues."""

from typing import Final, final

from _typeshed import structseq

@final
class Message(structseq[bytes | int], tuple[bytes, int]):
    """A message of a queue: the pair ``(data, priority)`` with more attributes. Messages can be pickled."""

    __match_args__: Final = ("data", "priority")

    @property
    def data(self) -> bytes:
        """Bytes of the message."""

    @property
    def priority(self) -> int:
        """Priority, 0 to 32767. Larger priorities are received first."""

    @property
    def deliveries(self) -> int:
        """Number of deliveries, including this delivery."""

    @property
    def sent_time(self) -> int:
        """Send time, nanoseconds of the host's clock (clock.md)."""

    @property
    def origin_time(self) -> int:
        """Origin time set by the sender, nanoseconds; 0: none."""

def message(data: bytes, priority: int, deliveries: int, sent_time: int, origin_time: int) -> Message:
    """Return a message. The backend `fake` uses this constructor."""
