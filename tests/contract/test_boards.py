"""Boards: named values, each of one writer; who reads them, and who waits for them."""

from __future__ import annotations

import array
import asyncio
import contextlib
import copy
import errno
import gc
import math
import pickle
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.common import shm_paths
from msgq.common.schema import Schema
from msgq.errors import (
    BoardFullError,
    BoardKeyError,
    EndpointClosedError,
    EndpointNameError,
    InvalidValueError,
    KeyTakenError,
    MessageTooLargeError,
    RecordMismatchError,
    SegmentError,
    StateError,
)
from msgq.impl.backend import resolve_prefix
from msgq.impl.base.files import read_file_status
from msgq.impl.records.values import Value
from tests.contract.conftest import Records, readable
from tests.support import DEADLINE, DEADLINE_MS, Task

SHORT = 0.05
BAD_KEYS = ["", "x" * 112, "é" * 56, "a\0b", "\ud800"]


class TestOpening:
    def test_board_by_default_creates_or_opens_its_file(self, records: Records) -> None:
        records.board().declare("key").write(b"value")
        there = records.board()
        assert there["key"] == b"value"
        assert (there.capacity, there.value_bytes) == (256, 1008)
        assert (there.name, there.endpoint, there.prefix) == (records.name, records.name, "")
        assert (there.closed, there.passive, there.schema, there.mode) == (False, False, None, 0o600)
        assert there.created_ns <= records.time_ns()
        assert there.creator[1]
        assert records.name in repr(there)
        assert "1 of 256 keys" in repr(there)

    def test_board_create_argument_decides_whether_the_file_may_exist(self, records: Records) -> None:
        for create, passive in ((False, False), (None, True)):
            with pytest.raises(SegmentError) as caught:
                records.board(create=create, passive=passive)
            assert caught.value.errno == errno.ENOENT
        records.board(create=True)
        with pytest.raises(SegmentError) as caught:
            records.board(create=True)
        assert caught.value.errno == errno.EEXIST
        records.board(create=False)

    def test_board_sizes_are_stored_and_a_mismatch_raises(self, records: Records) -> None:
        records.board(3, 16)
        assert (records.board().capacity, records.board(3, 16).value_bytes) == (3, 16)
        for given, told in (((4, 16), "keys=3.*keys=4"), ((3, 17), "value_bytes=16.*value_bytes=17")):
            with pytest.raises(RecordMismatchError, match=told) as caught:
                records.board(*given)
            assert caught.value.endpoint == records.name

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            ({"keys": 0}, InvalidValueError),
            ({"keys": 65537}, InvalidValueError),
            ({"keys": 1.5}, TypeError),
            ({"value_bytes": 0}, InvalidValueError),
            ({"value_bytes": 2**30}, InvalidValueError),
            ({"schema": "text"}, TypeError),
            ({"mode": 0o777}, InvalidValueError),
            ({"create": True, "passive": True}, InvalidValueError),
            ({"spin_us": -1}, InvalidValueError),
        ],
        ids=str,
    )
    def test_board_with_invalid_arguments_creates_no_file(
        self, records: Records, given: dict[str, Any], error: Any
    ) -> None:
        with pytest.raises(error):
            records.Board(records.name, **given)
        with pytest.raises(SegmentError):
            records.board(create=False)

    @pytest.mark.parametrize("name", ["", "a/b", "x" * 247])
    def test_board_with_invalid_name_is_refused(self, records: Records, name: str) -> None:
        with pytest.raises(EndpointNameError):
            records.Board(name)

    def test_board_schema_is_stored_in_the_board_file(self, records: Records) -> None:
        schema = Schema("status", "json", b"{}", identity=b"1", layout=b"2", version=3)
        records.board(schema=schema).close()
        assert records.board().schema == schema
        largest = Schema("largest", "text", b"x" * 11840)
        assert records.board(name="2", schema=largest).schema == largest
        with pytest.raises(InvalidValueError, match="11841"):
            records.board(name="3", schema=Schema("larger", "text", b"x" * 11841))

    def test_board_prefixes_are_separate_and_unlink_removes_the_file(self, records: Records, prefix: str) -> None:
        inside, outside = records.board(), records.board(prefix="")
        inside.declare("key").write(b"inside")
        assert "key" not in outside
        inside.unlink()
        with pytest.raises(SegmentError):
            records.Board.unlink_name(records.name)
        assert inside["key"] == b"inside"
        assert len(records.board()) == 0
        outside.unlink()

    def test_board_is_stored_in_one_file(self, records: Records) -> None:
        board = records.board(4, 100, mode=0o640)
        assert board.path == shm_paths.records_path(records.name, resolve_prefix(""))
        file = read_file_status(board.path)
        assert file is not None
        assert file.mode == board.mode == 0o640
        assert file.bytes == 32768 + 4 * 128 + 4 * 256  # each 8 + 2 * (8 + 112), rounded up
        assert board.identity[1] == file.number

    def test_board_entry_and_observed_value_cannot_be_pickled_or_copied(self, records: Records) -> None:
        board = records.board()
        entry, observed = board.declare("key"), board.observe("key")
        for each in (entry, observed):
            for way in (pickle.dumps, copy.copy):
                with pytest.raises(TypeError, match="cannot be pickled or copied"):
                    way(each)

    def test_unpickled_board_opens_the_same_name(self, records: Records) -> None:
        board = records.board(3, 16)
        board.declare("key").write(b"value")
        with pickle.loads(pickle.dumps(board)) as copy:
            assert (copy["key"], copy.capacity) == (b"value", 3)
        with pickle.loads(pickle.dumps(records.board(passive=True))) as copy:
            assert copy.passive


