"""Samples of the threads of stages in a sliding window."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable

import numpy as np

from msgq.common.thread_sampler import ThreadId, ThreadSampler
from msgq.common.thread_samples import SAMPLE_PERIOD_S, SAMPLES_SCHEMA, ThreadParticipant, ThreadSample, encode_sample
from msgq.impl.backend import is_fake_backend, resolve_prefix
from msgq.impl.base import clock
from msgq.kinds.participants import read_participants
from msgq.monitor.sliding_window import RowArray, SlidingWindow

SAMPLES_DTYPE = SAMPLES_SCHEMA.dtype
_PARTICIPANTS_PERIOD_S = 1.0
_PARTICIPANTS_COST_FACTOR = 300  # the period is at least this multiple of the time for reading the participants
_NO_PUBLISHER_PROBLEM = "the stage has no living publisher"


class StageThreads:
    """The threads that publish timing topics, and their samples of the last seconds.

    Args:
        seconds: length of the window.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sampler = ThreadSampler()
        self._participants: dict[str, ThreadParticipant] = {}  # participants by timing topic
        self._read_topics: set[str] = set()  # topics of the last read, also those without a living publisher
        self._read_problems: dict[str, str] = {}  # topics whose participants cannot be read, with the reasons
        self._windows: dict[ThreadId, SlidingWindow] = {}
        self._next_sample_s = self._next_read_s = 0.0

    def poll(self, topics: Collection[str]) -> None:
        """Sample the threads if the time has come. `topics`: timing topics that exist."""
        now_s = time.monotonic()
        if is_fake_backend():  # its times are virtual
            return
        if now_s >= self._next_sample_s:
            self._next_sample_s = now_s + SAMPLE_PERIOD_S
            self._add_samples(self._sampler.take_samples(clock.time_ns()), now_s)
        if now_s >= self._next_read_s or not self._read_topics.issuperset(topics):
            self._read_participants(topics, now_s)

    def _read_participants(self, topics: Collection[str], now_s: float) -> None:
        prefix, began_s = resolve_prefix(), time.thread_time()
        found = {topic: read_participants(topic, prefix) for topic in topics}
        self._read_topics = set(topics)
        self._read_problems = {topic: problem for topic, (_, problem) in found.items() if problem}
        self._participants = {
            topic: each for topic, (threads, _) in found.items() for each in threads if each.role == "publisher"
        }
        self._add_samples(self._sampler.watch(self._participants.values(), clock.time_ns()), now_s)
        took_s = time.thread_time() - began_s
        self._next_read_s = now_s + max(_PARTICIPANTS_PERIOD_S, _PARTICIPANTS_COST_FACTOR * took_s)

    def _add_samples(self, samples: Iterable[ThreadSample], now_s: float) -> None:
        rows = np.frombuffer(b"".join(map(encode_sample, samples)), SAMPLES_DTYPE)
        rows_by_thread: dict[ThreadId, list[RowArray]] = defaultdict(list)
        for place, key in enumerate(zip(rows["pid"].tolist(), rows["thread_id"].tolist(), strict=True)):
            rows_by_thread[key].append(rows[place : place + 1])
        for key, some in rows_by_thread.items():
            if key not in self._windows:
                self._windows[key] = SlidingWindow(self._seconds, now_s)
            self._windows[key].add_sample(now_s, some)
        for key in [key for key in self._windows if key not in rows_by_thread]:
            self._windows[key].drop_old_samples(now_s)
            if self._windows[key].is_empty:
                del self._windows[key]

    def find_thread(self, topic: str) -> ThreadId | None:
        """Return the thread that publishes a timing topic; None: unknown."""
        participant = self._participants.get(topic)
        return None if participant is None else participant.thread

    def get_samples(self, thread: ThreadId) -> RowArray:
        """Return the samples of a thread, oldest first."""
        window = self._windows.get(thread)
        return np.empty(0, SAMPLES_DTYPE) if window is None else window.concatenate_rows(SAMPLES_DTYPE)

    def find_problem(self, topic: str) -> str:
        """Return the reason why the thread of a timing topic has no samples; "": it has some, or soon will."""
        thread = self.find_thread(topic)
        if thread is None:
            return self._read_problems.get(topic, _NO_PUBLISHER_PROBLEM)
        return self._sampler.problems.get(thread, "")
