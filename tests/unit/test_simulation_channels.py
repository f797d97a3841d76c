"""Channels in a simulation: orders of deliveries, faults, waits in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import pytest

import msgq
from msgq.channel import Channel
from msgq.errors import (
    DeadlockError,
    EndpointClosedError,
    InvalidValueError,
    LostMessagesError,
    MessageTooLargeError,
    PoolExhaustedError,
)
from msgq.simulation import Fault, Faults, Simulation, explore


def open_scans_channel(**options: Any) -> Any:
    """Open the channel of these tests."""
    return Channel("scans", **options)


def publish_messages(*messages: bytes) -> Any:
    """Return a publisher that has sent these."""
    publisher = open_scans_channel().publisher()
    publisher.send_many(messages)
    return publisher


def run_until_close(publisher: Callable[[list[Any]], None]) -> list[float]:
    """Run a node that appends a side to its list, and close the side after 1 s. Return the time of the node's end."""

    def run_publisher() -> None:
        publisher(sides)
        ended.append(sim.clock.time())

    sides: list[Any] = []
    ended: list[float] = []
    with Simulation() as sim:
        sim.add(run_publisher)
        sim.clock.sleep(1.0)
        sides[0].close()
        sim.run()
    return ended


class TestOrders:
    @pytest.mark.parametrize("readers", [1, 2, 3, 4])
    def test_explore_tries_all_delivery_orders_of_channel_subscribers(self, readers: int) -> None:
        seen: list[str] = []

        def scenario(sim: Simulation) -> None:
            order: list[str] = []
            for reader in range(readers):
                sim.on("channel/scans", lambda _, reader=reader: order.append(str(reader)))  # type: ignore[misc]
            publish_messages(b"message")
            sim.run()
            seen.append("".join(order))

        found = explore(scenario)
        assert found.complete
        assert found.orders == len(set(seen)) == math.factorial(readers)

    @pytest.mark.ci
    def test_explore_tries_all_orders_of_channel_publishers(self) -> None:
        seen: set[tuple[bytes, ...]] = set()

        def publisher(name: str) -> Generator[float, Any, None]:
            side = open_scans_channel().publisher()
            for number in range(2):
                yield 0.0
                side.send(f"{name}{number}".encode())

        def scenario(sim: Simulation) -> None:
            subs = [open_scans_channel().subscriber() for _ in range(2)]
            sim.add(publisher, "a")
            sim.add(publisher, "b")
            sim.run()
            got = [tuple(sub.receive_many()) for sub in subs]
            assert got[0] == got[1]  # there is one order for all
            seen.add(got[0])

        assert explore(scenario).complete
        assert len(seen) == math.comb(4, 2)

    def test_explore_finds_and_replays_bug_in_one_channel_order(self) -> None:
        def scenario(sim: Simulation) -> None:
            order: list[str] = []
            sim.on("channel/a", lambda _: order.append("a"))
            sim.on("channel/b", lambda _: order.append("b"))
            sim.play([(0.0, "channel/a", b""), (0.0, "channel/b", b"")])
            sim.run()
            assert order != ["b", "a"]

        found = explore(scenario)
        assert isinstance(found.error, AssertionError)
        assert found.choices is not None
        with pytest.raises(AssertionError), Simulation(choices=found.choices) as sim:
            scenario(sim)

    def test_explore_interleaves_topic_and_channel_messages(self) -> None:
        def scenario(sim: Simulation) -> None:
            sim.on("topic", lambda _: None)
            sim.on("channel/scans", lambda _: None)
            sim.play([(0.0, "topic", b"")] * 2 + [(0.0, "channel/scans", b"")] * 2)
            sim.run()

        assert explore(scenario).orders == math.comb(4, 2)

    def test_equal_seeds_give_equal_channel_runs(self) -> None:
        def run(seed: int) -> list[Any]:
            with Simulation(seed, Faults(drop=0.2, delay=0.3, duplicate=0.2, reorder=0.2, lap=0.1)) as sim:
                got: list[Any] = []
                for reader in range(2):
                    sim.on("channel/scans", lambda data, reader=reader: got.append((reader, data)))  # type: ignore[misc]
                sim.play((0.1 * number, "channel/scans", b"%d" % number) for number in range(40))
                sim.run()
            return got

        assert run(3) == run(3)
        assert run(3) != run(4)

    def test_sent_messages_of_simulation_have_channel_name(self) -> None:
        with Simulation() as sim:
            publish_messages(b"1", b"2")
            assert sim.sent_on("channel/scans") == [b"1", b"2"]
            assert sim.sent_messages[0].node == "main"