class TestKeys:
    @pytest.mark.parametrize("key", ["k", "x" * 111, "é" * 55, "a/b c%:", "ключ", " "])
    def test_declare_key_then_write_stores_the_value(self, records: Records, key: str) -> None:
        board = records.board()
        with board.declare(key) as entry:
            assert (entry.key, entry.closed) == (key, False)
            entry.write(b"value")
            assert board.keys() == [key]
            assert (board[key], records.board()[key]) == (b"value", b"value")
            assert key in repr(entry)
        assert entry.closed
        assert board[key] == b"value"

    @pytest.mark.parametrize("key", BAD_KEYS, ids=repr)
    def test_invalid_board_key_is_refused(self, records: Records, key: str) -> None:
        board = records.board()
        for call in (board.declare, board.observe, board.__getitem__):
            with pytest.raises(InvalidValueError, match="key"):
                call(key)
        assert key not in board
        assert board.keys() == []

    @pytest.mark.parametrize("key", [b"key", None, 5], ids=repr)
    def test_board_key_that_is_not_text_is_refused(self, records: Records, key: Any) -> None:
        board = records.board()
        for call in (board.declare, board.observe, board.__getitem__):
            with pytest.raises(TypeError):
                call(key)
        assert key not in board

    def test_declare_key_of_living_owner_raises_key_taken(self, records: Records) -> None:
        board, other = records.board(), records.board()
        entry = board.declare("key")
        for each in (board, other):
            with pytest.raises(KeyTakenError, match="'key'") as caught:
                each.declare("key")
            assert str(board.creator[1]) in str(caught.value)
            assert caught.value.endpoint == records.name
        entry.write(b"still mine")
        assert board["key"] == b"still mine"

    def test_entry_close_keeps_the_value(self, records: Records) -> None:
        board, other = records.board(), records.board()
        entry = board.declare("key")
        entry.write(b"first")
        entry.close()
        entry.close()
        with pytest.raises(StateError, match="'key'"):
            entry.write(b"late")
        successor = other.declare("key")
        assert other["key"] == b"first"
        successor.write(b"second")
        with pytest.raises(StateError):
            entry.write(b"late")
        entry.close()
        successor.write(b"third")
        value = board.observe("key").read()
        assert (value.data, value.count) == (b"third", 3)

    def test_declare_key_after_entry_close_succeeds_with_same_handle(self, records: Records) -> None:
        board = records.board()
        former = board.declare("key")
        former.write(b"1")
        former.close()
        entry = board.declare("key")
        entry.write(b"2")
        former.close()  # it is not its own any more
        entry.write(b"3")
        assert board.observe("key").read().count == 3

    def test_board_close_releases_all_keys(self, records: Records) -> None:
        board, other = records.board(), records.board()
        entries = [board.declare(key) for key in "abc"]
        entries[0].write(b"value")
        board.close()
        for entry in entries:
            with pytest.raises(EndpointClosedError):
                entry.write(b"late")
            entry.close()
        for key in "abc":
            other.declare(key).write(b"other's")
        assert other["a"] == b"other's"

    def test_key_of_deleted_entry_can_be_declared_again(self, records: Records) -> None:
        """An exception of a signal handler deletes an entry before the program gets it."""
        board = records.board(3)
        board.declare("key").write(b"1")
        entry = board.declare("key")
        assert board["key"] == b"1"
        with pytest.raises(KeyTakenError):
            records.board().declare("key")
        del entry
        records.board().declare("key").write(b"2")
        assert board["key"] == b"2"

    def test_declare_on_a_full_board_raises(self, records: Records) -> None:
        board = records.board(3)
        entries = [board.declare(key) for key in "abc"]
        with pytest.raises(BoardFullError, match="3 keys"):
            board.declare("d")
        entries[0].close()
        with pytest.raises(BoardFullError):  # keys stay
            records.board().declare("d")
        board.declare("a").write(b"value")
        assert board.keys() == ["a", "b", "c"]
        assert (len(board), "d" in board) == (3, False)

    def test_board_keys_and_items_list_declared_keys(self, records: Records) -> None:
        board = records.board()
        assert (board.keys(), board.items(), len(board)) == ([], [], 0)
        b, a = board.declare("b"), board.declare("a")
        assert (board.keys(), list(board), len(board)) == (["b", "a"], ["b", "a"], 2)
        assert board.items() == []
        a.write(b"1")
        b.write(b"")
        assert board.items() == [("b", b""), ("a", b"1")]
        assert "a" in board
        assert "c" not in board

    def test_board_read_of_unwritten_key_raises_key_error(self, records: Records) -> None:
        board = records.board()
        board.declare("declared")
        for key in ("declared", "unknown"):
            with pytest.raises(BoardKeyError, match=repr(key)) as caught:
                board[key]
            assert isinstance(caught.value, KeyError)
            assert caught.value.endpoint == records.name

    def test_passive_board_cannot_declare(self, records: Records) -> None:
        board = records.board()
        watcher = records.board(passive=True)
        with pytest.raises(StateError, match="passive"):
            watcher.declare("key")
        board.declare("key").write(b"value")
        assert watcher["key"] == b"value"
        assert watcher.changes().keys() == {"key"}
        assert watcher.observe("key").wait(SHORT) is True

    def test_board_holds_many_keys(self, records: Records) -> None:
        board = records.board(300, 8)
        entries = [board.declare(f"key {number}") for number in range(300)]
        for number, entry in enumerate(entries):
            entry.write(b"%d" % number)
        assert board["key 299"] == b"299"
        assert [data for _, data in board.items()] == [b"%d" % number for number in range(300)]
        assert len(records.board().changes()) == 300


