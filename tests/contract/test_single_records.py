"""Record queues in shared memory, one record a call: values, lifetimes, and calls that overlap."""

from __future__ import annotations

import copy
import gc
import pickle
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.errors import (
    ConcurrentUseError,
    EndpointClosedError,
    InvalidValueError,
    MessageSizeError,
    MultiplePublishersError,
    RecordMismatchError,
    RecordTypeError,
)
from msgq.impl.base import clock
from msgq.records import RecordQueue, tracked
from tests.contract.children import in_fork_quietly
from tests.support import DEADLINE, Task, signal_when_asleep, wait_until

QUOTE = np.dtype([("number", "<i8"), ("price", "<f8")])
NESTED = np.dtype([("inner", [("a", "<i2"), ("b", "<f4", (3,))]), ("text", "S5"), ("time", "<M8[ns]")], align=True)
PADDED = np.dtype({"names": ["a", "b"], "formats": ["<u1", "<f8"], "offsets": [0, 8], "itemsize": 24})
DTYPES: list[Any] = [
    *("<f8", ">f8", "?", "<u1", "S5", "<U3", "<M8[ns]", "<m8[s]", "<c16", "V7"),
    *(QUOTE, NESTED, PADDED, np.dtype((np.record, QUOTE))),
]


def make_quote(number: int, dtype: Any = QUOTE) -> Any:
    return np.array([(number, number + 0.5)], dtype)[0]


def receive_record(queue: RecordQueue, timeout: float | None = DEADLINE) -> Any:
    return queue.receive(timeout)


ROWS = np.array([make_quote(number) for number in range(9)])
NAMES, SWAPPED = ["number", "price"], QUOTE.newbyteorder(">")
WITH_REST = np.array([(make_quote(7), 1)], [("quote", QUOTE), ("rest", "u1")])
GIVEN: dict[str, Any] = {
    "scalar": make_quote(7),
    "0-d": np.array(make_quote(7)),
    "array": np.array([make_quote(7)]),
    "slice": ROWS[7:8],
    "step": ROWS[1::6][1:2],
    "backwards": ROWS[::-1][1:2],
    "strided": WITH_REST["quote"],
    "field": WITH_REST[0]["quote"],
    "recarray": np.array([make_quote(7)]).view(np.recarray),
    "record": np.array([make_quote(7)]).view(np.recarray)[0],
    "masked": np.ma.masked_array(np.array([make_quote(7)])),
    "big-endian": make_quote(7, SWAPPED),
    "big-endian array": np.array([make_quote(7)]).astype(SWAPPED),
    "smaller": make_quote(7, [("number", "<i4"), ("price", "<f4")]),
    "padded": make_quote(7, {"names": NAMES, "formats": ["<i8", "<f8"], "offsets": [8, 24]}),
    "equal dtype": make_quote(7, [("number", "<i8"), ("price", "<f8")]),
    "tuple": (7, 7.5),
    "mapping": {"price": 7.5, "number": 7},
}


