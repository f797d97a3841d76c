"""Queues of records: over topics of each backend, and over channels."""

from __future__ import annotations

import asyncio
import contextlib
import select
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.channel import Channel
from msgq.errors import (
    ConcurrentUseError,
    EndpointClosedError,
    InvalidValueError,
    LostMessagesError,
    MessageSizeError,
    MultiplePublishersError,
    RecordMismatchError,
    RecordTypeError,
    SegmentError,
    SegmentSizeError,
    StateError,
)
from msgq.impl import backend as backends
from msgq.impl.base import clock
from msgq.impl.fake.bus import current_bus
from msgq.impl.ring.core import unlink_topic
from msgq.records import RecordQueue, tracked
from msgq.simulation import Fault, Faults, Simulation
from tests.cases import each_case
from tests.contract import record_children
from tests.contract.children import Crossing, in_fork_quietly
from tests.contract.conftest import FAKE_LACKS
from tests.support import DEADLINE, SHM, Child, Task, wait_until

QUOTE = np.dtype([("number", "<i8"), ("price", "<f8")])
#: Backend and producers: what they do not promise. The words are those of conftest.py; schema: it tells the dtype.
KINDS = {
    "msgq-single": frozenset[str](),
    "msgq-multiple": frozenset({"takeover"}),
    "zmq-single": frozenset({"fork", "lost", "schema", "segment", "takeover"}),
    "fake-single": frozenset(FAKE_LACKS),
    "fake-multiple": frozenset({*FAKE_LACKS, "takeover"}),
}


