"""Sends messages of a schedule to the writers, and counts them."""

from __future__ import annotations

from collections import Counter

from msgq.common.message_source import TOPIC_SOURCE
from msgq.recording.player.ring_sender import RingSender
from msgq.recording.player.timed_messages import PlaybackSchedule, compute_message_ages
from msgq.recording.player.writers import PlaybackWriters
from msgq.recording.reader.column_batches import MessageBatch

_SMALL_BATCH_ROWS = 64
_BATCH_BYTES = 1 << 18  # bytes of a batch on topics, which takes about 30 us


class BatchSender:
    """Sends batches, one part at a time. Messages to rings are sent without a Python object for each message.

    Attributes:
        current_batch: batch that is being sent.
        message_times: times of its messages, in ns since the epoch.
    """

    def __init__(self, schedule: PlaybackSchedule, writers: PlaybackWriters) -> None:
        self._schedule, self._writers = schedule, writers
        self._ring_sender = RingSender()
        self._other_counts: Counter[str] = Counter()
        self._other_bytes = 0

    def begin_batch(self, batch: MessageBatch) -> None:
        """Set the batch of the schedule that is sent next."""
        for name in self._schedule.new_names[len(self._ring_sender) :]:
            self._ring_sender.add_socket(self._writers.find_publisher(name))
        self.current_batch = batch
        self.message_times: memoryview[int] = batch.order_time.data
        self._message_ages = compute_message_ages(batch)

    def send_rows(self, row: int, end: int) -> int:
        """Send at least one row, and at most the rows from `row` to before `end`. Return the next row."""
        following = self._ring_sender.send_rows(self.current_batch, self._message_ages, row, end, _BATCH_BYTES)
        return following if following > row else self._send_other_messages(row, min(end, row + _SMALL_BATCH_ROWS))

    def _send_other_messages(self, row: int, end: int) -> int:
        """Send the first message, and following messages that do not go to a ring, one by one. Return the next row."""
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
        """Number of sent messages by kind of endpoint."""
        return dict(self._other_counts + Counter({TOPIC_SOURCE.kind: self._ring_sender.sent_messages}))

    @property
    def sent_bytes(self) -> int:
        """Payload bytes of all sent messages."""
        return self._other_bytes + self._ring_sender.sent_bytes
