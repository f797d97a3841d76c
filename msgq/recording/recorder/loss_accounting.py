"""Counts the losses of a recording: captured messages that no file contains, and losses that no file stores."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from msgq.common.message_source import MessageSource
from msgq.kinds import find_recorded_kind
from msgq.recording.mcap_io.boundary_losses import (
    BoundaryLoss,
    BoundaryLosses,
    count_boundary_losses,
    parse_boundary_losses,
)
from msgq.recording.mcap_io.channel_statistics import ChannelStatistics
from msgq.recording.mcap_io.core import CHANNEL_ID_COUNT, ChunkBuffer
from msgq.recording.mcap_io.metadata_keys import FIRST_SEQUENCE_KEY, LOST_BEFORE_KEY, PUBLISHER_SEQUENCE
from msgq.recording.mcap_io.segment_writer import EncodedChannel, encode_channel


@dataclass(slots=True)
class _StoredLosses:
    """Stored losses of an endpoint. `lost` None: unknown. `channel` and `last` belong to the newest numbering."""

    lost_messages: int | None
    channel_id: int
    last_sequence: int


class UnwrittenMessages:
    """Captured messages that no file contains, because the recording failed. Any thread may call the methods.

    Attributes:
        message_counts: messages by endpoint.
        used_bytes: bytes of these messages in chunks.
    """

    def __init__(self) -> None:
        self.message_counts: Counter[str] = Counter()
        self.used_bytes = 0
        self._lock = threading.Lock()

    def add_chunk(self, chunk: ChunkBuffer, channels: Mapping[int, EncodedChannel]) -> None:
        """Add the messages of a chunk. `channels`: by number, at least the channels of the chunk."""
        with self._lock:
            for number, count in chunk.count_messages_by_channel().items():
                self.message_counts[channels[number].channel_record.topic] += count
            self.used_bytes += chunk.used_bytes


class LossAccounting:
    """Counts written messages and their losses. One thread at a time.

    Losses after the last message, for example after the disk was full, leave no gap. The same holds for losses of an
    endpoint without messages. A channel without messages stores such losses.
    """

    def __init__(self) -> None:
        self._channel_statistics = ChannelStatistics()
        self._encoded_channels: dict[int, EncodedChannel] = {}

    def count_chunk(self, chunk: ChunkBuffer, channels: Mapping[int, EncodedChannel]) -> None:
        """Count the messages of a written chunk. `channels`: by number, at least the channels of the chunk."""
        for number in chunk.count_messages_by_channel().keys() - self._encoded_channels.keys():
            self._encoded_channels[number] = channels[number]
            self._channel_statistics.add_channel(channels[number].channel_record)
        self._channel_statistics.count_chunk_messages(chunk)

    def iter_channels_with_losses(self, losses: Mapping[str, int | None], used: int) -> Iterator[EncodedChannel]:
        """Yield channels for the losses that no file stores yet.

        Args:
            losses: losses by endpoint; None: unknown. Unknown losses of an endpoint without messages are not stored.
            used: greatest number of a channel.
        """
        numbers = iter(range(used + 1, CHANNEL_ID_COUNT))
        yield from map(_copy_channel_with_id, numbers, self._iter_channels_for_missing_losses(losses))

    def _iter_channels_for_missing_losses(self, losses: Mapping[str, int | None]) -> Iterator[EncodedChannel]:
        """Yield the channels of `iter_channels_with_losses` without their numbers."""
        for endpoint, stored in self._compute_stored_losses().items():
            lost = losses.get(endpoint, 0)
            missing = None if lost is None or stored.lost_messages is None else lost - stored.lost_messages
            if stored.lost_messages is not None and (missing is None or missing > 0):
                yield _make_channel_with_loss_after(
                    self._encoded_channels[stored.channel_id], BoundaryLoss(stored.last_sequence, missing)
                )
        recorded = {channel.channel_record.topic for channel in self._encoded_channels.values()}
        for endpoint, lost in losses.items():
            if lost and endpoint not in recorded:
                source = MessageSource(find_recorded_kind(endpoint).name)
                yield encode_channel(
                    0,
                    endpoint,
                    None,
                    1,
                    PUBLISHER_SEQUENCE,
                    source=source,
                    boundary_losses=BoundaryLosses(unrecorded_messages=lost),
                )

    def _compute_stored_losses(self) -> dict[str, _StoredLosses]:
        stated = self._sum_losses_by_numbering()
        by_endpoint: dict[str, _StoredLosses] = {}
        for numbering in self._channel_statistics.iter_numberings():
            endpoint = self._encoded_channels[numbering.first_channel_id].channel_record.topic
            lost = count_boundary_losses(
                stated.get(numbering.first_channel_id, ()), numbering.first_sequence, numbering.last_sequence
            )
            lost = None if lost is None else lost + numbering.lost_messages
            before = by_endpoint[endpoint].lost_messages if endpoint in by_endpoint else 0
            both = None if before is None or lost is None else before + lost
            by_endpoint[endpoint] = _StoredLosses(both, numbering.first_channel_id, numbering.last_sequence)
        return by_endpoint

    def _sum_losses_by_numbering(self) -> dict[int, list[BoundaryLosses]]:
        stated: dict[int, list[BoundaryLosses]] = {}
        for number, channel in self._encoded_channels.items():
            missing = parse_boundary_losses(channel.channel_record.metadata)
            if any(missing):
                stated.setdefault(self._channel_statistics.find_numbering_channel(number), []).append(missing)
        return stated


def _make_channel_with_loss_after(like: EncodedChannel, missing: BoundaryLoss) -> EncodedChannel:
    """Return a channel of the same numbering that stores losses after its last message."""
    metadata = {
        name: text
        for name, text in like.channel_record.metadata.items()
        if name not in (FIRST_SEQUENCE_KEY, LOST_BEFORE_KEY)
    }
    channel = replace(like.channel_record, metadata=metadata | BoundaryLosses(loss_after=missing).build_metadata())
    return EncodedChannel(channel, like.schema_record)


def _copy_channel_with_id(number: int, like: EncodedChannel) -> EncodedChannel:
    return EncodedChannel(replace(like.channel_record, id=number), like.schema_record)
