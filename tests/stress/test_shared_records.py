"""Eight threads at once use one vector, record, board, entry, observer or queue of records; also without the GIL.

See test_shared_handles.py. In addition, each change is reported once, and each write is counted once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest

from msgq.errors import ConcurrentUseError, EndpointClosedError, IpcError, WaitTimeoutError
from msgq.impl.ring import Poller
from msgq.records import Board, RecordQueue, Seqlock, SeqlockVector, StageTracer
from tests.stress.thread_calls import (
    CALLS,
    ROW,
    THREADS,
    WORDS,
    beside,
    check_once,
    flow,
    in_threads,
    number_of,
    repeat,
    spread,
    until,
    words,
)
from tests.support import run_child

LARGE_ROW = np.dtype([("words", "<u8", 1 << 15)])  # 256 KiB, which are copied without the GIL
LARGE_CALLS = max(CALLS // 10, 10)


def row(number: int) -> Any:
    return ((number,) * WORDS,)


def check_reported_once(reports: list[tuple[Any, int]]) -> None:
    assert len(set(reports)) == len(reports), "a change was reported twice"


# ---- vectors ----


def report_changes_of_a_vector() -> None:
    vector = SeqlockVector("shared", ROW, 16)

    def write(number: int) -> None:
        vector[number % 16] = row(number)

    def take() -> list[tuple[int, int]]:
        changes = vector.changes(5)
        for each in changes.rows:
            number_of(each.tobytes())
        return list(zip(changes.indices.tolist(), changes.counts.tolist(), strict=True))

    def wait() -> list[tuple[int, int]]:
        return take() if vector.wait(0.001) else []

    written, taken = beside(
        spread(write)[:4], [lambda over: until(over, take)] * 2 + [lambda over: until(over, wait)] * 2
    )
    check_reported_once([change for reader in taken for changes in reader for change in changes])
    assert vector.stats().written == sum(map(len, written)) == int(vector.counts().sum())


def write_large_values() -> None:
    vector, record = SeqlockVector("shared", LARGE_ROW, 2), Seqlock("record", LARGE_ROW)
    row = np.zeros(1, LARGE_ROW)

    def write(number: int) -> None:
        vector.write([number % 2], row, timeout=None)
        record.write(row[0])

    def read() -> None:
        found = vector.read()["words"]
        assert (found == found[:, :1]).all()
        found = record.read()["words"]
        assert (found == found[0]).all()

    def write_all() -> None:
        for number in range(LARGE_CALLS):
            write(number)

    beside([write_all] * 4, [lambda over: until(over, read)] * 4)
    for handle in (vector, record):
        assert handle.stats().written == 4 * LARGE_CALLS, "a write was not counted"
    assert int(vector.counts().sum()) == record.count == 4 * LARGE_CALLS


def write_an_exclusive_vector() -> None:
    vector = SeqlockVector("shared", LARGE_ROW, 2, exclusive=True)
    rows = np.zeros(2, LARGE_ROW)

    def write(_number: int) -> None:
        vector.write(None, rows)

    def write_all() -> list[int]:
        return repeat(write, 0)()[:LARGE_CALLS]

    done = [number for part in in_threads(*[write_all] * 4) for number in part]
    assert done
    assert vector.stats().written == int(vector.counts().sum())


def wait_for_locked_elements() -> None:
    """Several handles write the same elements, with and without waits."""
    vectors = [SeqlockVector("shared", LARGE_ROW, 1) for _ in range(2)]
    rows = np.zeros(1, LARGE_ROW)

    def write(vector: SeqlockVector) -> int:
        done = 0
        for number in range(LARGE_CALLS):
            with contextlib.suppress(WaitTimeoutError):
                vector.write(None, rows, timeout=None if number % 2 else 0.001)
                done += 1
        return done

    done = in_threads(*[lambda vector=vector: write(vector) for vector in vectors * 4])
    assert vectors[0].stats().written == sum(done) == int(vectors[0].counts()[0])


def read_single_values() -> None:
    """Values refer to memory of several values, which later reads use again once no value refers to it."""
    vector = SeqlockVector("shared", ROW, 4)
    for i in range(4):
        vector[i] = row(i)

    def read(number: int) -> None:
        kept = [vector[i] for i in range(4)]
        assert vector[number % 4]["words"][0] == number % 4
        assert [int(value["words"][0]) for value in kept] == [0, 1, 2, 3]

    in_threads(*spread(read))


def report_changes_of_a_record() -> None:
    record = Seqlock("shared", ROW)

    def take() -> list[tuple[int, int]]:
        changes = record.changes()
        return list(zip(changes.indices.tolist(), changes.counts.tolist(), strict=True))

    def receive() -> list[tuple[int, int]]:
        changes = record.receive(0.001)
        return [] if changes is None else list(zip(changes.indices.tolist(), changes.counts.tolist(), strict=True))

    _, taken = beside(
        spread(lambda number: record.write(row(number)))[:4],
        [lambda over: until(over, take)] * 2 + [lambda over: until(over, receive)] * 2,
    )
    check_reported_once([change for reader in taken for changes in reader for change in changes])


# ---- boards ----


def count_writes(board: Board, key: str) -> int:
    value = board.observe(key).read()
    return 0 if value is None else value.count


def share_an_entry() -> None:
    board = Board("shared", 8, 1 << 19)
    entry = board.declare("key")
    large = words(7) * (1 << 13)  # 512 KiB, which are copied without the GIL

    def write(number: int) -> None:
        entry.write(large if number % 10 == 0 else words(number))

    def read() -> None:
        found = np.frombuffer(board["key"], "<u8") if "key" in board and board.stats().keys[0].count else np.zeros(1)
        assert (found == found[0]).all()

    written, _ = beside(spread(write)[:4], [lambda over: until(over, read)] * 4)
    count = sum(map(len, written))
    assert count_writes(board, "key") == count
    assert board.stats().written == count
    in_threads(*[entry.close] * THREADS)
    assert board.stats().keys[0].owner is None


def declare_and_forget_entries() -> None:
    """Threads declare keys, and drop their entries in other threads."""
    board = Board("shared", 2 * THREADS, 64)
    dropped: list[Any] = []

    def use(number: int) -> None:
        with contextlib.suppress(IpcError):  # another thread has the key
            entry = board.declare(f"key{number % THREADS}")
            entry.write(words(number))
            dropped.append(entry)
        if len(dropped) > THREADS:
            del dropped[: THREADS // 2]
        board.keys()

    in_threads(*spread(use))
    dropped.clear()
    for key in board:
        board.declare(key).close()


def observe_a_key() -> None:
    board = Board("shared", 8, 8 * WORDS)
    entry, observer = board.declare("key"), board.observe("key")

    def receive() -> tuple[str, int] | None:
        value = observer.receive(0.001)
        if value is None:
            return None
        number_of(value.data)
        return "key", value.count

    def read() -> None:
        if (value := observer.read()) is not None:
            number_of(value.data)
            assert value.alive
        assert observer.changed in (True, False)

    _, taken = beside([repeat(lambda number: entry.write(words(number)), 1)], [lambda over: until(over, receive)] * 4)
    check_reported_once([value for reader in taken for value in reader if value is not None])
    beside([repeat(lambda number: entry.write(words(number)), 1)], [lambda over: until(over, read)] * 4)


def report_changes_of_a_board() -> None:
    board = Board("shared", 4, 8 * WORDS)
    entries = [board.declare(f"key{i}") for i in range(4)]

    def take() -> list[tuple[str, int]]:
        return [(key, value.count) for key, value in board.changes(3).items()]

    def receive() -> list[tuple[str, int]]:
        changes = board.receive(0.001)
        return [] if changes is None else [(key, value.count) for key, value in changes.items()]

    _, taken = beside(
        spread(lambda number: entries[number % 4].write(words(number)))[:4],
        [lambda over: until(over, take)] * 2 + [lambda over: until(over, receive)] * 2,
    )
    check_reported_once([change for reader in taken for changes in reader for change in changes])
    assert board.stats().written == sum(count_writes(board, f"key{i}") for i in range(4))


def observe_while_the_board_closes() -> None:
    for _ in range(LARGE_CALLS):
        board, observers = Board("shared", 4, 64), list[Any]()

        def observe(board: Board = board, observers: list[Any] = observers) -> None:
            with contextlib.suppress(EndpointClosedError):
                while True:
                    observers.append(board.observe("key"))

        in_threads(observe, observe, board.close)
        assert all(observer.closed for observer in observers)


# ---- queues of records ----


def share_record_queue(producers: Any) -> None:
    queue = RecordQueue("shared", ROW, 1024, producers=producers)
    poller = Poller()
    poller.registerSocket(queue._reader)

    def receive() -> Any:
        poller.poll(1)
        record = queue.receive(0)
        return None if record is None else record.tobytes()

    sent, *received = flow(
        spread(lambda number: queue.produce(np.full(WORDS, number, "<u8").view(ROW)))[:4], receive, 4
    )
    lost = queue.lost or 0
    check_once(sent, [*chain(*received)], lost)

    def consume() -> list[int]:
        return [number_of(each.tobytes()) for each in queue.consume(timeout=0)]

    sent, taken = beside(
        spread(lambda number: queue.produce(np.full(WORDS, number, "<u8").view(ROW)))[:4],
        [lambda over: until(over, consume)] * 4,
    )
    check_once([*chain(*sent)], [*chain(*chain(*taken)), *consume()], (queue.lost or 0) - lost)
    queue.close()


def share_single_producer_queue() -> None:
    share_record_queue("single")


def share_multiple_producer_queue() -> None:
    share_record_queue("multiple")


def share_tracked_queue() -> None:
    """All producers stamp their records in the same memory."""
    import msgq

    queue = RecordQueue("shared", msgq.tracked(ROW), 1024)

    def receive() -> Any:
        record = queue.receive(0)
        return None if record is None else record["words"].tobytes()

    def produce(number: int) -> None:
        queue.produce(np.full(WORDS, number, "<u8").view(ROW)[0])

    sent, *received = flow(spread(produce)[:4], receive, 4)
    check_once(sent, [*chain(*received)], queue.lost or 0)


def share_tracer() -> None:
    tracer = StageTracer("stage")

    def trace(number: int) -> None:
        with tracer.span(endpoint="orders"), tracer.span(endpoint="fills"):
            pass

    done = in_threads(*spread(trace))
    assert any(done)
    with tracer.span(endpoint="orders"):
        pass


# ---- close ----


def close_beside_waits() -> None:
    """A handle is closed at the begin of a wait in other threads: each wait ends."""

    def use(call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            with contextlib.suppress(EndpointClosedError, ConcurrentUseError):
                call()

        return run

    def close_all(number: int) -> None:
        vector, record = SeqlockVector("closed", "f8", 8), Seqlock("record", "f8")
        board = Board("board", 4, 1 << 19)
        entry, observer = board.declare("key"), board.observe("key")
        queue = RecordQueue("queue", "f8", producers="multiple" if number % 2 else "single")
        calls: list[Callable[[], Any]] = [
            vector.wait,
            lambda: [vector.changes() for _ in range(10)],
            record.wait,
            observer.wait,
            board.wait,
            queue.receive,
            lambda: queue.produce(1.0),
        ]
        writes: list[Callable[[], Any]] = [lambda: entry.write(bytes(1 << 18)), lambda: [board.items(), board.stats()]]
        handles: list[Any] = [vector, record, board, observer, queue]
        in_threads(
            *map(use, calls),
            *map(use, writes if number % 2 else []),
            *[handle.close for handle in handles[:: 1 if number % 2 else -1]],
        )
        assert all(handle.closed for handle in handles)

    for number in range(CALLS // 3):
        close_all(number)


def exit_beside_calls() -> None:
    """Daemon threads use all handles while the process ends."""
    vector, board = SeqlockVector("vector", LARGE_ROW, 2), Board("board", 4, 1 << 19)
    entry, observer = board.declare("key"), board.observe("key")
    queues = [RecordQueue(producers, "f8", producers=producers) for producers in ("single", "multiple")]
    started = threading.Barrier(8)

    def repeat_forever(call: Callable[[], Any]) -> None:
        started.wait()
        while True:
            with contextlib.suppress(ConcurrentUseError, EndpointClosedError):
                call()

    calls: list[Callable[[], Any]] = [
        lambda: vector.write(None, np.zeros(2, LARGE_ROW)),
        vector.changes,
        lambda: entry.write(bytes(1 << 18)),
        lambda: observer.wait(0.001),
        *[lambda queue=queue: queue.produce(1.0) for queue in queues],
        lambda: queues[0].receive(0.001),
    ]
    for call in calls:
        threading.Thread(target=repeat_forever, args=(call,), daemon=True).start()
    started.wait()


SCENARIOS = [
    report_changes_of_a_vector,
    write_large_values,
    write_an_exclusive_vector,
    wait_for_locked_elements,
    read_single_values,
    report_changes_of_a_record,
    share_an_entry,
    declare_and_forget_entries,
    observe_a_key,
    report_changes_of_a_board,
    observe_while_the_board_closes,
    share_single_producer_queue,
    share_multiple_producer_queue,
    share_tracked_queue,
    share_tracer,
    close_beside_waits,
    exit_beside_calls,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_threads_that_use_records_at_once_break_nothing(prefix: str, scenario: Callable[[], None]) -> None:
    run_child(scenario)