class TestValues:
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"x",
            bytes(1008),
            bytearray(b"12345678"),
            memoryview(b"12345678")[2:6],
            array.array("Q", [1]),
            np.ones(3),
        ],
        ids=lambda data: type(data).__name__,
    )
    def test_entry_write_accepts_any_contiguous_bytes(self, records: Records, data: Any) -> None:
        board = records.board()
        board.declare("key").write(data)
        assert board["key"] == bytes(data)
        assert board.observe("key").data() == bytes(data)

    @pytest.mark.parametrize(
        "data", ["text", 5, None, [1], memoryview(b"12345678")[::2]], ids=["str", "int", "None", "list", "view"]
    )
    def test_entry_write_refuses_objects_that_are_not_buffers(self, records: Records, data: Any) -> None:
        board = records.board()
        entry = board.declare("key")
        entry.write(b"before")
        with pytest.raises((TypeError, BufferError, ValueError)):
            entry.write(data)
        assert board["key"] == b"before"

    @pytest.mark.parametrize("size", [1, 8, 39, 40, 41, 1008, 4096, 1 << 20])
    def test_entry_write_accepts_up_to_the_value_size(self, records: Records, size: int) -> None:
        board = records.board(2, size)
        entry = board.declare("key")
        for number in range(5):  # all copies, and round again
            entry.write(bytes([number]) * (size - number % 2))
            assert board["key"] == bytes([number]) * (size - number % 2)
        with pytest.raises(MessageTooLargeError, match=f"{size + 1} bytes.*{size}") as caught:
            entry.write(bytes(size + 1))
        assert caught.value.errno == errno.EMSGSIZE
        assert board["key"] == b"\4" * size

    def test_entry_write_of_large_value_keeps_other_values(self, records: Records) -> None:
        board = records.board(3, 1 << 20)
        entries = [board.declare(key) for key in "abc"]
        for number, entry in enumerate(entries * 3):
            entry.write(bytes([number]) * (1 << 20))
        assert [data[:1] + data[-1:] for _, data in board.items()] == [bytes([n, n]) for n in (6, 7, 8)]


