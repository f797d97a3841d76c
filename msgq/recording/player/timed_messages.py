"""Messages of a log in the order of their times, for playback."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError
from msgq.kinds import find_kind, get_kind, list_state_kinds
from msgq.kinds.playback import PlaybackMessage
from msgq.recording.log_reader import LogReader
from msgq.recording.player.plan import PlaybackPlan, make_playback_plan
from msgq.recording.player.remapping import EndpointRemapping, NameMapping
from msgq.recording.player.ring_sender import UNKNOWN_AGE, order_publish_times
from msgq.recording.reader.column_batches import BatchMergeBuffer, MessageBatch

TIME_SOURCES = ("publish_time", "log_time")
#: A publish_time that is further from the log_time is ignored. Messages of this time wait to be put in order.
MAX_PUBLISH_SKEW_NS = NS_PER_S
_UNORDERED_BYTES_MAX = 128 << 20  # bytes of messages that wait to be put in order; beyond, the older half is taken
_BATCH_ROWS = 4096  # rows converted to tuples at once


class TimedMessages:
    """Messages of a log with their new names, in the order of time. Times never go back.

    Attributes:
        names: new names of endpoints.
        new_names: new name by code of the log; None: not played. Grows while the log is read.
    """

    def __init__(
        self, log: LogReader, time_source: str, names: EndpointRemapping, plan: PlaybackPlan | None = None
    ) -> None:
        """Select the messages of a plan; None: all messages with a valid name."""
        if time_source not in TIME_SOURCES:
            raise InvalidValueError(f"time_source {time_source!r} is unknown; use one of {', '.join(TIME_SOURCES)}")
        self.names, self.new_names = names, list[str | None]()
        self._log_reader, self._time_source, self._plan = log, time_source, plan
        self._is_code_played = np.empty(0, np.bool_)  # played or not, by code
        self._first_bytes = np.empty(0, np.int16)  # first byte of the messages to send, by code; -1: any

    def iter_batches(self, begin_ns: int = 0) -> Iterator[MessageBatch]:
        """Yield batches from a log time on. Omits events of work queues, except for sent messages.

        Messages that were published before the beginning, and recorded after it, get its time.
        """
        for batch in iter_batches_by_time(self._log_reader.between(begin_ns), self._time_source):
            self._name_new_channels()
            is_played = self._is_code_played[batch.channel_code]
            if self._plan is not None and not is_played.all():
                omitted = np.unique(batch.channel_code[~is_played])
                self._plan.add_skipped_endpoints(self._log_reader.channels[code].endpoint for code in omitted)
            first_bytes = self._first_bytes[batch.channel_code]
            if (first_bytes >= 0).any():
                is_played &= (first_bytes < 0) | (_read_first_bytes(batch) == first_bytes)
            if is_played.any():
                yield (batch if is_played.all() else batch.select_rows(is_played)).clamp_times_to(begin_ns)

    def _name_new_channels(self) -> None:
        if len(self.new_names) == len(self._log_reader.channels):
            return
        for channel in self._log_reader.channels[len(self.new_names) :]:
            name = self.names.find_new_name(channel.endpoint, channel.message_source.kind)
            self.new_names.append(name if self._plan is None or name in self._plan.endpoint_specs else None)
        self._is_code_played = np.array([name is not None for name in self.new_names])
        self._first_bytes = np.array(
            [_find_replayed_first_byte(channel.message_source.kind) for channel in self._log_reader.channels]
        )

    def build_messages(self, batch: MessageBatch, rows: slice) -> list[PlaybackMessage]:
        """Return some messages of a batch as objects."""
        chosen = batch.select_rows(rows)
        codes, begins = chosen.channel_code.tolist(), chosen.offset.tolist()
        ends = (chosen.offset + chosen.length).tolist()
        contents, channels = batch.contents, self._log_reader.channels
        fields = zip(
            chosen.order_time.tolist(),
            [self.new_names[code] for code in codes],
            [contents[i][b:e] for i, b, e in zip(chosen.content_index.tolist(), begins, ends, strict=True)],
            [None if age == UNKNOWN_AGE else age for age in compute_message_ages(chosen).tolist()],
            [channels[code].message_source for code in codes],
            [channels[code].schema for code in codes],
            strict=True,
        )
        return list(map(PlaybackMessage._make, fields))

    def iter_messages(self) -> Iterator[PlaybackMessage]:
        """Yield the messages one by one."""
        for batch in self.iter_batches():
            for begin in range(0, len(batch), _BATCH_ROWS):
                yield from self.build_messages(batch, slice(begin, begin + _BATCH_ROWS))


class PlaybackSchedule(TimedMessages):
    """A log for playback, computed once, and walked any number of times from any position.

    Attributes:
        plan: endpoints to create first. Messages of skipped endpoints are omitted.
    """

    def __init__(self, log: LogReader, begin_ns: int, time_source: str, remap: NameMapping) -> None:
        """Read the indexes of the log. `begin_ns`: log time of the first beginning."""
        names, self._state_log = EndpointRemapping(remap), log.full_history(*list_state_kinds())
        self.plan = make_playback_plan(log, self._state_log.between(None, begin_ns), names)
        super().__init__(log, time_source, names, self.plan)

    def find_state(self, begin_ns: int) -> list[PlaybackMessage]:
        """Return the last change of each vector element and of each board key before a log time, oldest first."""
        return find_latest_state(self._state_log.between(None, begin_ns), self.names)


def playback_messages(
    log: LogReader, time_source: str = "publish_time", remap: NameMapping = MappingProxyType({})
) -> Iterator[PlaybackMessage]:
    """Yield the messages of a log for `Simulation.play`, in the order of their times. Times never go back.

    Args:
        log: log with the selected endpoints and times.
        time_source: "publish_time", or "log_time" (recording time, in exactly this order). A publish_time more than 1 s
            from log_time is ignored, and messages of one endpoint keep their order.
        remap: new names of endpoints, of the same kind, by name or by compiled expression. The first expression that
            matches a name replaces the match, like `re.sub`. In topic names with "/", as in ROS, "." replaces "/".
            Endpoints without a valid name are omitted, and so are events of work queues, except for sent messages: the
            queue creates new events.

    Raises:
        InvalidValueError: `time_source` is invalid, or a new name has another kind.
    """
    return TimedMessages(log, time_source, EndpointRemapping(remap)).iter_messages()


def find_latest_state(before: LogReader, names: EndpointRemapping) -> list[PlaybackMessage]:
    """Return the last change of each vector element and of each board key, oldest first.

    Args:
        before: reader of the changes before the start; see `LogReader.full_history`.
        names: new names of endpoints.
    """
    latest: dict[tuple[str, str, bytes], PlaybackMessage] = {}
    for message in TimedMessages(before, "log_time", names).iter_messages():
        key = message.source.key
        changed = message.endpoint, key, b"" if key else message.data[_find_index_field(message.source.kind)]
        latest.pop(changed, None)
        latest[changed] = message
    return list(latest.values())


@cache
def _find_index_field(kind_name: str) -> slice:
    """Return the bytes of a change that say which element changed (`Kind.change_header`)."""
    header = np.dtype(list(get_kind(kind_name).change_header or ()))
    if not header.fields:
        return slice(0)
    index_type, offset = header.fields["index"][:2]
    return slice(offset, offset + index_type.itemsize)


def iter_batches_by_time(log: LogReader, time_source: str) -> Iterator[MessageBatch]:
    """Yield batches in the order of the chosen time, which becomes their `order_time`."""
    return _iter_batches_by_publish_time(log) if time_source == "publish_time" else log.iter_batches()


def _iter_batches_by_publish_time(log: LogReader) -> Iterator[MessageBatch]:
    """Yield batches in the order of their publishing times. Ignores implausible times."""
    waiting, endpoints, latest, shown = BatchMergeBuffer(), np.empty(0, np.int32), np.empty(0, np.int64), 0
    for batch in log.iter_batches():
        if len(endpoints) < len(log.channels):
            names, endpoints = log.log_view.map_codes_to_endpoints()
            latest = np.concatenate((latest, np.zeros(len(names) - len(latest), np.int64)))
        times = order_publish_times(
            batch.log_time, batch.publish_time, batch.channel_code, endpoints, latest, MAX_PUBLISH_SKEW_NS
        )
        waiting.add_batch(replace(batch, order_time=times))
        certain = int(batch.log_time[-1]) - MAX_PUBLISH_SKEW_NS  # nothing that follows can be earlier
        for ready in chain(waiting.pop_until_time(certain), _pop_excess_batches(waiting)):
            yield ready.clamp_times_to(shown)
            shown = max(shown, int(ready.order_time[-1]))
    for ready in waiting.pop_until_time():
        yield ready.clamp_times_to(shown)


def _pop_excess_batches(waiting: BatchMergeBuffer) -> Iterator[MessageBatch]:
    """Yield the older half of the waiting messages, until the rest fits the limit."""
    while waiting.memory_bytes > _UNORDERED_BYTES_MAX:
        yield from waiting.pop_until_time((waiting.first_time + waiting.last_time) // 2)


class ClockTicks:
    """The log's time as messages: u64 nanoseconds, little-endian, at a steady rate of log time.

    The ticks depend on the log only, so they are the same in each run. A tick precedes the messages of the same time.

    Attributes:
        next_tick_ns: time of the next tick; `math.inf`: none.
    """

    def __init__(self, endpoint: str | None, rate_hz: float, begin_ns: int) -> None:
        self._endpoint, self._rate_hz, self._begin_ns = endpoint, rate_hz, begin_ns
        self._tick_count = 0
        self.next_tick_ns: float = math.inf if endpoint is None else begin_ns

    def make_next_tick(self) -> PlaybackMessage:
        """Return the next tick as a message, and advance."""
        time_ns, self._tick_count = int(self.next_tick_ns), self._tick_count + 1
        self.next_tick_ns = self._begin_ns + round(self._tick_count * NS_PER_S / self._rate_hz)
        return PlaybackMessage(time_ns, self._endpoint or "", struct.pack("<Q", time_ns))


def compute_message_ages(batch: MessageBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the age of each message's origin at its publishing time, in ns; `UNKNOWN_AGE`: unknown."""
    return np.where(batch.origin_time != 0, batch.publish_time - batch.origin_time, UNKNOWN_AGE)


def _find_replayed_first_byte(kind_name: str) -> int:
    """Return the first byte of messages of this kind that are sent again; -1: any."""
    kind = find_kind(kind_name)
    return -1 if kind is None else kind.playback.played_first_byte


def _read_first_bytes(batch: MessageBatch) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Return the first byte of each message; -2 for an empty message."""
    first = np.full(len(batch), -2, np.int16)
    for number, content in enumerate(batch.contents):
        has_payload = (batch.content_index == number) & (batch.length > 0)
        first[has_payload] = np.frombuffer(content, np.uint8)[batch.offset[has_payload]]
    return first
