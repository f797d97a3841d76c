"""Vectors and boards between processes: forks, deaths, handles that travel."""

from __future__ import annotations

import base64
import contextlib
import pickle
import time

import numpy as np
import pytest

from msgq.errors import KeyTakenError, MultipleWritersError, WaitTimeoutError
from tests.contract import record_children
from tests.contract.conftest import Records
from tests.contract.record_children import PAIR
from tests.support import DEADLINE, Child, run_child, wait_until

pytestmark = pytest.mark.needs("processes")


def test_two_processes_exchange_record_changes(records: Records) -> None:
    quotes = records.vector(PAIR, 4)
    with Child(record_children.answer_changes, records.backend, records.name) as child:
        assert child.hear() == "ready"
        quotes.changes()
        for number in (*range(1, 50), -1):
            quotes[0] = (number, 2 * number)
            answered = False
            while not answered:
                assert quotes.wait(DEADLINE)
                answered = 1 in quotes.changes().indices
            assert quotes[1].tolist() == (number, 2 * number)
        child.result()


@pytest.mark.ci
@pytest.mark.parametrize(("copies", "size"), [(2, 1), (4, 40), (2, 4096), (2, 1 << 18), (4, 1 << 18)])
def test_reads_during_writes_of_other_processes_are_never_torn(records: Records, copies: int, size: int) -> None:
    """Two processes write rows, each of one byte. A reader may have no luck, but no row of two of them."""
    rows = records.vector(np.dtype([("data", "u1", (size,))]), 2, copies=copies)
    actor = record_children.write_uniform_rows
    with (
        Child(actor, records.backend, records.name, 0) as one,
        Child(actor, records.backend, records.name, 1) as other,
    ):
        assert [child.hear() for child in (one, other)] == ["ready"] * 2
        reads = 0
        values: set[int] = set()
        until = time.monotonic() + 0.5
        while ((reads < 10 or len(values) < 3) and time.monotonic() < until + DEADLINE) or time.monotonic() < until:
            with contextlib.suppress(WaitTimeoutError):
                for found in (rows[0]["data"], *rows.read()["data"], *rows.changes().rows["data"]):
                    assert (found == found[0]).all()
                    values.add(int(found[0]))
                reads += 1
        for child in (one, other):
            child.say()
            child.result()
    assert reads >= 10
    assert len(values) >= 3


def test_atomic_snapshot_shows_all_elements_at_one_instant(records: Records) -> None:
    """Numbers go from element to element: the newest one says what all the others were then."""
    numbers = records.vector("i8", 50)
    with Child(record_children.write_rising_numbers, records.backend, records.name) as child:
        assert child.hear() == "ready"
        newest: list[int] = []
        while len(newest) < 200 or newest[-1] < newest[0] + 1000:
            found = numbers.snapshot(atomic=True, timeout=DEADLINE).tolist()
            newest.append(max(found))
            assert found == [max(0, newest[-1] - (newest[-1] - i) % 50) for i in range(50)]
        assert newest == sorted(newest)
        child.say()
        child.result()


def test_atomic_snapshot_of_busy_vector_times_out(records: Records) -> None:
    numbers = records.vector("i8", 30_000)
    with Child(record_children.write_rising_numbers, records.backend, records.name) as child:
        assert child.hear() == "ready"

        def missed() -> str:
            try:
                numbers.snapshot(atomic=True, timeout=0)
            except WaitTimeoutError as error:
                return str(error)
            return ""

        assert records.name in wait_until(missed)
        child.say()
        child.result()
    assert numbers.snapshot(atomic=True, timeout=0).max() > 0


def test_killed_writer_leaves_its_value_and_frees_its_row(records: Records) -> None:
    quotes = records.vector(PAIR, 4, exclusive=True)
    with Child(record_children.write_and_wait, records.backend, records.name) as child:
        pid = child.hear()
        with pytest.raises(MultipleWritersError) as caught:
            quotes[1] = (3, 6)
        assert str(pid) in str(caught.value)
        child.kill()
    assert quotes[0].tolist() == (1, 2)
    quotes[0] = (3, 6)
    assert quotes.counts([0])[0] == 2


def test_killed_writer_frees_last_of_128_writer_rows(records: Records) -> None:
    quotes = records.vector(PAIR, 4)
    handles = [records.vector() for _ in range(127)]
    for handle in handles:
        handle.claim()
    for number in range(2):  # the second one has the place of the first
        with Child(record_children.write_and_wait, records.backend, records.name) as child:
            child.hear()
            child.kill()
        assert quotes.counts([0])[0] == number + 1


def test_key_of_killed_owner_can_be_declared_and_keeps_its_value(records: Records) -> None:
    board = records.board()
    observed = board.observe("key")
    with Child(record_children.key_holder, records.backend, records.name, "key") as child:
        pid = child.hear()
        value = observed.read()
        assert (value.data, value.alive, value.owner.pid) == (b"of a process", True, pid)
        with pytest.raises(KeyTakenError) as caught:
            board.declare("key")
        assert str(pid) in str(caught.value)
        child.kill()
    value = observed.read()
    assert value.data == b"of a process"
    assert value.alive is not True
    entry = board.declare("key")
    assert observed.data() == b"of a process"
    entry.write(b"mine")
    assert observed.read().count == 2
    assert observed.read().alive is True


def test_pickled_handle_works_in_another_process(records: Records) -> None:
    quotes = records.vector(PAIR, 4)
    quotes[0] = (5, 10)
    data = base64.b64encode(pickle.dumps(quotes)).decode()
    assert run_child(record_children.unpickled, data) == [5, 4]


@pytest.mark.needs("fork")
class TestForks:
    def test_forked_child_writes_with_a_separate_handle(self, records: Records) -> None:
        seen = run_child(record_children.forked_writer, records.backend, records.name)
        assert seen == {"child": 0, "changed": [1, 2], "row": [3, 6]}

    def test_exclusive_write_right_stays_with_parent_after_fork(self, records: Records) -> None:
        seen = run_child(record_children.forked_exclusive, records.backend, records.name)
        assert seen == {"child": 0, "row": [5, 10]}

    def test_board_key_stays_with_parent_after_fork(self, records: Records) -> None:
        seen = run_child(record_children.forked_board, records.backend, records.name)
        assert seen == {"child": 0, "parent": "after", "of the child": "child"}
