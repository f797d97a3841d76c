"""Records whose handles are closed, forked and dropped at bad moments: by handlers, time-outs, other threads."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.common import shm_paths
from msgq.errors import ConcurrentUseError, EndpointClosedError, ForkedSocketError
from msgq.impl.base import clock
from tests.support import DEADLINE, SHM, Task, in_fork, run_child


class Closing(float):
    """A time-out that closes a handle when it is looked at: as a signal handler might that runs then."""

    close: Callable[[], None]

    def __ge__(self, other: float) -> bool:
        self.close()
        return float(self) >= other


def test_timeout_conversion_can_close_record_handle(endpoint: str) -> None:
    def child() -> None:
        handle = msgq.SeqlockVector(endpoint, "i8", 4)
        handle[0] = 1
        timeout = Closing(1.0)
        timeout.close = handle.close
        with pytest.raises(EndpointClosedError):
            handle.write([0, 1], [2, 3], timeout=timeout)
        assert msgq.SeqlockVector(endpoint)[0] == 1

    assert in_fork(child) == 0  # and not killed: its row is gone


class Row(np.ndarray[Any, Any]):
    """A value whose attribute `dtype` runs Python code, so another thread may run meanwhile."""

    find_dtype: Callable[[], Any]

    @property
    def dtype(self) -> Any:
        return self.find_dtype()


class SlowInteger:
    """An integer that calls a function when it is checked, after its conversion."""

    def __init__(self, value: int, during_check: Callable[[], Any]) -> None:
        self._value, self._during_check, self._is_converted = value, during_check, False

    def __index__(self) -> int:
        if self._is_converted:
            self._during_check()
        self._is_converted = True
        return self._value


def test_threads_that_convert_values_at_once_write_their_own_values(endpoint: str) -> None:
    """Failure would mean: an element gets the value that the other thread writes."""
    vector = msgq.SeqlockVector(endpoint, np.dtype([("x", "i4"), ("y", "i4")]), 2)
    asked, may_go_on = threading.Event(), threading.Event()

    def find_dtype() -> Any:
        asked.set()
        assert may_go_on.wait(DEADLINE)
        return vector.dtype

    row = np.array((7, 7), vector.dtype).view(Row)
    row.find_dtype = find_dtype
    writing = Task(vector.__setitem__, 0, row)
    assert asked.wait(DEADLINE)

    def finish_other_write() -> None:
        may_go_on.set()
        writing.result()

    vector[1] = (1, SlowInteger(2, finish_other_write))
    assert vector[:].tolist() == [(7, 7), (1, 2)]


def write_and_close(what: str, endpoint: str) -> bool:
    """Have the path of the word for origins asked for by who closes the handle; whether it is open afterwards."""
    real, handles = shm_paths.origin_counter_path, list[Any]()

    def path() -> str:
        for handle in handles:
            handle.close()
        return real()

    shm_paths.origin_counter_path = path
    if what == "vector":
        vector = msgq.SeqlockVector(endpoint, msgq.tracked("i8"), 4)
        handles.append(vector)
        vector[0] = (0, 0, 1)
        vector[[1]] = vector[0]
    else:
        socket = msgq.PubSocket()
        socket.connect(msgq.Context(), endpoint, tracked=True)
        handles.append(socket)
        socket.send(b"x")
    return not handles[0].closed


@pytest.mark.parametrize("what", ["vector", "topic"])
def test_first_origin_time_is_created_at_open_instead_of_write(what: str, endpoint: str) -> None:
    """It is when the handle is opened. That is Python code, so signal handlers and other threads may run meanwhile."""
    assert run_child(write_and_close, what, endpoint) is True


def close_in_a_handler(endpoint: str) -> None:
    """Do so on top of a wait, while another thread copies."""
    dtype = np.dtype("V4000000")
    vector = msgq.SeqlockVector(endpoint, dtype, 16, exclusive=True)
    vector[0] = np.zeros(1, dtype)[0]
    vector.changes()
    vector.fileno()
    begun, out = threading.Event(), np.zeros(16, dtype)

    def copy() -> None:
        with contextlib.suppress(EndpointClosedError):
            while True:
                begun.set()
                vector.read(None, out)

    thread = threading.Thread(target=copy)
    former = signal.signal(signal.SIGALRM, lambda *_: vector.close())
    thread.start()
    begun.wait()
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    with pytest.raises(EndpointClosedError):
        vector.wait(DEADLINE)
    thread.join()
    signal.signal(signal.SIGALRM, former)


def close_on_top(endpoint: str) -> int:
    """Return how many descriptors are left; the place of the one that wrote is free."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        close_in_a_handler(endpoint)
        gc.collect()
        with msgq.SeqlockVector(endpoint) as other:
            other.claim()
        msgq.SeqlockVector.unlink_name(endpoint)
        gc.collect()
    del other
    return len(os.listdir("/proc/self/fd")) - before


@pytest.mark.ci
@pytest.mark.needs_shm(140 << 20)
def test_record_handle_closed_during_wait_frees_its_row(endpoint: str) -> None:
    assert run_child(close_on_top, endpoint) == 0