class Queues:
    """The queues of a test."""

    def __init__(self, kind: str, token: str) -> None:
        self.backend, self.producers = kind.split("-")
        self.token = self.name = token
        self.time_ns = current_bus().clock.time_ns if self.backend == "fake" else clock.time_ns
        self.poller = backends.load_backend(self.backend).Poller
        self._open: list[RecordQueue] = []

    def open(self, dtype: Any = QUOTE, *args: Any, **options: Any) -> RecordQueue:
        self._open.append(queue := RecordQueue(self.name, dtype, *args, **{"producers": self.producers, **options}))
        return queue

    def pair(self, dtype: Any = QUOTE, *args: Any, **options: Any) -> tuple[RecordQueue, RecordQueue]:
        """Return two objects, of which the second gets what the first produces."""
        first, second = self.open(dtype, *args, **options), self.open(dtype, *args, **options)
        first.produce(np.empty(0, first.dtype))  # so that its publisher is there
        if self.producers == "single":
            first._transport.publisher.wait_for_readers(DEADLINE, n=2)
        return first, second

    def close(self) -> None:
        for queue in self._open:
            queue.close()
        for path in [*SHM.glob(f"msgq*_{self.token}*"), *SHM.glob(f"msgq*_p{self.token}")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(params=KINDS)
def queues(request: pytest.FixtureRequest, token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queues]:
    needed = {promise for mark in request.node.iter_markers("needs") for promise in mark.args}
    if missing := needed & KINDS[request.param]:
        pytest.skip(f"{request.param} does not promise: {', '.join(sorted(missing))}")
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    former = backends.set_backend(backends.load_backend(request.param.split("-")[0]))
    made = Queues(request.param, token)
    yield made
    made.close()
    backends.set_backend(former)


def quotes(first: int, count: int) -> Any:
    made = np.empty(count, QUOTE)
    made["number"], made["price"] = np.arange(first, first + count), 0.5
    return made


def numbers(records: Any) -> list[int]:
    return [int(number) for number in records["number"]]


def consume_records(queue: RecordQueue, count: int) -> list[int]:
    """Consume so many, however many calls that takes."""
    found: list[int] = []
    while len(found) < count:
        records = queue.consume(timeout=DEADLINE)
        assert len(records)
        found += numbers(records)
    return found


class TestArrays:
    def test_consumed_array_equals_the_produced_array(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        assert producer.produce(quotes(0, 10)) == 0
        records = consumer.consume(10, DEADLINE)
        while len(records) < 10:  # zmq's may come one after the other
            records = np.concatenate([records, consumer.consume(10, DEADLINE)])
        assert records.dtype == QUOTE
        np.testing.assert_array_equal(records, quotes(0, 10))
        assert len(consumer.consume(timeout=0)) == 0
        assert consumer.consume(timeout=0).dtype == QUOTE

    def test_produce_returns_the_number_of_the_first_record(self, queues: Queues) -> None:
        producer, _ = queues.pair()
        assert [producer.produce(quotes(0, count)) for count in (3, 1, 0, 300, 1)] == [0, 3, 4, 4, 304]

    @each_case(
        "given",
        [
            (1, 0.5),
            np.array((1, 0.5), QUOTE),
            np.array((1, 0.5), QUOTE)[()],
            [(1, 0.5)],
            {"price": 0.5, "number": 1},
            [{"number": 1, "price": 0.5}],
            np.array([(1, 0.5)], [("number", "<i4"), ("price", "<f4")]),
            quotes(0, 4)[1:2],
            np.array([(0, 0), (1, 0.5)], QUOTE)[::-1][:1],
        ],
        ids=["tuple", "0-d", "scalar", "list", "mapping", "mappings", "smaller", "slice", "backwards"],
        reset="queues.close",
    )
    def test_produce_accepts_values_of_one_record(self, queues: Queues, given: Any) -> None:
        producer, consumer = queues.pair()
        producer.produce(given)
        assert consumer.consume(timeout=DEADLINE).tolist() == [(1, 0.5)]

    def test_produce_refuses_other_types_and_shapes(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        for given, error in [
            (np.zeros(2, "f8"), RecordTypeError),
            (np.zeros(2, [("number", "i8"), ("other", "f8")]), RecordTypeError),
            (np.zeros((2, 2), QUOTE), InvalidValueError),
            ([("one", 2)], InvalidValueError),
            ((1.5, 2), RecordTypeError),
            ({"number": 1}, RecordTypeError),
            ([{"number": 1, "price": 2, "other": 3}], RecordTypeError),
            ([(1, 2), (1.5, 2)], RecordTypeError),
            ([("7", 2)], RecordTypeError),
        ]:
            with pytest.raises(error, match=queues.token):
                producer.produce(given)
        producer.produce((7, 7))
        assert numbers(consumer.consume(timeout=DEADLINE)) == [7]

    def test_produce_and_consume_accept_a_plain_dtype(self, queues: Queues) -> None:
        producer, consumer = queues.pair("f8")
        producer.produce(1.5)
        producer.produce([2.5, 3.5])
        found: list[float] = []
        while len(found) < 3:
            found += consumer.consume(timeout=DEADLINE).tolist()
        assert found == [1.5, 2.5, 3.5]
        producer.produce(4.5)
        assert consumer.receive(DEADLINE) == 4.5

    def test_consume_takes_at_most_the_limit(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        producer.produce(quotes(0, 5))
        assert numbers(consumer.consume(1, DEADLINE)) == [0]
        assert len(consumer.consume(0, DEADLINE)) == 0
        assert consume_records(consumer, 4) == [1, 2, 3, 4]
        with pytest.raises(InvalidValueError):
            consumer.consume(-1)

    def test_iteration_returns_single_records(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        producer.produce(quotes(0, 3))
        found = []
        for record in consumer:
            found.append(int(record["number"]))
            if len(found) == 3:
                break
        assert found == [0, 1, 2]
        assert consumer.receive(0) is None

    def test_each_consumer_gets_all_records_produced_after_connection(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        producer.produce(quotes(0, 2))
        assert consume_records(consumer, 2) == [0, 1]
        if queues.backend == "zmq":
            return
        late = queues.open()
        producer.produce(quotes(2, 2))
        assert consume_records(late, 2) == consume_records(consumer, 2) == [2, 3]


class TestOpening:
    @pytest.mark.needs("schema")
    def test_record_queue_without_dtype_argument_uses_stored_dtype(self, queues: Queues) -> None:
        queues.pair()
        assert queues.open(None).dtype == QUOTE

    def test_record_queue_without_given_or_stored_dtype_raises(self, queues: Queues) -> None:
        with pytest.raises((InvalidValueError, msgq.errors.SegmentError), match=queues.token):
            queues.open(None)

    @pytest.mark.needs("schema")
    def test_record_queue_mismatch_error_names_stored_and_given_dtype(self, queues: Queues) -> None:
        queues.pair()
        with pytest.raises(RecordMismatchError, match=r"number.*'f8'|number.*float64") as caught:
            queues.open("f8")
        assert "float64" in str(caught.value)

    @pytest.mark.needs("schema")
    def test_topics_opened_with_different_dtypes_raise_on_first_use(self, queues: Queues) -> None:
        if queues.producers == "multiple":
            pytest.skip("a channel is described by who opens it first")
        one, other = queues.open(QUOTE), queues.open([("a", "<i8"), ("b", "<i8")])
        one.produce((1, 2))
        with pytest.raises(RecordMismatchError):
            other.consume(timeout=DEADLINE)
        with pytest.raises(RecordMismatchError):
            other.produce((1, 2))

    @each_case("dtype", ["O", [("a", "O")], "V0", ("f8", (3,))])
    def test_record_queue_with_invalid_dtype_is_refused(self, queues: Queues, dtype: Any) -> None:
        with pytest.raises(RecordTypeError):
            queues.open(dtype)

    def test_record_queue_with_invalid_arguments_is_refused(self, queues: Queues) -> None:
        for wrong in ({"producers": "both"}, {"on_lost": "ignore"}, {"capacity": 0}, {"capacity": 1 << 40}):
            with pytest.raises(InvalidValueError):
                queues.open(QUOTE, **wrong)
        with pytest.raises(InvalidValueError, match="history"):
            RecordQueue(queues.token, QUOTE, history=1)
        with pytest.raises(InvalidValueError, match=f"{queues.token}.*limit is -1"):
            queues.open(QUOTE).consume(limit=-1)

    @pytest.mark.needs("segment")
    def test_record_queue_capacity_is_power_of_two_and_fully_usable(self, queues: Queues) -> None:
        for size in (1, 40):
            dtype = np.dtype([("number", "<i8"), ("rest", f"V{size}")])
            queues.name = f"{queues.token}{size}"
            producer, consumer = queues.pair(dtype, 1000)
            assert consumer.capacity == 1024
            for _ in range(7):
                made = np.zeros(1024, dtype)
                made["number"] = np.arange(1024)
                for start in range(0, 1024, 100):
                    producer.produce(made[start : start + 100])
                assert consume_records(consumer, 1024) == list(range(1024))
            assert consumer.lost == 0

    @pytest.mark.needs("segment")
    def test_capacity_mismatch_raises_and_default_uses_stored_capacity(self, queues: Queues) -> None:
        queues.pair(QUOTE, 64)
        with pytest.raises((SegmentSizeError, msgq.errors.ChannelMismatchError), match="capacity"):
            queues.open(QUOTE, 128)
        assert queues.open(QUOTE).capacity == 64

    def test_record_queue_on_channel_with_other_schema_is_refused(self, queues: Queues) -> None:
        if queues.producers == "single":
            pytest.skip("a topic has messages of anything")
        with (
            Channel(queues.token, schema=msgq.Schema("Text", "utf8")),
            pytest.raises(RecordMismatchError, match="utf8"),
        ):
            queues.open()

    def test_record_queues_of_different_prefixes_are_separate(self, queues: Queues) -> None:
        if queues.backend == "zmq":
            pytest.skip("its prefixes are tested elsewhere")
        inside, outside = queues.open(prefix=f"p{queues.token}"), queues.open()
        inside.produce((1, 1))
        assert inside.prefix == f"p{queues.token}"
        assert numbers(inside.consume(timeout=DEADLINE)) == [1]
        assert len(outside.consume(timeout=0)) == 0

    def test_closed_record_queue_raises_on_each_call(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        with producer:
            producer.produce((1, 1))
        assert producer.closed
        assert "closed" in repr(producer)
        for call in (lambda: producer.produce((1, 1)), producer.consume, producer.receive, producer.fileno):
            with pytest.raises(EndpointClosedError):
                call()
        producer.close()
        consumer.close()
        with pytest.raises(EndpointClosedError):  # it never produced
            consumer.produce((1, 1))


class TestNames:
    @pytest.mark.needs("segment")
    def test_create_argument_decides_whether_the_record_queue_may_exist(self, queues: Queues) -> None:
        with pytest.raises(SegmentError):
            queues.open(create=False)
        made = queues.open(create=True)
        with pytest.raises(SegmentError):
            queues.open(create=True)
        assert queues.open(create=False).dtype == made.dtype
        assert queues.open(create=None).dtype == made.dtype

    @pytest.mark.needs("segment")
    def test_unlink_removes_the_record_queue_name(self, queues: Queues) -> None:
        first, second = queues.pair()
        first.produce(quotes(0, 1))
        assert consume_records(second, 1) == [0], "it has mapped the publisher's pool now"
        first.unlink()
        with pytest.raises(SegmentError):
            first.unlink()
        first.produce(quotes(1, 1))
        assert consume_records(second, 1) == [1], "those that have it open continue"
        with pytest.raises(SegmentError):
            queues.open(create=False)

    @pytest.mark.needs("segment")
    def test_unlink_name_removes_record_queue_without_an_object(self, queues: Queues) -> None:
        queues.open()
        RecordQueue.unlink_name(queues.name, producers=queues.producers)  # type: ignore[arg-type]
        with pytest.raises(SegmentError):
            RecordQueue.unlink_name(queues.name, producers=queues.producers)  # type: ignore[arg-type]

    def test_unlink_of_a_zmq_queue_is_refused(self, queues: Queues) -> None:
        if queues.backend != "zmq":
            pytest.skip("it has")
        with pytest.raises(StateError):
            queues.open().unlink()
        with pytest.raises(InvalidValueError, match="create"):
            queues.open(create=True)

    def test_send_is_an_alias_of_produce(self, queues: Queues) -> None:
        first, second = queues.pair()
        assert first.send(quotes(0, 2)) == 0
        assert numbers(second.consume(limit=1, timeout=DEADLINE)) == [0]
        assert second.stats().received == 1


class TestLoss:
    @pytest.mark.needs("segment")
    def test_consumed_arrays_stop_at_losses_and_lost_is_exact(self, queues: Queues) -> None:
        producer, consumer = queues.pair(QUOTE, 64)
        sent = received = 0
        expected = 0
        for burst in (10, 200, 5, 64, 1000, 1, 63, 129):
            producer.produce(quotes(sent, burst))
            sent += burst
            while len(records := consumer.consume(timeout=0)):
                found = numbers(records)
                assert found == list(range(found[0], found[0] + len(found)))
                received += len(found)
                expected = found[-1] + 1
                assert consumer.lost is not None
                assert expected == received + consumer.lost, "the loss lay before the array"
        assert consumer.lost is not None
        producer.produce(quotes(sent, 1))
        received += len(consume_records(consumer, 1))
        assert received + consumer.lost == sent + 1
        assert consumer.lost > 0

    @pytest.mark.needs("segment")
    @each_case("produced", [1000, 65, 129, 4096], reset="queues.close")
    def test_lapped_consumer_keeps_the_remaining_records(self, queues: Queues, produced: int) -> None:
        producer, consumer = queues.pair(QUOTE, 64)
        for sent in range(0, produced, 50):
            producer.produce(quotes(sent, min(50, produced - sent)))
        found = numbers(consumer.consume(timeout=0))
        assert len(found) >= 64
        assert found == list(range(produced - len(found), produced))
        assert consumer.lost == produced - len(found)

    @pytest.mark.needs("segment")
    def test_lapped_consumer_of_single_records_keeps_the_remaining_records(self, queues: Queues) -> None:
        producer, consumer = queues.pair(QUOTE, 64)
        producer.produce(quotes(0, 1000))
        found = [int(record["number"]) for record in iter(lambda: consumer.receive(0), None)]
        assert len(found) >= 64
        assert found == list(range(1000 - len(found), 1000))
        assert consumer.lost == 1000 - len(found)

    @pytest.mark.needs("segment")
    def test_on_lost_raise_raises_once_per_loss_and_continues(self, queues: Queues) -> None:
        producer, consumer = queues.pair(QUOTE, 64, on_lost="raise")
        told = received = sent = 0
        for burst in (10, 500, 7, 300, 1):
            producer.produce(quotes(sent, burst))
            sent += burst
            before, records = received, np.empty(0, QUOTE)
            while received == before or len(records):
                try:
                    records = consumer.consume(timeout=0)
                except LostMessagesError as error:
                    assert error.lost > 0  # noqa: PT017  # there may be none
                    told += error.lost
                    if queues.producers == "single":  # it goes on at the present
                        producer.produce(quotes(sent, 1))
                        sent += 1
                    continue
                if len(records):
                    assert numbers(records)[0] == received + told
                    received += len(records)
        assert told == consumer.lost
        assert told + received == sent
        assert told > 0

    @pytest.mark.needs("segment")
    def test_on_lost_raise_applies_to_single_records(self, queues: Queues) -> None:
        producer, consumer = queues.pair(QUOTE, 64, on_lost="raise")
        producer.produce(quotes(0, 500))
        with pytest.raises(LostMessagesError):
            consumer.receive(0)
        producer.produce((9, 9))
        seen: list[int] = []
        while not seen or seen[-1] != 9:
            with contextlib.suppress(LostMessagesError):  # the last one overwrote more
                record = consumer.receive(0)
                assert record is not None
                seen.append(int(record["number"]))

    @pytest.mark.needs("lost")
    def test_producer_restart_loses_no_records(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        producer.produce(quotes(0, 3))
        producer.close()
        again = queues.open()
        assert again.produce(quotes(3, 3)) == 3
        assert consume_records(consumer, 6) == list(range(6))
        assert consumer.lost == 0

    @pytest.mark.parametrize("producers", ["single", "multiple"])
    def test_consumed_arrays_stop_at_messages_dropped_by_simulation(self, token: str, producers: Any) -> None:
        endpoint = token if producers == "single" else f"channel/{token}"
        found: list[list[int]] = []
        lost: list[Any] = []

        def consume() -> None:
            with RecordQueue(token, QUOTE, producers=producers) as queue:
                while sum(map(len, found)) < 17:
                    found.append(numbers(queue.consume(timeout=1)))
                lost.append(queue.lost)

        def produce() -> None:
            with RecordQueue(token, QUOTE, producers=producers) as queue:
                simulation.clock.sleep(0.1)
                queue.produce(quotes(0, 20))

        with Simulation(seed=1, fault_schedule=[Fault("drop", endpoint, number) for number in (3, 7, 8)]) as simulation:
            simulation.add(consume)
            simulation.add(produce)
            simulation.run()
        assert lost == [3]
        assert sum(map(len, found)) == 17
        for records in found:
            assert records == list(range(records[0], records[0] + len(records)))

    @pytest.mark.parametrize("producers", ["single", "multiple"])
    def test_lost_equals_the_number_of_dropped_records(self, token: str, producers: Any) -> None:
        counts: list[int] = []

        def consume() -> None:
            with RecordQueue(token, QUOTE, producers=producers) as queue:
                received = 0
                while len(records := queue.consume(timeout=5)):
                    received += len(records)
                counts.extend((received, queue.lost or 0))

        def produce() -> None:
            with RecordQueue(token, QUOTE, producers=producers) as queue:
                for number in range(0, 1000, 50):
                    simulation.clock.sleep(0.1)
                    queue.produce(quotes(number, 50))

        with Simulation(seed=3, faults=Faults(drop=0.1)) as simulation:
            simulation.add(consume)
            simulation.add(produce)
            simulation.run()
        received, lost = counts
        assert received + lost == 1000
        assert 50 < lost < 150


class TestProducers:
    @pytest.mark.needs("takeover")
    def test_second_producer_takes_over_single_producer_queue(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        producer.produce((0, 0))
        second = queues.open()
        assert second.produce((1, 0)) == 1
        with pytest.raises(MultiplePublishersError):
            producer.produce((2, 0))
        assert consume_records(consumer, 2) == [0, 1]

    def test_consume_with_publishers_returns_producer_of_each_record(self, queues: Queues) -> None:
        if queues.producers == "single":
            with pytest.raises(StateError, match="multiple"):
                queues.open().consume_with_publishers(timeout=0)
            return
        one, consumer = queues.pair()
        two = queues.open()
        assert [one.produce(quotes(0, 3)), two.produce(quotes(3, 2)), one.produce((5, 0))] == [0, 3, 5]
        records, who = consumer.consume_with_publishers(timeout=DEADLINE)
        assert numbers(records) == list(range(6))
        assert len(who) == 6
        assert who[0] is not None
        assert len({info.pid for info in who}) == 1

    def test_consume_with_history_returns_earlier_records(self, queues: Queues) -> None:
        if queues.producers == "single":
            pytest.skip("a topic keeps none")
        producer, _ = queues.pair()
        producer.produce(quotes(0, 10))
        assert consume_records(queues.open(history=3), 3) == [7, 8, 9]

    def test_produce_large_records_raises_on_topics_and_works_on_channels(self, queues: Queues) -> None:
        if queues.backend == "zmq":
            pytest.skip("has no size")
        large = np.dtype([("number", "<i8"), ("rest", "V3000")])
        if queues.producers == "single":
            msgq.pub_sock(queues.token, segment_size=4096).close()
            with pytest.raises(msgq.errors.MessageTooLargeError):
                queues.open(large).produce(np.zeros(1, large))
            return
        producer, consumer = queues.pair(large, 4)
        producer.produce(np.zeros(3, large))
        assert len(consumer.consume(timeout=DEADLINE)) == 3

    def test_consume_raises_at_a_message_of_another_size(self, queues: Queues) -> None:
        if queues.producers == "multiple":
            _, consumer = queues.pair()
            with Channel(queues.token) as channel, channel.publisher(slot_bytes=64) as publisher:
                publisher.send(b"short")
        else:
            consumer = queues.open()
            with msgq.pub_sock(queues.token) as publisher:
                publisher.wait_for_readers(DEADLINE, n=1)
                publisher.send(b"short")
                with pytest.raises(MessageSizeError):
                    consumer.consume(timeout=DEADLINE)
                return
        with pytest.raises(MessageSizeError):
            consumer.consume(timeout=DEADLINE)


class TestStamps:
    @pytest.fixture(autouse=True)
    def no_origin(self) -> Iterator[None]:
        yield
        clock.set_origin(0)

    def test_tracked_dtype_adds_publish_time_and_origin_time(self) -> None:
        dtype = tracked(QUOTE)
        assert dtype.descr[:2] == [("publish_time", "<i8"), ("origin_time", "<i8")]
        assert dtype.itemsize == 32
        assert tracked(dtype) == dtype
        assert tracked("f4").descr == [("publish_time", "<i8"), ("origin_time", "<i8"), ("value", "<f4")]
        assert tracked(("f8", (3,)))["value"].shape == (3,)
        with pytest.raises(RecordTypeError, match="origin_time"):
            tracked([("origin_time", "f8")])
        with pytest.raises(RecordTypeError):
            tracked("O")
        wrongs: tuple[Any, ...] = ("nonsense", 3, [("a", "f8"), ("a", "f8")])
        for wrong in wrongs:
            with pytest.raises(RecordTypeError, match="is not a NumPy dtype"):
                tracked(wrong)

    def test_produce_fills_publish_and_origin_time(self, queues: Queues) -> None:
        producer, consumer = queues.pair(tracked(QUOTE))
        before = queues.time_ns()
        producer.produce(quotes(0, 3))
        mine = np.zeros(2, producer.dtype)
        mine["number"] = 3, 4
        producer.produce(mine)
        assert not mine["publish_time"].any(), "the caller's array stays as it is"
        records: Any = np.concatenate([consumer.consume(1, DEADLINE) for _ in range(5)])
        assert numbers(records) == [0, 1, 2, 3, 4]
        assert (records["publish_time"] >= before).all()
        assert (records["publish_time"] <= queues.time_ns() + 1_000_000).all()
        assert (records["origin_time"] == records["publish_time"]).all()
        assert len(set(records["origin_time"].tolist())) == 5, "each is an origin"

    def test_produced_records_have_origin_of_the_thread(self, queues: Queues) -> None:
        producer, consumer = queues.pair(tracked(QUOTE))
        clock.set_origin(7)
        producer.produce(quotes(0, 2))
        producer.produce(quotes(2, 1), origin_time=9)
        records: Any = np.concatenate([consumer.consume(1, DEADLINE) for _ in range(3)])
        assert records["origin_time"].tolist() == [7, 7, 9]
        assert (records["publish_time"] != 7).all()

    def test_produce_with_invalid_origin_time_is_refused(self, queues: Queues) -> None:
        producer, _ = queues.pair(tracked(QUOTE))
        for wrong in (-1, 1 << 63):
            with pytest.raises(InvalidValueError):
                producer.produce(quotes(0, 1), origin_time=wrong)

    def test_produce_accepts_origin_of_untracked_records_only_on_channels(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        if queues.producers == "single":
            with pytest.raises(InvalidValueError, match="tracked"):
                producer.produce((1, 1), origin_time=7)
            return
        producer.produce(quotes(0, 3), origin_time=7)
        consumer.consume(timeout=DEADLINE)
        assert consumer._reader.last.origin_time == 7


class TestWaiting:
    def test_consume_waits_for_its_timeout(self, queues: Queues) -> None:
        consumer = queues.open()
        before = queues.time_ns()
        assert len(consumer.consume(timeout=0.02)) == 0
        assert queues.time_ns() - before >= 20_000_000
        for wrong in (-1, 1e12):
            with pytest.raises(InvalidValueError):
                consumer.consume(timeout=wrong)

    @pytest.mark.needs("threads")
    @pytest.mark.parametrize("on_lost", ["count", "raise"])
    def test_sleeping_consumer_is_woken(self, queues: Queues, on_lost: Any) -> None:
        producer, consumer = queues.pair(on_lost=on_lost)
        task = Task(consumer.consume, None, DEADLINE)
        if queues.backend == "msgq":
            wait_until(lambda: consumer._is_consuming)
        producer.produce((1, 1))
        assert numbers(task.result()) == [1]

    @pytest.mark.needs("threads")
    def test_consume_in_a_second_thread_raises(self, queues: Queues) -> None:
        _, consumer = queues.pair()
        task = Task(consumer.consume, None, DEADLINE)
        wait_until(lambda: consumer._is_consuming)
        with pytest.raises(ConcurrentUseError):
            consumer.consume(timeout=0)
        consumer.close()
        with pytest.raises(EndpointClosedError):
            task.result()

    def test_poller_accepts_record_queues(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        poller = queues.poller()
        poller.registerSocket(consumer)
        poller.registerSocket(consumer)
        assert poller.poll(0) == []
        producer.produce((1, 1))
        assert poller.poll(DEADLINE * 1000) == [consumer]
        consumer.consume(timeout=DEADLINE)
        poller.unregisterSocket(consumer)
        poller.register(consumer)
        producer.produce((1, 1))
        assert dict(poller.poll(DEADLINE * 1000)) == {consumer: msgq.POLLIN}

    def test_fileno_is_readable_while_records_wait(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        fd = consumer.fileno()
        assert not select.select([fd], [], [], 0)[0]
        producer.produce((1, 1))
        assert select.select([fd], [], [], DEADLINE)[0]

    def test_aconsume_and_async_for_return_records(self, queues: Queues) -> None:
        producer, consumer = queues.pair()

        async def both() -> list[int]:
            waiting = asyncio.create_task(consumer.aconsume())
            await asyncio.sleep(0)
            producer.produce((1, 1))
            found = numbers(await asyncio.wait_for(waiting, DEADLINE))
            producer.produce(quotes(2, 2))
            async for record in consumer:
                found.append(int(record["number"]))
                if len(found) == 3:
                    return found
            raise AssertionError

        assert asyncio.run(both()) == [1, 2, 3]

    @pytest.mark.needs("fork")
    def test_forked_child_consumes_independently(self, queues: Queues) -> None:
        producer, consumer = queues.pair()
        producer.produce(quotes(0, 2))
        forked, further = Crossing(), Crossing()

        def child() -> None:
            forked.set()
            further.wait()
            assert consume_records(consumer, 3) == [0, 1, 2]
            assert producer.produce(quotes(3, 2)) == 3  # the parent has sent one more since the fork
            assert producer.produce(quotes(5, 1)) == 5
            producer.close()

        task = Task(in_fork_quietly, child)
        forked.wait()
        producer.produce(quotes(2, 1))
        further.set()
        task.result()
        if queues.producers == "single":
            with pytest.raises(MultiplePublishersError):
                producer.produce(quotes(6, 1))
        else:
            assert producer.produce(quotes(6, 1)) == 6
        assert consume_records(consumer, 6 + (queues.producers == "multiple")) == list(
            range(6 + (queues.producers == "multiple"))
        )


def test_producer_in_forked_child_keeps_topic_of_another_dtype(endpoint: str) -> None:
    producer = RecordQueue(endpoint, QUOTE)
    producer.produce(quotes(0, 1))

    def child() -> None:
        unlink_topic(endpoint)
        with RecordQueue(endpoint, "f8") as other:
            other.produce(1.0)
            with pytest.raises(RecordMismatchError):
                producer.produce(quotes(1, 1))
            other.produce(2.0)

    with producer:
        in_fork_quietly(child)


def test_lapped_consumer_skips_messages_of_another_size(endpoint: str) -> None:
    """The bytes of the messages are sizes of records, so each place in them could be one; it goes on at the present."""
    with RecordQueue(endpoint, QUOTE, 64) as consumer, RecordQueue(endpoint, QUOTE) as producer:
        with msgq.pub_sock(endpoint) as pub:
            pub.send_many([QUOTE.itemsize.to_bytes(8, "little") * 9] * 200)
        producer.produce(quotes(5000, 8))
        assert len(consumer.consume(timeout=0)) == 0
        assert consumer.lost == 208
        producer.produce(quotes(6000, 8))
        assert numbers(consumer.consume(timeout=0)) == list(range(6000, 6008))


@pytest.mark.ci
def test_lapped_consumer_counts_losses_exactly_during_production(endpoint: str) -> None:
    with RecordQueue(endpoint, QUOTE, 64) as consumer, Child(record_children.produce_all, endpoint, 200_000) as child:
        child.hear()
        received = 0
        while received + (consumer.lost or 0) < 200_000:
            found = numbers(consumer.consume(timeout=0.001))
            if found:
                assert found == list(range(found[0], found[0] + len(found)))
                assert found[0] == received + (consumer.lost or 0)
                received += len(found)
        assert child.result() is None
        assert received >= 64
