"""Vectors and boards in a simulation: what faults a write can meet, and waits in virtual time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from msgq.common.record_changes import RecordChange, pack_change
from msgq.errors import DeadlockError, InvalidValueError, MultipleWritersError, SegmentError
from msgq.impl.base.clock import set_origin
from msgq.records import Board, SeqlockVector
from msgq.simulation import Fault, Faults, Simulation, explore

RECORDS = "records/numbers"


def open_vector(**options: Any) -> Any:
    """Open the vector of these tests."""
    import msgq.records

    return msgq.records.SeqlockVector("numbers", "i8", 4, **options)


class TestWrites:
    def test_record_write_is_visible_when_call_returns(self) -> None:
        with Simulation() as sim:
            numbers, other = open_vector(), open_vector()
            numbers[1] = 5
            assert other[1] == 5
            assert sim.sent_on(RECORDS) == [pack_change(RecordChange(1, 1, 0), (5).to_bytes(8, "little"))]

    def test_record_write_times_are_virtual(self) -> None:
        with Simulation() as sim:
            numbers = open_vector()
            sim.clock.sleep(2.5)
            numbers[1] = 5
            assert numbers.times().tolist() == [0, 2_500_000_000, 0, 0]

    def test_faults_do_not_affect_private_records(self) -> None:
        with Simulation(faults=Faults(drop=1)) as sim:
            numbers = SeqlockVector(None, "i8", 4)
            numbers[1] = 5
            assert numbers[1] == 5
            assert sim.sent_messages == []

    def test_record_origin_times_are_unique_in_virtual_time(self) -> None:
        tracked = np.dtype([("publish_time", "<i8"), ("origin_time", "<i8"), ("x", "i8")])
        with Simulation():
            import msgq.records

            rows = msgq.records.SeqlockVector("tracked", tracked, 4)
            for index in range(3):
                rows[index] = (1, 2, index)
            set_origin(77)
            rows[3] = (1, 2, 3)
            set_origin(0)
            assert rows.read().tolist() == [(0, 1, 0), (0, 2, 1), (0, 3, 2), (0, 77, 3)]

    def test_simulation_has_its_own_records(self) -> None:
        for _ in range(2):
            with Simulation():
                assert open_vector().counts().tolist() == [0] * 4
                open_vector()[0] = 1


class TestWaits:
    def test_nodes_exchange_values_through_records(self) -> None:
        seen: list[int] = []

        def answerer() -> None:
            numbers = open_vector()
            while numbers.wait():
                changed = numbers.changes()
                if 0 in changed.indices:
                    numbers[1] = numbers[0] + 1

        def asker() -> None:
            numbers = open_vector()
            for number in (10, 20, 30):
                numbers[0] = number
                while numbers[1] != number + 1:
                    numbers.wait()
                    numbers.changes()
                seen.append(int(numbers[1]))

        with Simulation(seed=3) as sim:
            sim.add(answerer)
            sim.add(asker)
            sim.run()
        assert seen == [11, 21, 31]

    def test_generator_node_can_wait_for_vector_board_or_key(self) -> None:
        seen: list[Any] = []

        def node() -> Generator[Any, Any, None]:
            import msgq.records

            numbers, board = open_vector(), msgq.records.Board("board")
            seen.append((yield numbers).indices.tolist())
            seen.append((yield board).keys())
            observed = board.observe("key")
            seen.append((yield observed).data)

        with Simulation() as sim:
            sim.add(node)
            import msgq.records

            open_vector()[2] = 5
            sim.run(until=1)
            msgq.records.Board("board").declare("key").write(b"value")
            sim.run()
        assert seen == [[2], {"key": 0}.keys(), b"value"]

    def test_endless_wait_for_records_raises_with_their_name(self) -> None:
        with Simulation() as sim:
            sim.add(lambda: open_vector().wait(), name="node")
            with pytest.raises(DeadlockError, match=r"node waits for a change of 'numbers'"):
                sim.run(until=lambda: False)

    def test_record_descriptor_in_simulation_raises_deadlock_error(self) -> None:
        with Simulation(), pytest.raises(DeadlockError):
            open_vector().fileno()


class TestFaults:
    def test_dropped_record_write_is_not_visible(self) -> None:
        with Simulation(fault_schedule=[Fault("drop", RECORDS, message=2)]):
            numbers = open_vector()
            for number in (1, 2, 3):
                numbers[number] = number
            assert numbers.read().tolist() == [0, 1, 0, 3]
            assert numbers.changes().indices.tolist() == [1, 3]

    def test_delayed_record_write_also_delays_later_writes(self) -> None:
        with Simulation(fault_schedule=[Fault("delay", RECORDS, message=1, delay=0.5)]) as sim:
            numbers = open_vector()
            numbers[0] = 1
            numbers[1] = 2
            assert numbers.counts().tolist() == [0] * 4
            assert numbers.wait(10) is True
            assert sim.clock.time() == 0.5
            sim.run(until=0.5)
            assert numbers.read().tolist() == [1, 2, 0, 0]
            assert numbers.times().tolist() == [0] * 4

    def test_delayed_record_write_stores_values_of_its_call(self) -> None:
        with Simulation(fault_schedule=[Fault("delay", RECORDS, message=1, delay=0.5)]) as sim:
            numbers, values = open_vector(), np.arange(4)
            numbers[:] = values
            values[:] = 7
            sim.run()
            assert numbers.read().tolist() == [0, 1, 2, 3]

    def test_restart_fault_restarts_record_writer(self) -> None:
        starts: list[int] = []

        def writer() -> None:
            numbers = open_vector(exclusive=True)
            starts.append(int(numbers[0]))
            numbers[0] = len(starts)

        with Simulation(fault_schedule=[Fault("restart", RECORDS, message=1)]) as sim:
            open_vector(exclusive=True)
            sim.add(writer)
            sim.run()
            assert starts == [0, 1]
            assert open_vector()[0] == 2

    def test_random_faults_affect_record_writes(self) -> None:
        with Simulation(seed=5, faults=Faults(drop=0.5, delay=0.3, duplicate=0.5, lap=0.5)) as sim:
            numbers = open_vector()
            for _ in range(200):
                numbers[0] = 1
            sim.run()
            assert 50 < numbers.counts()[0] < 150

    def test_fault_with_key_affects_one_board_key(self) -> None:
        import msgq.records

        with Simulation(fault_schedule=[Fault("drop", "records/board", message=1)]) as sim:
            board = msgq.records.Board("board")
            entry = board.declare("key")
            entry.write(b"lost")
            assert board.changes() == {}
            entry.write(b"value")
            assert board["key"] == b"value"
            assert sim.sent_on("records/board") == [b"lost", b"value"]

    @pytest.mark.parametrize("kind", ["duplicate", "lap"])
    def test_fault_unsupported_for_records_is_refused(self, kind: Any) -> None:
        with pytest.raises(InvalidValueError, match="drop, delay, reorder, restart"):
            Fault(kind, RECORDS, message=1)


def test_exclusive_vector_is_writable_by_one_node() -> None:
    refused: list[str] = []

    def other() -> None:
        numbers = open_vector(exclusive=True)
        numbers.wait()
        try:
            numbers[1] = 1
        except MultipleWritersError as error:
            refused.append(str(error))

    with Simulation() as sim:
        sim.add(other)
        writer = open_vector()
        writer[0] = 1
        with pytest.raises(SegmentError):
            open_vector(create=True)
        sim.run()
    assert len(refused) == 1


def test_explore_tries_all_orders_of_two_record_writers_and_reader() -> None:
    """Whoever is last, its value is there; the reader sees one of them first, and then perhaps the other."""
    seen = set()

    def scenario(sim: Simulation) -> None:
        numbers, got = open_vector(), []

        def writer(number: int) -> Generator[Any, Any, None]:
            yield 1.0
            open_vector()[0] = number

        def reader() -> Generator[Any, Any, None]:
            mine = open_vector()
            while True:
                got.append(int((yield mine).rows[0]))

        sim.add(reader)
        sim.add(writer, 1)
        sim.add(writer, 2)
        sim.run()
        seen.add((*got, int(numbers[0])))

    found = explore(scenario)
    assert found.complete
    assert seen == {(1, 2, 2), (2, 1, 1), (1, 1), (2, 2)}


def test_records_module_has_fake_classes_in_simulation() -> None:
    assert Board.__module__ == "msgq.impl.records.core"
    with Simulation():
        import msgq.records

        assert msgq.records.Board.__module__ == "msgq.impl.fake.records_board"
