"""Player: publishes the messages of a log at their times, on their endpoints."""

from __future__ import annotations

import math
import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from types import MappingProxyType
from typing import Protocol

from msgq.common import settings
from msgq.common.choices import list_names
from msgq.common.closing import ClosingContext
from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError, RecordingError, StateError
from msgq.kinds.playback import PlaybackTarget
from msgq.recording.log_reader import LogReader
from msgq.recording.player.batch_sender import BatchSender
from msgq.recording.player.remapping import NameMapping
from msgq.recording.player.timed_messages import (
    TIME_SOURCES,
    ClockTicks,
    PlaybackSchedule,
    iter_batches_by_time,
)
from msgq.recording.player.writers import PlaybackWriters

_RATE_MIN = 1e-6  # rate of the recording or of the clock endpoint: one second of the log in eleven days
_CLOCK_RATE_MAX = 1e6  # messages of the clock endpoint per second of the log
_SECONDS_MAX = 1e10  # more seconds than 64 bits of nanoseconds hold
_CLOCK_WAIT_MAX_S = 60.0  # a wait of its own in longer ones
_READERS_WAIT_S = 0.1  # seconds between two checks for readers
_CONTROL_YIELD_S = 0.001  # pause in which a waiting thread gets the lock
_BATCH_ROWS = 512  # messages that are sent at once, if they are due


class PlayerClock(Protocol):
    """Clock of a player. Tests supply another clock."""

    def now_ns(self) -> int:
        """Return a time in nanoseconds that never goes back."""

    def wait(self, changed: threading.Condition, seconds: float) -> None:
        """Wait up to `seconds`, or until notified. The caller holds the condition."""


class _MonotonicClock:
    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wait(self, changed: threading.Condition, seconds: float) -> None:
        changed.wait(seconds)


@dataclass(frozen=True, slots=True)
class PlayerStats:
    """Statistics of a player.

    Attributes:
        messages: number of sent messages, without the clock endpoint.
        bytes: bytes of their payloads, without the clock endpoint.
        passes: number of complete passes over the log.
        position: seconds from the beginning of the log to the last played message.
        late_ns: delay of the last message, in ns.
        late_max_ns: largest delay since the last pause, step or seek, in ns.
        unplayed: number of messages that could not be played, by endpoint, colon and reason: a full queue, a stream
            whose buffers are all held by clients, or incomplete data in the log.
        by_kind: number of sent messages by kind of their endpoints.
    """

    messages: int
    bytes: int
    passes: int
    position: float
    late_ns: int
    late_max_ns: int
    unplayed: dict[str, int] = field(default_factory=dict, hash=False)
    by_kind: dict[str, int] = field(default_factory=dict, hash=False)