class TestFaults:
    def run(self, *fault_schedule: Fault, count: int = 4, **options: Any) -> tuple[Any, list[bytes]]:
        """Return a subscriber, and what it got of so many messages, one each second."""
        with Simulation(fault_schedule=fault_schedule) as sim:
            sub = open_scans_channel().subscriber(**options)
            got: list[bytes] = []

            def reader() -> Generator[Any, bytes, None]:
                while True:
                    got.append((yield sub))

            sim.add(reader)
            sim.play((float(number), "channel/scans", b"%d" % number) for number in range(1, count + 1))
            sim.run()
        return sub, got

    def test_channel_without_fault_delivers_all_messages(self) -> None:
        sub, got = self.run()
        assert got == [b"1", b"2", b"3", b"4"]
        assert (sub.lost, sub.received) == (0, 4)

    @pytest.mark.parametrize("message", [1, 2, 4])
    def test_drop_fault_loses_one_channel_message(self, message: int) -> None:
        sub, got = self.run(Fault("drop", "channel/scans", message=message))
        assert got == [b"%d" % number for number in range(1, 5) if number != message]
        assert sub.received == 3
        assert sub.lost == 1

    def test_drop_fault_raises_lost_messages_error_if_requested(self) -> None:
        with pytest.raises(LostMessagesError) as caught:
            self.run(Fault("drop", "channel/scans", message=2), on_lost="raise")
        assert caught.value.lost == 1

    def test_delay_fault_keeps_order_of_channel_messages(self) -> None:
        _, got = self.run(Fault("delay", "channel/scans", message=1, delay=2.5))
        assert got == [b"1", b"2", b"3", b"4"]

    def test_delay_fault_longer_than_channel_capacity_laps_subscribers(self) -> None:
        with Simulation(fault_schedule=[Fault("delay", "channel/scans", message=1, delay=5.0)]) as sim:
            channel = open_scans_channel(capacity=4)
            sub = channel.subscriber()
            publish_messages(*(b"%d" % number for number in range(10)))
            assert sub.receive(0) is None
            sim.run(until=6)
            assert sub.receive_many() == [b"6", b"7", b"8", b"9"]
            assert (sub.lost, sub.resets) == (6, 1)

    @pytest.mark.parametrize(
        ("capacity", "faults", "received", "lost"),
        [
            (2, [], [b"2", b"3"], 0),  # the repeated message is overwritten
            (8, [Fault("lap", "channel/c", message=3)], [], 2),
            (8, [], [b"1", b"2", b"3"], 0),
        ],
    )
    def test_repeated_message_that_was_not_received_ends_before_later_ones(
        self, capacity: int, faults: list[Fault], received: list[bytes], lost: int
    ) -> None:
        with Simulation(fault_schedule=[Fault("duplicate", "channel/c", message=1), *faults]) as sim:
            channel = Channel("c", capacity=capacity)
            pub, sub = channel.publisher(), channel.subscriber()
            pub.send(b"1")
            sim.run()
            assert sub.receive(0) == b"1"
            with pytest.raises(MessageTooLargeError):
                sub.receive_into(bytearray(0), 0)  # the second copy, which stays
            pub.send(b"2")
            pub.send(b"3")
            sim.run()
            before = sub.lost
            assert sub.receive_many() == received
            assert sub.lost - before == lost

    def test_duplicate_fault_delivers_channel_message_twice(self) -> None:
        sub, got = self.run(Fault("duplicate", "channel/scans", message=2))
        assert got == [b"1", b"2", b"2", b"3", b"4"]
        assert (sub.lost, sub.received) == (0, 5)

    def test_lap_fault_loses_unread_channel_messages(self) -> None:
        with Simulation(fault_schedule=[Fault("lap", "channel/scans", message=2)]) as sim:
            sub = open_scans_channel().subscriber()
            publish_messages(b"1", b"2", b"3")
            sim.run()
            assert sub.receive_many() == [b"3"]
            assert (sub.lost, sub.resets) == (2, 1)

    def test_restart_fault_restarts_only_sender(self) -> None:
        starts: list[str] = []

        def publisher(name: str, after: float) -> Generator[float, Any, None]:
            starts.append(name)
            side = open_scans_channel().publisher()
            yield after
            side.send(name.encode())
            yield 100.0

        with Simulation(fault_schedule=[Fault("restart", "channel/scans", message=2)]) as sim:
            sim.add(publisher, "a", 1.0)
            sim.add(publisher, "b", 2.0)
            sim.run(until=10)
        assert starts == ["a", "b", "b"]
        assert sim.sent_on("channel/scans") == [b"a", b"b", b"b"]

    def test_channel_restart_fault_of_main_node_is_refused(self) -> None:
        fault_schedule = [Fault("restart", "channel/scans", message=1)]
        with Simulation(fault_schedule=fault_schedule), pytest.raises(InvalidValueError, match="'main'"):
            publish_messages(b"message")


