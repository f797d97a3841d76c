"""A tracer: the origin while a message is handled, and the record afterwards, on each backend."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import msgq
from msgq.channel import Channel
from msgq.common.timing import make_timing_topic, parse_timing_topic
from msgq.errors import ConcurrentUseError, EndpointClosedError, EndpointNameError, InvalidValueError
from msgq.impl import backend as backends
from msgq.impl.base import clock
from msgq.impl.fake.bus import current_bus
from msgq.records import RecordQueue, StageTracer, tracked
from tests.contract.conftest import FAKE_LACKS
from tests.support import DEADLINE, SHM, Task, in_fork, wait_until

BACKENDS = {
    "msgq": frozenset[str](),
    "zmq": frozenset({"channels", "takeover", "fork"}),
    "fake": frozenset(FAKE_LACKS),
}


class Timing(NamedTuple):
    """A timing record."""

    publish_time: int
    origin_time: int
    received: int
    sent: int


class Stage:
    """A tracer whose records are read."""

    def __init__(self, backend: str, token: str) -> None:
        self.backend, self.token = backend, token
        self.time_ns = current_bus().clock.time_ns if backend == "fake" else clock.time_ns
        self.tracer = StageTracer(token)
        if backend == "fake":
            time = current_bus().clock  # its origins are ahead of bursts of earlier tests; 0 is none
            time.now_ns = time.new_origin_time() + 1000
        self._subs: dict[str, Any] = {}

    def listen(self, endpoint: str) -> None:
        """Hear what is told of an endpoint from now on."""
        topic = make_timing_topic(self.token, endpoint)
        sub = self._subs[endpoint] = msgq.sub_sock(topic, timeout=int(DEADLINE * 1000))
        self.tracer._make_span(endpoint)  # connects its publisher
        self.tracer._timing_publishers[endpoint].wait_for_readers(DEADLINE, n=1)
        assert sub.receive(True) is None

    def told(self, endpoint: str) -> Timing:
        data = self._subs[endpoint].receive()
        assert data is not None
        assert len(data) == 32
        return Timing(*struct.unpack("<4q", data))

    def untold(self, endpoint: str) -> bool:
        return self._subs[endpoint].receive(True) is None

    def close(self) -> None:
        self.tracer.close()
        for sub in self._subs.values():
            sub.close()


@pytest.fixture(params=BACKENDS)
def stage(request: pytest.FixtureRequest, token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    needed = {promise for mark in request.node.iter_markers("needs") for promise in mark.args}
    if missing := needed & BACKENDS[request.param]:
        pytest.skip(f"{request.param} does not promise: {', '.join(sorted(missing))}")
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    former = backends.set_backend(backends.load_backend(request.param))
    made = Stage(request.param, token)
    yield made
    assert clock.origin_time() == 0, "it is as before"
    made.close()
    backends.set_backend(former)
    for path in SHM.glob(f"msgq*{token}*"):
        path.unlink()


class TestEach:
    def test_trace_messages_of_tracked_records_sets_their_origin(self, stage: Stage) -> None:
        name = stage.token
        with RecordQueue(name, tracked("i8")) as producer, RecordQueue(name, tracked("i8")) as consumer:
            stage.listen(name)
            producer.produce(np.empty(0, "i8"))
            producer._transport.publisher.wait_for_readers(DEADLINE, n=2)
            before = stage.time_ns()
            producer.produce([1, 2])
            handled = []
            for record in stage.tracer.trace_messages(consumer):
                assert clock.origin_time() == record["origin_time"] != 0
                handled.append((int(record["value"]), int(record["publish_time"])))
                if len(handled) == 2:
                    break
            for value, published in handled:
                told = stage.told(name)
                assert told.sent == told.origin_time == published >= before, value
                assert told.sent <= told.received + 10 <= told.publish_time + 10 <= stage.time_ns() + 10

    @pytest.mark.needs("channels")
    def test_trace_messages_of_channel_sets_origin_for_published_messages(self, stage: Stage) -> None:
        stage.listen(f"channel/{stage.token}")
        with (
            Channel(stage.token) as channel,
            Channel(stage.token + "b") as after,
            channel.publisher() as pub,
            channel.subscriber() as sub,
            after.publisher() as out,
            after.subscriber() as end,
        ):
            pub.send(b"told", origin_time=5)
            pub.send(b"not told")
            for message in stage.tracer.trace_messages(sub, 0):
                out.send(message)
                assert sub.last is not None
                end.receive(0)
                assert end.last is not None
                assert end.last.origin_time == (5 if message == b"told" else sub.last.publish_time)
                told_of = sub.last
            last = stage.told(f"channel/{stage.token}"), stage.told(f"channel/{stage.token}")
            assert last[0].origin_time == 5
            assert last[1].origin_time == last[1].sent == told_of.publish_time

    @pytest.mark.needs("channels")
    def test_trace_messages_of_work_queue_sets_the_job_origin(self, stage: Stage) -> None:
        stage.listen(f"queue/{stage.token}")
        with msgq.MessageQueue(stage.token) as queue:
            queue.send(b"job", origin_time=5)
            for message in stage.tracer.trace_messages(queue, 0):
                assert message.data == b"job"
                assert clock.origin_time() == 5
                sent = message.sent_time
            told = stage.told(f"queue/{stage.token}")
            assert (told.sent, told.origin_time) == (sent, 5)
            queue.unlink()

    @pytest.mark.needs("channels")
    def test_trace_messages_of_untracked_channel_records_sets_origin(self, stage: Stage) -> None:
        stage.listen(f"channel/{stage.token}")
        with RecordQueue(stage.token, "i8", producers="multiple") as queue:
            queue.produce(3, origin_time=5)
            assert [(int(record), clock.origin_time()) for record in stage.tracer.trace_messages(queue, 0)] == [(3, 5)]
            assert stage.told(f"channel/{stage.token}").origin_time == 5

    def test_trace_messages_of_untracked_topic_sets_no_origin(self, stage: Stage) -> None:
        stage.listen(stage.token)
        with msgq.pub_sock(stage.token) as pub, msgq.sub_sock(stage.token) as sub:
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send(b"one")
            pub.send(b"two")
            found = []
            for message in stage.tracer.trace_messages(sub):
                assert clock.origin_time() == 0
                found.append(message)
                if len(found) == 2:
                    break
            assert found == [b"one", b"two"]
            told = stage.told(stage.token)
            assert (told.sent, told.origin_time) == (0, 0)
            assert told.publish_time >= told.received > 0

    def test_trace_messages_ends_at_the_timeout(self, stage: Stage) -> None:
        stage.listen(stage.token)
        with RecordQueue(stage.token, "i8") as queue:
            assert list(stage.tracer.trace_messages(queue, 0.01)) == []
        with msgq.sub_sock(stage.token) as sub:
            assert list(stage.tracer.trace_messages(sub, 0.01)) == []
        assert stage.untold(stage.token)

    @pytest.mark.parametrize("tracked_topic", [False, True])
    @pytest.mark.parametrize("seconds", [0, 0.01])
    def test_trace_messages_keeps_the_timeout_of_the_socket(
        self, stage: Stage, tracked_topic: bool, seconds: float
    ) -> None:
        if tracked_topic and stage.backend == "zmq":
            pytest.skip("zmq does not promise: tracked")
        with msgq.pub_sock(stage.token, tracked=tracked_topic) as pub, msgq.sub_sock(stage.token, timeout=70) as sub:
            pub.wait_for_readers(DEADLINE, n=1)
            poller = msgq.Poller()
            poller.registerSocket(sub)
            for source in (sub, [sub]):
                pub.send(b"x")
                poller.poll(1000 * DEADLINE)
                assert len(list(stage.tracer.trace_messages(source, seconds))) == 1
                assert sub.rcvtimeo == 70

    @pytest.mark.needs("channels")
    def test_trace_messages_accepts_several_sources_and_a_poller(self, stage: Stage) -> None:
        names = [f"{stage.token}{n}" for n in range(2)]
        queues = [RecordQueue(name, tracked("i8")) for name in names]
        for name in names:
            stage.listen(name)
        poller = msgq.Poller()
        for queue in queues:
            poller.registerSocket(queue)
        for sources in (queues, poller):
            for number, queue in enumerate(queues):
                queue.produce([number, number])
            found = []
            for source, record in stage.tracer.trace_messages(sources, 0.01):
                assert clock.origin_time() == record["origin_time"]
                found.append((source, int(record["value"])))
            assert sorted(value for _, value in found) == [0, 0, 1, 1]
            assert all(source is queues[value] for source, value in found)
            for name in names:
                assert stage.told(name).sent
                assert stage.told(name).sent
        for queue in queues:
            queue.close()

    def test_exception_in_trace_messages_loop_ends_the_span(self, stage: Stage) -> None:
        stage.listen(stage.token)
        with RecordQueue(stage.token, tracked("i8")) as queue:
            queue.produce(np.empty(0, "i8"))
            queue._transport.publisher.wait_for_readers(DEADLINE, n=1)
            queue.produce([1, 2])
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                for _ in stage.tracer.trace_messages(queue):
                    raise ZeroDivisionError
            assert clock.origin_time() == 0
            assert stage.told(stage.token).sent
            assert stage.untold(stage.token)
            iterator = stage.tracer.trace_messages(queue)
            assert next(iterator)["value"] == 2
            assert clock.origin_time() != 0
            del iterator
            assert clock.origin_time() == 0
            assert stage.told(stage.token).sent

    def test_trace_messages_with_invalid_source_is_refused(self, stage: Stage) -> None:
        for wrong in (7, b"bytes", object()):
            with pytest.raises(TypeError, match="source"):
                stage.tracer.trace_messages(wrong)
        with pytest.raises(InvalidValueError), RecordQueue(stage.token, "i8") as queue:
            stage.tracer.trace_messages(queue, -1)


class TestHandle:
    def test_nested_span_restores_the_origin_after_an_error(self, stage: Stage) -> None:
        stage.listen("a")
        message = np.zeros(1, tracked("i8"))[0]
        message["publish_time"], message["origin_time"] = 4, 5
        inner = np.zeros(1, tracked("i8"))[0]
        inner["publish_time"] = inner["origin_time"] = 6
        with stage.tracer.span(message, endpoint="a"):
            assert clock.origin_time() == 5
            with pytest.raises(ZeroDivisionError), stage.tracer.span(inner, endpoint="a"):  # noqa: PT012
                assert clock.origin_time() == 6
                raise ZeroDivisionError
            assert clock.origin_time() == 5
        told = stage.told("a")
        assert (told.origin_time, told.sent) == (6, 6)
        assert stage.told("a").sent == 4

    def test_span_of_message_without_stamps_has_no_origin(self, stage: Stage) -> None:
        stage.listen("a")
        for message in (None, b"bytes"):
            with stage.tracer.span(message, endpoint="a"):
                assert clock.origin_time() == 0
            told = stage.told("a")
            assert (told.sent, told.origin_time) == (0, 0)

    def test_tracer_timer_keeps_origin_of_the_thread(self, stage: Stage) -> None:
        stage.listen("@solve")
        with stage.tracer.timer("solve"):
            assert clock.origin_time() == 0
        told = stage.told("@solve")
        assert told.origin_time == 0
        assert told.sent == told.received
        clock.set_origin(5)
        with stage.tracer.timer("solve"):
            assert clock.origin_time() == 5
        assert clock.origin_time() == 5
        clock.set_origin(0)
        assert stage.told("@solve").origin_time == 5

    def test_overlapping_spans_of_two_tasks_leave_no_origin(self, stage: Stage) -> None:
        """While they overlap, the newest that is open has its say: that is why tasks give origin_time."""
        messages = np.zeros(2, tracked("i8"))
        messages["origin_time"] = 5, 6

        async def both() -> list[int]:
            begun, done = asyncio.Event(), asyncio.Event()
            seen: list[int] = []

            async def one() -> None:
                with stage.tracer.span(messages[0], endpoint="a"):
                    await begun.wait()
                    seen.append(clock.origin_time())
                seen.append(clock.origin_time())
                done.set()

            async def other() -> None:
                with stage.tracer.span(messages[1], endpoint="b"):
                    begun.set()
                    await done.wait()
                    seen.append(clock.origin_time())

            await asyncio.gather(one(), other())
            return seen

        assert asyncio.run(both()) == [6, 6, 6]
        assert clock.origin_time() == 0


class TestMisuse:
    @pytest.mark.needs("threads")
    def test_tracer_in_two_threads_raises(self, stage: Stage) -> None:
        begun, end = threading.Event(), threading.Event()

        def hold() -> None:
            with stage.tracer.span(endpoint="a"):
                begun.set()
                end.wait(DEADLINE)

        task = Task(hold)
        assert begun.wait(DEADLINE)
        with pytest.raises(ConcurrentUseError, match=stage.token), stage.tracer.span(endpoint="b"):
            pass
        assert clock.origin_time() == 0
        end.set()
        task.result()
        with stage.tracer.span(endpoint="b"):
            pass

    def test_closed_tracer_raises(self, stage: Stage) -> None:
        message = np.zeros(1, tracked("i8"))[0]
        message["origin_time"] = 5
        with stage.tracer.span(message, endpoint="a") as span:
            stage.tracer.close()
            assert clock.origin_time() == 5
        assert clock.origin_time() == 0
        assert span.superseded
        assert "closed" in repr(stage.tracer)
        for call in (
            lambda: stage.tracer.trace_messages([]),
            lambda: stage.tracer.span(endpoint="a"),
            lambda: stage.tracer.timer("a"),
        ):
            with pytest.raises(EndpointClosedError, match=stage.token):
                call()

    def test_tracer_accepts_any_stage_and_endpoint_name(self, stage: Stage) -> None:
        if stage.backend == "zmq":
            pytest.skip("the path of a socket file is too short for it")
        odd = "a:b/c%d@"
        with StageTracer(f"{stage.token}:{odd}") as tracer:
            topic = make_timing_topic(tracer.stage, f"channel/{odd}")
            assert parse_timing_topic(topic) == (tracer.stage, f"channel/{odd}")
            sub = msgq.sub_sock(topic, timeout=int(DEADLINE * 1000))
            tracer._make_span(f"channel/{odd}")
            tracer._timing_publishers[f"channel/{odd}"].wait_for_readers(DEADLINE, n=1)
            with tracer.span(endpoint=f"channel/{odd}"):
                pass
            assert len(sub.receive() or b"") == 32
            sub.close()
            with pytest.raises(EndpointNameError):
                tracer.span(endpoint="x" * 250)
        for wrong in ("x" * 250, "a\0b"):
            with pytest.raises(EndpointNameError):
                StageTracer(wrong)
        with pytest.raises(InvalidValueError):
            StageTracer("")
        with pytest.raises(TypeError, match="stage is of type int"):
            StageTracer(3)  # type: ignore[arg-type]

    @pytest.mark.needs("takeover")
    def test_second_tracer_of_a_stage_supersedes_the_first(self, stage: Stage) -> None:
        stage.listen("a")
        with StageTracer(stage.token) as other:
            with other.span(endpoint="a"):
                pass
            assert stage.told("a")
            with stage.tracer.span(endpoint="a") as span:
                pass
            assert span.superseded
            assert stage.untold("a")

    @pytest.mark.needs("fork")
    def test_tracer_in_forked_child_supersedes_tracer_of_parent(self, stage: Stage) -> None:
        stage.listen("a")
        with stage.tracer.span(endpoint="a"):
            pass

        def child() -> None:
            with stage.tracer.span(endpoint="a") as span:
                pass
            assert not span.superseded

        assert in_fork(child) == 0
        assert stage.told("a")
        assert stage.told("a")
        with stage.tracer.span(endpoint="a") as span:
            pass
        assert span.superseded
        assert stage.untold("a")

    @pytest.mark.needs("threads")
    def test_span_deleted_in_another_thread_keeps_origin_of_that_thread(self, stage: Stage) -> None:
        with RecordQueue(stage.token, tracked("i8")) as queue:
            queue.produce(np.empty(0, "i8"))
            queue._transport.publisher.wait_for_readers(DEADLINE, n=1)
            queue.produce(1)
            kept = []

            def begin() -> None:
                iterator = stage.tracer.trace_messages(queue)
                next(iterator)
                kept.append(iterator)

            Task(begin).result()
            clock.set_origin(9)
            kept.clear()
            wait_until(lambda: clock.origin_time() == 9)
            clock.set_origin(0)
