"""Reads from /proc how long threads ran, and how long they waited for a processor."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass

from msgq.common.thread_file import ThreadFile
from msgq.common.thread_samples import (
    IDLE_SAMPLE_NS,
    STATE_STOPPED,
    STATE_UNREAD,
    UNKNOWN_PROCESSOR,
    ThreadParticipant,
    ThreadSample,
)

ThreadId = tuple[int, int]  # process and thread
# Number of samples between two readings of a thread's state, which takes four times as long as reading its times. A
# signal stops all threads of a process, so the first thread has its state read more often.
_FIRST_STATE_TICKS, _OTHER_STATE_TICKS = 3, 20
_START_TIME_FIELD = 19  # position after the name of the process, proc_pid_stat(5)

ENDED_PROBLEM = "the thread has ended"
GONE_PROBLEM = "the process has ended, is hidden, or has its own PID namespace"
UNCOUNTED_PROBLEM = "the kernel counts no times of threads (CONFIG_SCHEDSTATS)"
_DESCRIPTORS_PROBLEM = "too many open files; raise ulimit -n"


@dataclass(slots=True)
class _SampledThread:
    """A thread, and the values of its last sample.

    Attributes:
        sampled_ns: time of the last sample.
        is_first: the state of this thread shows that its process is stopped.
        idle_since_ns: begin of an interval without a change that is not yet a sample; 0: no such interval.
        ticks_to_state: number of samples until the state is read again.
    """

    file: ThreadFile
    pid: int
    thread_id: int
    process: str
    thread: str
    ran_ns: int
    waited_ns: int
    sampled_ns: int
    is_first: bool
    idle_since_ns: int = 0
    state: str = STATE_UNREAD
    processor: int = UNKNOWN_PROCESSOR
    ticks_to_state: int = 0


class ThreadSampler:
    """Samples threads. One thread at a time may call the methods.

    Sampling reads files of /proc only, so it does not disturb the threads. Each sampled thread needs a descriptor.

    Args:
        with_siblings: sample all threads of the watched processes.
        proc: directory of the files about processes.

    Attributes:
        problems: reasons by process and thread for missing samples.
    """

    def __init__(self, with_siblings: bool = False, proc: str = "/proc") -> None:
        self.problems: dict[ThreadId, str] = {}
        self._with_siblings, self._proc = with_siblings, proc
        self._threads: dict[ThreadId, _SampledThread] = {}
        self._descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2  # the program needs some, too

    def list_processes(self) -> set[int]:
        """Return the processes with sampled threads."""
        return {pid for pid, _ in self._threads}

    def watch(self, participants: Iterable[ThreadParticipant], now_ns: int) -> list[ThreadSample]:
        """Sample these threads from now on, and no others. Return the last samples of the others."""
        process_names: dict[ThreadId, str] = {}
        problems: dict[ThreadId, str] = {}
        processes = {(each.pid, each.start_time): each.process for each in participants}
        living = {pid: name for (pid, start), name in processes.items() if self._is_process(pid, start)}
        for each in participants:
            if each.pid in living:
                process_names[each.thread] = each.process
            else:
                problems[each.thread] = GONE_PROBLEM
        if self._with_siblings:
            process_names |= {(pid, thread): name for pid, name in living.items() for thread in self._list_threads(pid)}
        last = [
            sample
            for key in self._threads.keys() - process_names.keys()
            for sample in self._flush_idle(self._close_thread(key))
        ]
        self.problems = problems
        for key, process in process_names.items():
            if key not in self._threads:
                self._open_thread(key, process, now_ns)
        return last

    def take_samples(self, now_ns: int) -> list[ThreadSample]:
        """Return the samples since the last call. A thread that did not run has a sample once per second."""
        samples: list[ThreadSample] = []
        ended: list[ThreadId] = []
        for key, thread in self._threads.items():
            try:
                has_changed = thread.file.read_times()
            except OSError:
                ended.append(key)
                continue
            if has_changed:
                self._add_busy_sample(thread, now_ns, samples)
            elif thread.idle_since_ns == 0 or thread.ticks_to_state <= 0:
                self._extend_idle(thread, samples)
            if thread.idle_since_ns and now_ns - thread.idle_since_ns >= IDLE_SAMPLE_NS:
                samples.append(_make_idle_sample(thread, now_ns))
                thread.idle_since_ns = now_ns
            thread.ticks_to_state -= 1
            thread.sampled_ns = now_ns
        for key in ended:
            samples += self._flush_idle(self._close_thread(key))
            self.problems[key] = ENDED_PROBLEM
        return samples

    def skip_time(self, now_ns: int) -> list[ThreadSample]:
        """Begin new samples now, so that no sample contains the time since the last call. Return the samples before."""
        samples = [sample for thread in self._threads.values() for sample in self._flush_idle(thread)]
        self.take_samples(now_ns)
        for thread in self._threads.values():
            thread.idle_since_ns = 0
        return samples

    def _add_busy_sample(self, thread: _SampledThread, now_ns: int, samples: list[ThreadSample]) -> None:
        if thread.idle_since_ns:
            samples += self._flush_idle(thread)
        if thread.ticks_to_state <= 0:
            self._read_state(thread)
        ran_ns, waited_ns = thread.file.ran_ns, thread.file.waited_ns
        times = now_ns, thread.sampled_ns, ran_ns - thread.ran_ns, waited_ns - thread.waited_ns
        where = thread.pid, thread.thread_id, thread.processor
        samples.append(ThreadSample(*times, *where, STATE_UNREAD, thread.process, thread.thread))
        thread.ran_ns, thread.waited_ns = ran_ns, waited_ns

    def _extend_idle(self, thread: _SampledThread, samples: list[ThreadSample]) -> None:
        """Read the state of a thread that did not run since the last sample. A new state begins a new sample."""
        state = thread.state
        self._read_state(thread)
        if thread.state != state:
            samples += [sample._replace(state=state) for sample in self._flush_idle(thread)]
            if thread.is_first and (thread.state in STATE_STOPPED or state in STATE_STOPPED):
                self._expect_state(thread.pid)
        thread.idle_since_ns = thread.idle_since_ns or thread.sampled_ns

    def _expect_state(self, pid: int) -> None:
        """Read the states of all threads of a process soon, because the process was stopped or continued."""
        for thread in self._threads.values():
            if thread.pid == pid and not thread.is_first:
                thread.ticks_to_state = 0

    def _flush_idle(self, thread: _SampledThread) -> list[ThreadSample]:
        """Return the sample of the time without a change; empty: there is none."""
        samples = [_make_idle_sample(thread, thread.sampled_ns)] if thread.idle_since_ns else []
        thread.idle_since_ns = 0
        return [sample for sample in samples if sample.begin_ns < sample.end_ns]

    def _read_state(self, thread: _SampledThread) -> None:
        thread.state, thread.processor = thread.file.read_state()
        thread.ticks_to_state = _FIRST_STATE_TICKS if thread.is_first else _OTHER_STATE_TICKS

    def _read_text(self, name: str) -> str:
        """Return the text of a file; empty: it cannot be read."""
        try:
            with open(f"{self._proc}/{name}", encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def _is_process(self, pid: int, start_time: int) -> bool:
        """Return True if the process with this id started at this time: ids of other PID namespaces do not."""
        fields = self._read_text(f"{pid}/stat").rpartition(")")[2].split()
        return bool(fields) and int(fields[_START_TIME_FIELD]) == start_time

    def _list_threads(self, pid: int) -> list[int]:
        try:
            return [int(name) for name in os.listdir(f"{self._proc}/{pid}/task")]
        except OSError:
            return []

    def _open_thread(self, key: ThreadId, process: str, now_ns: int) -> None:
        where = f"{key[0]}/task/{key[1]}"
        try:
            file = ThreadFile(f"{self._proc}/{where}")
        except OSError as error:
            self.problems[key] = self._explain_open(where, error)
            return
        if file.ran_ns == 0:  # each thread that connected has run
            self.problems[key] = UNCOUNTED_PROBLEM
        elif file.descriptor >= self._descriptors_max:
            self.problems[key] = _DESCRIPTORS_PROBLEM
        else:
            name = self._read_text(f"{where}/comm").rstrip("\n")
            is_first = key[0] == key[1] or not self._with_siblings
            times = file.ran_ns, file.waited_ns, now_ns
            self._threads[key] = _SampledThread(file, *key, process, name, *times, is_first)
            return
        file.close()

    def _explain_open(self, where: str, error: OSError) -> str:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return _DESCRIPTORS_PROBLEM
        if error.errno != errno.ENOENT:
            return f"schedstat: {error.strerror}"
        return UNCOUNTED_PROBLEM if self._read_text(f"{where}/stat") else ENDED_PROBLEM

    def _close_thread(self, key: ThreadId) -> _SampledThread:
        thread = self._threads.pop(key)
        thread.file.close()
        return thread

    def close(self) -> list[ThreadSample]:
        """Stop sampling, and return the last samples."""
        return [sample for key in list(self._threads) for sample in self._flush_idle(self._close_thread(key))]


def _make_idle_sample(thread: _SampledThread, end_ns: int) -> ThreadSample:
    where = thread.pid, thread.thread_id, thread.processor, thread.state, thread.process, thread.thread
    return ThreadSample(end_ns, thread.idle_since_ns, 0, 0, *where)
