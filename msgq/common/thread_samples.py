"""Samples of threads: how long each participant's thread ran, and how long it waited for a processor.

A recorder of timing topics writes the samples as messages of `SAMPLES_ENDPOINT`, and the threads of the participants as
messages of `PARTICIPANTS_ENDPOINT` (docs/reference/recordings.md).
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from typing import NamedTuple

from msgq.common.schema import Schema

SAMPLES_ENDPOINT = "timing:threads"
PARTICIPANTS_ENDPOINT = "timing:participants"
SAMPLE_PERIOD_S = 0.1
IDLE_SAMPLE_NS = 1_000_000_000  # maximum length of a sample in which the thread did not run
UNKNOWN_PROCESSOR = -1
UNKNOWN_NS = -1
STATE_UNREAD = ""
STATE_STOPPED = ("T", "t")  # stopped by a signal, or by a debugger
STATE_RUNNABLE = "R"
_NAME_CHARACTERS = 15  # the kernel's names of threads have at most 15 bytes
_CHARACTER_BYTES = 4
_NAME_BYTES = _NAME_CHARACTERS * _CHARACTER_BYTES
_SAMPLE_STRUCT = struct.Struct(f"<4q3i{_CHARACTER_BYTES}s{_NAME_BYTES}s{_NAME_BYTES}s")
#: Fields of a sample. Times and durations are ns, `publish_time` is the end, and `processor` is -1 if unknown.
_SAMPLE_FIELDS = [
    *([name, "<i8"] for name in ("publish_time", "begin_time", "ran_ns", "waited_ns")),
    *([name, "<i4"] for name in ("pid", "thread_id", "processor")),
    ["state", "<U1"],
    ["process", f"<U{_NAME_CHARACTERS}"],
    ["thread", f"<U{_NAME_CHARACTERS}"],
]
_PARTICIPANT_TYPES = {
    **dict.fromkeys(("publish_time", "pid", "thread_id"), "integer"),
    **dict.fromkeys(("endpoint", "role", "process", "problem"), "string"),
}
SAMPLES_SCHEMA = Schema("ThreadSample", "struct", json.dumps(_SAMPLE_FIELDS).encode())
PARTICIPANTS_SCHEMA = Schema.json(
    "Participant",
    json.dumps(
        {"type": "object", "properties": {name: {"type": kind} for name, kind in _PARTICIPANT_TYPES.items()}}
    ).encode(),
)


class ThreadSample(NamedTuple):
    """Times of a thread in an interval.

    Attributes:
        end_ns: end of the interval, in ns of the host's clock.
        begin_ns: begin of the interval.
        ran_ns: time on a processor.
        waited_ns: time as a runnable thread without a processor; -1: unknown, as the sample is that of a whole process
            without endpoints. The kernel adds a wait when it ends, so this can be longer than the interval.
        pid: process of the thread, in the PID namespace of the observer.
        thread_id: id of the thread.
        processor: processor on which the thread ran last; -1: unknown.
        state: state of the thread as in proc_pid_stat(5), read near the end of the interval; "": not read.
        process: name of the process.
        thread: name of the thread.
    """

    end_ns: int
    begin_ns: int
    ran_ns: int
    waited_ns: int
    pid: int
    thread_id: int
    processor: int
    state: str
    process: str
    thread: str


class ThreadParticipant(NamedTuple):
    """A thread that takes part in an endpoint.

    Attributes:
        endpoint: name with the prefix of its kind.
        role: role as in `EndpointStats.participants`.
        pid: process, in its own PID namespace.
        thread_id: thread that connected.
        start_time: start of the process, in clock ticks since boot.
        process: name of the process.
    """

    endpoint: str
    role: str
    pid: int
    thread_id: int
    start_time: int
    process: str

    @property
    def thread(self) -> tuple[int, int]:
        """Process and thread."""
        return self.pid, self.thread_id


def encode_sample(sample: ThreadSample) -> bytes:
    """Return a sample as a message of `SAMPLES_SCHEMA`."""
    end, begin, ran, waited, pid, thread_id, processor, state, process, thread = sample
    names = _encode_name(state), _encode_name(process), _encode_name(thread)
    return _SAMPLE_STRUCT.pack(end, begin, ran, waited, pid, thread_id, processor, *names)


@lru_cache(1024)
def _encode_name(name: str) -> bytes:
    return name[:_NAME_CHARACTERS].encode("utf-32-le", errors="replace")


def encode_participant(time_ns: int, participant: ThreadParticipant, problem: str) -> bytes:
    """Return a participant as a message of `PARTICIPANTS_SCHEMA`. `problem`: reason for missing samples, or ""."""
    fields = participant._asdict()
    del fields["start_time"]
    return json.dumps({"publish_time": time_ns, **fields, "problem": problem}).encode()
