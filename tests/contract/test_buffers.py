"""Buffers go in, bytes and arrays come out: every way to send and to receive."""

from __future__ import annotations

import array
import contextlib
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from msgq.errors import (
    ConcurrentUseError,
    InvalidValueError,
    MessageSizeError,
    MessageTooLargeError,
    StateError,
)
from tests.cases import each_case
from tests.contract.conftest import Backend, collect
from tests.support import Task

LARGE = 300_000  # bytes; copied without the GIL
POINT = np.dtype([("x", "<f8"), ("n", "<i4")], align=True)

CONTIGUOUS: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"payload",
    "bytearray": lambda: bytearray(b"payload"),
    "memoryview": lambda: memoryview(b"payload"),
    "memoryview slice": lambda: memoryview(b"a payload!")[2:9],
    "array": lambda: array.array("d", [1.0, 2.0]),
    "NumPy": lambda: np.arange(10, dtype=np.float32),
    "NumPy, 2-D": lambda: np.arange(12).reshape(3, 4),
    "NumPy, structured": lambda: np.ones(3, POINT),
    "NumPy, read-only": lambda: np.frombuffer(b"payload", np.uint8),
    "NumPy scalar": lambda: np.float64(1.5),
    "mmap": lambda: mmap.mmap(-1, 64),
    "empty bytearray": lambda: bytearray(),
    "large bytes": lambda: bytes(LARGE),
    "large array": lambda: np.arange(LARGE // 8),
}


@each_case("kind", CONTIGUOUS, reset="backend.close_sockets")
def test_send_accepts_any_contiguous_buffer(backend: Backend, endpoint: str, kind: str) -> None:
    pub, sub = backend.pair(endpoint)
    buffer = CONTIGUOUS[kind]()
    pub.send(buffer)
    assert sub.receive() == memoryview(buffer).tobytes()


@pytest.mark.parametrize("wrong", [memoryview(b"abcdef")[::2], np.arange(10)[::2], "text", 5, None, [b"x"]])
def test_send_refuses_objects_that_are_not_buffers(backend: Backend, endpoint: str, wrong: Any) -> None:
    pub, sub = backend.pair(endpoint)
    with pytest.raises((TypeError, BufferError, ValueError)):
        pub.send(wrong)
    pub.send(b"next")
    assert sub.receive() == b"next"


def test_received_message_is_a_private_copy(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, 1024)
    buffer = bytearray(b"first")
    pub.send(buffer)
    buffer[:] = b"other"
    message = sub.receive()
    for _ in range(100):  # over the same place in a ring
        pub.send(b"xxxxx")
        sub.receive()
    assert message == b"first"