class Player(ClosingContext):
    """Plays a log: ``Player("log").run()``.

    The deadline of each message follows from its time in the log alone, so errors do not accumulate. Late messages are
    sent at once. All endpoints exist before the first message, with the recorded kinds and schemas, and large enough
    for their largest message. Vectors and boards hold state: at the start, after `seek` and at each pass, they get the
    state of the log at this time.

    `run` plays in the calling thread. Other threads may call the other methods during `run`. A player plays once.

    Args:
        log: a path, or a `LogReader`, which may select endpoints and times and contain several files.
        start: seconds from the beginning of the log to the start of each pass.
        duration: seconds of the log to play; None: to the end.
        time_source: time that orders the messages, "publish_time" or "log_time".
        rate: speed relative to the recording, 1e-6 or more; inf: as fast as possible.
        loops: number of passes; None: without end. A pass starts when the last message of the previous pass is due.
        remap: new names of endpoints, of the same kind, by name or compiled expression; see `EndpointRemapping`.
        start_paused: True: wait for `resume` or `step`.
        wait_for_readers: True: wait until each endpoint has a subscriber. Or the new name or names of endpoints that
            need one. False or an empty list: do not wait. Vectors, boards and work queues need none, because they keep
            their content.
        clock_endpoint: endpoint for the log's time, in u64 nanoseconds since the epoch, little-endian.
        clock_rate: messages of the clock endpoint per second of the log, 1e-6 to 1e6.
        backend: "msgq", "zmq" or "fake"; None: MSGQ_BACKEND.
        prefix: prefix of the endpoints; None: the current prefix.
        segment_size: bytes of new rings; 0: 1 MiB, or the size for the largest message.
        take_over: True: also publish on topics with a living publisher or a stock publisher, which ends its publishing.
        clock: clock for tests.

    Raises:
        RecordingError: the log cannot be read, or the selection has no messages.
        InvalidValueError: an argument is out of range, or a new name has another kind.
        MultiplePublishersError: a living process publishes on a topic, or serves frames under the name.
        MultipleWritersError, KeyTakenError: a living process writes an exclusive vector, or owns a key of a board.
        SegmentSizeError: a ring exists and is too small.
        ChannelMismatchError, RecordMismatchError, QueueMismatchError: the endpoint exists with another configuration.
        IpcError: see `PubSocket.connect`. Errors of the other kinds pass through, too.

    Attributes:
        endpoints: names of the endpoints to which the player sends, without the clock endpoint.
        skipped: reasons why endpoints of the log are not played, by recorded name: an invalid name, JPEG pictures,
            topics that announce played pictures, or a work queue whose events have no payloads.
        begin: begin of the played part, in seconds from the beginning of the log.
        end: end of the played part, in seconds from the beginning of the log.
    """

    def __init__(
        self,
        log: LogReader | str | PathLike[str],
        *,
        start: float = 0.0,
        duration: float | None = None,
        time_source: str = "publish_time",
        rate: float = 1.0,
        loops: int | None = 1,
        remap: NameMapping = MappingProxyType({}),
        start_paused: bool = False,
        wait_for_readers: bool | str | Iterable[str] = False,
        clock_endpoint: str | None = None,
        clock_rate: float = 100.0,
        backend: str | None = None,
        prefix: str | None = None,
        segment_size: int = 0,
        take_over: bool = False,
        clock: PlayerClock | None = None,
    ) -> None:
        """Read the indexes of the log, and open a writer for each endpoint."""
        _check_player_options(rate, clock_rate, start, duration, loops, time_source)
        self._pid = os.getpid()
        self._rate, self._loops = rate, loops
        self._clock_tick_options = (clock_endpoint, clock_rate)
        self._clock: PlayerClock = clock or _MonotonicClock()
        chosen, self._first_ns, self._begin_ns, self._end_ns = _resolve_playback_range(
            log, start, duration, time_source
        )
        place = PlaybackTarget(
            backend or settings.get_backend_name(), settings.resolve_prefix(prefix), segment_size, take_over
        )
        self._schedule = PlaybackSchedule(chosen, self._begin_ns, time_source, remap)
        self._writers = PlaybackWriters(self._schedule.plan, clock_endpoint, place)
        self._batch_sender = BatchSender(self._schedule, self._writers)
        self.endpoints: tuple[str, ...] = tuple(
            name for name in self._writers.writers_by_name if name != clock_endpoint
        )
        self.skipped: Mapping[str, str] = self._schedule.plan.skip_reasons
        try:
            self._awaited_endpoints = self._choose_awaited_endpoints(wait_for_readers)
        except BaseException:
            self._writers.close_writers()
            raise
        self.begin, self.end = ((time_ns - self._first_ns) / NS_PER_S for time_ns in (self._begin_ns, self._end_ns))
        # A `with` of the condition runs Python code after it has taken the lock. A signal handler could raise there.
        self._state_lock = threading.RLock()
        self._state_changed = threading.Condition(self._state_lock)
        self._waiting_callers: dict[object, None] = {}  # calls that ask for something: they are let in at once
        self._is_paused, self._is_stopping, self._is_running = start_paused, False, False
        self._steps_left = 0
        self._seek_target_ns: int | None = None  # time to which a seek jumps
        self._next_message_ns = self._position_ns = self._begin_ns
        self._finished_passes = self._late_ns = self._late_max_ns = 0
        self._set_time_anchor(self._begin_ns)

    def _choose_awaited_endpoints(self, wait_for_readers: bool | str | Iterable[str]) -> tuple[str, ...]:
        """Return the endpoints that need a subscriber."""
        if isinstance(wait_for_readers, bool):
            return self.endpoints if wait_for_readers else ()
        awaited = tuple(list_names(wait_for_readers, "wait_for_readers", may_be_empty=True))
        if unknown := set(awaited) - set(self.endpoints):
            raise InvalidValueError(
                f"wait_for_readers names endpoints that are not played: {', '.join(sorted(unknown))}"
            )
        return awaited

    # ---- callable from any thread ----

    def _change_state(self, change: Callable[[], None]) -> None:
        """Change the state, and notify the playing thread. A signal handler may raise an exception at any call."""
        call = object()
        try:
            self._waiting_callers[call] = None
            with self._state_lock:
                self._waiting_callers.pop(call)
                try:
                    change()
                finally:
                    self._state_changed.notify_all()
        finally:
            self._waiting_callers.pop(call, None)

    def pause(self) -> None:
        """Stop sending until `resume` or `step`."""
        self._change_state(self._pause_now)

    def _pause_now(self) -> None:
        if not self._is_paused:
            self._position_ns = self._compute_log_time_ns()
            self._is_paused = True

    def resume(self) -> None:
        """Continue at the current position."""

        def resume() -> None:
            if self._is_paused:
                self._set_time_anchor(self._position_ns)
                self._is_paused, self._steps_left = False, 0

        self._change_state(resume)

    def step(self, count: int = 1) -> None:
        """Send the next messages at once, in order, and pause afterwards.

        Args:
            count: number of messages.

        Raises:
            InvalidValueError: `count` is less than 1.
        """
        if count < 1:
            raise InvalidValueError(f"step is {count} messages; give 1 or more. To go back, call seek")

        def step() -> None:
            self._pause_now()
            self._steps_left += count

        self._change_state(step)

    def seek(self, position: float) -> None:
        """Continue at another position, in seconds from the beginning of the log. A paused player stays paused.

        Raises:
            InvalidValueError: `position` is not finite, or more than 1e10 s away.
        """
        _check_seconds("position", position)
        self._change_state(lambda: self._seek_position(position))

    def _seek_position(self, position: float) -> None:
        target = self._first_ns + round(position * NS_PER_S)
        self._seek_target_ns = min(max(target, self._begin_ns), self._end_ns)

    def skip(self, seconds: float) -> None:
        """Continue `seconds` of the log later, or earlier if negative. A paused player stays paused.

        Raises:
            InvalidValueError: `seconds` is not finite, or more than 1e10.
        """
        _check_seconds("skip", seconds)

        def skip() -> None:
            position_ns = self._seek_target_ns
            if position_ns is None:
                position_ns = self._position_ns if self._is_paused else self._compute_log_time_ns()
            self._seek_position((position_ns - self._first_ns) / NS_PER_S + seconds)

        self._change_state(skip)

    def stop(self) -> None:
        """End `run` soon."""

        def stop() -> None:
            self._is_stopping = True

        self._change_state(stop)

    def set_rate(self, rate: float) -> None:
        """Change the rate at the current position.

        Raises:
            InvalidValueError: `rate` is less than 1e-6.
        """
        if not rate >= _RATE_MIN:
            raise InvalidValueError(f"rate {rate} is too small; use {_RATE_MIN:g} or more, or pause()")

        def set_rate() -> None:
            if not self._is_paused:
                self._set_time_anchor(self._compute_log_time_ns())
            self._rate = rate

        self._change_state(set_rate)

    @property
    def rate(self) -> float:
        """Speed relative to the recording."""
        return self._rate

    @property
    def paused(self) -> bool:
        """True while the player waits for `resume` or `step`."""
        return self._is_paused

    def stats(self) -> PlayerStats:
        """Return the current statistics."""
        position = (self._position_ns - self._first_ns) / NS_PER_S
        unplayed = dict(self._writers.unplayed_counts)
        late = self._late_ns, self._late_max_ns
        by_kind = self._batch_sender.sent_by_kind
        messages = sum(by_kind.values())
        return PlayerStats(
            messages, self._batch_sender.sent_bytes, self._finished_passes, position, *late, unplayed, by_kind
        )

    def close(self) -> None:
        """End a `run` of another thread, and close the publishers. A second close has no effect.

        In a forked child, the call closes the child's publishers only. The parent's `run` continues.
        """
        if self._pid == os.getpid():
            with self._state_lock:
                self.stop()
                while self._is_running:
                    self._state_changed.wait()
        self._writers.close_writers()

    # ---- the thread that plays ----

    def run(self) -> PlayerStats:
        """Play to the end or until `stop`, close the publishers, and return the final statistics.

        Raises:
            StateError: the player has played already, or another thread is in `run`.
            MultiplePublishersError: another process took an endpoint over.
            KeyboardInterrupt: the user pressed Ctrl-C. The publishers are closed.
        """
        with self._state_lock:
            if self._is_running or self._writers.is_closed:
                raise StateError("the player has played already; create another Player")
            self._is_running = True
        try:
            self._wait_for_readers()
            begin: int | None = self._begin_ns
            with self._state_lock:
                self._set_time_anchor(self._begin_ns)
            while begin is not None:
                begin = self._play_pass(begin)
        finally:
            with self._state_lock:
                self._is_running = False
                self._state_changed.notify_all()
            self._writers.close_writers()
        return self.stats()

    def _wait_for_readers(self) -> None:
        for name in self._awaited_endpoints:
            while not self._is_stopping and not self._writers.writers_by_name[name].wait_for_readers(_READERS_WAIT_S):
                pass

    def _play_pass(self, begin_ns: int) -> int | None:
        """Play from a position to the end. Return the next position; None: none."""
        self._writers.restore_state(self._schedule.find_state(begin_ns))
        ticks = ClockTicks(*self._clock_tick_options, begin_ns)
        for batch in self._schedule.iter_batches(begin_ns):
            self._batch_sender.begin_batch(batch)
            if not self._play_batch(ticks):
                break
        with self._state_lock:
            if self._is_stopping:
                return None
            if self._seek_target_ns is not None:
                target, self._seek_target_ns = self._seek_target_ns, None
                self._set_time_anchor(target)
                return target
            self._finished_passes += 1
            if self._finished_passes == self._loops:
                return None
            # The next pass begins when this one was to end, not when it happened to be done: nothing adds up.
            self._time_anchor = (self._begin_ns, self._compute_due_ns(self._position_ns))
            self._next_message_ns = self._position_ns = self._begin_ns
            return self._begin_ns

    def _play_batch(self, ticks: ClockTicks) -> bool:
        """Send a batch with ticks of the clock at their times. Return False if the rest must not be sent."""
        row, times = 0, self._batch_sender.message_times
        while row < len(times):
            with self._state_lock:
                is_tick = ticks.next_tick_ns <= times[row]
                most = self._wait_until_due(int(ticks.next_tick_ns) if is_tick else times[row])
                if most == 0:
                    return False
                if is_tick:
                    self._writers.send_message(ticks.make_next_tick())
                    continue
                self._steps_left -= self._is_paused
                row = self._send_due_rows(row, min(row + most, len(times)), ticks.next_tick_ns)
        return True

    def _wait_until_due(self, time_ns: int) -> int:
        """Wait until the next message is due. Return the number of messages to send at once; 0: none."""
        self._next_message_ns = time_ns
        while not self._is_stopping and self._seek_target_ns is None:
            if self._waiting_callers:
                self._state_changed.wait(_CONTROL_YIELD_S)
            elif self._is_paused and self._steps_left:
                self._set_time_anchor(time_ns)
                return 1
            elif self._is_paused:
                self._state_changed.wait(_CLOCK_WAIT_MAX_S)
            elif (early_ns := self._compute_due_ns(time_ns) - self._clock.now_ns()) > 0:
                self._clock.wait(self._state_changed, min(early_ns / NS_PER_S, _CLOCK_WAIT_MAX_S))
            else:
                self._position_ns = time_ns
                self._late_ns, self._late_max_ns = -early_ns, max(-early_ns, self._late_max_ns)
                return _BATCH_ROWS
        return 0

    def _send_due_rows(self, row: int, end: int, before_ns: float) -> int:
        """Send the message of a row, and following messages that are due and before a time. Return the next row."""
        times = self._batch_sender.message_times
        if times[end - 1] >= before_ns:
            end = bisect_left(times, before_ns, row + 1, end)
        now = self._clock.now_ns()
        if end > row + 1 and self._compute_due_ns(times[end - 1]) > now:
            end = bisect_right(times, now, row + 1, end, key=self._compute_due_ns)
        row = self._batch_sender.send_rows(row, end)
        self._position_ns = times[row - 1]
        if not self._is_paused:
            self._late_ns = now - self._compute_due_ns(self._position_ns)
        self._next_message_ns = times[row] if row < len(times) else self._position_ns
        return row

    # ---- log time and real time ----

    def _set_time_anchor(self, log_ns: int) -> None:
        """Map a time of the log to the current time."""
        self._time_anchor = (log_ns, self._clock.now_ns())
        self._position_ns, self._late_ns, self._late_max_ns = log_ns, 0, 0

    def _compute_due_ns(self, log_ns: int) -> int:
        """Return the clock's time for a time of the log."""
        log_origin, origin = self._time_anchor
        return origin + round((log_ns - log_origin) / self._rate)

    def _compute_log_time_ns(self) -> int:
        """Return the current time of the log. If the next message is late, the result is at most its time."""
        if math.isinf(self._rate):
            return self._next_message_ns
        log_origin, origin = self._time_anchor
        return min(log_origin + round((self._clock.now_ns() - origin) * self._rate), self._next_message_ns)


