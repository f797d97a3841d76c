"""Finds processes that use much of a processor, although they take part in no endpoint."""

from __future__ import annotations

import os
from collections.abc import Container

from msgq.common.thread_samples import STATE_UNREAD, UNKNOWN_NS, ThreadSample
from msgq.common.units import NS_PER_S

BUSY_SHARE_MIN = 0.1  # share of a processor's time, if a process is worth a sample
_SCAN_INTERVAL_MAX_NS = 3 * NS_PER_S  # an older scan is too old for a comparison
_TICK_NS = NS_PER_S // os.sysconf("SC_CLK_TCK")
_USER_FIELD, _SYSTEM_FIELD, _START_TIME_FIELD, _PROCESSOR_FIELD = 11, 12, 19, 36  # after the name, proc_pid_stat(5)


class BusyProcesses:
    """Compares the processor times of all processes with those of the previous scan. One thread at a time.

    Args:
        proc: directory of the files about processes.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._scanned_ns = 0
        self._ran_ns: dict[tuple[int, int], int] = {}  # times by process and its start time

    def take_samples(self, now_ns: int, excluded: Container[int]) -> list[ThreadSample]:
        """Return a sample of each busy process since the previous scan, without those in `excluded`.

        Without a previous scan in the last seconds, there are no samples. A sample is that of the whole process.
        """
        begin_ns, self._scanned_ns = self._scanned_ns, now_ns
        before, self._ran_ns = self._ran_ns, {}
        samples = []
        for pid in self._list_processes():
            name, fields = self._read_stat(pid)
            if not fields:
                continue
            key = pid, int(fields[_START_TIME_FIELD])
            self._ran_ns[key] = (int(fields[_USER_FIELD]) + int(fields[_SYSTEM_FIELD])) * _TICK_NS
            ran_ns = self._ran_ns[key] - before.get(key, self._ran_ns[key])
            if pid not in excluded and ran_ns >= BUSY_SHARE_MIN * (now_ns - begin_ns):
                processor = int(fields[_PROCESSOR_FIELD])
                where = pid, pid, processor, STATE_UNREAD, name, ""
                samples.append(ThreadSample(now_ns, begin_ns, ran_ns, UNKNOWN_NS, *where))
        return samples if now_ns - begin_ns <= _SCAN_INTERVAL_MAX_NS else []

    def _list_processes(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self._proc) if name.isdecimal()]
        except OSError:
            return []

    def _read_stat(self, pid: int) -> tuple[str, list[str]]:
        """Return name and further fields of a process; empty: it has ended, or is hidden."""
        try:
            with open(f"{self._proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
                start, _, rest = file.read().rpartition(")")
        except OSError:
            return "", []
        return start.partition("(")[2], rest.split()
