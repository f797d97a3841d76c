"""A bus of the fake backend: the real endpoints in private memory and virtual time."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

import msgq
from msgq import stats
from msgq.errors import (
    ConcurrentUseError,
    EndpointClosedError,
    MultiplePublishersError,
    SegmentNotFoundError,
    StateError,
    WaitTimeoutError,
)
from msgq.impl import ring
from msgq.impl.base import clock as host_clock
from msgq.kinds.opening import open_source
from msgq.simulation import Fault, Simulation


def list_shared_files() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "msgq" in name}


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


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

    def test_bus_maps_a_topic_once_and_unmaps_it_after_its_end(self, endpoint: str) -> None:
        def count_maps() -> int:
            with open("/proc/self/maps") as maps:
                return len(maps.readlines())

        before = count_maps()
        for _ in range(50):
            with Simulation():
                pubs = [msgq.pub_sock(f"{endpoint}{i}") for i in range(4)]
                subs = [msgq.sub_sock(f"{endpoint}{i}") for i in range(4)]
            del pubs, subs
        assert count_maps() - before < 8

    def test_handles_that_outlive_their_simulation_are_closed(self, endpoint: str) -> None:
        with Simulation():
            pub, sub = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
        for call in (lambda: pub.send(b"x"), lambda: sub.receive(True)):
            with pytest.raises(EndpointClosedError):
                call()

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

    def test_observer_of_shared_memory_sees_no_bus(self, endpoint: str) -> None:
        with Simulation():
            msgq.pub_sock(endpoint)
        with pytest.raises(SegmentNotFoundError):
            stats.topic(endpoint)

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
        assert (first.publish_time, first.origin_time) == (2_500_000_000,) * 2
        assert (second.publish_time, second.origin_time) == (2_500_000_000, 7)

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