def _check_player_options(
    rate: float, clock_rate: float, start: float, duration: float | None, loops: int | None, time_source: str
) -> None:
    """Raise an error for values out of range. NaN is in no range."""
    if not rate >= _RATE_MIN:
        raise InvalidValueError(f"rate={rate} is out of range; use {_RATE_MIN:g} or more, or inf")
    if not _RATE_MIN <= clock_rate <= _CLOCK_RATE_MAX:
        limits = f"{_RATE_MIN:g} to {_CLOCK_RATE_MAX:g} messages per second of the log"
        raise InvalidValueError(f"clock_rate={clock_rate} is out of range; use {limits}")
    if not 0 <= start <= _SECONDS_MAX:
        raise InvalidValueError(f"start={start} is out of range; use 0 to {_SECONDS_MAX:g} s")
    if duration is not None and not 0 < duration <= _SECONDS_MAX:
        limits = f"more than 0 and at most {_SECONDS_MAX:g} s, or None to play to the end"
        raise InvalidValueError(f"duration={duration} is out of range; use {limits}")
    if (loops is not None and loops < 1) or time_source not in TIME_SOURCES:
        raise InvalidValueError(
            f"loops={loops} or time_source={time_source!r} is invalid; "
            f"use 1 or more loops, and {' or '.join(TIME_SOURCES)}"
        )


