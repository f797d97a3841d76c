"""Samples of the threads of all recorded endpoints, as messages of a recording."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from msgq.common.busy_processes import BusyProcesses
from msgq.common.schema import Schema
from msgq.common.texts import join_first_texts
from msgq.common.thread_sampler import ThreadSampler
from msgq.common.thread_samples import (
    PARTICIPANTS_ENDPOINT,
    PARTICIPANTS_SCHEMA,
    SAMPLE_PERIOD_S,
    SAMPLES_ENDPOINT,
    SAMPLES_SCHEMA,
    ThreadParticipant,
    ThreadSample,
    encode_participant,
    encode_sample,
)
from msgq.common.timing import parse_timing_topic
from msgq.common.units import NS_PER_S
from msgq.kinds.participants import read_participants
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.segment_writer import EncodedChannel, encode_channel
from msgq.recording.recorder.core import Capture
from msgq.recording.recorder.endpoints import RecordedEndpoints

ObservedMessage = tuple[int, int, int, int, bytes]  # channel, sequence, log_time, publish_time, bytes
_SCHEMA_BY_ENDPOINT = {SAMPLES_ENDPOINT: SAMPLES_SCHEMA, PARTICIPANTS_ENDPOINT: PARTICIPANTS_SCHEMA}
_PARTICIPANTS_PERIOD_NS = NS_PER_S
_PARTICIPANTS_COST_FACTOR = 300  # the period is at least this multiple of the time for reading the participants
_SCAN_PERIOD_NS = NS_PER_S
_SCAN_WAIT_MIN_NS = NS_PER_S // 100  # waits of all sampled threads in a period, if other processes are scanned
_REPEAT_NS = 10 * NS_PER_S  # so long a part of a recording may lack the participants of its samples
_SAMPLES_EPOCH = 0  # other than the epochs of a topic of this name, which a player publishes
_WAITING_MESSAGES_MAX = 100_000  # with more, the next sample comes later, and is longer


class ThreadObserver:
    """Samples the threads of the participants of recorded endpoints, while a timing topic is recorded.

    Without a timing topic, no stage tells how late its messages were, so samples would explain nothing. A thread of its
    own samples, and the capturing thread fetches the messages.

    Attributes:
        error: error that ended the samples; None: no error.
        unread: endpoints whose participants could not be read at the last time, with the reasons.
    """

    def __init__(self, endpoints: RecordedEndpoints, prefix: str, capture: Capture, is_wanted: bool) -> None:
        self.error: Exception | None = None
        self.unread: dict[str, str] = {}
        self._is_wanted, self._has_resumed = is_wanted, False
        self._endpoints, self._prefix, self._capture = endpoints, prefix, capture
        self._sampler, self._busy_processes = ThreadSampler(with_siblings=True), BusyProcesses()
        self._waited_ns = 0  # waits of all sampled threads since the last decision about a scan
        self._waiting: deque[tuple[str, bytes]] = deque()  # endpoint and bytes of messages
        self._stated: dict[ThreadParticipant, str] = {}  # problems of the participants in the latest messages
        self._next_read_ns = self._next_repeat_ns = self._next_scan_ns = self._endpoint_count = 0
        self._channel_numbers: dict[str, int] = {}
        self._message_counts: Counter[str] = Counter()  # messages by endpoint
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._observe_until_stop, name="msgq threads", daemon=True)
        self._thread.start()

    def _observe_until_stop(self) -> None:
        try:
            while not self._stopping.wait(SAMPLE_PERIOD_S):
                if self._has_resumed:
                    self._has_resumed = False
                    self._skip_pause()
                elif self._is_wanted and len(self._waiting) < _WAITING_MESSAGES_MAX:
                    self._observe_once()
        except Exception as error:  # the recording continues, and its statistics show the error
            self.error = error
        self._keep_samples(self._sampler.close())

    def set_wanted(self, is_wanted: bool) -> None:
        """Start or stop taking samples. Any thread may call this method."""
        self._has_resumed = self._has_resumed or (is_wanted and not self._is_wanted)
        self._is_wanted = is_wanted

    def _skip_pause(self) -> None:
        """Begin new samples, so that none contains a time in which nothing was recorded."""
        self._keep_samples(self._sampler.skip_time(self._capture.read_host_clock_ns()))
        self._busy_processes, self._waited_ns = BusyProcesses(), 0

    def _observe_once(self) -> None:
        now_ns = self._capture.read_host_clock_ns()
        samples = self._sampler.take_samples(now_ns)
        self._waited_ns += sum(sample.waited_ns for sample in samples)
        self._keep_samples(samples)
        count = self._endpoints.endpoint_count
        if now_ns >= self._next_read_ns or count != self._endpoint_count:
            self._endpoint_count = count
            self._read_participants(now_ns)
        if now_ns >= self._next_scan_ns:
            self._next_scan_ns = now_ns + _SCAN_PERIOD_NS
            if self._waited_ns >= _SCAN_WAIT_MIN_NS:  # someone uses the processors
                self._keep_samples(self._busy_processes.take_samples(now_ns, self._sampler.list_processes()))
            self._waited_ns = 0

    def _read_participants(self, now_ns: int) -> None:
        began_ns = time.thread_time_ns()  # without the waits for a processor
        names = sorted(self._endpoints.count_losses())
        if not any(parse_timing_topic(name) for name in names):
            names = []
        found = {name: read_participants(name, self._prefix) for name in names}
        self.unread = {name: reason for name, (_, reason) in found.items() if reason}
        participants = [each for threads, _ in found.values() for each in threads]
        self._keep_samples(self._sampler.watch(participants, now_ns))
        self._state_participants(participants, now_ns)
        took_ns = time.thread_time_ns() - began_ns
        self._next_read_ns = now_ns + max(_PARTICIPANTS_PERIOD_NS, _PARTICIPANTS_COST_FACTOR * took_ns)

    def _state_participants(self, participants: Iterable[ThreadParticipant], now_ns: int) -> None:
        """Keep a message for each new or changed participant, and at times for all."""
        problems = self._sampler.problems
        stated = {each: problems.get(each.thread, "") for each in participants}
        is_repeated = now_ns >= self._next_repeat_ns
        if is_repeated:
            self._next_repeat_ns = now_ns + _REPEAT_NS
        for each, problem in stated.items():
            if is_repeated or self._stated.get(each) != problem:
                self._waiting.append((PARTICIPANTS_ENDPOINT, encode_participant(now_ns, each, problem)))
        self._stated = stated

    def _keep_samples(self, samples: Iterable[ThreadSample]) -> None:
        self._waiting.extend((SAMPLES_ENDPOINT, encode_sample(sample)) for sample in samples)

    def iter_messages(self, channels: dict[int, EncodedChannel]) -> Iterator[ObservedMessage]:
        """Yield the messages since the last call as arguments of `ChunkBuffer.append_message`.

        The capturing thread calls this method. `channels`: all channels by number, which get those of the samples.

        The times of the messages are the present, because messages that were captured since the end of the samples
        precede them, and times in a file never decrease.
        """
        time_ns = self._capture.read_host_clock_ns()
        for _ in range(len(self._waiting)):
            endpoint, message = self._waiting.popleft()
            if endpoint not in self._channel_numbers:
                self._channel_numbers[endpoint] = self._add_channel(endpoint, _SCHEMA_BY_ENDPOINT[endpoint], channels)
            yield self._channel_numbers[endpoint], self._message_counts[endpoint], time_ns, time_ns, message
            self._message_counts[endpoint] += 1

    def _add_channel(self, endpoint: str, schema: Schema, channels: dict[int, EncodedChannel]) -> int:
        number = self._capture.reserve_channel_id()
        channels[number] = encode_channel(number, endpoint, schema, _SAMPLES_EPOCH, metadata_keys.RECORDER_SEQUENCE)
        return number

    def explain_missing_samples(self) -> str:
        """Return why threads have no samples; "": no error. Any thread may call this method."""
        if self.error is not None:
            return str(self.error)
        return join_first_texts(f"threads of {name}: {reason}" for name, reason in self.unread.items())

    def stop(self) -> None:
        """Stop sampling."""
        self._stopping.set()
        self._thread.join()