@pytest.mark.needs_shm(400 << 20)
def test_interrupted_close_of_vector_is_completed(endpoint: str) -> None:
    """Another thread copies, so the close waits for it."""

    def child() -> None:
        dtype = np.dtype("V100000000")
        vector = msgq.SeqlockVector(endpoint, dtype, 2, exclusive=True)
        rows = np.zeros(1, dtype)
        begun = threading.Event()

        def copy() -> None:
            with contextlib.suppress(EndpointClosedError):
                while True:
                    begun.set()
                    vector.write([1], rows)

        thread = threading.Thread(target=copy)
        thread.start()
        begun.wait()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                vector.close()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        vector.close()
        thread.join()
        with msgq.SeqlockVector(endpoint) as other:
            other.claim()

    assert in_fork(child) == 0


def test_board_entry_in_forked_child_is_refused(endpoint: str) -> None:
    with msgq.Board(endpoint) as board, board.declare("key") as entry:
        entry.write(b"parent")

        def child() -> None:
            with pytest.raises(
                ForkedSocketError, match=r"'key' belongs to the parent process.*close the parent's Entry"
            ):
                entry.write(b"child")

        assert in_fork(child) == 0
        entry.write(b"parent again")
        assert board["key"] == b"parent again"


class TestForksWhileAnotherThreadWaits:
    """The child has not that thread: what it waited in is free."""

    @pytest.mark.parametrize("producers", ["single", "multiple"])
    def test_child_forked_during_record_queue_wait_uses_its_own_wait(self, producers: Any, endpoint: str) -> None:
        opened = partial(msgq.RecordQueue, endpoint, "i8", producers=producers)
        with opened() as queue, opened() as producer:
            task = Task(queue.consume)
            task.wait_asleep()

            def child() -> None:
                assert not len(queue.consume(timeout=0))

            assert in_fork(child) == 0
            producer.produce(5)
            assert task.result().tolist() == [5]

    def test_child_forked_during_board_key_wait_uses_its_own_wait(self, endpoint: str) -> None:
        with msgq.Board(endpoint) as board, board.declare("key") as entry, board.observe("key") as observed:
            task = Task(observed.wait)
            task.wait_asleep()

            def child() -> None:
                assert observed.data() is None

            assert in_fork(child) == 0
            entry.write(b"x")
            assert task.result()


@pytest.fixture
def stage(endpoint: str) -> Iterator[str]:
    """A name of a stage, whose timing topics are removed."""
    yield endpoint
    for path in SHM.glob(f"msgq*timing:{endpoint}:*"):
        path.unlink()


class TestRounds:
    def test_open_span_cannot_be_entered_again(self, stage: str) -> None:
        with msgq.StageTracer(stage) as tracer:
            this = tracer.timer("x")
            with this, pytest.raises(ConcurrentUseError), this:
                pass
            with tracer.span(None, endpoint="e").set_stamps(5, 7):
                assert clock.origin_time() == 7
            assert clock.origin_time() == 0
            Task(lambda: tracer.timer("x").__enter__().__exit__(None, None, None)).result()

    def test_timer_can_be_entered_repeatedly(self, stage: str) -> None:
        with msgq.StageTracer(stage) as tracer:
            timer = tracer.timer("x")
            for _ in range(2):
                with timer:
                    assert clock.origin_time() == 0

    def test_trace_messages_takes_no_message_during_open_span(self, stage: str) -> None:
        with msgq.StageTracer(stage) as tracer, msgq.RecordQueue(stage, msgq.tracked("i8")) as queue:
            queue.produce(np.arange(3))
            iterator = tracer.trace_messages(queue)
            with tracer.timer("x"), pytest.raises(ConcurrentUseError):
                Task(lambda: next(iterator)).result()
            assert [next(iterator)["value"] for _ in range(3)] == [0, 1, 2]
            iterator.end_span()  # type: ignore[attr-defined]

    def test_origin_time_of_dropped_span_ends_with_next_span(self, stage: str) -> None:
        with msgq.StageTracer(stage) as tracer, msgq.RecordQueue(stage, msgq.tracked("i8")) as queue:
            queue.produce(1)
            kept = [tracer.trace_messages(queue)]
            next(kept[0])
            Task(kept.clear).result()
            with tracer.timer("x"):
                pass
            assert clock.origin_time() == 0


def test_board_key_is_not_truncated_at_nul_character(endpoint: str) -> None:
    with msgq.Board(endpoint) as board:
        board.declare("a")
        assert "a" in board
        assert "a\0" not in board


@pytest.mark.parametrize("producers", ["single", "multiple"])
@pytest.mark.parametrize("capacity", [1, 4, 5])
def test_record_queue_of_one_byte_records_delivers_full_capacity(capacity: int, producers: Any, endpoint: str) -> None:
    with msgq.RecordQueue(endpoint, "u1", capacity, producers=producers) as queue:
        queue.produce(np.arange(capacity, dtype="u1"))
        assert queue.consume(timeout=0).tolist() == list(range(capacity))