class TestObserving:
    def test_observed_undeclared_key_has_no_value(self, records: Records) -> None:
        board = records.board()
        observed = board.observe("key")
        assert (observed.key, observed.endpoint, observed.closed) == ("key", records.name, False)
        assert (observed.read(), observed.data(), observed.read_into(bytearray(8))) == (None, None, None)
        assert observed.changed is False
        assert observed.wait(0) is False
        assert board.keys() == []
        entry = records.board().declare("key")
        assert observed.read() is None
        assert observed.changed is False
        entry.write(b"value")
        assert observed.changed is True
        assert observed.data() == b"value"

    def test_observed_value_has_count_time_and_owner(self, records: Records) -> None:
        board = records.board()
        observed, entry = board.observe("key"), board.declare("key")
        before = records.time_ns()
        entry.write(b"1")
        entry.write(b"2")
        after = records.time_ns()
        value = observed.read()
        assert isinstance(value, Value)
        assert value.owner is not None
        slack = 1_000_000_000
        assert before - slack <= value.time <= after + slack
        assert 0 <= value.age_ns <= records.time_ns() - before + slack
        assert (value.data, value.count, value.alive) == (b"2", 2, True)
        assert (value.owner.pid, value.owner.alive) == (board.creator[1], True)
        entry.close()
        value = observed.read()
        assert (value.data, value.count, value.owner, value.alive) == (b"2", 2, None, None)

    @pytest.mark.parametrize("call", ["read", "data", "read_into", "receive"])
    def test_observed_read_clears_the_changed_flag(self, records: Records, call: str) -> None:
        board = records.board()
        observed, other, entry = board.observe("key"), board.observe("key"), board.declare("key")
        every: dict[str, list[Any]] = {"read_into": [bytearray(8)], "receive": [0]}
        args = every.get(call, [])
        for _ in range(3):
            entry.write(b"same")
            assert observed.changed is True
            assert observed.wait(0) is True
            assert getattr(observed, call)(*args) is not None
            assert observed.changed is False
            assert observed.wait(0) is False
            assert other.changed is True

    def test_observed_empty_value_counts_as_a_value(self, records: Records) -> None:
        board = records.board()
        observed = board.observe("key")
        board.declare("key").write(b"")
        assert observed.changed is True
        assert observed.read_into(bytearray()) == 0
        assert observed.data() == b""
        assert observed.read().data == b""

    def test_observed_read_into_fills_the_callers_buffer(self, records: Records) -> None:
        board = records.board()
        observed = board.observe("key")
        board.declare("key").write(b"value")
        buffer = bytearray(b"." * 8)
        assert observed.read_into(buffer) == 5
        assert buffer == b"value..."
        numbers = np.zeros(1)
        assert observed.read_into(numbers) == 5
        assert numbers.tobytes()[:5] == b"value"

    def test_observed_read_into_small_buffer_raises(self, records: Records) -> None:
        board = records.board()
        observed = board.observe("key")
        board.declare("key").write(b"value")
        with pytest.raises(MessageTooLargeError, match=r"5 bytes.*4"):
            observed.read_into(bytearray(4))
        assert observed.changed is True

    @pytest.mark.parametrize(
        "buffer", [b"12345678", "text", None, memoryview(bytearray(16))[::2]], ids=["bytes", "str", "None", "view"]
    )
    def test_observed_read_into_readonly_buffer_raises(self, records: Records, buffer: Any) -> None:
        board = records.board()
        observed = board.observe("key")
        board.declare("key").write(b"value")
        with pytest.raises((TypeError, BufferError, ValueError)):
            observed.read_into(buffer)
        assert observed.changed is True

    def test_observed_receive_returns_only_new_values(self, records: Records) -> None:
        board = records.board()
        observed = board.observe("key")
        assert observed.receive(0) is None
        board.declare("key").write(b"value")
        assert observed.receive().data == b"value"
        assert observed.receive(timeout=0) is None

    def test_closed_observed_value_raises_on_each_call(self, records: Records) -> None:
        observed = records.board().observe("key")
        observed.close()
        observed.close()
        assert observed.closed
        for call in (observed.read, observed.data, lambda: observed.changed, lambda: observed.wait(0)):
            with pytest.raises(EndpointClosedError):
                call()

    def test_observed_value_is_closed_with_the_board(self, records: Records) -> None:
        board, other = records.board(), records.board()
        observed, others = board.observe("key"), other.observe("key")
        board.close()
        assert observed.closed
        assert not others.closed

    def test_observed_value_stays_usable_after_board_object_is_deleted(self, records: Records) -> None:
        records.board()  # so that the fake's exists
        observed = records.Board(records.name).observe("key")
        gc.collect()
        records.board().declare("key").write(b"value")
        assert observed.data() == b"value"

    @pytest.mark.parametrize("timeout", [-1, math.nan, math.inf])
    def test_observed_wait_with_invalid_timeout_is_refused(self, records: Records, timeout: float) -> None:
        board = records.board()
        for each in (board, board.observe("key")):
            with pytest.raises(InvalidValueError):
                each.wait(timeout)