def _check_seconds(name: str, seconds: float) -> None:
    if not abs(seconds) <= _SECONDS_MAX:
        raise InvalidValueError(f"{name} of {seconds} s is out of range; use -{_SECONDS_MAX:g} to {_SECONDS_MAX:g} s")


def _resolve_playback_range(
    log: LogReader | str | PathLike[str], start: float, duration: float | None, time_source: str
) -> tuple[LogReader, int, int, int]:
    """Return the log to play, its beginning, and the beginning and the end of the played part."""
    reader = log if isinstance(log, LogReader) else LogReader(log)
    first = next(iter(iter_batches_by_time(reader, time_source)), None)
    if first is None:
        raise RecordingError("nothing to play: the recording has no message of the selected endpoints and times")
    first_ns = int(first.order_time[0])
    begin_ns = first_ns + round(start * NS_PER_S)
    chosen = reader.between(begin_ns, None if duration is None else begin_ns + round(duration * NS_PER_S))
    end_ns = chosen.end_time
    if end_ns is None:
        last_ns = reader.end_time or first_ns
        text = (
            f"no message from {start} s for {duration} s; the recording lasts {(last_ns - first_ns) / NS_PER_S:.9g} s"
        )
        raise RecordingError(f"nothing to play: {text}")
    return chosen, first_ns, begin_ns, end_ns