class TestWaits:
    def test_publisher_waits_for_slot_until_release_of_view(self) -> None:
        def holder() -> None:
            view = open_scans_channel().subscriber(history=1).receive_view()
            sim.clock.sleep(2.0)
            view.release()

        def publisher() -> None:
            side = open_scans_channel().publisher(slots=1)
            side.send(b"1")
            sim.clock.sleep(0.5)
            side.send(b"2", timeout=None)
            times.append(sim.clock.time())

        times: list[float] = []
        with Simulation() as sim:
            sim.add(publisher)
            sim.add(holder)
            sim.run()
        assert times == [2.0]

    def test_channel_receive_with_timeout_takes_virtual_time(self) -> None:
        with Simulation() as sim:
            sub = open_scans_channel().subscriber()
            assert sub.receive(2.5) is None
            assert sim.clock.time() == 2.5
            with pytest.raises(DeadlockError, match="'scans'"):
                sub.receive()

    def test_channel_timestamps_are_virtual(self) -> None:
        with Simulation() as sim:
            sub = open_scans_channel().subscriber()
            sim.clock.sleep(1.5)
            publish_messages(b"message")
            sub.receive()
            assert sub.last.publish_time == 1_500_000_000

    @pytest.mark.parametrize("kind", ["blocking", "generator"])
    def test_poller_receives_from_topic_and_channel(self, kind: str) -> None:
        got: list[bytes] = []

        def registered() -> Any:
            poller = msgq.Poller()
            poller.registerSocket(open_scans_channel().subscriber())
            msgq.sub_sock("topic", poller)
            return poller

        def take(ready: list[Any]) -> None:
            got.extend(each.receive(0) for each in ready)

        def blocking() -> None:
            poller = registered()
            while True:
                take(poller.poll(-1))

        def generator() -> Any:
            poller = registered()
            while True:
                take((yield poller))

        with Simulation() as sim:
            sim.add(blocking if kind == "blocking" else generator)
            sim.play([(1.0, "topic", b"topic"), (2.0, "channel/scans", b"channel")])
            sim.run()
        assert got == [b"topic", b"channel"]

    def test_fileno_of_channel_subscriber_in_simulation_raises(self) -> None:
        with Simulation(), pytest.raises(DeadlockError, match="real time"):
            open_scans_channel().subscriber().fileno()

    def test_end_of_simulation_removes_its_channels(self) -> None:
        for _ in range(2):
            with Simulation():
                channel = open_scans_channel(create=True)
                sub, pub = channel.subscriber(), channel.publisher()
            assert sub.closed
            assert pub.closed


class TestRoom:
    @pytest.mark.parametrize("seed", range(3))
    def test_publisher_that_waits_for_room_loses_nothing(self, seed: int) -> None:
        """Subscribers of different speed receive all messages, in any order of deliveries."""

        def publisher() -> None:
            side = open_scans_channel(capacity=4).publisher()
            for number in range(40):
                assert side.wait_for_room()
                side.send(b"%d" % number)

        def subscriber(pause: float) -> None:
            side = open_scans_channel(capacity=4).subscriber()
            received: list[int] = []
            while len(received) < 40:
                received.append(int(side.receive()))
                sim.clock.sleep(pause)
            assert (received, side.lost) == (list(range(40)), 0)
            ended.append(sim.clock.time())

        ended: list[float] = []
        with Simulation(seed) as sim:
            for pause in (0.0, 0.1, 0.25):
                sim.add(subscriber, pause)
            sim.add(publisher)
            sim.run()
        assert max(ended) == pytest.approx(10.0)

    def test_wait_for_room_without_other_nodes_raises_deadlock_error(self) -> None:
        with Simulation():
            channel = open_scans_channel(capacity=4)
            side, _subscriber = channel.publisher(), channel.subscriber()
            side.send_many([b"1"] * 4)
            with pytest.raises(DeadlockError, match="room of 'scans'"):
                side.wait_for_room()


