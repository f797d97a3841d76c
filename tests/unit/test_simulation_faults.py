"""Faults: each kind scheduled and drawn at random, and what a subscriber sees of it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

import msgq
from msgq.errors import InvalidValueError
from msgq.simulation import Fault, Faults, Simulation

S = 10**9
TEN = [(0.1 * i, "a", b"%d" % i) for i in range(10)]


def play_to_function(sim: Simulation, endpoint: str = "a") -> list[tuple[float, bytes]]:
    """Play ten messages to a function, and return when it got what."""
    got: list[tuple[float, bytes]] = []
    sim.on(endpoint, lambda message: got.append((round(sim.clock.time(), 6), message)))
    sim.play(TEN)
    sim.run()
    return got


def texts(got: list[tuple[float, bytes]]) -> str:
    return b"".join(text for _, text in got).decode()


class TestScript:
    @pytest.mark.parametrize("when", [{"message": 4}, {"at": 0.3}, {"at": 0.25}])
    def test_drop_fault_removes_one_topic_message(self, when: dict[str, Any]) -> None:
        with Simulation(fault_schedule=[Fault("drop", "a", **when)]) as sim:
            assert texts(play_to_function(sim)) == "012456789"
            assert len(sim.sent_messages) == 10

    def test_drop_fault_counts_topic_message_as_lost(self) -> None:
        with Simulation(fault_schedule=[Fault("drop", "a", message=2)]) as sim:
            pub, sub = msgq.pub_sock("a"), msgq.sub_sock("a", timeout=0)
            pub.send_many([b"1", b"2", b"3"])
            sim.run()
            assert sub.receive_many() == [b"1", b"3"]
            assert sub.lost == 1
            assert pub.all_readers_updated()

    def test_delay_fault_also_delays_later_messages_of_topic(self) -> None:
        with Simulation(fault_schedule=[Fault("delay", "a", message=4, delay=0.25)]) as sim:
            got = play_to_function(sim)
        assert texts(got) == "0123456789"
        assert [time for time, _ in got] == [0.0, 0.1, 0.2, 0.55, 0.55, 0.55, 0.6, 0.7, 0.8, 0.9]

    def test_duplicate_fault_delivers_topic_message_twice(self) -> None:
        with Simulation(fault_schedule=[Fault("duplicate", "a", message=1), Fault("duplicate", "a", at=0.85)]) as sim:
            assert texts(play_to_function(sim)) == "001234567899"

    @pytest.mark.parametrize("seed", range(10))
    def test_reorder_fault_delivers_message_after_other_topics(self, seed: int) -> None:
        order: list[bytes] = []

        def program() -> None:
            poller = msgq.Poller()
            for name in "abc":
                msgq.sub_sock(name, poller)
            while True:
                order.extend(sub.receive() or b"" for sub in poller.poll(-1))

        with Simulation(seed, fault_schedule=[Fault("reorder", "a", message=1)]) as sim:
            sim.add(program)
            sim.play([(0.0, name, name.encode()) for name in "abc"])
            sim.run()
        assert order[2] == b"a"

    def test_lap_fault_loses_message_and_all_unread_messages(self) -> None:
        with Simulation(fault_schedule=[Fault("lap", "a", message=3)]) as sim:
            pub, sub = msgq.pub_sock("a"), msgq.sub_sock("a", timeout=0)
            for text in (b"1", b"2", b"3"):
                pub.send(text)
            sim.run()
            assert sub.receive() is None
            assert (sub.lost, sub.stats().resets) == (3, 1)
            pub.send(b"4")
            sim.run()
            assert sub.receive() == b"4"

    @pytest.mark.parametrize("seed", range(5))
    def test_function_node_continues_after_lap_fault(self, seed: int) -> None:
        with Simulation(seed, fault_schedule=[Fault("lap", "a", message=3)]) as sim:
            assert texts(play_to_function(sim)) == "013456789"

    @pytest.mark.parametrize("seed", range(5))
    def test_program_node_continues_after_lap_fault(self, seed: int) -> None:
        got: list[bytes] = []

        def program() -> Generator[Any, Any, None]:
            sub = msgq.sub_sock("a")
            while True:
                got.append((yield sub))

        with Simulation(seed, fault_schedule=[Fault("lap", "a", message=3)]) as sim:
            sim.add(program)
            sim.play(TEN)
            sim.run()
        assert b"".join(got) == b"013456789"

    def test_lap_fault_does_not_lap_conflating_subscriber(self) -> None:
        with Simulation(fault_schedule=[Fault("lap", "a", message=2)]) as sim:
            pub, sub = msgq.pub_sock("a"), msgq.sub_sock("a", conflate=True)
            pub.send_many([b"1", b"2"])
            sim.run()
            assert sub.receive() == b"2"
            assert sub.stats().resets == 0


class TestRestart:
    @pytest.mark.parametrize("kind", ["blocking", "generator"])
    def test_restart_fault_runs_sending_program_from_its_beginning(self, kind: str) -> None:
        ends: list[float] = []

        def blocking() -> None:
            pub = msgq.pub_sock("a")
            try:
                for i in range(5):
                    pub.send(b"%d" % i)
                    sim.clock.sleep(1)
            finally:
                ends.append(sim.clock.time())

        def generator() -> Generator[Any, Any, None]:
            pub = msgq.pub_sock("a")
            try:
                for i in range(5):
                    pub.send(b"%d" % i)
                    yield 1
            finally:
                ends.append(sim.clock.time())

        got: list[bytes] = []
        with Simulation(fault_schedule=[Fault("restart", "a", message=3)]) as sim:
            sim.on("a", got.append)
            sim.add(blocking if kind == "blocking" else generator, name="sender")
            sim.run()
            assert {sent.node for sent in sim.sent_messages} == {"sender"}
        assert b"".join(got) == b"01201234"
        assert ends == [2.0, 7.0]

    def test_restart_fault_closes_sockets_of_program(self) -> None:
        subs: list[Any] = []

        def program() -> None:
            pub = msgq.pub_sock("a")
            subs.append(msgq.sub_sock("b"))
            pub.send(b"x")
            subs[-1].receive()

        with Simulation(fault_schedule=[Fault("restart", "a", message=1)]) as sim:
            sim.add(program)
            sim.run()
            assert [sub.closed for sub in subs] == [True, False]

    def test_restart_fault_on_played_message_is_refused(self) -> None:
        with Simulation(fault_schedule=[Fault("restart", "a", message=1)]) as sim:
            sim.play(TEN)
            with pytest.raises(InvalidValueError, match="'play' publishes the message and cannot be restarted"):
                sim.run()

    def test_random_restart_faults_do_not_affect_played_messages(self) -> None:
        with Simulation(faults=Faults(restart=1)) as sim:
            assert texts(play_to_function(sim)) == "0123456789"


class TestChance:
    def test_random_fault_with_probability_one_affects_all_messages(self) -> None:
        with Simulation(faults=Faults(drop=1)) as sim:
            assert play_to_function(sim) == []
        with Simulation(faults=Faults(duplicate=1)) as sim:
            assert texts(play_to_function(sim)) == "00112233445566778899"
        with Simulation(faults=Faults(lap=1)) as sim:
            assert play_to_function(sim) == []

    def test_random_delays_differ_and_stay_below_limit(self) -> None:
        with Simulation(faults=Faults(delay=1, delay_max=0.05)) as sim:
            got = play_to_function(sim)
        late = [time - 0.1 * i for i, (time, _) in enumerate(got)]
        assert all(0 < delay <= 0.05 + 1e-6 for delay in late)
        assert len(set(late)) == 10

    def test_random_faults_depend_only_on_seed(self) -> None:
        def run(seed: int) -> str:
            with Simulation(seed, faults=Faults(drop=0.5)) as sim:
                return texts(play_to_function(sim))

        assert run(5) == run(5)
        assert len({run(seed) for seed in range(20)}) > 10

    def test_random_drop_rate_matches_probability(self) -> None:
        with Simulation(faults=Faults(drop=0.25)) as sim:
            got: list[bytes] = []
            sim.on("a", got.append)
            pub = msgq.pub_sock("a")
            pub.send_many([b""] * 10_000)
            sim.run()
        assert 7300 < len(got) < 7700  # a given seed, so this is no gamble


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "explode", "message": 1},
        {"kind": "drop"},
        {"kind": "drop", "message": 1, "at": 1.0},
        {"kind": "delay", "message": 1},
        {"kind": "drop", "message": 1, "delay": 1.0},
    ],
)
def test_fault_with_invalid_arguments_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        Fault(endpoint="a", **wrong)


@pytest.mark.parametrize("wrong", [{"drop": -0.1}, {"lap": 1.1}, {"delay_max": 0.0}])
def test_impossible_fault_probability_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        Faults(**wrong)


def open_pair(kind: str, conflate: bool) -> tuple[Any, Any]:
    """Return a publisher and a subscriber of the topic or channel "a"."""
    if kind == "topic":
        return msgq.pub_sock("a"), msgq.sub_sock("a", conflate=conflate, timeout=0)
    channel = msgq.Channel("a", capacity=8)
    return channel.publisher(), channel.subscriber(conflate=conflate)


def receive_all(subscriber: Any) -> tuple[str, list[int], int]:
    """Return the waiting messages, `lost` after each receive and after the last one, and `resets`."""
    got, lost = "", []
    while (message := subscriber.receive(0)) is not None:
        got += bytes(message).decode()
        lost.append(subscriber.lost)
    return got, [*lost, subscriber.lost], subscriber.stats().resets


@pytest.mark.parametrize("kind", ["topic", "channel"])
@pytest.mark.parametrize(
    ("fault", "conflate", "received"),
    [
        ("drop", False, ("13", [0, 1, 1], 0)),  # it counts in its turn
        ("delay", False, ("123", [0, 0, 0, 0], 0)),
        ("duplicate", False, ("1223", [0, 0, 0, 0, 0], 0)),
        ("reorder", False, ("123", [0, 0, 0, 0], 0)),
        *[(fault, True, ("3", [2, 2], 0)) for fault in ("drop", "delay", "duplicate", "reorder", "lap")],
    ],
)
def test_fault_of_second_message_has_effect_of_guide(kind: str, fault: Any, conflate: bool, received: Any) -> None:
    """The table of the guide: what arrives, and what `lost` and `resets` count."""
    endpoint = "a" if kind == "topic" else "channel/a"
    with Simulation(fault_schedule=[Fault(fault, endpoint, message=2, delay=fault == "delay")]) as sim:
        publisher, subscriber = open_pair(kind, conflate)
        for data in (b"1", b"2", b"3"):
            publisher.send(data)
        sim.run()
        assert receive_all(subscriber) == received


@pytest.mark.parametrize("kind", ["topic", "channel"])
@pytest.mark.parametrize(("conflate", "received"), [(False, ("11", [0, 0, 0])), (True, ("1", [0, 0]))])
def test_conflating_subscriber_omits_duplicate_that_arrived_before_its_receive(
    kind: str, conflate: bool, received: Any
) -> None:
    endpoint = "a" if kind == "topic" else "channel/a"
    with Simulation(fault_schedule=[Fault("duplicate", endpoint, message=1)]) as sim:
        publisher, subscriber = open_pair(kind, conflate)
        publisher.send(b"1")
        sim.run()
        assert receive_all(subscriber)[:2] == received


def test_lap_fault_overwrites_what_arrives_before_subscriber_looks() -> None:
    """The table of the guide: a subscriber of a topic continues at the newest message, that of a channel sooner."""
    schedule = [Fault("lap", "a", message=2), Fault("lap", "channel/a", message=2)]
    counts = {}
    with Simulation(fault_schedule=schedule) as sim:
        for kind in ("topic", "channel"):
            publisher, subscriber = open_pair(kind, False)
            for data in (b"1", b"2", b"3"):
                publisher.send(data)
            sim.run()
            counts[kind] = receive_all(subscriber)
    assert counts == {"topic": ("", [3], 1), "channel": ("3", [2, 2], 1)}


@pytest.mark.parametrize("kind", ["topic", "channel"])
def test_messages_overwritten_on_their_way_are_lost_as_after_real_lap(kind: str) -> None:
    endpoint = "a" if kind == "topic" else "channel/a"
    with Simulation(fault_schedule=[Fault("delay", endpoint, message=1, delay=9)], segment_size=4096) as sim:
        publisher, subscriber = open_pair(kind, False)
        for i in range(100):
            publisher.send(b"%d" % (i % 10) * 200)
        sim.run()
        received = [*iter(lambda: subscriber.receive(0), None)]
        assert len(received) < 100
        assert subscriber.lost == 100 - len(received)
        assert subscriber.stats().resets == 1


def test_repeated_message_that_is_overwritten_before_its_turn_is_not_received() -> None:
    overwritten = 0
    for later in range(1, 60):
        with Simulation(fault_schedule=[Fault("duplicate", "topic", message=1)], segment_size=1024) as sim:
            sub, pub = msgq.sub_sock("topic"), msgq.pub_sock("topic")
            pub.send(bytes(300))
            sim.run()
            assert sub.receive() == bytes(300)
            for number in range(later):
                pub.send(b"%8d" % number)
            sim.run()
            received = sub.receive_many()
            repeats = received.count(bytes(300))
            assert len(received) - repeats + (sub.lost or 0) == later
            overwritten += not repeats and not sub.lost
    assert overwritten