class TestReserve:
    def test_reserve_publishes_at_the_end_of_the_block(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        with pub.reserve(5) as view:
            assert (view.nbytes, view.readonly, view.format) == (5, False, "B")
            view[:] = b"hello"
            assert sub.receive(non_blocking=True) is None
        assert sub.receive() == b"hello"

    def test_reserved_view_can_back_a_numpy_array(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        with pub.reserve(LARGE) as view:
            np.frombuffer(view, np.uint32)[:] = np.arange(LARGE // 4)
        assert sub.receive() == np.arange(LARGE // 4, dtype=np.uint32).tobytes()

    def test_exception_in_reserve_block_publishes_nothing(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        reservation = pub.reserve(5)

        def fails() -> None:
            with reservation as view:
                view[:] = b"wrong"
                raise KeyError

        with pytest.raises(KeyError):
            fails()
        assert pub.stats().messages == 0
        pub.send(b"right")
        assert sub.receive() == b"right"
        assert sub.receive(True) is None

    def test_reserved_view_is_unusable_after_the_block(self, backend: Backend, endpoint: str) -> None:
        pub, _ = backend.pair(endpoint)
        with pub.reserve(5) as view:
            pass
        with pytest.raises(ValueError, match="released"):
            view[0] = 1

    def test_open_reservation_refuses_send_and_second_reserve(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        with pub.reserve(2) as view:
            view[:] = b"ok"
            calls: list[Callable[[], Any]] = [
                lambda: pub.send(b"x"),
                lambda: pub.send_many([b"x"]),
                lambda: pub.reserve(1),
            ]
            for call in calls:
                with pytest.raises(ConcurrentUseError, match="reservation"):
                    call()
        assert collect(sub, 1) == [b"ok"]
        assert sub.receive(True) is None

    def test_reservation_may_wrap_around_the_ring(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint, 1024)
        for i in range(50):
            with pub.reserve(200) as view:
                view[:] = bytes([i]) * 200
            assert sub.receive() == bytes([i]) * 200

    def test_reserve_of_zero_bytes_publishes_an_empty_message(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        with pub.reserve(0):
            pass
        assert sub.receive() == b""

    def test_close_inside_reserve_block_is_refused(self, backend: Backend, endpoint: str) -> None:
        """Else the view could write over what the next publisher sends."""
        pub, sub = backend.pair(endpoint)
        with pub.reserve(3) as view:
            with pytest.raises(ConcurrentUseError, match="reservation"):
                pub.close()
            view[:] = b"xxx"
        assert sub.receive() == b"xxx"

    def test_reservation_is_usable_once_and_only_inside_its_block(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        reservation = pub.reserve(5)
        for _ in range(2):
            with pytest.raises((BufferError, TypeError)):
                memoryview(reservation)
            with contextlib.suppress(StateError), reservation as view:
                view[:] = b"hello"
        with pytest.raises(StateError, match="already used"), reservation:
            pytest.fail("it was used")
        assert sub.receive() == b"hello"  # by ZMQ it may still be on its way
        assert sub.receive_many() == []

    def test_reserve_with_negative_size_is_refused(self, backend: Backend, endpoint: str) -> None:
        with pytest.raises(ValueError, match="-1"):
            backend.pub(endpoint).reserve(-1)

    @pytest.mark.needs("segment")
    @pytest.mark.parametrize("size", [2000, 2**32, 2**63, 2**64 - 1, 2**64, 2**70])
    def test_reserve_with_too_large_size_is_refused(self, backend: Backend, endpoint: str, size: int) -> None:
        pub, sub = backend.pair(endpoint, 4096)
        with pytest.raises((MessageTooLargeError, OverflowError)), pub.reserve(size):
            pytest.fail("no room for it")
        pub.send(b"x")
        assert sub.receive() == b"x"


def _generator() -> Iterator[bytes]:
    yield from (b"1", b"22", b"333")


MANY: dict[str, tuple[Callable[[], Any], list[bytes]]] = {
    "list": (lambda: [b"1", b"22", b"333"], [b"1", b"22", b"333"]),
    "tuple": (lambda: (b"1", b"22", b"333"), [b"1", b"22", b"333"]),
    "generator": (_generator, [b"1", b"22", b"333"]),
    "dict keys": (lambda: dict.fromkeys([b"1", b"22"]).keys(), [b"1", b"22"]),
    "mixed buffers": (lambda: [b"1", bytearray(b"2"), memoryview(b"3"), b"4"], [b"1", b"2", b"3", b"4"]),
    "list of arrays": (lambda: [np.int16(1), np.arange(2, dtype=np.int8)], [b"\1\0", b"\0\1"]),
    "with empty ones": (lambda: [b"", b"1", b"", b"2", b""], [b"", b"1", b"", b"2", b""]),
    "with a large one": (lambda: [b"1", bytes(LARGE), b"2"], [b"1", bytes(LARGE), b"2"]),
    "more than a batch": (lambda: [b"%d" % i for i in range(1000)], [b"%d" % i for i in range(1000)]),
    "2-D array": (lambda: np.arange(6, dtype=np.uint8).reshape(3, 2), [b"\0\1", b"\2\3", b"\4\5"]),
    "3-D array": (lambda: np.zeros((2, 2, 2), np.uint8), [bytes(4)] * 2),
    "array of numbers": (lambda: np.arange(3, dtype="<u2"), [b"\0\0", b"\1\0", b"\2\0"]),
    "array.array": (lambda: array.array("H", [1, 2]), [b"\1\0", b"\2\0"]),
    "structured array": (lambda: np.zeros(4, POINT), [bytes(POINT.itemsize)] * 4),
    "rows of nothing": (lambda: np.zeros((3, 0)), [b""] * 3),
    "large rows": (lambda: np.ones((3, LARGE), np.uint8), [b"\1" * LARGE] * 3),
    "empty list": (list, []),
    "empty array": (lambda: np.zeros((0, 5)), []),
}


class TestSendMany:
    @pytest.mark.parametrize("kind", MANY)
    def test_send_many_sends_each_element(self, backend: Backend, endpoint: str, kind: str) -> None:
        make, expected = MANY[kind]
        pub, sub = backend.pair(endpoint, 4 << 20)
        assert pub.send_many(make()) == len(expected)
        assert collect(sub, len(expected)) == expected
        assert pub.stats().messages == len(expected)
        assert pub.stats().bytes == sum(map(len, expected))

    @pytest.mark.parametrize("one", [b"bytes", bytearray(b"x"), memoryview(b"x"), np.zeros(3, np.uint8), np.array(5.0)])
    def test_send_many_refuses_a_single_message(self, backend: Backend, endpoint: str, one: Any) -> None:
        with pytest.raises(TypeError, match="several messages"):
            backend.pub(endpoint).send_many(one)

    @pytest.mark.parametrize("wrong", ["text", 5, None, np.zeros((4, 4))[:, ::2], np.array([[1], [2]], object)])
    def test_send_many_with_invalid_argument_is_refused(self, backend: Backend, endpoint: str, wrong: Any) -> None:
        with pytest.raises((TypeError, ValueError, BufferError)):
            backend.pub(endpoint).send_many(wrong)

    @pytest.mark.parametrize("wrap", [list, tuple, iter])
    def test_send_many_stops_at_invalid_element(self, backend: Backend, endpoint: str, wrap: Any) -> None:
        pub, sub = backend.pair(endpoint)
        with pytest.raises(TypeError):
            pub.send_many(wrap([b"1", b"2", "three", b"4"]))
        pub.send(b"5")
        assert collect(sub, 3) == [b"1", b"2", b"5"]
        assert pub.stats().messages == 3

    @pytest.mark.needs("segment")
    def test_send_many_stops_at_too_large_message(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint, 4096)
        with pytest.raises(MessageTooLargeError):
            pub.send_many([b"1", bytes(2000), b"2"])
        assert sub.receive() == b"1"
        assert sub.receive(True) is None

    @pytest.mark.needs("segment", "lost")
    def test_send_many_larger_than_the_ring_counts_all_messages(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint, 1024)
        assert pub.send_many([b"%04d" % i for i in range(5000)]) == 5000
        received = sub.receive_many()
        assert len(received) + sub.lost == 5000


class TestReceiveInto:
    def test_receive_into_fills_the_start_of_the_buffer(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        buffer = bytearray(b"----------")
        pub.send(b"hello")
        assert sub.receive_into(buffer) == 5
        assert buffer == b"hello-----"

    @pytest.mark.parametrize("make", [lambda: np.zeros(4, np.int32), lambda: array.array("i", [0] * 4)])
    def test_receive_into_accepts_any_writable_buffer(
        self, backend: Backend, endpoint: str, make: Callable[[], Any]
    ) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send(np.arange(4, dtype=np.int32))
        assert sub.receive_into(buffer := make()) == 16
        assert list(buffer) == [0, 1, 2, 3]

    def test_receive_into_buffer_of_exact_size_takes_large_message(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send(b"\7" * LARGE)
        assert sub.receive_into(buffer := bytearray(LARGE)) == LARGE
        assert buffer == b"\7" * LARGE

    def test_receive_into_of_empty_message_returns_zero(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send(b"")
        assert sub.receive_into(bytearray(1)) == 0

    def test_receive_into_too_small_buffer_keeps_the_message(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send(b"12345")
        for _ in range(2):
            with pytest.raises(MessageTooLargeError, match=r"5 bytes.*4") as caught:
                sub.receive_into(bytearray(4))
        assert caught.value.endpoint == endpoint
        assert sub.receive() == b"12345"

    @pytest.mark.parametrize("wrong", [b"read-only", memoryview(bytearray(8))[::2], "text", None])
    def test_receive_into_with_invalid_buffer_is_refused(self, backend: Backend, endpoint: str, wrong: Any) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send(b"x")
        with pytest.raises((TypeError, BufferError)):
            sub.receive_into(wrong)
        assert sub.receive() == b"x"


def received(sub: Any, size: int) -> list[Any]:
    """Return all that is there: an array ends where the ring does, perhaps."""
    rows: list[Any] = []
    while len(array := sub.receive_array(f"V{size}")):
        rows += [*array]
    return rows


class TestReceiveArray:
    @pytest.mark.parametrize("dtype", ["u1", "<i8", "<f4", "S24", "V5", POINT, "datetime64[ns]"])
    def test_receive_array_returns_all_waiting_messages(self, backend: Backend, endpoint: str, dtype: Any) -> None:
        pub, sub = backend.pair(endpoint)
        size = np.dtype(dtype).itemsize
        sent = [bytes([i]) * size for i in range(1, 101)]
        pub.send_many(sent)
        backend.settle()
        array = sub.receive_array(dtype)
        assert array.shape == (100,)
        assert array.dtype == np.dtype(dtype)
        assert array.tobytes() == b"".join(sent)
        assert array.flags.writeable
        assert array.flags.owndata

    def test_receive_array_without_messages_is_empty(self, backend: Backend, endpoint: str) -> None:
        array = backend.sub(endpoint).receive_array(POINT)
        assert array.shape == (0,)
        assert array.dtype == POINT

    @pytest.mark.parametrize("most", [0, 1, 7, 1000])
    def test_receive_array_takes_at_most_the_limit(self, backend: Backend, endpoint: str, most: int) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send_many(np.arange(20))
        backend.settle()
        taken = sub.receive_array(np.int64, limit=most).tolist()
        assert taken == list(range(min(most, 20)))
        assert len(sub.receive_many()) == 20 - len(taken)

    def test_receive_array_wraps_around_the_ring(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint, 1024)
        for start in range(0, 1000, 20):
            pub.send_many(np.arange(start, start + 20))
            backend.settle()
            assert sub.receive_array(np.int64).tolist() == list(range(start, start + 20))

    @pytest.mark.parametrize("size", [1, 8, 12, 16, 24, 32, 40, 48, 64, 100])
    def test_receive_array_of_equal_messages_wraps_around_the_ring(
        self, backend: Backend, endpoint: str, size: int
    ) -> None:
        pub, sub = backend.pair(endpoint, 8192)
        rows = np.random.default_rng(size).integers(0, 255, (70, size), np.uint8)  # more than are published at once
        for start in range(12):
            pub.send_many(rows[start:])
            backend.settle()
            wanted = [row.tobytes() for row in rows[start:]]
            got = sub.receive_many() if start % 3 == 0 else [row.tobytes() for row in received(sub, size)]
            assert got == wanted

    def test_receive_array_accepts_large_messages(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint, 4 << 20)
        frames = np.random.default_rng(1).integers(0, 255, (5, LARGE), np.uint8)
        pub.send_many(frames)
        backend.settle()
        assert (sub.receive_array(f"V{LARGE}").view(np.uint8).reshape(5, -1) == frames).all()

    def test_receive_array_stops_before_a_message_of_another_size(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send_many([bytes(8), bytes(8), b"odd", bytes(8)])
        backend.settle()
        assert len(sub.receive_array(np.int64)) == 2
        with pytest.raises(MessageSizeError, match=r"3 bytes.*8") as caught:
            sub.receive_array(np.int64)
        assert caught.value.endpoint == endpoint
        assert sub.receive() == b"odd"
        assert len(sub.receive_array(np.int64)) == 1

    @pytest.mark.parametrize("wait_for_one", [False, True])
    @pytest.mark.parametrize("size", [1, 7, 9, 63])
    def test_receive_array_error_names_size_of_mismatched_message(
        self, backend: Backend, endpoint: str, size: int, wait_for_one: bool
    ) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send(bytes(size))
        backend.settle()
        for dtype in ("V8", "V1000"):
            with pytest.raises(MessageSizeError, match=f"{size} bytes"):
                sub.receive_array(dtype, wait_for_one=wait_for_one)

    def test_receive_array_with_multidimensional_dtype_loses_no_message(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send_many([bytes(24)] * 4)
        pub.send(bytes(200))
        backend.settle()
        assert sub.receive_array("(3,)f8").shape == (4, 3)
        assert sub.receive() == bytes(200)

    @pytest.mark.parametrize("dtype", [object, "S0", "V0", np.dtype([("a", object)])])
    def test_receive_array_with_object_dtype_is_refused(self, backend: Backend, endpoint: str, dtype: Any) -> None:
        with pytest.raises(InvalidValueError, match="dtype"):
            backend.sub(endpoint).receive_array(dtype)

    def test_receive_array_with_negative_limit_is_refused(self, backend: Backend, endpoint: str) -> None:
        with pytest.raises(InvalidValueError, match="-1"):
            backend.sub(endpoint).receive_array(np.int64, limit=-1)

    @pytest.mark.needs("segment", "lost", "threads")
    def test_lapped_receive_array_with_wait_for_one_waits_for_next_message(
        self, backend: Backend, endpoint: str
    ) -> None:
        pub, sub = backend.pair(endpoint, 1024)
        pub.send_many(np.arange(500))
        sub.setTimeout(-1)
        task = Task(lambda: sub.receive_array(np.int64, wait_for_one=True).tolist())
        task.wait_asleep()
        pub.send(np.int64(500))
        assert task.result() == [500]
        assert sub.lost == 500
