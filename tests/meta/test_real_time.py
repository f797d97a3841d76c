"""Lists each call of the kinds and their core that reads a real clock, sleeps, or waits for another process.

A simulation has virtual time, and one node runs at a time. Real time that passes in a simulation makes its runs differ,
and a real wait never ends. Each row of the table therefore says why no simulation reaches the calls, or how they ask
the bus.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.meta.sources import ROOT, code, without_comments

#: Folders of the core and of the kinds. The ZMQ backend and the C library have no bus.
FOLDERS = ("msgq/impl", "msgq/kinds", "msgq/topic", "msgq/channel", "msgq/workqueue", "msgq/records", "visionipc")
WITHOUT_BUS = ("msgq/impl/zeromq/", "msgq/impl/c/")
CALL = re.compile(
    r"(?<![\w.])(?<!def )(mq_monotonic_ns|mq_read_clock_ns|mq_offset_from_monotonic_ns|mq_namespace_offset_ns|"
    r"host_time_ns|host_offset_ns|_?clock_gettime(?:_ns)?|usleep|nanosleep|sched_yield|mq_futex_waitv?|sleep_on_futexes|p?poll|"
    r"time\.(?:sleep|monotonic|time|perf_counter|clock_gettime)(?:_ns)?|select\.(?:poll|epoll|select))\("
)
ADVICE = """{file} calls {call} {found} times, and the table of {test} lists {listed}.

Virtual time must pass in a simulation, not real time. Read the time by `self._now_ns()` of a handle,
`mq_read_time_ns(virtual_ns)` in C, or `backend.monotonic()` in Python. Let the bus wait: `self._bus.wait_until(...)`.
Then change the row of the file. If no simulation reaches the call, say why in that row.
"""

READ_ONLY = "the deadline is compared only after a race with another thread or process, which a bus does not have"
TABLE = {
    # ---- the clocks themselves ----
    "msgq/impl/base/futex.h": (
        "2 mq_read_clock_ns, clock_gettime, 2 mq_monotonic_ns, mq_futex_wait, mq_futex_waitv",
        "the definitions; mq_read_time_ns reads the virtual time instead, if there is one",
    ),
    "msgq/impl/base/clock.pyx": (
        "4 mq_offset_from_monotonic_ns, 2 mq_namespace_offset_ns, 5 host_offset_ns, 3 host_time_ns, mq_monotonic_ns, "
        "_clock_gettime_ns",
        "the host's clock; a clock of records (msgq/records/clocks.py) replaces it on the fake backend",
    ),
    "msgq/impl/base/clock_file.h": (
        "2 mq_offset_from_monotonic_ns, 3 mq_monotonic_ns, mq_read_clock_ns, mq_namespace_offset_ns",
        "the file of the host's clock, which no handle of a bus opens",
    ),
    "msgq/impl/base/origin.pxi": (
        "host_offset_ns, host_time_ns",
        "origins of the host's clock; those of a bus are from VirtualTime.new_origin_time",
    ),
    "msgq/impl/base/handle.pxi": ("mq_monotonic_ns", "`_now_ns` without a bus"),
    "msgq/impl/backend.py": ("time.monotonic", "`monotonic` without a bus"),
    # ---- waits ----
    "msgq/impl/base/waiting.pxi": (
        "2 sched_yield, usleep, 4 mq_monotonic_ns, sleep_on_futexes",
        "`wait_until_ready` asks the bus first; `close` waits for the end of a use only without a bus",
    ),
    "msgq/impl/base/wake.pxi": (
        "sleep_on_futexes, mq_futex_wait, mq_futex_waitv, mq_monotonic_ns, usleep",
        "the sleep of `wait_until_ready`, of event gates and of meters",
    ),
    "msgq/impl/base/watcher.h": (
        "mq_monotonic_ns, mq_futex_wait, mq_futex_waitv",
        "the thread behind `fileno`, which a simulation refuses",
    ),
    "msgq/impl/base/shared_handle.pxi": ("usleep", "`close` ends at once on a bus, and the last use closes the handle"),
    "msgq/impl/channel/publisher.pxi": (
        "usleep, 3 mq_monotonic_ns, mq_futex_wait",
        "`_wait_for_slot` and `_wait_for_room` ask the bus first; `close` interrupts such a wait only without a bus",
    ),
    "msgq/impl/channel/room.h": (
        "3 mq_monotonic_ns, sched_yield, ppoll",
        "`_wait_for_room` asks the bus before it begins such a wait",
    ),
    "msgq/impl/ring/publisher.pxi": ("mq_monotonic_ns", "stamps of a message; those of a bus are virtual"),
    "msgq/impl/ring/pub_connection.pxi": (
        "host_offset_ns, 2 usleep",
        "the offset is 0 on a bus; `_wait_for_previous_send` asks the bus, which has no stock publishers",
    ),
    "msgq/impl/records/writer.h": (
        "mq_monotonic_ns, sched_yield, nanosleep",
        "writes of a bus have a deadline that has passed, and wait by the bus (buswrite.pxi)",
    ),
    "msgq/impl/records/vector.pxi": (
        "7 mq_monotonic_ns, sched_yield",
        "each write of a bus is a RecordWrite; a read is disturbed only by writes of other threads and processes",
    ),
    "msgq/impl/records/board.pxi": ("5 mq_monotonic_ns", f"reads: {READ_ONLY}; entries of a bus are EntryOnBus"),
    "msgq/impl/sockets/publishing.py": (
        "2 time.monotonic, time.sleep",
        "`wait_for_readers` asks the bus; after that, it only raises",
    ),
    "msgq/impl/sockets/polling.py": (
        "2 time.monotonic, select.epoll, select.poll",
        "polls of descriptors, which a simulation refuses for its sockets",
    ),
    # ---- locks of files ----
    "msgq/impl/base/segment.pxi": (
        "2 mq_monotonic_ns, usleep",
        "the wait for a lock; a private file has none, because the steps of one node are not interrupted",
    ),
    "msgq/impl/base/endpointfile.pxi": ("mq_monotonic_ns", "the deadline of such a lock"),
    "msgq/impl/ring/topic.pxi": ("mq_monotonic_ns", "the same"),
    "msgq/impl/base/mapguard.h": ("sched_yield", "a lock of a few instructions against other threads"),
    "msgq/impl/base/mapping.h": ("usleep", "the same"),
    "msgq/impl/base/private_file.h": ("usleep", "the same"),
    # ---- times of messages and files ----
    "msgq/impl/channel/publisher_pool.pxi": ("host_offset_ns", "the offset is 0 on a bus"),
    "msgq/impl/records/handle.pxi": ("host_offset_ns", "the offset is 0 on a bus"),
    "msgq/impl/records/spans.pxi": ("host_time_ns", "a tracer of the fake backend gives its clock"),
    "msgq/impl/workqueue/handle.pxi": (
        "host_offset_ns, mq_read_clock_ns",
        "the offset is 0 on a bus; the time of a lease is virtual",
    ),
    "msgq/impl/workqueue/queue.pxi": ("mq_monotonic_ns", "`_send_on_bus` has the virtual time"),
    "msgq/records/core.pyx": ("host_time_ns", "stamps of a channel in shared memory; others use the StampClock"),
    # ---- Python code of the kinds ----
    "msgq/topic/masters/topic_receiver.pyx": ("time.monotonic", "documented: `clock=`, or VirtualClock.patch_time"),
    # ---- parts outside of simulations ----
    "msgq/impl/gate/gate.h": ("sched_yield, mq_monotonic_ns", "event gates, which are not on a bus"),
    "msgq/impl/gate/gate.pxi": ("5 mq_monotonic_ns, sleep_on_futexes", "the same"),
    "msgq/impl/ring/signal_thread.h": ("poll, usleep", "the thread for stock publishers, which a bus does not have"),
    "msgq/impl/workqueue/notifier.py": (
        "select.epoll, 2 time.monotonic, 2 time.sleep",
        "the notifying thread; notifications of a bus run after the send (`notify_on_bus`)",
    ),
    "msgq/impl/meter/meter.pxi": (
        "6 mq_monotonic_ns, host_offset_ns, sleep_on_futexes",
        "on a bus, meters run as events of the virtual time",
    ),
    "msgq/impl/meter/counting.h": ("mq_read_clock_ns", "the same"),
    "msgq/kinds/bridge.py": ("select.epoll", "a bridge runs in real time, between hosts"),
    "msgq/topic/bridge.py": ("2 time.monotonic", "the same"),
    "msgq/topic/leftovers.py": ("time.time", "the age of files of dead processes, which a bus does not have"),
    "msgq/workqueue/source.py": ("2 time.monotonic", "the time between two complaints of a recorder"),
    "visionipc/playback.py": (
        "time.clock_gettime_ns",
        "a player in shared memory; it asks the target for the time of the fake backend",
    ),
    "visionipc/client.py": ("4 time.monotonic, time.sleep", "clients of a bus are FakeClient"),
    "visionipc/connection.py": ("3 time.monotonic, 2 time.sleep", "the sockets of servers, which a bus does not have"),
    "visionipc/listener.py": ("2 time.monotonic, time.sleep", "the same"),
    "visionipc/impl/incoming.pxi": ("2 mq_monotonic_ns, mq_read_clock_ns", "frames in shared memory"),
    "visionipc/impl/outgoing.pxi": ("3 mq_read_clock_ns", "the same"),
}


def sources() -> list[Path]:
    """Return the files to scan, without the folders that have no bus."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]
    kinds = (".h", ".pxi", ".pyx", ".py")
    return [path for path in found if path.suffix in kinds and not name_of(path).startswith(WITHOUT_BUS)]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def count_calls(text: str) -> Counter[str]:
    return Counter(match[1] for match in CALL.finditer(text))


