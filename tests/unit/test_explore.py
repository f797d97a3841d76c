"""Every order of a short scenario, no order twice, and the first that fails."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

import msgq
from msgq.errors import InvalidValueError
from msgq.simulation import Fault, Simulation, explore
from msgq.simulation.engine import SimulationEngine

FUBINI = [1, 1, 3, 13, 75, 541]  # ordered set partitions: which messages are found together, and in which order


def make_names(n: int) -> str:
    return "abcdefgh"[:n]


def send_one_on_each(sim: Simulation, n: int) -> None:
    sim.play([(0.0, name, name.encode()) for name in make_names(n)])
    sim.run()


@pytest.mark.parametrize("n", range(1, 6))
def test_explore_gives_functions_each_permutation_once(n: int) -> None:
    seen: list[bytes] = []

    def scenario(sim: Simulation) -> None:
        order: list[bytes] = []
        for name in make_names(n):
            sim.on(name, order.append)
        send_one_on_each(sim, n)
        seen.append(b"".join(order))

    found = explore(scenario)
    assert found.complete
    assert found.orders == math.factorial(n)
    assert sorted(seen) == sorted(b"".join(p) for p in itertools.permutations(name.encode() for name in make_names(n)))


@pytest.mark.parametrize("n", [*range(1, 5), pytest.param(5, marks=pytest.mark.ci)])
@pytest.mark.parametrize("kind", ["blocking", "generator"])
def test_explore_gives_poller_each_sequence_of_ready_sets_once(n: int, kind: str) -> None:
    seen: list[str] = []

    def scenario(sim: Simulation) -> None:
        order: list[str] = []

        def ready(poller: Any) -> Any:
            for name in make_names(n):
                msgq.sub_sock(name, poller)

        def took(subs: list[Any]) -> None:
            order.append("".join(sub.receive().decode() for sub in subs))

        def blocking() -> None:
            ready(poller := msgq.Poller())
            while True:
                took(poller.poll(-1))

        def generator() -> Any:
            ready(poller := msgq.Poller())
            while True:
                took((yield poller))

        sim.add(blocking if kind == "blocking" else generator)
        send_one_on_each(sim, n)
        seen.append("|".join(order))

    found = explore(scenario)
    assert found.complete
    assert found.orders == FUBINI[n]
    assert len(set(seen)) == FUBINI[n]


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 2), (3, 4)])
def test_explore_tries_each_interleaving_of_two_topics_once(a: int, b: int) -> None:
    def scenario(sim: Simulation) -> None:
        sim.on("a", lambda _: None)
        sim.on("b", lambda _: None)
        sim.play([(0.0, "a", b"")] * a + [(0.0, "b", b"")] * b)
        sim.run()

    assert explore(scenario).orders == math.comb(a + b, a)


def test_explore_without_commuting_orders_finds_all_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs that talk to each other, and a function: every history is found without it, and with it."""

    def histories() -> tuple[int, set[str]]:
        seen: set[str] = set()

        def scenario(sim: Simulation) -> None:
            order: list[str] = []

            def program(name: str, topics: str) -> None:
                poller, pub = msgq.Poller(), msgq.pub_sock(f"from {name}")
                for topic in topics:
                    msgq.sub_sock(topic, poller)
                while True:
                    for sub in poller.poll(-1):
                        order.append(name + (sub.receive() or b"").decode())
                        pub.send(b"!")

            sim.add(program, "x", "ab")
            sim.add(program, "y", "b")
            sim.on("from x", lambda _: order.append("f"))
            sim.play([(0.0, name, name.encode()) for name in "ab"])
            sim.run()
            seen.add(" ".join(order))

        found = explore(scenario, limit=200_000)
        assert found.complete, found
        return found.orders, seen

    fewer, seen = histories()
    deliver = SimulationEngine._deliver_next
    monkeypatch.setattr(
        SimulationEngine, "_deliver_next", lambda self, inbox: (deliver(self, inbox), self._skipped_inboxes.clear())
    )
    more, all_there_are = histories()
    assert seen == all_there_are
    assert len(seen) > 10
    assert fewer < more


def test_explore_keeps_order_of_messages_with_different_times() -> None:
    def scenario(sim: Simulation) -> None:
        order: list[bytes] = []
        for name in make_names(4):
            sim.on(name, order.append)
        sim.play([(float(i), name, name.encode()) for i, name in enumerate(make_names(4))])
        sim.run()
        assert b"".join(order) == b"abcd"

    assert explore(scenario).orders == 1


def test_explore_tries_both_orders_of_simultaneous_timeout_and_message() -> None:
    seen = set()

    def scenario(sim: Simulation) -> None:
        def program() -> None:
            seen.add(msgq.sub_sock("a", timeout=1000).receive())

        sim.add(program)
        sim.play([(1.0, "a", b"x")])
        sim.run()

    assert explore(scenario).complete
    assert seen == {None, b"x"}


def last_is_b(sim: Simulation) -> None:
    order: list[bytes] = []
    for name in make_names(3):
        sim.on(name, order.append)
    send_one_on_each(sim, 3)
    assert order[2] != b"b", "b came last"


def test_explore_reports_and_replays_the_first_failing_order() -> None:
    found = explore(last_is_b)
    assert not found.complete
    assert isinstance(found.error, AssertionError)
    assert found.choices is not None
    assert "b came last" in str(found)
    assert f"Simulation(choices={list(found.choices)})" in str(found)
    assert f"the same run again: Simulation(choices={list(found.choices)})" in found.error.__notes__
    with pytest.raises(AssertionError, match="b came last"), Simulation(choices=found.choices) as sim:
        last_is_b(sim)


def test_explore_stops_at_its_limit_and_reports_it() -> None:
    def scenario(sim: Simulation) -> None:
        for name in make_names(4):
            sim.on(name, lambda _: None)
        send_one_on_each(sim, 4)

    found = explore(scenario, limit=23)
    assert (found.orders, found.complete, found.error) == (23, False, None)
    assert "not all there are" in str(found)
    assert str(explore(scenario, limit=24)) == "24 orders, all there are; none failed"


def test_explore_applies_scheduled_faults_in_each_order() -> None:
    def scenario(sim: Simulation) -> None:
        order: list[bytes] = []
        for name in make_names(3):
            sim.on(name, order.append)
        send_one_on_each(sim, 3)
        assert order[-1] == b"a"

    found = explore(scenario, fault_schedule=[Fault("reorder", "a", message=1)])
    assert found.complete
    assert found.orders == 2


def test_explore_raises_if_scenario_is_not_deterministic() -> None:
    runs: list[int] = []

    def scenario(sim: Simulation) -> None:
        runs.append(1)
        for name in make_names(3 - len(runs) % 2):
            sim.on(name, lambda _: None)
        send_one_on_each(sim, 3)

    with pytest.raises(InvalidValueError, match="not deterministic"):
        explore(scenario)