@pytest.fixture(params=["single", "multiple"])
def producers(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def queue(endpoint: str, producers: Any) -> Iterator[RecordQueue]:
    """A queue that has sent and received one record, so that its next calls are the fast ones."""
    with RecordQueue(endpoint, QUOTE, 64, producers=producers) as opened:
        opened.produce(make_quote(0))
        assert opened.receive(DEADLINE) == make_quote(0)
        yield opened


class CallOnConversion:
    """A value that calls a function when NumPy converts it to a record."""

    dtype = QUOTE

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self._call()
        return np.array(make_quote(7))


class Pause:
    """A point at which a thread stops until another thread lets it continue."""

    def __init__(self) -> None:
        self.reached, self.ended = threading.Event(), threading.Event()

    def stop(self) -> None:
        self.reached.set()
        self.ended.wait(DEADLINE)


class TestValues:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_received_record_equals_scalar_of_array(self, endpoint: str, producers: Any, dtype: Any) -> None:
        rows: Any = np.frombuffer(bytes(range(1, 1 + 3 * np.dtype(dtype).itemsize)), "u1").view(dtype)
        if np.dtype(dtype).kind == "U":
            rows = np.array(["abc", "d", ""], dtype)
        elif np.dtype(dtype).kind == "b":
            rows = np.array([True, False, True])
        with RecordQueue(endpoint, dtype, producers=producers) as queue:
            queue.produce(rows)
            for row in [*rows, *rows]:
                queue.produce(row)
            for i in range(9):
                record = receive_record(queue)
                expected = np.frombuffer(rows.tobytes(), queue.dtype)[i % 3]
                assert type(record) is type(expected)
                assert record.dtype == expected.dtype
                assert record.tobytes() == expected.tobytes()
                assert record.flags.writeable == expected.flags.writeable
                assert repr(record) == repr(expected)

    @pytest.mark.parametrize("name", GIVEN)
    def test_value_of_one_record_arrives_unchanged(self, queue: RecordQueue, name: str) -> None:
        for number in range(1, 4):
            assert queue.produce(GIVEN[name]) == number
            assert receive_record(queue).item() == (7, 7.5)

    @pytest.mark.parametrize(
        "dtype",
        [
            [("number", "<i8"), ("other", "<f8")],
            [("price", "<f8"), ("number", "<i8")],
            [("number", "<f8"), ("price", "<f8")],
            "S16",
        ],
        ids=["name", "order", "type", "text"],
    )
    def test_record_of_another_dtype_of_same_size_is_refused(self, queue: RecordQueue, dtype: Any) -> None:
        rows: Any = np.frombuffer(bytes(range(16)), "u1").view(dtype)
        for given in (rows, rows[0], rows.reshape(())):
            with pytest.raises(RecordTypeError, match=r"values of dtype .* cannot be converted to .*number"):
                queue.produce(given)
        assert queue.produce(make_quote(1)) == 1
        assert receive_record(queue) == make_quote(1)

    @pytest.mark.parametrize("shape", [(1, 1), (1, 1, 1), (2, 1)])
    def test_record_array_of_more_dimensions_is_refused(self, queue: RecordQueue, shape: tuple[int, ...]) -> None:
        with pytest.raises(InvalidValueError, match="shape"):
            queue.produce(np.zeros(shape, QUOTE))
        assert queue.receive(0) is None

    def test_padding_bytes_of_record_arrive_unchanged(self, endpoint: str, producers: Any) -> None:
        rows = np.frombuffer(bytes(range(1, 25)), PADDED)
        with RecordQueue(endpoint, PADDED, producers=producers) as queue:
            for given in (rows, rows[0], rows.reshape(()), rows[0]):
                queue.produce(given)
                assert receive_record(queue).tobytes() == rows.tobytes()

    def test_large_records_are_delivered(self, endpoint: str, producers: Any) -> None:
        dtype = np.dtype([("number", "<i8"), ("rest", "V300000")])
        rows = np.zeros(2, dtype)
        rows["number"] = 5, 6
        with RecordQueue(endpoint, dtype, 4, producers=producers) as queue:
            for i in range(4):
                assert queue.produce(rows[i % 2]) == i
                assert receive_record(queue)["number"] == 5 + i % 2

    def test_numbers_continue_through_calls_of_all_sizes(self, queue: RecordQueue) -> None:
        rows = np.array([make_quote(n) for n in range(5)])
        given = [rows[0], rows, (1, 2.0), rows[:0], rows[:1], rows[2:3], rows[0], np.array(rows[1]), rows[:2], rows[0]]
        assert [queue.produce(each) for each in given] == [1, 2, 7, 8, 8, 9, 10, 11, 12, 14]
        assert len(queue.consume(timeout=0)) == 14


class TestLifetime:
    def test_record_outlives_its_queue(self, endpoint: str, producers: Any) -> None:
        queue = RecordQueue(endpoint, NESTED, 2, producers=producers)
        given = np.zeros(1, NESTED)
        given["inner"]["b"], given["text"] = (1, 2, 3), b"abc"
        queue.produce(given)
        queue.produce(given[0])
        records = [receive_record(queue) for _ in range(2)]
        fields = [record["inner"]["b"] for record in records]
        for _ in range(20):
            queue.produce(np.zeros(1, NESTED)[0])
            receive_record(queue)
        queue.close()
        del queue, given
        gc.collect()
        assert [record["text"] for record in records] == [b"abc"] * 2
        del records
        gc.collect()
        bytes_of_others = [bytes([255]) * NESTED.itemsize for _ in range(1000)]
        assert [field.tolist() for field in fields] == [[1, 2, 3]] * 2
        del bytes_of_others

    def test_record_is_read_only_and_can_be_copied(self, queue: RecordQueue) -> None:
        queue.produce(make_quote(3))
        record = receive_record(queue)
        with pytest.raises(ValueError, match="read-only"):
            record["number"] = 4
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(record)["number"] = 4
        changed = record.copy()
        changed["number"] = 4
        assert (record["number"], changed["number"]) == (3, 4)
        for other in (pickle.loads(pickle.dumps(record)), copy.copy(record), copy.deepcopy(record)):
            assert other == record
        assert hash(record) == hash(np.frombuffer(record.tobytes(), QUOTE)[0])
        assert memoryview(record).tobytes() == record.tobytes()

    def test_calls_keep_no_reference_to_records_and_dtype(self, queue: RecordQueue) -> None:
        given = make_quote(1)

        def call() -> None:
            queue.produce(given)
            receive_record(queue)
            with pytest.raises(RecordTypeError):
                queue.produce(np.zeros(1, "f8"))

        call()
        before = sys.getrefcount(given), sys.getrefcount(queue.dtype), sys.getrefcount(QUOTE)
        for _ in range(10):
            call()
        assert (sys.getrefcount(given), sys.getrefcount(queue.dtype), sys.getrefcount(QUOTE)) == before

    def test_record_queue_cannot_be_pickled_or_copied(self, queue: RecordQueue) -> None:
        actions: tuple[Callable[[Any], Any], ...] = (pickle.dumps, copy.copy, copy.deepcopy)
        for action in actions:
            with pytest.raises(TypeError, match="cannot pickle"):
                action(queue)

    def test_queue_without_constructor_call_raises(self) -> None:
        queue = RecordQueue.__new__(RecordQueue)
        for call in (lambda: queue.produce(make_quote(0)), queue.receive, queue.consume, lambda: next(queue)):
            with pytest.raises((AttributeError, TypeError)):
                call()


class TestOverlappingCalls:
    """Only one call at a time may produce, and only one may consume: also of a signal handler of the same thread."""

    def test_produce_during_conversion_of_another_record_raises(self, queue: RecordQueue) -> None:
        def produce_again() -> None:
            with pytest.raises(ConcurrentUseError, match="another thread produces with this queue; use a queue object"):
                queue.produce(make_quote(2))

        assert queue.produce(CallOnConversion(produce_again)) == 1
        assert queue.produce(make_quote(3)) == 2

    def test_produce_of_signal_handler_during_produce_raises(self, queue: RecordQueue) -> None:
        errors: list[Exception] = []

        def produce_in_handler(*_: Any) -> None:
            try:
                queue.produce(make_quote(2))
            except ConcurrentUseError as error:
                errors.append(error)

        former = signal.signal(signal.SIGUSR1, produce_in_handler)
        try:
            assert queue.produce(CallOnConversion(lambda: signal.raise_signal(signal.SIGUSR1))) == 1
        finally:
            signal.signal(signal.SIGUSR1, former)
        assert len(errors) == 1
        assert queue.produce(make_quote(3)) == 2
        assert queue.consume(timeout=0)["number"].tolist() == [7, 3]

    def test_produce_in_second_thread_raises(self, queue: RecordQueue) -> None:
        pause = Pause()
        task = Task(queue.produce, CallOnConversion(pause.stop))
        pause.reached.wait(DEADLINE)
        with pytest.raises(ConcurrentUseError, match="produces"):
            queue.produce(make_quote(2))
        pause.ended.set()
        assert task.result() == 1
        assert queue.produce(make_quote(2)) == 2

    def test_produce_after_failed_conversion_works(self, queue: RecordQueue) -> None:
        def fail() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            queue.produce(CallOnConversion(fail))
        assert queue.produce(make_quote(2)) == 1

    def test_receive_in_second_thread_raises(self, queue: RecordQueue) -> None:
        task = Task(queue.receive, DEADLINE)
        wait_until(lambda: queue._is_consuming)
        for call in (queue.receive, queue.consume, queue.consume_with_publishers, lambda: next(queue)):
            with pytest.raises(ConcurrentUseError, match="another thread consumes with this queue"):
                call()
        queue.produce(make_quote(5))
        assert task.result() == make_quote(5)
        assert queue.receive(0) is None

    def test_receive_of_signal_handler_during_receive_raises(self, queue: RecordQueue) -> None:
        errors: list[Exception] = []

        def receive_in_handler(*_: Any) -> None:
            try:
                queue.receive(0)
            except ConcurrentUseError as error:
                errors.append(error)
            queue.produce(make_quote(4))

        with signal_when_asleep(receive_in_handler):
            assert receive_record(queue) == make_quote(4)
        assert len(errors) == 1

    def test_queue_closed_by_handler_during_produce_raises(self, queue: RecordQueue) -> None:
        with pytest.raises(EndpointClosedError):
            queue.produce(CallOnConversion(queue.close))
        with pytest.raises(EndpointClosedError):
            queue.produce(make_quote(1))
        with pytest.raises(EndpointClosedError):
            queue.receive(0)

    def test_forked_child_produces_and_consumes_while_parent_call_is_open(self, queue: RecordQueue) -> None:
        pause = Pause()
        tasks = [
            Task(queue.produce, CallOnConversion(pause.stop)),
            Task(queue.receive, DEADLINE),
        ]
        pause.reached.wait(DEADLINE)
        wait_until(lambda: queue._is_consuming)

        def use_queue() -> None:
            assert queue.produce(make_quote(8)) == 1
            assert queue.produce(make_quote(9)) == 2
            assert [receive_record(queue)["number"] for _ in range(2)] == [8, 9]

        in_fork_quietly(use_queue)
        pause.ended.set()
        assert tasks[1].result() == make_quote(8)
        if queue.producers == "single":
            with pytest.raises(MultiplePublishersError):
                tasks[0].result()
        else:
            assert tasks[0].result() == 3


class TestErrors:
    def test_single_record_after_takeover_raises(self, endpoint: str) -> None:
        with RecordQueue(endpoint, QUOTE) as first, RecordQueue(endpoint, QUOTE) as second:
            assert [first.produce(make_quote(0)), first.produce(make_quote(1))] == [0, 1]
            assert [second.produce(make_quote(2)), second.produce(make_quote(3))] == [2, 3]
            for _ in range(2):
                with pytest.raises(MultiplePublishersError):
                    first.produce(make_quote(4))
            assert [receive_record(first, 0)["number"] for _ in range(4)] == [0, 1, 2, 3]
            assert first.receive(0) is None

    def test_received_message_of_another_size_raises(self, endpoint: str) -> None:
        with RecordQueue(endpoint, QUOTE) as queue, msgq.pub_sock(endpoint) as publisher:
            publisher.send(bytes(15))
            publisher.send(make_quote(1).tobytes())
            with pytest.raises(MessageSizeError, match="message has 15 bytes, but records have 16"):
                queue.receive(0)
            assert queue.receive(0) == make_quote(1)

    def test_first_received_record_of_another_dtype_raises(self, endpoint: str) -> None:
        with RecordQueue(endpoint, QUOTE) as queue, RecordQueue(endpoint, [("a", "<i8"), ("b", "<i8")]) as other:
            other.produce((1, 2))
            calls: tuple[Callable[[], Any], ...] = (lambda: queue.receive(0), lambda: next(queue))
            for call in calls:
                with pytest.raises(RecordMismatchError, match=r"queue has dtype .*'b'"):
                    call()
                other.produce((3, 4))

    def test_timeout_is_checked_also_if_a_record_waits(self, endpoint: str) -> None:
        with RecordQueue(endpoint, QUOTE) as queue:
            queue.produce(make_quote(1))
            for wrong in (-1, float("nan"), 1e12):
                for _ in range(2):
                    with pytest.raises(InvalidValueError, match="timeout"):
                        queue.receive(wrong)
            with pytest.raises(TypeError, match="timeout"):
                queue.receive("1")  # type: ignore[arg-type]
            assert queue.receive(0) == make_quote(1)

    def test_each_receive_has_its_own_timeout(self, queue: RecordQueue) -> None:
        assert queue.receive(0) is None
        task = Task(queue.receive)
        task.wait_asleep()
        queue.produce(make_quote(1))
        assert task.result() == make_quote(1)
        assert len(queue.consume(timeout=0)) == 0
        for timeout in (0.01, 0.02, 0.01):
            before = clock.time_ns()
            assert queue.receive(timeout) is None
            assert clock.time_ns() - before >= timeout * 1e9
        task = Task(queue.receive, DEADLINE)
        task.wait_asleep()
        queue.produce(make_quote(2))
        assert task.result() == make_quote(2)


class TestConsumedArrays:
    """`consume` of records that are present."""

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_consumed_array_is_new_and_writable(self, endpoint: str, producers: Any, dtype: Any) -> None:
        if np.dtype(dtype).kind == "U":
            rows: Any = np.array(["abc", "d", ""], dtype)
        else:
            rows = np.frombuffer(bytes(n % 2 for n in range(3 * np.dtype(dtype).itemsize)), "u1").view(dtype)
        with RecordQueue(endpoint, dtype, producers=producers) as queue:
            for _ in range(3):
                queue.produce(rows)
                found = queue.consume()
                assert type(found) is np.ndarray
                assert found.dtype == queue.dtype
                assert found.tobytes() == rows.tobytes()
                assert found.shape == (3,)
                assert not np.shares_memory(found, rows)
                assert found.flags.writeable
                assert found.flags.c_contiguous

    def test_consume_takes_limit_of_present_records(self, queue: RecordQueue) -> None:
        queue.produce(ROWS)
        limits: list[tuple[Any, int]] = [(0, 0), (1, 1), (2, 2), (np.int64(2), 2), (1 << 63, 4), (3, 0)]
        for limit, count in limits:
            assert len(queue.consume(limit, 0)) == count
        queue.produce(ROWS)
        with pytest.raises(InvalidValueError, match="limit is -1"):
            queue.consume(-1)
        assert queue.consume(timeout=0)["number"].tolist() == list(range(9))

    def test_consume_checks_timeout_also_if_records_wait(self, endpoint: str) -> None:
        with RecordQueue(endpoint, QUOTE) as queue:
            queue.produce(ROWS)
            assert len(queue.consume(1)) == 1
            for wrong in (-1, float("nan"), 1e12):
                with pytest.raises(InvalidValueError, match="timeout"):
                    queue.consume(timeout=wrong)
            assert len(queue.consume(timeout=0)) == 8

    def test_consumed_array_ends_before_message_of_another_size(self, endpoint: str) -> None:
        with RecordQueue(endpoint, QUOTE) as queue, msgq.pub_sock(endpoint) as publisher:
            publisher.send_many([ROWS[0].tobytes()] * 3)
            assert len(queue.consume(1)) == 1
            publisher.send_many([bytes(3), ROWS[1].tobytes()])
            assert queue.consume(timeout=0)["number"].tolist() == [0, 0]
            for _ in range(2):
                with pytest.raises(MessageSizeError):
                    queue.consume(timeout=0)

    def test_descriptor_is_not_readable_after_records_are_consumed(self, queue: RecordQueue) -> None:
        descriptor = queue.fileno()
        for take in (queue.consume, queue.receive):
            queue.produce(make_quote(1))
            assert select.select([descriptor], [], [], DEADLINE)[0]
            take()
            assert not select.select([descriptor], [], [], 0)[0]

    def test_consumed_records_are_consecutive_after_laps(self, endpoint: str) -> None:
        with RecordQueue(endpoint, QUOTE, 64) as queue:
            sent = received = 0
            for count in (1, 3, 70, 1, 200, 5, 64, 1, 1000, 2):
                rows = np.zeros(count, QUOTE)
                rows["number"] = np.arange(sent, sent + count)
                queue.produce(rows)
                sent += count
                while len(found := queue.consume(timeout=0)):
                    assert queue.lost is not None
                    first = received + queue.lost
                    assert found["number"].tolist() == list(range(first, first + len(found)))
                    received += len(found)
            assert received + (queue.lost or 0) == sent


class TestSubclasses:
    def test_iteration_uses_receive_of_subclass(self, endpoint: str, producers: Any) -> None:
        class Doubled(RecordQueue):
            def receive(self, timeout: float | None = None) -> Any:
                return 2 * super().receive(timeout)  # type: ignore[operator]

        with Doubled(endpoint, "i8", producers=producers) as queue:
            for number in (1, 2):
                queue.produce(number)
                queue.produce(np.array([number]))
            assert [next(queue) for _ in range(2)] + [queue.receive() for _ in range(2)] == [2, 2, 4, 4]

    def test_subclass_can_add_attributes_and_weak_references(self, endpoint: str) -> None:
        class Named(RecordQueue):
            title = "a"

        with Named(endpoint, QUOTE) as queue:
            reference = weakref.ref(queue)
            queue.title = "b"
            assert reference() is queue
            assert queue.send(make_quote(1)) == 0


class TestTrackedRecords:
    @pytest.fixture(autouse=True)
    def no_origin(self) -> Iterator[None]:
        yield
        clock.set_origin(0)

    @pytest.mark.parametrize("bare", [True, False])
    def test_tracked_single_records_get_times_and_origins(self, endpoint: str, producers: Any, bare: bool) -> None:
        dtype = QUOTE if bare else tracked(QUOTE)
        rows = np.zeros(2, dtype)
        rows["number"] = 5
        with RecordQueue(endpoint, tracked(QUOTE), producers=producers) as queue:
            before = clock.time_ns()
            for given in [*rows, *rows, rows[:1], rows[1:], rows.reshape(2, 1)[1]]:
                queue.produce(given)
            clock.set_origin(11)
            queue.produce(rows[0])
            queue.produce(rows[0], origin_time=12)
            after = clock.time_ns() + 1000
            found: Any = np.array([receive_record(queue) for _ in range(9)])
        assert not rows.view("u1").reshape(2, -1)[:, : 0 if bare else 16].any(), "the caller's records stay unchanged"
        assert found["origin_time"][7:].tolist() == [11, 12]
        assert (found["origin_time"][:7] == found["publish_time"][:7]).all()
        assert len(set(found["origin_time"].tolist())) == 9
        assert ((before <= found["publish_time"]) & (found["publish_time"] <= after)).all()
        assert (found["number"] == 5).all()

    def test_tracked_dtype_with_padding_after_single_field_is_refused_or_correct(self, endpoint: str) -> None:
        names = ["publish_time", "origin_time", "value"]
        dtype = np.dtype({"names": names, "formats": ["<i8", "<i8", "<i4"], "offsets": [0, 8, 16], "itemsize": 24})
        with RecordQueue(endpoint, dtype) as queue:
            given = np.zeros(1, dtype)
            given["value"] = 3
            for row in (given, given[0], given[0]):
                queue.produce(row)
                assert receive_record(queue, 0)["value"] == 3

    def test_tracked_plain_numbers_get_stamps(self, endpoint: str, producers: Any) -> None:
        with RecordQueue(endpoint, tracked("i8"), producers=producers) as queue:
            for given in (3, np.int64(3), np.array([3]), np.array(3), np.array([3])):
                queue.produce(given)
                record = receive_record(queue)
                assert record["value"] == 3
                assert record["publish_time"] > 0
