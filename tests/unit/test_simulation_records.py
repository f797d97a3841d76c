"""Vectors and boards in a simulation: what faults a write can meet, and waits in virtual time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from msgq.common.record_changes import RecordChange, pack_change, unpack_change
from msgq.errors import (
    DeadlockError,
    InvalidValueError,
    KeyTakenError,
    MultipleWritersError,
    SegmentError,
    WaitTimeoutError,
)
from msgq.impl import backend
from msgq.impl.base.clock import set_origin
from msgq.impl.records.core import RecordStatsReader
from msgq.records import Board, SeqlockVector
from msgq.simulation import Fault, Faults, Simulation, explore

RECORDS = "records/numbers"
S = 1_000_000_000


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

    def test_vector_that_is_created_again_counts_its_writes_from_one(self) -> None:
        with Simulation() as sim:
            for _ in range(2):
                with open_vector() as numbers:
                    numbers[0] = 1
                    numbers.unlink()
            assert [unpack_change(data)[0].count for data in sim.sent_on(RECORDS)] == [1, 1]

    def test_record_stats_are_read_by_path_of_bus_in_virtual_time(self) -> None:
        with Simulation() as sim:
            sim.clock.sleep(1)
            numbers = open_vector()
            sim.clock.sleep(0.5)
            numbers[1] = 5
            sim.clock.sleep(2)
            stats = RecordStatsReader("numbers", backend.resolve_prefix()).stats()
            assert (stats.created_ns, stats.last_ns, stats.last_age_ns) == (S, 1.5 * S, 2 * S)
            assert (stats.written, stats.last_index, stats.writers[0].participant.alive) == (1, 1, True)

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
            with pytest.raises(DeadlockError, match=r"node waits for a message on 'numbers'"):
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

    def test_dropped_record_write_leaves_element_of_dead_writer(self) -> None:
        with Simulation(fault_schedule=[Fault("drop", RECORDS, message=1)]):
            numbers, other = open_vector(), open_vector()
            numbers[1] = 5
            stats = other.stats()
            assert (stats.locked, stats.locked_by_dead) == (1, 1)
            other[1] = 6
            assert numbers[1] == 6
            assert other.stats().locked == 0

    def test_dropped_write_of_exclusive_vector_leaves_its_owner(self) -> None:
        with Simulation(fault_schedule=[Fault("drop", RECORDS, message=1)]):
            numbers, other = open_vector(exclusive=True), open_vector(exclusive=True)
            numbers[1] = 5
            assert numbers.counts().tolist() == [0] * 4
            with pytest.raises(MultipleWritersError):
                other[1] = 6
            numbers[1] = 7
            assert other[1] == 7

    def test_other_writer_waits_for_element_of_stopped_writer(self) -> None:
        with Simulation(fault_schedule=[Fault("delay", RECORDS, message=1, delay=0.5)]) as sim:
            numbers, other = open_vector(), open_vector()
            numbers[0] = 1
            other[1] = 2
            assert (other.read().tolist(), sim.clock.time()) == ([0, 2, 0, 0], 0)
            other[0] = 3
            assert (other[0], other.counts([0])[0], sim.clock.time()) == (3, 2, 0.5)

    def test_write_of_stopped_writers_element_times_out_in_virtual_time(self) -> None:
        with Simulation(fault_schedule=[Fault("delay", RECORDS, message=1, delay=5)]) as sim:
            numbers, other = open_vector(), open_vector()
            numbers[0] = 1
            with pytest.raises(WaitTimeoutError, match=r"element 0 was locked for 2 s"):
                other.write([0], [3], timeout=2)
            assert sim.clock.time() == 2
            with pytest.raises(WaitTimeoutError, match=r"element 0 was locked for 0 s"):
                other.write([0], [3], timeout=0)
            sim.run()
            assert other.read().tolist() == [1, 0, 0, 0]

    def test_late_write_follows_writer_that_has_its_element(self) -> None:
        delays = [Fault("delay", RECORDS, message=1, delay=2), Fault("delay", RECORDS, message=2, delay=0.5)]
        with Simulation(fault_schedule=delays) as sim:
            first, second = open_vector(), open_vector()
            first[1] = 1
            second[:2] = 2
            sim.run(until=1)
            assert first.read().tolist() == [2, 0, 0, 0]
            second[2] = 3  # after the write before it, which waits for element 1
            assert first[2] == 0
            sim.run()
            assert first.read().tolist() == [2, 2, 3, 0]
            assert (first.stats().locked, first.counts().tolist()) == (0, [1, 2, 1, 0])

    def test_closed_handle_finishes_stopped_write(self) -> None:
        with Simulation(fault_schedule=[Fault("delay", RECORDS, message=1, delay=0.5)]) as sim:
            numbers, other = open_vector(), open_vector()
            numbers[0] = 1
            numbers.close()
            assert len(other.stats().writers) == 1
            sim.run()
            assert (other[0], other.stats().writers) == (1, ())

    def test_delayed_board_value_keeps_its_key_after_close(self) -> None:
        import msgq.records

        with Simulation(fault_schedule=[Fault("delay", "records/board", message=1, delay=0.5)]) as sim:
            board, other = msgq.records.Board("board"), msgq.records.Board("board")
            with board.declare("key") as entry:
                entry.write(b"late")
            with pytest.raises(KeyTakenError):
                other.declare("key")
            sim.run()
            other.declare("key")
            assert other["key"] == b"late"

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

    def test_killed_writer_leaves_element_that_next_writer_takes(self) -> None:
        faults = [Fault("delay", RECORDS, message=1, delay=5), Fault("restart", RECORDS, message=1)]
        starts: list[tuple[int, bool | None]] = []

        def writer() -> Generator[Any, Any, None]:
            numbers = open_vector()
            stats = numbers.stats()
            starts.append((stats.locked, stats.writers[0].participant.alive if stats.writers else None))
            if len(starts) == 1:
                numbers[0] = 7
            yield 1.0
            numbers[0] = 8

        with Simulation(fault_schedule=faults) as sim:
            numbers = open_vector()
            sim.add(writer)
            sim.run(until=2)
            assert starts == [(0, None), (1, False)]
            assert (numbers[0], numbers.stats().locked) == (8, 0)
            sim.run()
            assert (numbers[0], numbers.counts()[0]) == (8, 1)

    def test_late_write_of_killed_writer_never_arrives(self) -> None:
        faults = [
            Fault("delay", RECORDS, message=1, delay=5),
            Fault("delay", RECORDS, message=2, delay=0.5),
            Fault("restart", RECORDS, message=3),
        ]
        starts: list[None] = []

        def writer() -> Generator[Any, Any, None]:
            numbers = open_vector()
            starts.append(None)
            if len(starts) == 1:
                numbers[:2] = 7
                yield 1.0
                numbers[3] = 8

        with Simulation(fault_schedule=faults) as sim:
            numbers = open_vector()
            numbers[1] = 1
            sim.add(writer)
            sim.run()
            assert (len(starts), numbers.read().tolist()) == (2, [7, 1, 0, 0])

    def test_key_and_exclusive_vector_of_killed_node_have_new_owner(self) -> None:
        owners: list[str] = []

        def owner() -> Generator[Any, Any, None]:
            import msgq.records

            name = "first" if not owners else "second"
            with (
                msgq.records.Board("board") as board,
                board.declare("key") as entry,
                open_vector(exclusive=True) as numbers,
            ):
                owners.append(f"{name} {[writer.participant.alive for writer in board.stats().writers]}")
                entry.write(name.encode())
                numbers[0] = len(owners)
                yield 1.0

        with Simulation(fault_schedule=[Fault("restart", RECORDS, message=1)]) as sim:
            import msgq.records

            board, numbers = msgq.records.Board("board"), open_vector(exclusive=True)
            sim.add(owner)
            sim.run()
            assert owners == ["first [True]", "second [False, True]"]
            assert (board["key"], numbers[0]) == (b"second", 2)
            assert [writer.participant.alive for writer in numbers.stats().writers] == [False]  # the killed one

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

        assert msgq.records.Board.__module__ == "msgq.impl.fake.records"
