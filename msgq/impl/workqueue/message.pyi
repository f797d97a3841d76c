"""What a work queue hands out."""

from typing import Final, final

from _typeshed import structseq

@final
class Message(structseq[bytes | int], tuple[bytes, int]):
    """A message of a work queue: the pair ``(data, priority)``, with more attributes. It can be pickled."""

    __match_args__: Final = ("data", "priority")

    @property
    def data(self) -> bytes:
        """What was sent."""

    @property
    def priority(self) -> int:
        """From 0 to 32767; larger ones are received first."""

    @property
    def deliveries(self) -> int:
        """How often it was received or taken, this time included."""

    @property
    def sent_time(self) -> int:
        """When it was sent, nanoseconds of the host's clock (clock.md)."""

    @property
    def origin_time(self) -> int:
        """What its sender gave with it, nanoseconds; 0: nothing."""

def message(data: bytes, priority: int, deliveries: int, sent_time: int, origin_time: int) -> Message:
    """Return a message, for the backend inside one process."""
