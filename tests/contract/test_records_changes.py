"""Vectors: changes, and waiting for them: in threads, by descriptors, by pollers, in asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.errors import (
    ConcurrentUseError,
    DeadlockError,
    EndpointClosedError,
    InvalidValueError,
    MultipleWritersError,
    WaitTimeoutError,
)
from msgq.impl.records.values import Changes
from tests.contract.conftest import Records, readable
from tests.contract.record_children import write_in_threads
from tests.support import DEADLINE, DEADLINE_MS, Task

SHORT = 0.05
PAIR = np.dtype([("number", "<i8"), ("double", "<i8")])


class TestChanges:
    def test_changes_return_writes_since_the_last_call(self, records: Records) -> None:
        quotes, other = records.vector(PAIR, 10), records.vector()
        assert quotes.changes().indices.tolist() == []
        other[7] = (1, 2)
        other[3] = (3, 6)
        other[7] = (4, 8)
        changes = quotes.changes()
        assert isinstance(changes, Changes)
        indices, rows, times, counts = changes
        assert indices.tolist() == [3, 7]
        assert rows.tolist() == [(3, 6), (4, 8)]
        assert times.tolist() == quotes.times([3, 7]).tolist()
        assert counts.tolist() == [1, 2]
        assert [each.dtype for each in changes] == [np.int64, PAIR, np.int64, np.uint64]
        assert quotes.changes().indices.tolist() == []
        other[3] = (3, 6)  # the same value is a change, too
        assert quotes.changes().counts.tolist() == [2]

    def test_changes_first_call_returns_all_written_elements(self, records: Records) -> None:
        quotes = records.vector(PAIR, 10)
        quotes[[2, 5]] = (1, 2)
        late = records.vector()
        assert late.wait(0) is True
        assert late.changes().indices.tolist() == [2, 5]

    def test_changes_include_writes_of_the_same_handle(self, records: Records) -> None:
        quotes = records.vector(PAIR, 10)
        quotes[2] = (1, 2)
        assert quotes.changes().indices.tolist() == [2]

    def test_changes_are_separate_for_each_handle(self, records: Records) -> None:
        handles = [records.vector(PAIR, 10) for _ in range(3)]
        handles[0][4] = (1, 2)
        for handle in handles:
            assert handle.changes().indices.tolist() == [4]
            assert handle.changes().indices.tolist() == []

    def test_changes_stay_pending_after_read(self, records: Records) -> None:
        quotes = records.vector(PAIR, 10)
        quotes[4] = (1, 2)
        assert quotes[4]["double"] == 2
        quotes.read()
        quotes.snapshot(atomic=True)
        quotes.times()
        assert quotes.changes().indices.tolist() == [4]

    def test_change_count_shows_number_of_writes_since_last_call(self, records: Records) -> None:
        quotes = records.vector(PAIR, 10)
        quotes[4] = (1, 2)
        before = quotes.changes().counts[0]
        for number in range(5):
            quotes[4] = (number, 2 * number)
        changes = quotes.changes()
        assert changes.counts[0] - before == 5
        assert changes.rows[0].tolist() == (4, 8)

    def test_changes_return_all_of_many_changed_elements(self, records: Records) -> None:
        numbers = records.vector("i4", 10_000)
        numbers[::7] = 5
        changes = numbers.changes()
        assert (changes.indices == np.arange(0, 10_000, 7)).all()
        assert (changes.rows == 5).all()

    def test_changes_arrays_belong_to_the_caller(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        numbers[:] = 5
        changes = numbers.changes()
        numbers[:] = 6
        assert changes.rows.tolist() == [5, 5, 5]
        changes.rows[:] = 7
        assert numbers.read().tolist() == [6, 6, 6]

    def test_receive_returns_changes_or_none(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        assert numbers.receive(0) is None
        numbers[1] = 5
        assert numbers.receive().indices.tolist() == [1]
        assert numbers.receive(timeout=0) is None

    def test_receive_timeout_is_in_seconds(self, records: Records) -> None:
        numbers, before = records.vector("i8", 3), records.monotonic()
        assert numbers.receive(timeout=SHORT) is None
        assert records.monotonic() - before >= SHORT * 0.999

    def test_changes_with_limit_return_each_element_in_turn(self, records: Records) -> None:
        numbers = records.vector("i8", 5)
        numbers[:] = 1
        assert numbers.changes(limit=0).indices.tolist() == []
        assert numbers.changes(limit=2).indices.tolist() == [0, 1]
        numbers[0] = 2  # and has to wait for the others
        assert numbers.changes(limit=2).indices.tolist() == [2, 3]
        assert numbers.changes(limit=2).indices.tolist() == [4]
        assert numbers.changes(limit=9).indices.tolist() == [0]
        assert numbers.changes().indices.tolist() == []
        with pytest.raises(InvalidValueError, match="limit"):
            numbers.changes(limit=-1)

    def test_changes_without_limit_after_limited_batch_return_all_elements(self, records: Records) -> None:
        numbers = records.vector("i8", 5)
        numbers[[1, 3]] = 1
        assert numbers.changes(limit=1).indices.tolist() == [1]
        numbers[1] = 2
        assert numbers.changes().indices.tolist() == [1, 3]

    def test_watch_iterates_until_no_change_is_left(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        numbers[1] = 5
        seen = []
        for changes in numbers.watch(timeout=SHORT):
            seen += changes.indices.tolist()
            if len(seen) < 3:
                numbers[2] = 6
        assert seen == [1, 2, 2]
        with pytest.raises(InvalidValueError):
            numbers.watch(timeout=-1)

    def test_vector_stats_count_writes(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        assert numbers.stats().elements_written == 0
        numbers[[1, 2]] = 1
        numbers[1] = 2  # the first of two elements with one time counts
        stats = numbers.stats()
        assert (stats.kind, stats.length, stats.written, stats.elements_written, stats.last_index) == (
            "vector",
            3,
            3,
            2,
            1,
        )
        assert [writer.written for writer in stats.writers] == [3]
        numbers.close()
        with pytest.raises(EndpointClosedError):
            numbers.stats()

    def test_private_vector_stats_count_writes(self, records: Records) -> None:
        kind = type(records.vector("i8", 1))
        with kind(None, "i8", 2) as private:
            private[1] = 1
            assert (private.stats().name, private.stats().written) == ("", 1)


class TestTime:
    def test_wait_without_change_ends_at_the_timeout(self, records: Records) -> None:
        numbers, before = records.vector("i8", 3), records.monotonic()
        assert numbers.wait(SHORT) is False
        assert numbers.wait(timeout=SHORT) is False
        assert records.monotonic() - before >= 2 * SHORT * 0.999

    @pytest.mark.parametrize("timeout", [0, 0.0])
    def test_wait_timeout_0_does_not_wait(self, records: Records, timeout: float) -> None:
        assert records.vector("i8", 3).wait(timeout) is False

    def test_wait_with_pending_change_returns_without_delay(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        numbers[1] = 5
        for timeout in (None, 0, 1e6 + 1):
            assert numbers.wait(timeout) is True
        numbers.changes()
        assert numbers.wait(0) is False

    @pytest.mark.parametrize("timeout", [-1, -0.001, math.nan, math.inf, 2147484])
    def test_wait_with_invalid_timeout_is_refused(self, records: Records, timeout: float) -> None:
        with pytest.raises(InvalidValueError):
            records.vector("i8", 3).wait(timeout)

    def test_endless_wait_of_only_program_in_virtual_time_raises(self, records: Records) -> None:
        if records.backend == "fake":
            with pytest.raises(DeadlockError, match=records.name):
                records.vector("i8", 3).wait()


@pytest.mark.needs("threads")
class TestThreads:
    @pytest.mark.parametrize("exclusive", [False, True])
    @pytest.mark.parametrize("call", ["wait", "receive"])
    def test_write_wakes_a_waiting_thread(self, records: Records, call: str, exclusive: bool) -> None:
        numbers, other = records.vector("i8", 3, exclusive=exclusive), records.vector()
        task = Task(getattr(numbers, call))
        task.wait_asleep()
        other[1] = 5
        assert task.result()

    def test_write_wakes_all_waiting_handles_and_threads(self, records: Records) -> None:
        handles = [records.vector("i8", 3) for _ in range(3)]
        tasks = [Task(handle.wait) for handle in handles for _ in range(2)]
        for task in tasks:
            task.wait_asleep()
        handles[0].write([0, 1, 2], 5)
        assert [task.result() for task in tasks] == [True] * 6

    def test_write_beyond_the_length_of_a_handle_does_not_end_wait(self, records: Records) -> None:
        whole, some = records.vector("i8", 10), records.vector("i8", 3)
        task = Task(some.wait)
        task.wait_asleep()
        whole[5] = 1
        task.wait_asleep()
        whole[2] = 1
        assert task.result() is True

    def test_close_ends_a_wait_in_another_thread(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        task = Task(numbers.wait)
        task.wait_asleep()
        numbers.close()
        with pytest.raises(EndpointClosedError):
            task.result()

    def test_passive_vector_wait_polls_for_changes(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        watcher = records.vector(passive=True)
        task = Task(watcher.wait)
        task.wait_asleep()
        numbers[1] = 5
        assert task.result() is True

    def test_waiting_handle_can_be_used_by_other_threads(self, records: Records) -> None:
        numbers, other = records.vector("i8", 3), records.vector("i8", 3, name="other")
        other[0] = 1
        task = Task(numbers.wait)
        task.wait_asleep()
        assert numbers[0] == 0
        assert numbers.snapshot(atomic=True).tolist() == [0, 0, 0]
        assert numbers.wait(0) is False
        numbers[0] = 7
        assert task.result() is True

    def test_changes_in_several_threads_report_each_change_once(self, records: Records) -> None:
        """Two may meet there, and then one of them is told; each change is told once."""
        numbers = records.vector("i8", 50_000)
        told: list[int] = []
        refused: list[int] = []

        def ask() -> None:
            for _ in range(20):
                try:
                    told.extend(numbers.changes().indices.tolist())
                except ConcurrentUseError:
                    refused.append(1)

        numbers[:] = 1
        tasks = [Task(ask) for _ in range(3)]
        for task in tasks:
            task.result()
        assert sorted(told) == list(range(50_000))

    def test_vector_handle_is_usable_in_several_threads(self, records: Records) -> None:
        threads, rounds = 4, 200
        counts = write_in_threads(records.backend, records.name, threads, rounds)
        assert counts == [rounds] * threads + [threads * rounds]

    def test_concurrent_reads_are_never_torn(self, records: Records) -> None:
        """Two handles write rows of a mebibyte, each of one byte, again and again, while others read."""
        dtype = np.dtype([("data", "u1", (1 << 20,))])
        rows = [records.vector(dtype, 2) for _ in range(4)]
        rounds, done = 30, []

        def write(number: int) -> None:
            value = np.zeros(2, dtype)
            for each in range(rounds):
                value["data"] = (number + 2 * each) % 251
                rows[number].write([0, 1], value, timeout=DEADLINE)
            done.append(number)

        def read(handle: Any) -> None:
            while len(done) < 2:
                with contextlib.suppress(WaitTimeoutError):  # written without a pause
                    for found in (handle[0]["data"], *handle.read()["data"], *handle.snapshot()["data"]):
                        assert (found == found[0]).all()

        tasks = [Task(write, number) for number in range(2)] + [Task(read, handle) for handle in rows[2:]]
        for task in tasks:
            task.result()
        assert rows[0].counts().tolist() == [2 * rounds] * 2

    def test_exclusive_handle_may_write_in_several_threads(self, records: Records) -> None:
        """It is the handle that is the one writer, not a thread of it."""
        numbers = records.vector("i8", 3, exclusive=True)
        Task(numbers.write, [0], 5).result()
        numbers[1] = 6
        assert numbers.read().tolist() == [5, 6, 0]
        with pytest.raises(MultipleWritersError):
            records.vector()[1] = 7


class TestDescriptors:
    def test_fileno_is_readable_while_a_change_is_pending(self, records: Records) -> None:
        numbers, other = records.vector("i8", 3), records.vector()
        fd = numbers.fileno()
        assert fd == numbers.fileno()
        assert not readable(fd)
        for _ in range(3):
            other[1] = 5
            assert readable(fd, DEADLINE)
            assert numbers.changes().indices.tolist() == [1]
            assert not readable(fd)

    def test_fileno_is_readable_for_changes_before_fileno_call(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        numbers[0] = 1
        assert readable(numbers.fileno(), DEADLINE)

    def test_fileno_stays_readable_after_element_read(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        fd = numbers.fileno()
        numbers[0] = 1
        assert readable(fd, DEADLINE)
        assert numbers[0] == 1
        assert readable(fd)

    def test_fileno_is_separate_for_each_handle(self, records: Records) -> None:
        handles = [records.vector("i8", 3) for _ in range(3)]
        handles.append(records.vector(passive=True))
        fds = [handle.fileno() for handle in handles]
        assert len(set(fds)) == 4
        handles[0][0] = 1
        for fd in fds:
            assert readable(fd, DEADLINE)
        handles[1].changes()
        assert [readable(fd) for fd in fds] == [True, False, True, True]

    def test_fileno_is_closed_with_the_handle(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        fd = numbers.fileno()
        numbers.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


class TestPoller:
    def test_poller_returns_changed_vectors(self, records: Records) -> None:
        one, other = records.vector("i8", 3, name="1"), records.seqlock("i8", name="2")
        poller = records.poller(one, other)
        assert poller.poll(0) == []
        other.value = 5
        assert poller.poll(DEADLINE_MS) == [other]
        one[0] = 1
        assert poller.poll(0) == [one, other]
        other.changes()
        assert poller.poll(0) == [one]

    def test_poller_waits_for_its_timeout(self, records: Records) -> None:
        poller, before = records.poller(records.vector("i8", 3)), records.monotonic()
        assert poller.poll(50) == []
        assert records.monotonic() - before >= 0.0499

    def test_poller_accepts_vectors_queues_and_boards_together(self, records: Records, endpoint: str) -> None:
        numbers, board = records.vector("i8", 3), records.board(name="board")
        entry, observed = board.declare("key"), board.observe("key")
        queue = msgq.MessageQueue(endpoint)
        poller = records.poller(numbers, queue, board, observed)
        try:
            assert poller.poll(0) == []
            numbers[0] = 1
            assert poller.poll(DEADLINE_MS) == [numbers]
            numbers.changes()
            queue.send(b"message")
            assert poller.poll(DEADLINE_MS) == [queue]
            queue.receive(0)
            entry.write(b"value")
            assert poller.poll(DEADLINE_MS) == [board, observed]
            observed.read()
            assert poller.poll(0) == [board]
        finally:
            queue.close()
            queue.unlink()

    @pytest.mark.needs("threads")
    def test_poller_is_woken_by_a_write(self, records: Records) -> None:
        one, other = records.vector("i8", 3, name="1"), records.vector("i8", 3, name="2")
        task = Task(records.poller(one, other).poll, DEADLINE_MS)
        task.wait_asleep()
        records.vector(name="2")[0] = 1
        assert task.result() == [other]


class TestAsyncio:
    @pytest.mark.parametrize("call", ["areceive", "arecv"])
    def test_areceive_waits_only_without_pending_changes(self, records: Records, call: str) -> None:
        numbers, other = records.vector("i8", 3), records.vector()

        async def scenario() -> list[Any]:
            other[0] = 1
            first = await getattr(numbers, call)()
            asyncio.get_running_loop().call_later(0.01, other.write, [1, 2], 5)
            return [first, await asyncio.wait_for(getattr(numbers, call)(), DEADLINE)]

        first, second = asyncio.run(scenario())
        assert isinstance(first, Changes)
        assert (first.indices.tolist(), first.rows.tolist()) == ([0], [1])
        assert second.indices[0] == 1

    def test_async_for_returns_changes(self, records: Records) -> None:
        numbers, other = records.vector("i8", 3), records.vector()

        async def scenario() -> list[int]:
            got: list[int] = []
            other[0] = 0
            async for changes in numbers:
                got += changes.rows.tolist()
                if len(got) == 5:
                    break
                asyncio.get_running_loop().call_soon(other.__setitem__, 0, len(got))
            return got

        assert asyncio.run(scenario()) == [0, 1, 2, 3, 4]

    def test_areceive_raises_when_the_handle_closes(self, records: Records) -> None:
        numbers = records.vector("i8", 3)

        async def scenario() -> None:
            asyncio.get_running_loop().call_later(0.01, numbers.close)
            await numbers.areceive()

        with pytest.raises(EndpointClosedError):
            asyncio.run(scenario())
