"""What waits in a queue, copied without taking it."""

from typing import Self

from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.common.stats.workqueue import QueueMessage

@disjoint_base
class QueueBrowser:
    """Looks at the messages of a queue. Its file is mapped read-only: a right to read is enough, and nobody notices.

    Each look is at all places of the queue. What others take meanwhile is left out, and nothing is seen half. It stays
    with the file that it opened, also when the queue is removed. One thread at a time.

    Its calls raise `SegmentSizeError` when another program made the file smaller.
    """

    def __new__(cls, name: str, in_prefix: str) -> Self:
        """Open the queue's file.

        Raises
        ------
        SegmentError : it is not there (ENOENT), or cannot be read. CorruptSegmentError: it is no queue.
        """

    @property
    def schema(self) -> Schema | None:
        """What describes the messages; None: nothing does."""

    @property
    def events(self) -> bool:
        """Whether the queue publishes what happens to its messages (`msgq.common.queue_events`)."""

    @property
    def sent(self) -> int:
        """How many messages were sent so far, by all handles."""

    def messages(self, limit: int | None = None) -> list[QueueMessage]:
        """Return copies of what waits, those first that would be received first; see `msgq.stats.queue_messages`."""

    def unseen(self, limit: int | None = None) -> list[QueueMessage]:
        """Return those of `messages` that this has not returned before. The first call returns all that wait.

        One that was taken and came back is not new. Which messages were returned is remembered by place, so it takes 16
        bytes for each message that the queue holds, whatever passes.
        """

def queue_messages(name: str, in_prefix: str, limit: int | None = None) -> list[QueueMessage]:
    """Return what waits, see `msgq.stats.queue_messages`."""