class TestChanges:
    def test_board_changes_include_all_changed_keys(self, records: Records) -> None:
        board, other = records.board(), records.board()
        a, b = other.declare("a"), other.declare("b")
        assert board.changes() == {}
        assert board.wait(SHORT) is False
        a.write(b"1")
        assert board.wait(0) is True
        changes = board.changes()
        assert {key: (value.data, value.count) for key, value in changes.items()} == {"a": (b"1", 1)}
        assert isinstance(changes["a"], Value)
        assert board.changes() == {}
        b.write(b"2")
        a.write(b"3")
        a.write(b"4")
        assert {key: (value.data, value.count) for key, value in board.changes().items()} == {
            "a": (b"4", 3),
            "b": (b"2", 1),
        }

    def test_board_changes_first_call_returns_all_values(self, records: Records) -> None:
        board = records.board()
        board.declare("a").write(b"1")
        board.declare("never")
        late = records.board()
        assert late.wait() is True
        assert late.changes().keys() == {"a"}

    def test_board_changes_stay_pending_after_read_and_observe(self, records: Records) -> None:
        board = records.board()
        observed = board.observe("a")
        board.declare("a").write(b"1")
        assert (board["a"], observed.data()) == (b"1", b"1")
        assert board.receive(0).keys() == {"a"}
        assert board.receive(0) is None

    def test_board_changes_with_limit_return_each_key_in_turn(self, records: Records) -> None:
        board = records.board()
        entries = [board.declare(key) for key in "abcde"]
        for entry in entries:
            entry.write(b"1")
        assert list(board.changes(limit=2)) == ["a", "b"]
        entries[0].write(b"2")
        assert list(board.changes(limit=2)) == ["c", "d"]
        assert list(board.changes(limit=2)) == ["e"]
        assert list(board.changes(limit=0)) == []
        assert list(board.changes(limit=9)) == ["a"]
        with pytest.raises(InvalidValueError, match="limit"):
            board.changes(limit=-1)

    def test_board_watch_iterates_until_no_change_is_left(self, records: Records) -> None:
        board = records.board()
        observed = board.observe("a")
        board.declare("a").write(b"1")
        assert [list(changes) for changes in board.watch(timeout=0)] == [["a"]]
        assert [value.data for value in observed.watch(timeout=0)] == [b"1"]

    def test_board_stats_count_writes(self, records: Records) -> None:
        board = records.board()
        written = board.declare("a")
        written.write(b"123")
        unwritten = board.declare("b")
        stats = board.stats()
        assert (stats.kind, stats.key_count, stats.elements_written) == ("board", 2, 1)
        assert [(key.key, key.count, key.bytes) for key in stats.keys] == [("a", 1, 3), ("b", 0, None)]
        assert [writer.keys for writer in stats.writers] == [2]
        written.close()
        unwritten.close()

    def test_blackboard_is_an_alias_of_board(self) -> None:
        assert msgq.Blackboard is msgq.Board

    def test_closed_board_raises_on_each_call(self, records: Records) -> None:
        board = records.board()
        board.declare("a").write(b"1")
        board.close()
        assert board.closed
        assert "closed" in repr(board)
        for call in (
            board.keys,
            board.items,
            board.changes,
            lambda: board["a"],
            lambda: len(board),
            lambda: "a" in board,
            lambda: board.declare("b"),
            lambda: board.observe("a"),
            lambda: board.wait(0),
            lambda: board.fileno(),
        ):
            with pytest.raises(EndpointClosedError):
                call()

    def test_board_fileno_is_readable_while_a_change_is_pending(self, records: Records) -> None:
        board = records.board()
        observed, entry, beside = board.observe("a"), board.declare("a"), board.declare("b")
        whole, one = board.fileno(), observed.fileno()
        assert not readable(whole)
        assert not readable(one)
        entry.write(b"1")
        assert readable(whole, DEADLINE)
        assert readable(one, DEADLINE)
        observed.read()
        assert not readable(one)
        assert readable(whole)
        board.changes()
        assert not readable(whole)
        beside.write(b"2")
        assert readable(whole, DEADLINE)
        assert not readable(one)

    def test_poller_returns_changed_observed_values(self, records: Records) -> None:
        board = records.board()
        one, other = board.observe("a"), board.observe("b")
        a, b = board.declare("a"), board.declare("b")
        poller = records.poller(one, other)
        assert poller.poll(0) == []
        b.write(b"1")
        assert poller.poll(DEADLINE_MS) == [other]
        a.write(b"1")
        assert poller.poll(0) == [one, other]
        other.read()
        assert poller.poll(0) == [one]

    def test_observed_areceive_returns_new_values(self, records: Records) -> None:
        board = records.board()
        observed, entry = board.observe("a"), board.declare("a")

        async def scenario() -> list[Any]:
            loop = asyncio.get_running_loop()
            loop.call_later(0.01, entry.write, b"1")
            first = await asyncio.wait_for(observed.areceive(), DEADLINE)
            changes = await asyncio.wait_for(board.areceive(), DEADLINE)
            loop.call_later(0.01, entry.write, b"2")
            async for value in observed:
                return [first.data, list(changes), value.data]
            return []

        assert asyncio.run(scenario()) == [b"1", ["a"], b"2"]