def parse_row(row: str) -> Counter[str]:
    """Return the counts of a row: "2 usleep, sched_yield"."""
    counts: Counter[str] = Counter()
    for item in row.split(", "):
        count, _, call = item.rpartition(" ")
        counts[call] += int(count or 1)
    return counts


def describe_differences(file: str, found: Counter[str], listed: Counter[str]) -> list[str]:
    return [
        ADVICE.format(file=file, call=call, found=found[call], listed=listed[call], test=name_of(Path(__file__)))
        for call in sorted(found | listed)
        if found[call] != listed[call]
    ]


def test_each_call_in_real_time_is_in_the_table() -> None:
    problems = []
    for path in sources():
        text = without_comments(path.read_text()) if path.suffix == ".h" else code(path)
        row = TABLE.get(name_of(path))
        problems += describe_differences(name_of(path), count_calls(text), parse_row(row[0]) if row else Counter())
    assert not problems, "\n".join(problems)


def test_table_has_only_files_that_are_scanned() -> None:
    assert TABLE.keys() <= set(map(name_of, sources()))


def test_new_call_is_reported_with_advice() -> None:
    text = "with nogil:\n    usleep(200)\n    now = time.monotonic()\n    self.poll(0)\n    mq_futex_wake_all(word)\n"
    found = count_calls(text)
    assert found == {"usleep": 1, "time.monotonic": 1}
    (report,) = describe_differences("a.pxi", found, parse_row("time.monotonic"))
    assert "a.pxi calls usleep 1 times" in report
    assert "self._now_ns()" in report
    (report,) = describe_differences("a.pxi", found, parse_row("time.monotonic, 2 usleep"))
    assert "lists 2" in report
