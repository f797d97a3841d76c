"""A bus of the fake backend: the real endpoints in private memory and virtual time."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any

import pytest

import msgq
from msgq import stats
from msgq.errors import (
    ConcurrentUseError,
    EndpointClosedError,
    ForkedSocketError,
    InvalidValueError,
    MsgqError,
    MsgqWarning,
    MultiplePublishersError,
    SegmentNotFoundError,
    StateError,
    WaitTimeoutError,
)
from msgq.impl import ring
from msgq.impl.base import clock as host_clock
from msgq.impl.fake.bus import InProcessBus, current_bus
from msgq.kinds.opening import open_source
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.recorder.core import Capture
from msgq.simulation import Fault, Simulation
from tests.support import run_child
from visionipc import VisionIpcServer


def list_shared_files() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "msgq" in name}


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def use_all_kinds_then_read_clock() -> dict[str, str]:
    """Use all kinds in a simulation. Return why the files of the clock cannot be opened: they were not open before."""
    with Simulation() as sim:
        msgq.pub_sock("topic", tracked=True).send(b"x")
        msgq.MessageQueue("queue", events=True).send(b"x")
        channel = msgq.Channel("channel")
        channel.publisher().send(b"x")
        channel.subscriber().receive(0)
        records = msgq.SeqlockVector("vector", msgq.tracked([("x", "f8")]), 2)
        records[0] = (0, 0, 1.0)
        msgq.Board("board").declare("key").write(b"x")
        msgq.RecordQueue("records", msgq.tracked([("x", "f8")])).produce((1.0,))
        with VisionIpcServer("frames") as server:
            server.create_buffers(0, 1, 64, 48)
            server.start_listener()
        assert stats.endpoints()
        sim.run()
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        host_clock.offset_ns()
        clock = "known"
    except MsgqError as error:
        clock = errno.errorcode[error.errno or 0]
    origins = "EMFILE" if os.strerror(errno.EMFILE) in host_clock.origin_problem() else "known"
    return {"clock": clock, "origins": origins}


class TestMemory:
    def test_simulation_creates_no_file_and_uses_no_descriptor(self, endpoint: str) -> None:
        with Simulation() as sim:
            descriptors = count_descriptors()
            pub, sub = msgq.pub_sock(endpoint, tracked=True), msgq.sub_sock(endpoint)
            pub.send(b"x")
            assert sub.receive() == b"x"
            assert count_descriptors() == descriptors
            assert not [name for name in list_shared_files() if endpoint in name]
            sim.run()

    def test_few_mappings_of_ended_topics_stay_for_the_next_ones(self, endpoint: str) -> None:
        def count_maps() -> int:
            with open("/proc/self/maps") as maps:
                return len(maps.readlines())

        before = count_maps()
        for _ in range(50):
            with Simulation():
                pubs = [msgq.pub_sock(f"{endpoint}{i}") for i in range(4)]
                subs = [msgq.sub_sock(f"{endpoint}{i}") for i in range(4)]
            del pubs, subs
        assert count_maps() - before < 2 * 16 + 8  # maps of the used and the reserved part of 16 files, out of 800

    def test_handles_that_outlive_their_simulation_are_closed(self, endpoint: str) -> None:
        with Simulation():
            pub, sub = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
        with pytest.raises(EndpointClosedError):
            pub.send(b"x")
        with pytest.raises(EndpointClosedError):
            sub.receive(True)

    def test_topics_of_two_simulations_are_separate(self, endpoint: str) -> None:
        with Simulation():
            msgq.pub_sock(endpoint).send(b"x")
            with Simulation():
                with pytest.raises(SegmentNotFoundError):
                    msgq.SubSocket().connect(msgq.context, endpoint, passive=True)
                msgq.pub_sock(endpoint)

    @pytest.mark.parametrize(("given", "size"), [(0, 1 << 20), (4096, 4096)])
    def test_simulation_sets_the_size_of_topics_without_a_size(self, endpoint: str, given: int, size: int) -> None:
        with Simulation(segment_size=given):
            msgq.sub_sock(endpoint)
            msgq.pub_sock(f"{endpoint}-asked", segment_size=8192)
            assert stats.topic(endpoint).data_bytes == size
            assert stats.topic(f"{endpoint}-asked").data_bytes == 8192

    def test_invalid_default_size_is_refused_by_the_topic(self, endpoint: str) -> None:
        with Simulation(segment_size=64), pytest.raises(ValueError, match="64"):
            msgq.sub_sock(endpoint)

    def test_grown_topic_keeps_its_subscribers(self, endpoint: str) -> None:
        with Simulation():
            sub = msgq.sub_sock(endpoint)
            pub = msgq.pub_sock(endpoint, segment_size=1 << 22)
            pub.send(bytes(1 << 20))
            assert len(sub.receive() or b"") == 1 << 20


class TestTools:
    def test_stats_and_sources_read_the_current_bus(self, endpoint: str) -> None:
        with Simulation():
            pub, sub = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
            source = open_source(endpoint, whole=True)
            pub.send(b"abc")
            sub.receive()
            found = stats.topic(endpoint)
            assert (found.messages, found.bytes, len(found.subscribers)) == (1, 3, 1)
            assert found.subscribers[0].received == 1
            assert [each.endpoint for each in stats.endpoints()] == [endpoint]
            source.close()
        assert endpoint not in stats.endpoint_inodes()

    def test_endpoints_of_another_prefix_of_the_bus_are_not_listed(self, endpoint: str) -> None:
        with Simulation():
            msgq.pub_sock(endpoint)
            other = msgq.PubSocket()
            other.connect(msgq.context, f"{endpoint}-other", prefix="inner")
            assert [each.endpoint for each in stats.endpoints()] == [endpoint]
            assert [each.endpoint for each in stats.endpoints("inner")] == [f"{endpoint}-other"]

    def test_observer_of_shared_memory_sees_no_bus(self, endpoint: str) -> None:
        with Simulation():
            msgq.pub_sock(endpoint)
        with pytest.raises(SegmentNotFoundError):
            stats.topic(endpoint)

    def test_source_of_records_finds_each_value_of_one_time(self, endpoint: str) -> None:
        def count_taken() -> int:
            chunk = ChunkBuffer(1 << 20, 1 << 10)
            capture.capture_messages(chunk, 0.01)
            return len(chunk)

        with Simulation() as sim:
            records, capture = msgq.SeqlockVector(endpoint, "f8", 2), Capture()
            source = open_source(f"records/{endpoint}")
            assert source.read_message_schema()
            capture.add_source(source)
            found = []
            for value in range(3):
                records[0] = value
                found.append(count_taken())
                records[1] = value
                found.append(count_taken())  # on a bus, a source does not pause between two scans
                sim.clock.sleep(0.001)
            assert found == [1] * 6

    @pytest.mark.parametrize("prefix", ["bus:1", "bus:1/inner", "bus:77", "bus:"])
    def test_participant_of_shared_memory_refuses_the_prefix_of_a_bus(self, endpoint: str, prefix: str) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: ring.PubSocket().connect(msgq.context, endpoint, prefix=prefix),
            lambda: ring.SubSocket().connect(msgq.context, endpoint, prefix=prefix),
            lambda: msgq.MessageQueue(endpoint, prefix=prefix),
            lambda: msgq.SeqlockVector(endpoint, "f8", 2, prefix=prefix),
            lambda: msgq.Board(endpoint, prefix=prefix),
            lambda: msgq.Channel(endpoint, prefix=prefix),
        ]
        for call in calls:
            with pytest.raises(InvalidValueError, match=f"prefix '{prefix}' begins with 'bus:'"):
                call()

    def test_repeated_simulation_has_the_same_name_of_its_bus(self) -> None:
        names = set()
        for _ in range(3):
            with Simulation() as sim:
                names.add(sim._engine.prefix)
        assert len(names) == 1

    def test_prefix_of_a_bus_stays_as_it_is(self) -> None:
        bus = InProcessBus()
        assert bus.resolve_prefix(f"{bus.prefix}/inner") == f"{bus.prefix}/inner"
        assert bus.resolve_prefix(f"{bus.prefix}7") == f"{bus.prefix}7"  # another bus, for observers
        bus.end()

    def test_class_of_shared_memory_is_refused_in_a_node(self, endpoint: str) -> None:
        with Simulation(), pytest.raises(StateError, match="does not belong to the simulation"):
            ring.PubSocket().connect(msgq.context, endpoint)


class TestTime:
    def test_publish_time_and_origin_are_virtual(self, endpoint: str) -> None:
        with Simulation() as sim:
            pub, sub = msgq.pub_sock(endpoint, tracked=True), msgq.sub_sock(endpoint)
            sim.clock.sleep(2.5)
            pub.send(b"first")
            pub.send(b"second", origin_time=7)
            first, second = sub.receive_tracked(), sub.receive_tracked()
        assert first
        assert second
        assert (first.publish_time, first.origin_time) == (2_500_000_000,) * 2
        assert (second.publish_time, second.origin_time) == (2_500_000_000, 7)

    def test_origins_of_one_virtual_time_differ(self, endpoint: str) -> None:
        with Simulation() as sim:
            first = sim.clock.new_origin_time(3)
            pub, sub = msgq.pub_sock(endpoint, tracked=True), msgq.sub_sock(endpoint)
            for _ in range(2):
                pub.send(b"x")
            received = [message for _ in range(2) if (message := sub.receive_tracked())]
            assert [message.origin_time - first for message in received] == [3, 4]

    def test_shared_memory_keeps_real_time_during_a_simulation(self, endpoint: str) -> None:
        pub, sub = ring.PubSocket(), ring.SubSocket()
        pub.connect(msgq.context, endpoint, tracked=True)
        sub.connect(msgq.context, endpoint)
        with Simulation() as sim:
            sim.clock.sleep(5)
            before = host_clock.time_ns()
            pub.send(b"x")
            received = sub.receive_tracked(True)
        assert received is not None
        assert before <= received.publish_time <= host_clock.time_ns()
        pub.unlink()

    def test_simulation_opens_no_file_of_the_clock_or_of_origins(self) -> None:
        assert run_child(use_all_kinds_then_read_clock) == {"clock": "EMFILE", "origins": "EMFILE"}

    def test_timeouts_and_waits_for_readers_take_virtual_time(self, endpoint: str) -> None:
        with Simulation() as sim:
            pub, sub = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
            assert sub.receive(timeout=1.5) is None
            assert sim.clock.now_ns == 1_500_000_000
            pub.send(b"x")
            with pytest.raises(WaitTimeoutError, match="0 of them up to date"):
                pub.wait_for_readers(timeout=0.5)
            assert sim.clock.now_ns == 2_000_000_000

    def test_pubmaster_waits_for_the_readers_of_all_topics_in_virtual_time(self, endpoint: str) -> None:
        with Simulation() as sim:
            master = msgq.PubMaster([endpoint, f"{endpoint}-unread"])

            def reader() -> Generator[Any, Any, None]:
                yield 1.0
                sub = msgq.sub_sock(endpoint)
                yield 9.0
                sub.close()

            sim.add(reader)
            with pytest.raises(WaitTimeoutError, match=f"'{endpoint}-unread'"):
                master.wait_for_readers(timeout=1.5, n=1)
            assert sim.clock.now_ns == 1_500_000_000


class TestWaits:
    def test_wait_in_a_running_event_loop_warns(self, endpoint: str) -> None:
        async def wait() -> None:
            with pytest.warns(MsgqWarning, match="event loop|asyncio"):
                assert msgq.sub_sock(endpoint).receive(timeout=0.5) is None

        with Simulation():
            asyncio.run(wait())

    def test_waiting_socket_may_not_be_used_by_another_node(self, endpoint: str) -> None:
        with Simulation() as sim:
            sub = msgq.sub_sock(endpoint)
            refused = []

            def other() -> Generator[Any, Any, None]:
                yield 0.5
                for call in (sub.receive, lambda: sub.stats() and sub.receive_many()):
                    with pytest.raises(ConcurrentUseError):
                        call()
                    refused.append(call)

            sim.add(other)
            assert sub.receive(timeout=1) is None
            assert len(refused) == 2

    def test_generator_that_yields_a_closed_socket_is_refused_at_once(self, endpoint: str) -> None:
        with Simulation() as sim:

            def node() -> Generator[Any, Any, None]:
                sub = msgq.sub_sock(endpoint)
                sub.close()
                yield sub

            with pytest.raises(EndpointClosedError):
                sim.add(node)

    def test_socket_closed_and_connected_again_during_a_wait_ends_the_wait(self, endpoint: str) -> None:
        with Simulation() as sim:
            sub = msgq.sub_sock(endpoint)

            def other() -> Generator[Any, Any, None]:
                yield 0.5
                sub.close()
                sub.connect(msgq.context, endpoint)
                msgq.pub_sock(endpoint).send(b"for the new connection")

            sim.add(other)
            with pytest.raises(EndpointClosedError, match="closed during the wait"):
                sub.receive(timeout=5)
            assert sim.clock.now_ns == 500_000_000
            assert sub.receive() == b"for the new connection"


class TestKilledNodes:
    def test_killed_publisher_leaves_its_row_until_the_next_one_starts(self, endpoint: str) -> None:
        with Simulation(fault_schedule=[Fault("restart", endpoint, message=2)]) as sim:
            watcher = msgq.sub_sock(endpoint)
            lives = []

            def sender() -> Generator[Any, Any, None]:
                before = stats.topic(endpoint)
                lives.append((before.messages, None if before.publisher is None else before.publisher.alive))
                pub = msgq.pub_sock(endpoint)
                for i in range(3):
                    pub.send(b"%d" % i)
                    yield 0.1

            sim.add(sender)
            sim.run()
            assert lives == [(0, None), (2, False)]  # the row of the killed one has no lock
            assert watcher.receive_many() == [b"0", b"1", b"0", b"1", b"2"]
            assert watcher.lost == 0

    def test_killed_subscriber_leaves_its_row_and_is_no_reader(self, endpoint: str) -> None:
        with Simulation(fault_schedule=[Fault("restart", "alive", message=1)]) as sim:
            pub = msgq.pub_sock(endpoint)

            def reader() -> Generator[Any, Any, None]:
                sub, alive = msgq.sub_sock(endpoint), msgq.pub_sock("alive")
                yield 0.1
                alive.send(b"x")
                yield sub

            sim.add(reader)
            pub.send(b"unread by the first life")
            sim.run(until=1)
            found = stats.topic(endpoint)
            assert [each.participant.alive for each in found.subscribers] == [False, True]
            assert pub.all_readers_updated()

    def test_publisher_killed_inside_of_a_reservation_does_not_delay_the_next(self, endpoint: str) -> None:
        with Simulation(fault_schedule=[Fault("restart", "alive", message=1)]) as sim:
            watcher, lives = msgq.sub_sock(endpoint), []

            def sender() -> Generator[Any, Any, None]:
                pub, alive = msgq.pub_sock(endpoint), msgq.pub_sock("alive")
                lives.append(sim.clock.now_ns)
                if len(lives) == 1:
                    reservation = pub.reserve(8)
                    reservation.__enter__()[:] = b"unsent.."
                    alive.send(b"x")
                    yield 1.0
                pub.send(b"sent")

            sim.add(sender)
            sim.run()
            assert (watcher.receive_many(), lives) == ([b"sent"], [0, 0])

    def test_living_publisher_in_a_reservation_keeps_the_topic(self, endpoint: str) -> None:
        with Simulation() as sim:
            with msgq.pub_sock(endpoint).reserve(8), pytest.raises(MultiplePublishersError, match="for 1 s"):
                msgq.pub_sock(endpoint)
            assert sim.clock.now_ns == 1_000_000_000


class TestHostileUse:
    def test_function_that_raises_keeps_later_messages(self, endpoint: str) -> None:
        seen = []

        def raise_on_first(message: bytes) -> None:
            seen.append(message)
            if message == b"0":
                raise RuntimeError("first")

        with Simulation() as sim:
            sim.on(endpoint, raise_on_first)
            pub = msgq.pub_sock(endpoint)
            for i in range(3):
                pub.send(b"%d" % i)
            with pytest.raises(RuntimeError, match="first"):
                sim.run()
            sim.run()
        assert seen == [b"0", b"1", b"2"]

    def test_function_closes_all_sockets_of_the_topic(self, endpoint: str) -> None:
        with Simulation() as sim:
            pub, sub = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
            seen = []

            def close_sockets(message: bytes) -> None:
                seen.append(message)
                pub.close()
                sub.close()

            sim.on(endpoint, close_sockets)
            pub.send(b"0")
            pub.send(b"1")
            sim.run()
            assert seen == [b"0", b"1"]

    def test_subscriber_without_references_leaves_during_a_delivery(self, endpoint: str) -> None:
        with Simulation() as sim:
            subs = [msgq.sub_sock(endpoint)]
            sim.on(endpoint, lambda _: subs.clear())
            pub = msgq.pub_sock(endpoint)
            for _ in range(3):
                pub.send(b"x")
            sim.run()
            assert len(stats.topic(endpoint).subscribers) == 1

    def test_socket_that_connects_to_another_topic_gets_only_its_messages(self, endpoint: str) -> None:
        with Simulation() as sim:
            sub, pub = msgq.sub_sock(endpoint), msgq.pub_sock(endpoint)
            pub.send(b"before")
            sub.close()
            sub.connect(msgq.context, f"{endpoint}-other")
            pub.send(b"between")
            pub.close()
            pub.connect(msgq.context, f"{endpoint}-other")
            pub.send(b"after")
            sim.run()
            assert (sub.receive_many(), sub.lost) == ([b"after"], 0)

    def test_topic_unlinked_in_a_simulation_is_another_topic_afterwards(self, endpoint: str) -> None:
        with Simulation() as sim:
            sub, pub = msgq.sub_sock(endpoint), msgq.pub_sock(endpoint)
            pub.unlink()
            later_sub, later_pub = msgq.sub_sock(endpoint), msgq.pub_sock(endpoint)
            pub.send(b"old")
            later_pub.send(b"new")
            sim.run()
            assert (sub.receive_many(), later_sub.receive_many()) == ([b"old"], [b"new"])

    def test_two_publishers_that_connect_during_a_reservation_have_one_winner(self, endpoint: str) -> None:
        with Simulation() as sim:
            holder, sub = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
            outcomes = []

            def connect(number: int) -> None:
                try:
                    msgq.pub_sock(endpoint).send(b"%d" % number)
                    outcomes.append(number)
                except MultiplePublishersError:
                    outcomes.append(-number)

            reservation = holder.reserve(8)
            reservation.__enter__()
            sim.add(connect, 1)
            sim.add(connect, 2)
            sim.clock.sleep(0.1)
            with pytest.raises(MultiplePublishersError):
                reservation.__exit__(None, None, None)
            sim.run()
            (winner,) = [number for number in outcomes if number > 0]
            assert len(outcomes) == 2
            assert (sub.receive_many(), sub.lost) == ([b"%d" % winner], 0)

    def test_simulation_in_a_thread_has_its_own_bus(self, endpoint: str) -> None:
        def simulate() -> bytes | None:
            with Simulation() as sim:
                sub = msgq.sub_sock(endpoint)
                msgq.pub_sock(endpoint).send(b"x")
                sim.run()
                return sub.receive()

        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(simulate).result() == b"x"

    def test_simulation_that_ends_before_an_inner_one_is_refused(self) -> None:
        outer, inner = Simulation(), Simulation()
        with outer:
            with inner:
                with pytest.raises(StateError, match="leave that one first"):
                    outer.__exit__(None, None, None)
                assert current_bus() is inner._engine
            assert current_bus() is outer._engine
        assert current_bus() not in (outer._engine, inner._engine)

    def test_interrupted_wait_leaves_the_socket_usable(self, endpoint: str) -> None:
        with Simulation() as sim:
            sub, queue = msgq.sub_sock(endpoint), msgq.MessageQueue(endpoint)
            records = msgq.SeqlockVector(endpoint, "f8", 2)
            waits: list[Callable[[], Any]] = [lambda: sub.receive(timeout=5), lambda: queue.receive(5), records.wait]
            for wait in waits:

                def interrupt() -> Generator[Any, Any, None]:
                    yield 0.5
                    raise KeyboardInterrupt

                sim.add(interrupt)
                with pytest.raises(KeyboardInterrupt):
                    wait()
            msgq.pub_sock(endpoint).send(b"x")
            queue.send(b"x")
            records[0] = 1.0
            assert sub.receive(timeout=1) == b"x"
            assert queue.receive(1) == (b"x", 0)
            assert records.wait(1)

    def test_interrupted_run_lets_the_blocking_node_reach_its_wait(self) -> None:
        """Otherwise, the node and the interrupted program would run at the same time."""
        handled, left = Event(), Event()
        steps: list[bool] = []

        def interrupt(*_: object) -> None:
            handled.set()
            raise KeyboardInterrupt

        def node() -> None:
            sim.clock.sleep(1)
            while not handled.wait(0.01):  # a signal just before the system call of the wait does not end it
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            steps.append(left.wait(0.1))
            sim.clock.sleep(1)
            steps.append(left.is_set())

        previous = signal.signal(signal.SIGUSR1, interrupt)
        try:
            with Simulation() as sim:
                sim.add(node)
                with pytest.raises(KeyboardInterrupt):
                    sim.run()
                left.set()
                assert steps == [False]
                sim.run()
                assert steps == [False, True]
        finally:
            signal.signal(signal.SIGUSR1, previous)

    def test_forked_child_cannot_use_the_simulation_of_its_parent(self, endpoint: str) -> None:
        with Simulation() as sim:
            sub, pub = msgq.sub_sock(endpoint), msgq.pub_sock(endpoint)
            pub.send(b"of the parent")
            pid = os.fork()
            if pid == 0:
                refused = 0
                for call in (sub.receive, lambda: pub.send(b"of the child")):
                    with suppress(ForkedSocketError):
                        call()
                        refused -= 1
                    refused += 1
                os._exit(refused)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
            sim.run()
            assert sub.receive_many() == [b"of the parent"]