@pytest.mark.needs("threads")
class TestThreads:
    @pytest.mark.parametrize("declared", [False, True])
    def test_board_write_wakes_an_observer(self, records: Records, declared: bool) -> None:
        board, other = records.board(), records.board()
        observed = board.observe("key")
        with other.declare("key") if declared else contextlib.nullcontext() as entry:
            beside = other.declare("another")
            task = Task(observed.wait)
            task.wait_asleep()
            beside.write(b"not this")
            task.wait_asleep()
            (entry or other.declare("key")).write(b"value")
            assert task.result() is True
        assert observed.data() == b"value"

    def test_board_write_wakes_a_thread_that_waits_for_any_key(self, records: Records) -> None:
        board, watcher = records.board(), records.board(passive=True)
        tasks = [Task(board.wait), Task(watcher.wait)]
        tasks[0].wait_asleep()
        tasks[1].wait_asleep()
        records.board().declare("key").write(b"value")
        assert [task.result() for task in tasks] == [True, True]

    def test_close_ends_a_wait_in_another_thread(self, records: Records) -> None:
        board = records.board()
        observed = board.observe("key")
        for each in (observed, board):
            task = Task(each.wait)
            task.wait_asleep()
            each.close()
            with pytest.raises(EndpointClosedError):
                task.result()

    def test_declare_from_many_threads_succeeds_once_per_key(self, records: Records) -> None:
        handles = [records.board() for _ in range(4)]
        taken: list[int] = []
        entries: list[Any] = []

        def declare(board: Any) -> int:
            count = 0
            for number in range(50):
                try:
                    entry = board.declare(f"key {number}")
                    entries.append(entry)
                    entry.write(b"value")
                    count += 1
                except KeyTakenError:
                    taken.append(number)
            return count

        tasks = [Task(declare, board) for board in handles]
        assert sum(task.result() for task in tasks) == 50
        assert len(taken) == 150
        assert sorted(handles[0].keys()) == sorted(f"key {number}" for number in range(50))
