"""Messages of a schedule to the writers, and how many these were."""

from __future__ import annotations

from collections import Counter

from msgq.common.message_source import TOPIC_SOURCE
from msgq.recording.player.ring_sender import RingSender
from msgq.recording.player.schedule import PlaybackSchedule, compute_message_ages
from msgq.recording.player.writers import PlaybackWriters
from msgq.recording.reader.column_batches import MessageBatch

_SMALL_BATCH_ROWS = 64
_BATCH_BYTES = 1 << 18  # at once, on topics: some 30 us


class BatchSender:
    """Sends bursts, a part at a time: what goes to topics on rings without an object for each message.

    Attributes
    ----------
    current_batch : of which parts are sent.
    message_times : of its messages, ns since the epoch.
    """

    def __init__(self, writers: PlaybackWriters) -> None:
        self._writers = writers
        self._ring_sender = RingSender()
        self._other_counts: Counter[str] = Counter()
        self._other_bytes = 0

    def begin_batch(self, schedule: PlaybackSchedule, batch: MessageBatch) -> None:
        """Let what is sent be of a batch of this schedule."""
        for name in schedule.new_names[len(self._ring_sender) :]:
            self._ring_sender.add_socket(self._writers.find_publisher(name))
        self._schedule, self.current_batch = schedule, batch
        self.message_times: memoryview[int] = batch.order_time.data
        self._message_ages = compute_message_ages(batch)

    def send_rows(self, row: int, end: int) -> int:
        """Send rows from one to before another, or some of them, but at least one; return which row is next."""
        following = self._ring_sender.send_rows(self.current_batch, self._message_ages, row, end, _BATCH_BYTES)
        return following if following > row else self._send_other_messages(row, min(end, row + _SMALL_BATCH_ROWS))

    def _send_other_messages(self, row: int, end: int) -> int:
        """Send what is no topic on a ring, message by message; and the first in any case."""
        codes = self.current_batch.channel_code[row:end].tolist()
        count = next(
            (place for place, code in enumerate(codes) if place and self._ring_sender.has_ring(code)), len(codes)
        )
        for message in self._schedule.build_messages(self.current_batch, slice(row, row + count)):
            if self._writers.send_message(message):
                self._other_counts[message.source.kind] += 1
                self._other_bytes += len(message.data)
        return row + count

    @property
    def sent_by_kind(self) -> dict[str, int]:
        """How many messages were sent, by the kind of their endpoints."""
        return dict(self._other_counts + Counter({TOPIC_SOURCE.kind: self._ring_sender.sent_messages}))

    @property
    def sent_bytes(self) -> int:
        """Of the payloads of all that was sent."""
        return self._other_bytes + self._ring_sender.sent_bytes
