"""Statistics of each channel at the end of a file, so that readers need not read all messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mcap import records

from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.channel_tally import ChannelTally
from msgq.recording.mcap_io.core import CHANNEL_ID_COUNT, ChunkBuffer, tally_dtype
from msgq.recording.mcap_io.segment_file import CommitStep


class SequenceNumberingState(NamedTuple):
    """State that all channels of one numbering share.

    Attributes:
        first_channel_id: id of the first channel with this numbering.
        lost_messages: number of messages missing between recorded messages.
        first_sequence: low 32 bits of the sequence of the first message.
        last_sequence: low 32 bits of the sequence of the newest message.
    """

    first_channel_id: int
    lost_messages: int
    first_sequence: int
    last_sequence: int


class ChannelStatistics:
    """Counts written messages. One thread at a time."""

    def __init__(self) -> None:
        self._tallies = np.zeros(CHANNEL_ID_COUNT, tally_dtype())  # memory that is not written is not used
        self._numberings = np.arange(CHANNEL_ID_COUNT, dtype=np.uint16)
        self._first_channel_ids: dict[tuple[str, str], int] = {}
        self._channels_with_sequence: set[int] = set()
        self._unscanned_channels: set[int] = set()

    def add_channel(self, channel: records.Channel) -> None:
        """Start counting messages of a channel. Channels with the same endpoint and epoch share a numbering."""
        if channel.metadata.get(metadata_keys.SEQUENCE_KEY) == metadata_keys.PUBLISHER_SEQUENCE:
            numbering = (channel.topic, channel.metadata.get(metadata_keys.EPOCH_KEY, ""))
            self._numberings[channel.id] = self._first_channel_ids.setdefault(numbering, channel.id)
            self._channels_with_sequence.add(channel.id)

    def count_chunk_messages(self, chunk: ChunkBuffer) -> None:
        """Count the messages of a chunk. The channels of the chunk must have been added."""
        self.prepare_chunk(chunk)()

    def prepare_chunk(self, chunk: ChunkBuffer) -> CommitStep:
        """Return the step that counts the messages of a chunk; see `count_chunk_messages`."""
        return partial(chunk.update_tallies, self._tallies, self._numberings)

    def count_raw_messages(self, channel: int, messages: int, first_time: int, last_time: int) -> None:
        """Count messages without known sizes and losses."""
        tally = self._tallies[channel]
        if tally["messages"]:
            first_time = min(first_time, int(tally["first_time"]))
            last_time = max(last_time, int(tally["last_time"]))
        tally["first_time"], tally["last_time"] = first_time, last_time
        tally["messages"] += messages
        self._unscanned_channels.add(channel)

    def adopt_tallies(self, tallies: Mapping[int, ChannelTally]) -> None:
        """Use the complete statistics of copied messages, if their number equals the counted number.

        `tallies`: statistics by channel id.
        """
        adopted = np.zeros(CHANNEL_ID_COUNT, tally_dtype())
        for number, tally in tallies.items():
            numbering = adopted[self._numberings[number]]
            if tally.next_sequence and numbering["next_sequence"]:
                return  # two numberings have become one
            for name in ("messages", "bytes", "largest", "first_time", "last_time"):
                adopted[number][name] = getattr(tally, name)
            for name in ("lost", "next_sequence", "first_sequence") if tally.next_sequence else ():
                numbering[name] = getattr(tally, name)
        if (adopted["messages"] == self._tallies["messages"]).all():
            self._tallies = adopted
            self._unscanned_channels.clear()

    def build_metadata(self, at: int) -> dict[str, str]:
        """Return the content of the metadata record: a JSON object for each channel that has messages, by channel id.

        `at`: byte offset of the record in the file.
        """
        numbers = np.flatnonzero(self._tallies["messages"]).tolist()
        unknown = {int(self._numberings[number]) for number in self._unscanned_channels}
        counted_numberings: set[int] = set()
        statistics = {metadata_keys.STATISTICS_OFFSET_KEY: str(at)}
        for number in numbers:
            tally, numbering = self._tallies[number], int(self._numberings[number])
            names = ["messages", "first_time", "last_time"]
            names += [] if number in self._unscanned_channels else ["bytes", "largest"]
            figure: dict[str, Any] = {name: int(tally[name]) for name in names}
            if number in self._channels_with_sequence and numbering not in unknown:
                figure |= self._compute_losses(numbering) if numbering not in counted_numberings else {"lost": 0}
                counted_numberings.add(numbering)
            statistics[str(number)] = json.dumps(figure)
        return statistics

    def find_numbering_channel(self, channel: int) -> int:
        """Return the id of the first channel that shares the channel's numbering."""
        return int(self._numberings[channel])

    def iter_numberings(self) -> Iterator[SequenceNumberingState]:
        """Yield the numberings in which a gap is a loss, in the order of their channels."""
        for number in sorted({self.find_numbering_channel(channel) for channel in self._channels_with_sequence}):
            if self._tallies[number]["next_sequence"]:
                yield self._make_numbering_state(number)

    def _make_numbering_state(self, number: int) -> SequenceNumberingState:
        tally = self._tallies[number]
        return SequenceNumberingState(
            number, int(tally["lost"]), int(tally["first_sequence"]), int(tally["next_sequence"]) - 1
        )

    def _compute_losses(self, number: int) -> dict[str, Any]:
        numbering = self._make_numbering_state(number)
        return {"lost": numbering.lost_messages, "sequences": [numbering.first_sequence, numbering.last_sequence]}
