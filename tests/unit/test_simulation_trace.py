"""What a simulation says about a failure: its events, beside those of a run that passed."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.errors import SimulationFailedError
from msgq.simulation import Exploration, Fault, Simulation, SimulationEvent, TraceComparison, explore
from msgq.simulation import trace as trace_module


class OverdrawnError(Exception):
    pass


def ledger() -> None:
    """Keep a balance, which must not be negative."""
    poller = msgq.Poller()
    deposits, _ = msgq.sub_sock("deposit", poller), msgq.sub_sock("withdraw", poller)
    balances, balance = msgq.pub_sock("balance"), 0
    while True:
        for sub in poller.poll(-1):
            amount = int(sub.receive() or b"")
            balance += amount if sub is deposits else -amount
            if balance < 0:
                raise OverdrawnError(f"balance is {balance}")
            balances.send(b"%d" % balance)


def deposit_and_withdraw(sim: Simulation) -> None:
    sim.add(ledger)
    sim.play([(1.0, "deposit", b"100"), (1.0, "withdraw", b"50")])
    sim.run()


def explore_ledger() -> Exploration:
    return explore(deposit_and_withdraw)


def run_events(
    scenario: Callable[[Simulation], object], fault_schedule: tuple[Fault, ...] = (), choices: tuple[int, ...] = ()
) -> list[str]:
    """Return the events of a scenario as texts."""
    with Simulation(choices=choices, fault_schedule=fault_schedule) as sim:
        scenario(sim)
    return [str(event) for event in sim.trace.events]


def subscribe_only() -> Generator[Any, Any, None]:
    """Subscribe to the topics a, b and c, and read nothing."""
    subs = [msgq.sub_sock(name) for name in "abc"]
    yield 1000.0
    subs.clear()


def compare(failing: list[int], passing: list[int]) -> TraceComparison:
    """Compare runs in which messages of the topics a, b, ... arrive at these places of the alphabet."""
    traces = []
    for topics in (failing, passing):
        with Simulation() as sim:
            sim.add(subscribe_only, name="node")
            for place, name in enumerate(topics):
                sim.play([(float(place), "abc"[name], b"")])
            sim.run(until=100)
        traces.append(sim.trace)
    return TraceComparison(*traces)


class TestEvents:
    def test_trace_lists_arrivals_and_runs_in_order(self) -> None:
        assert run_events(deposit_and_withdraw, choices=(0, 0)) == [
            "1.0 s: deposit #1 arrives at ledger: b'100'",
            "1.0 s: ledger runs",
            "1.0 s: balance #1 has no subscriber: b'100'",
            "1.0 s: withdraw #1 arrives at ledger: b'50'",
            "1.0 s: ledger runs",
            "1.0 s: balance #2 has no subscriber: b'50'",
        ]

    def test_event_names_sender_receiver_and_message(self) -> None:
        with Simulation() as sim:
            sim.on("a", lambda _: None, name="reader")
            pub = msgq.pub_sock("a")
            pub.send(b"x")
            pub.send(b"y")
            sim.run(until=2)
        assert sim.trace.events == [
            SimulationEvent(0, "arrive", "reader", "a", 1, "main"),
            SimulationEvent(0, "arrive", "reader", "a", 2, "main"),
        ]
        assert [event.payload for event in sim.trace.events] == ["b'x'", "b'y'"]

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            (Fault("drop", "a", message=1), ["0.0 s: a #1 is dropped on the way to reader: b'x'"]),
            (
                Fault("delay", "a", message=1, delay=0.5),
                [
                    "0.0 s: a #1 is delayed on the way to reader: b'x'",
                    "0.5 s: a #1 arrives at reader: b'x'",
                    "0.5 s: reader runs",
                ],
            ),
            (
                Fault("duplicate", "a", message=1),
                [
                    "0.0 s: a #1 is duplicated on the way to reader: b'x'",
                    "0.0 s: a #1 arrives at reader: b'x'",
                    "0.0 s: reader runs",
                    "0.0 s: a #1 arrives at reader: b'x'",
                    "0.0 s: reader runs",
                ],
            ),
            (Fault("lap", "a", message=1), ["0.0 s: a #1 laps reader: b'x'"]),
        ],
        ids=lambda value: value.kind if isinstance(value, Fault) else "",
    )
    def test_trace_lists_fault_with_its_effect(self, fault: Fault, expected: list[str]) -> None:
        def reader() -> Generator[Any, Any, None]:
            sub = msgq.sub_sock("a")
            while True:
                yield sub

        def scenario(sim: Simulation) -> None:
            sim.add(reader)
            sim.play([(0.0, "a", b"x")])
            sim.run()

        events = run_events(scenario, (fault,))
        assert events[: len(expected)] == expected

    def test_trace_lists_reordered_message_and_restarted_node(self) -> None:
        def sender() -> Generator[Any, Any, None]:
            pub = msgq.pub_sock("a")
            yield 1.0
            pub.send(b"x")
            yield 100.0

        def scenario(sim: Simulation) -> None:
            sim.on("a", lambda _: None, name="reader")
            sim.add(sender)
            sim.run(until=1.5)

        faults = (Fault("reorder", "a", message=1), Fault("restart", "a", message=1))
        assert run_events(scenario, faults) == [
            "1.0 s: sender runs",
            "1.0 s: a #1 is reordered on the way to reader: b'x'",
            "1.0 s: sender restarts",
            "1.0 s: a #1 arrives at reader: b'x'",
        ]

    def test_trace_names_node_that_takes_message_of_queue(self) -> None:
        def scenario(sim: Simulation) -> None:
            with msgq.MessageQueue("jobs") as queue:
                sim.on("queue/jobs", lambda _: None, name="worker")
                queue.send(b"x")
                sim.run()

        assert run_events(scenario) == [
            "0.0 s: queue/jobs #1 arrives: b'x'",
            "0.0 s: worker runs",
            "0.0 s: queue/jobs #1 is taken by worker: b'x'",
        ]

    def test_trace_lists_delayed_message_of_queue_when_it_is_there(self) -> None:
        def scenario(sim: Simulation) -> None:
            with msgq.MessageQueue("jobs") as queue:
                queue.send(b"x")
                queue.receive()

        assert run_events(scenario, (Fault("delay", "queue/jobs", message=1, delay=0.5),)) == [
            "0.0 s: queue/jobs #1 is delayed: b'x'",
            "0.5 s: queue/jobs #1 arrives: b'x'",
            "0.5 s: queue/jobs #1 is taken by main: b'x'",
        ]

    def test_trace_lists_writes_of_records_when_they_take_effect(self) -> None:
        def scenario(sim: Simulation) -> None:
            board = msgq.Board("modes", schema=msgq.Schema.json("Mode"))
            vector = msgq.SeqlockVector("pose", [("x", "f8")], 3)
            board.declare("drive").write(b'{"on": true}')
            vector[0] = (1.5,)
            vector[:2] = [(2.5,), (3.5,)]

        events = run_events(scenario, (Fault("drop", "records/pose", message=1),))
        assert events[0] == '0.0 s: records/modes #1 arrives: drive={"on": true}'
        assert events[1].startswith("0.0 s: records/pose #1 is dropped: {")
        assert events[2].startswith("0.0 s: records/pose #2 arrives: {")
        assert events[2].endswith(" and 1 more")
        assert len(events) == 3

    def test_payload_is_decoded_by_schema_and_shortened(self) -> None:
        def scenario(sim: Simulation) -> None:
            msgq.pub_sock("point", schema=np.dtype([("x", "i4"), ("y", "i4")])).send((3, 4))
            msgq.pub_sock("text").send(b"short")
            msgq.pub_sock("bytes").send(bytes(100_000))
            msgq.pub_sock("json", schema=msgq.Schema.json("List")).send(b"[%s0]" % (b"1234, " * 50))

        point, text, raw, listed = (event.partition(": ")[2].partition(": ")[2] for event in run_events(scenario))
        assert point == '{"x": 3, "y": 4}'
        assert text == "b'short'"
        assert raw == repr(bytes(100))[:37] + "..."
        assert listed == ("[" + "1234, " * 50)[:37] + "..."

    def test_trace_is_equal_for_equal_seeds(self) -> None:
        runs = []
        for seed in (1, 1, 4):
            with Simulation(seed) as sim:
                for name in "abcd":
                    sim.on(name, lambda _: None, name="node")
                sim.play([(0.0, name, b"") for name in "abcd"])
                sim.run()
            runs.append(sim.trace)
        assert runs[0].events == runs[1].events
        assert runs[0].count_common_events(runs[1]) == 4
        assert runs[0].count_common_events(runs[2]) < 4


class TestBound:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trace_module, "EVENTS_MAX", 3)

    def test_long_simulation_keeps_newest_events_and_counts_the_others(self) -> None:
        with Simulation() as sim:
            sim.on("a", lambda _: None, name="node")
            sim.play([(float(i), "a", b"%d" % i) for i in range(5)])
            sim.run()
        assert sim.trace.left_out == 2
        assert str(sim.trace).splitlines() == [
            "(2 earlier events)",
            "2.0 s: a #3 arrives at node: b'2'",
            "3.0 s: a #4 arrives at node: b'3'",
            "4.0 s: a #5 arrives at node: b'4'",
        ]

    def test_traces_without_first_events_have_no_common_ones(self) -> None:
        traces = []
        for _ in range(2):
            with Simulation() as sim:
                sim.on("a", lambda _: None)
                sim.play([(float(i), "a", b"") for i in range(4)])
                sim.run()
            traces.append(sim.trace)
        assert traces[0].events == traces[1].events
        assert traces[0].count_common_events(traces[1]) == 0

    def test_event_of_forgotten_message_has_no_payload(self) -> None:
        with Simulation() as sim, msgq.MessageQueue("jobs") as queue:
            for i in range(5):
                queue.send(b"%d" % i)
            queue.receive()
        assert str(sim.trace.events[-1]) == "0.0 s: queue/jobs #1 is taken by main"

    def test_comparison_without_first_events_shows_last_events(self) -> None:
        compared = compare([0, 1, 0, 1, 0], [1, 0, 1, 0, 1])
        assert compared.first_difference == ""
        assert str(compared).splitlines()[1].split() == ["(2", "earlier", "events)", "(2", "earlier", "events)"]
        assert ">" not in str(compared)
        ET.fromstring(compared.to_svg())


class TestDifference:
    @pytest.mark.parametrize(
        ("failing", "passing", "sentence"),
        [
            ([0, 1], [0, 2], "1.0 s: b arrives at node. In the passing run, 1.0 s: c arrives at node"),
            ([0, 1, 2], [0, 2, 1], "1.0 s: b arrives at node before c"),
            ([0, 2, 1], [0, 1], "1.0 s: c arrives at node before b"),
            ([0, 1, 0], [1, 0, 0], "0.0 s: a #1 arrives at node before b"),
            ([0, 1], [0], "1.0 s: b arrives at node, after the end of the passing run"),
            ([0], [0, 1], "the failing run ends, and in the passing run, 1.0 s: b arrives at node"),
            ([0, 1], [0, 1], "both runs have the same events, so their order is not the cause"),
            ([0, 0, 1], [0, 1, 0], "1.0 s: a #2 arrives at node before b"),
        ],
    )
    def test_first_difference_is_a_sentence(self, failing: list[int], passing: list[int], sentence: str) -> None:
        assert compare(failing, passing).first_difference == sentence

    def test_first_difference_names_both_events_if_they_are_of_different_kinds(self) -> None:
        def reader() -> Generator[Any, Any, None]:
            first, second = msgq.sub_sock("a"), msgq.sub_sock("b")
            yield first
            assert second.receive(True) is not None

        def scenario(sim: Simulation) -> None:
            sim.add(reader)
            sim.play([(0.0, "a", b""), (0.0, "b", b"")])
            sim.run()

        found = explore(scenario)
        assert found.comparison is not None
        assert found.comparison.first_difference == "0.0 s: reader runs before b arrives at reader"

    def test_first_difference_names_both_consumers_of_a_message(self) -> None:
        def scenario(sim: Simulation) -> None:
            takers: list[str] = []

            def worker(name: str) -> Generator[Any, Any, None]:
                yield msgq.MessageQueue("jobs")
                takers.append(name)

            sim.add(worker, "first", name="first")
            sim.add(worker, "second", name="second")
            with msgq.MessageQueue("jobs") as queue:
                queue.send(b"x")
                sim.run(until=1)
            assert takers == ["first"]

        found = explore(scenario)
        assert found.comparison is not None
        assert found.comparison.first_difference == "0.0 s: second runs. In the passing run, 0.0 s: first runs"

    def test_text_starts_near_first_difference_and_counts_other_events(self) -> None:
        lines = str(compare([0] * 8 + [1] + [2] * 30, [0] * 8 + [2] * 31)).splitlines()
        assert lines[2].split() == ["(3", "earlier", "events)", "(3", "earlier", "events)"]
        assert lines[8].startswith("> 8.0 s: b #1 arrives at node: b''")
        assert lines[8].endswith("8.0 s: c #1 arrives at node: b''")
        assert [line for line in lines if line.startswith(">")] == [lines[8]]
        assert lines[-1].split() == ["(16", "later", "events)", "(16", "later", "events)"]


class TestExploration:
    def test_failed_exploration_shows_failing_order_beside_passing_order(self) -> None:
        lines = str(explore_ledger()).splitlines()
        assert lines[0] == ("order 3 failed: OverdrawnError: balance is -50; the same again: Simulation(choices=[1])")
        assert lines[1] == "1.0 s: withdraw arrives at ledger before deposit"
        assert lines[2].split() == ["failing:", "Simulation(choices=[1])", "passing:", "Simulation(choices=[0,", "1])"]
        failing, passing = lines[3][2:60].strip(), lines[3][60:].strip()
        assert lines[3].startswith("> ")
        assert failing == "1.0 s: withdraw #1 arrives at ledger: b'50'"
        assert passing == "1.0 s: deposit #1 arrives at ledger: b'100'"
        assert lines[-1].strip() == "1.0 s: balance #2 has no subscriber: b'50'"

    def test_check_raises_error_with_comparison_and_cause(self) -> None:
        found = explore_ledger()
        with pytest.raises(SimulationFailedError, match="withdraw arrives at ledger before deposit") as caught:
            found.check()
        assert caught.value.__cause__ is found.error
        assert isinstance(caught.value, AssertionError)

    def test_check_raises_if_not_all_orders_were_run(self) -> None:
        def scenario(sim: Simulation) -> None:
            for name in "abc":
                sim.on(name, lambda _: None)
            sim.play([(0.0, name, b"") for name in "abc"])
            sim.run()

        with pytest.raises(SimulationFailedError, match="5 orders, not all there are; none failed; give explore"):
            explore(scenario, limit=5).check()
        explore(scenario, limit=6).check()

    def test_failure_of_first_order_is_compared_with_later_order(self) -> None:
        def scenario(sim: Simulation) -> None:
            order: list[bytes] = []
            for name in "abc":
                sim.on(name, order.append)
            sim.play([(0.0, name, name.encode()) for name in "abc"])
            sim.run()
            assert order[0] == b"c"

        found = explore(scenario)
        assert found.orders == 1
        assert found.comparison is not None
        assert found.comparison.first_difference == "0.0 s: a arrives at append before c arrives at append-3"

    def test_failure_of_all_orders_shows_last_events(self) -> None:
        def scenario(sim: Simulation) -> None:
            sim.on("a", lambda _: None, name="node")
            sim.play([(float(i), "a", b"") for i in range(30)])
            sim.run()
            raise KeyError("always")

        lines = str(explore(scenario)).splitlines()
        assert lines[1:3] == ["failing: Simulation(choices=[])", "(10 earlier events)"]
        assert lines[-1] == "29.0 s: a #30 arrives at node: b''"
        assert len(lines) == 23

    def test_search_for_passing_order_is_limited(self) -> None:
        runs = []

        def scenario(sim: Simulation) -> None:
            runs.append(1)
            for name in "abcdefghijklmno":
                sim.on(name, lambda _: None)
            sim.play([(0.0, name, b"") for name in "abcdefghijklmno"])
            sim.run()
            raise KeyError("always")

        assert explore(scenario).orders == 1
        assert len(runs) == 101


class TestNote:
    def test_error_of_simulation_with_seed_lists_last_20_events(self) -> None:
        def fail_at_last_message(sim: Simulation) -> None:
            sim.on("a", lambda _: None, name="node")
            sim.play([(float(i), "a", b"") for i in range(30)])
            sim.run()
            raise KeyError("x")

        with pytest.raises(KeyError) as caught, Simulation(seed=5) as sim:
            fail_at_last_message(sim)
        lines = caught.value.__notes__[-1].splitlines()
        assert lines[:3] == ["last events:", "(10 earlier events)", "10.0 s: a #11 arrives at node: b''"]
        assert len(lines) == 22

    def test_error_of_explored_order_has_no_list(self) -> None:
        error = explore_ledger().error
        assert error is not None
        assert error.__notes__ == ["in node 'ledger' at 1 s", "the same run again: Simulation(choices=[1])"]

    def test_error_of_simulation_without_events_has_no_list(self) -> None:
        with pytest.raises(KeyError) as caught, Simulation(seed=5):
            raise KeyError("x")
        assert caught.value.__notes__ == ["the same run again: Simulation(seed=5)"]


class TestDiagrams:
    def test_mermaid_text_has_participants_arrows_and_marked_difference(self) -> None:
        comparison = explore_ledger().comparison
        assert comparison is not None
        assert comparison.to_mermaid().splitlines() == [
            "sequenceDiagram",
            "    participant p0 as play",
            "    participant p1 as ledger",
            "    Note over p0,p1: 1.0 s",
            "    rect rgb(255, 227, 227)",
            "    Note over p0,p1: 1.0 s: withdraw arrives at ledger before deposit",
            "    p0->>p1: withdraw #35;1: b'50'",
            "    end",
            "    Note over p1: runs",
        ]

    def test_diagrams_show_queue_as_participant_and_lost_message(self) -> None:
        with Simulation(fault_schedule=[Fault("drop", "a;b", message=1)]) as sim, msgq.MessageQueue("jobs") as queue:
            sim.on("a;b", lambda _: None, name="<node>")
            msgq.pub_sock("a;b").send(b"&")
            queue.send(b"x")
            queue.receive()
        compared = TraceComparison(sim.trace)
        assert compared.to_mermaid().splitlines()[1:] == [
            "    participant p0 as main",
            "    participant p1 as #60;node#62;",
            "    participant p2 as queue/jobs",
            "    Note over p0,p2: 0.0 s",
            "    p0--xp1: a#59;b #35;1 is dropped: b'#38;'",
            "    p0->>p2: queue/jobs #35;1: b'x'",
            "    p2->>p0: queue/jobs #35;1: b'x'",
        ]
        picture = ET.fromstring(compared.to_svg())
        texts = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        assert "<node>" in texts
        assert "a;b #1 is dropped: b'&'" in texts

    def test_svg_shows_both_runs_in_rows_of_equal_height(self) -> None:
        comparison = explore_ledger().comparison
        assert comparison is not None
        picture = ET.fromstring(comparison.to_svg())
        groups = picture.findall("{*}g")
        labels = [
            {"".join(text.itertext()): text.get("y") for text in group.iter("{http://www.w3.org/2000/svg}text")}
            for group in groups
        ]
        assert len(labels) == 2
        assert labels[0]["withdraw #1: b'50'"] == labels[1]["deposit #1: b'100'"]
        marked = [rect for rect in picture.findall("{*}rect") if rect.get("class") == "marked"]
        assert len(marked) == 1
        assert 0 < float(labels[0]["withdraw #1: b'50'"] or 0) - float(marked[0].get("y") or 0) < 30

    def test_report_is_a_page_with_lists_picture_and_mermaid_text(self, tmp_path: Path) -> None:
        comparison = explore_ledger().comparison
        assert comparison is not None
        comparison.write_report(tmp_path / "ledger.html")
        page = (tmp_path / "ledger.html").read_text()
        assert "withdraw arrives at ledger before deposit" in page
        assert "<svg" in page
        assert "p0-&gt;&gt;p1: withdraw" in page
        assert "http" not in page.replace("http://www.w3.org/2000/svg", "")

    def test_diagrams_of_run_without_events_are_valid(self) -> None:
        with Simulation() as sim:
            pass
        compared = TraceComparison(sim.trace)
        assert compared.to_mermaid() == "sequenceDiagram\n"
        ET.fromstring(compared.to_svg())
        assert str(compared) == "failing: Simulation(seed=0)"