class TestKilledNodes:
    """Rows and pools stay as a dead process leaves them, and the next participants recover them."""

    def test_messages_of_killed_publisher_arrive_and_its_pool_is_removed_later(self) -> None:
        with Simulation() as sim:
            channel = open_scans_channel(capacity=2)
            sub, dead = channel.subscriber(), channel.publisher()
            dead.send(b"last")
            dead._abandon_handle()
            (row,) = channel.stats().publishers
            assert (row.participant.alive, row.left, row.messages) == (False, False, 1)
            sim.run()
            assert sub.receive(0) == b"last"
            with pytest.raises(EndpointClosedError):
                dead.send(b"more")
            living = [channel.publisher()]
            living[0].send_many([b"1", b"2"])  # the message of the dead one leaves the channel
            living.append(channel.publisher())
            assert all(row.participant.alive for row in channel.stats().publishers)

    def test_publisher_takes_back_slot_whose_viewer_was_killed(self) -> None:
        with Simulation() as sim:
            channel = open_scans_channel()
            sub, pub = channel.subscriber(), channel.publisher(slots=1)
            pub.send(b"1")
            sim.run()
            view = sub.receive_view(0)
            with pytest.raises(PoolExhaustedError):
                pub.send(b"2")
            sub._abandon_handle()
            pub.send(b"2")
            other = channel.subscriber(history=1)
            held = other.receive_view(0)
            view.release()  # the bit in the pins belongs to the other one now
            with pytest.raises(PoolExhaustedError):
                pub.send(b"3")
            held.release()
            pub.send(b"3")

    def test_kill_of_viewer_ends_wait_for_its_slot(self) -> None:
        def viewer() -> None:
            subs.append(open_scans_channel().subscriber(history=1))
            views.append(subs[0].receive_view())
            sim.clock.sleep(2.0)
            subs[0]._abandon_handle()

        def publisher() -> None:
            side = open_scans_channel().publisher(slots=1)
            side.send(b"1")
            sim.clock.sleep(0.5)
            side.send(b"2", timeout=None)
            times.append(sim.clock.time())

        subs: list[Any] = []
        views: list[Any] = []
        times: list[float] = []
        with Simulation() as sim:
            sim.add(publisher)
            sim.add(viewer)
            sim.run()
        assert times == [2.0]

    def test_kill_of_slow_subscriber_ends_wait_for_room(self) -> None:
        def subscriber() -> None:
            slow = open_scans_channel().subscriber()
            sim.clock.sleep(2.0)
            slow._abandon_handle()

        def publisher() -> None:
            side = open_scans_channel(capacity=4).publisher()
            sim.clock.sleep(0.5)
            while side.wait_for_room(timeout=0):
                side.send(b"1")
            assert not side.wait_for_room(timeout=0.5)
            times.append(sim.clock.time())
            assert side.wait_for_room(4)
            times.append(sim.clock.time())

        times: list[float] = []
        with Simulation() as sim:
            sim.add(publisher)
            sim.add(subscriber)
            sim.run()
        assert times == [1.0, 2.0]

    def test_close_of_publisher_by_other_node_ends_its_wait_for_room(self) -> None:
        def publisher(sides: list[Any]) -> None:
            side = open_scans_channel(capacity=4).publisher()
            sides.append(side)
            _subscriber = open_scans_channel().subscriber()
            side.send_many([b"1"] * 4)
            with pytest.raises(EndpointClosedError, match="wait for room"):
                side.wait_for_room()

        assert run_until_close(publisher) == [1.0]

    def test_close_of_publisher_by_other_node_ends_its_wait_for_slot(self) -> None:
        def publisher(sides: list[Any]) -> None:
            side = open_scans_channel().publisher(slots=1)
            sides.append(side)
            side.send(b"1")
            view = open_scans_channel().subscriber(history=1).receive_view(0)
            with pytest.raises(EndpointClosedError):
                side.send(b"2", timeout=None)
            view.release()

        assert run_until_close(publisher) == [1.0]


def test_statistics_of_simulated_channel_are_those_of_real_one() -> None:
    with Simulation():
        channel = open_scans_channel()
        publisher = channel.publisher()
        publisher.send(b"message")
        assert msgq.stats.channel("scans") == channel.stats()
        assert channel.stats().pool_bytes == publisher.stats().pool_bytes
