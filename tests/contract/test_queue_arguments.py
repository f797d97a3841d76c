"""Work queues: what they take and refuse, and what they leave untouched when they refuse."""

from __future__ import annotations

import array
import errno
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from msgq.errors import EndpointNameError, InvalidValueError, MessageTooLargeError, SegmentError
from msgq.impl.workqueue.options import O_CREAT, O_CREX
from tests.cases import each_case
from tests.contract.conftest import Queues
from tests.support import SHM

INDEX = np.int16(3)


class TestMessages:
    @pytest.mark.parametrize(
        "data",
        [
            bytearray(b"12345678"),
            memoryview(b"12345678"),
            memoryview(b"12345678")[2:6],
            array.array("Q", [1]),
            np.arange(4, dtype="u2"),
            np.zeros((3, 5)),
            np.zeros((3, 0)),
            np.uint64(3),
        ],
        ids=lambda data: type(data).__name__,
    )
    def test_send_accepts_any_contiguous_buffer(self, queues: Queues, data: Any) -> None:
        queue = queues.open()
        queue.send(data)
        assert queue.send_many([data]) == 1
        expected = data.tobytes() if hasattr(data, "tobytes") else bytes(data)
        assert [message.data for message in queue.receive_many()] == [expected] * 2

    @pytest.mark.parametrize(
        "data", ["text", 5, None, [1], np.array([None])], ids=["str", "int", "None", "list", "objects"]
    )
    def test_send_refuses_objects_that_are_not_buffers(self, queues: Queues, data: Any) -> None:
        queue = queues.open()
        with pytest.raises(TypeError):
            queue.send(data)
        with pytest.raises(TypeError):
            queue.send_many([data])
        assert queue.current_messages == 0

    @pytest.mark.parametrize("data", [memoryview(b"12345678")[::2], np.zeros((4, 4))[:, 1]], ids=["view", "array"])
    def test_send_with_noncontiguous_object_is_refused(self, queues: Queues, data: Any) -> None:
        queue = queues.open()
        with pytest.raises((BufferError, ValueError)):
            queue.send(data)
        assert queue.current_messages == 0

    def test_sent_message_is_a_copy(self, queues: Queues) -> None:
        queue, data = queues.open(), bytearray(b"before")
        queue.send(data)
        data[:] = b"after!"
        assert queue.receive(0).data == b"before"
        data.append(0)  # nothing holds its buffer

    def test_send_many_with_noniterable_argument_is_refused(self, queues: Queues) -> None:
        with pytest.raises(TypeError):
            queues.open().send_many(5)

    def test_send_many_iterator_may_use_the_queue(self, queues: Queues) -> None:
        queue = queues.open()

        def messages() -> Any:
            yield b"1"
            assert queue.receive(0).data == b"1"
            queue.send(b"between")
            yield b"2"

        assert queue.send_many(messages()) == 2
        assert [data for data, _ in queue.receive_many()] == [b"between", b"2"]


class TestPriorities:
    @pytest.mark.parametrize("priority", [0, 1, 32767, True, INDEX], ids=repr)
    def test_priority_in_range_is_kept(self, queues: Queues, priority: Any) -> None:
        queue = queues.open()
        queue.send(b"", priority)
        queue.send(b"", priority=priority)
        queue.send_many([b""], priority)
        assert [message.priority for message in queue.receive_many()] == [int(priority)] * 3

    @pytest.mark.parametrize("priority", [-1, 32768, 2**16, 2**31, 2**64, -(2**63)])
    def test_priority_out_of_range_is_refused(self, queues: Queues, priority: int) -> None:
        queue = queues.open()
        for call in (queue.send, lambda data, priority: queue.send_many([data], priority)):
            with pytest.raises(InvalidValueError, match="32767") as caught:
                call(b"", priority)
            assert str(priority) in str(caught.value)
            assert (caught.value.errno, caught.value.endpoint) == (errno.EINVAL, queues.name)
        assert queue.current_messages == 0

    @pytest.mark.parametrize("priority", [1.0, 0.0, "1", "", None, [1], b"1"], ids=repr)
    def test_priority_of_wrong_type_is_refused(self, queues: Queues, priority: Any) -> None:
        queue = queues.open()
        with pytest.raises(TypeError):
            queue.send(b"", priority)
        with pytest.raises(TypeError):
            queue.send_many([b""], priority)
        assert queue.current_messages == 0

    @pytest.mark.parametrize("origin_time", [-1, 2**64])
    def test_origin_time_out_of_range_is_refused(self, queues: Queues, origin_time: int) -> None:
        queue = queues.open()
        with pytest.raises(InvalidValueError, match=str(origin_time)):
            queue.send(b"", origin_time=origin_time)
        for bad in (1.5, 0.0, None, ""):
            with pytest.raises(TypeError):
                queue.send(b"", origin_time=bad)
        assert queue.current_messages == 0


class TestBuffers:
    @each_case("size", [7, 8, 1000])
    @each_case("kind", ["bytearray", "memoryview", "array", "numpy"], reset="queues.close")
    def test_receive_into_fills_the_callers_buffer(self, queues: Queues, kind: str, size: int) -> None:
        queue = queues.open()
        queue.send(b"message", 5)
        memory = bytearray(b"." * size)
        buffer: Any = {
            "bytearray": memory,
            "memoryview": memoryview(memory),
            "array": array.array("B", memory),
            "numpy": np.frombuffer(memory, "u1"),
        }[kind]
        assert queue.receive_into(buffer, timeout=0) == (7, 5)
        assert bytes(buffer) == b"message".ljust(size, b".")
        assert queue.current_messages == 0

    def test_receive_into_accepts_array_larger_than_the_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(np.array([1.5, 2.5]))
        target = np.zeros(3)
        assert queue.receive_into(target, 0) == (16, 0)
        assert target.tolist() == [1.5, 2.5, 0]

    def test_receive_into_too_small_buffer_raises_and_takes_no_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message", 5)
        buffer = bytearray(6)
        for _ in range(3):
            with pytest.raises(MessageTooLargeError, match=r"7 bytes.*6") as caught:
                queue.receive_into(buffer, timeout=0)
            assert caught.value.errno == errno.EMSGSIZE
        assert (queue.current_messages, queue.in_flight) == (1, 0)
        assert buffer == bytes(6)
        message = queue.receive(0)
        assert message == (b"message", 5)
        assert message.deliveries == 1

    def test_receive_into_too_small_buffer_keeps_the_message_order(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send_many([b"large", b"s"])
        with pytest.raises(MessageTooLargeError):
            queue.receive_into(bytearray(1), timeout=0)
        assert [data for data, _ in queue.receive_many()] == [b"large", b"s"]

    def test_receive_into_empty_buffer_takes_an_empty_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"", 3)
        assert queue.receive_into(bytearray(), timeout=0) == (0, 3)
        assert queue.receive_into(bytearray(), timeout=0) is None

    @pytest.mark.parametrize(
        "buffer",
        [b"12345678", "text", None, 8, memoryview(b"12345678"), memoryview(bytearray(16))[::2]],
        ids=["bytes", "str", "None", "int", "read-only view", "not contiguous"],
    )
    def test_receive_into_read_only_buffer_takes_no_message(self, queues: Queues, buffer: Any) -> None:
        queue = queues.open()
        queue.send(b"message")
        with pytest.raises((TypeError, BufferError, ValueError)):
            queue.receive_into(buffer, timeout=0)
        assert queue.receive(0).deliveries == 1


class TestLimits:
    @pytest.mark.parametrize("call", ["receive_many", "peek"])
    def test_negative_limit_or_limit_of_wrong_type_is_refused(self, queues: Queues, call: str) -> None:
        queue = queues.open()
        queue.send(b"message")
        with pytest.raises(InvalidValueError, match="-1"):
            getattr(queue, call)(-1)
        for bad in (1.5, "1"):
            with pytest.raises(TypeError):
                getattr(queue, call)(bad)
        assert len(getattr(queue, call)(2**64)) == 1

    @pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf"), 2**31])
    def test_invalid_lease_value_is_refused(self, queues: Queues, lease: float) -> None:
        queue = queues.open()
        queue.send(b"message")
        with pytest.raises(InvalidValueError, match="lease"):
            queue.take(0, lease=lease)
        with pytest.raises(TypeError):
            queue.take(0, lease="1")
        assert (queue.current_messages, queue.in_flight) == (1, 0)

    def test_queue_methods_refuse_extra_positional_arguments(self, queues: Queues) -> None:
        queue = queues.open()
        calls: list[Callable[[], Any]] = [
            lambda: queue.send(b"", 0, 1),
            lambda: queue.receive(0, 1),
            lambda: queue.take(0, 1, 1),
            lambda: queues.MessageQueue(queues.name, None, None, None, None, True),
            lambda: queue.send(b"", nonsense=1),
            lambda: queues.MessageQueue(),
        ]
        for call in calls:
            with pytest.raises(TypeError):
                call()
        assert queue.current_messages == 0


class TestOpening:
    """What is refused makes nothing."""

    @pytest.fixture(autouse=True)
    def nothing_is_made(self, queues: Queues) -> Any:
        yield
        with pytest.raises(SegmentError):
            queues.open(0)
        assert not list(SHM.glob(f"msgqjobs_{queues.name}*"))

    @pytest.mark.parametrize("what", ["max_messages", "max_message_size"])
    @pytest.mark.parametrize("value", [0, -1, 2**64, 2**31])
    def test_queue_size_out_of_range_is_refused(self, queues: Queues, what: str, value: int) -> None:
        for flags in (None, O_CREAT, O_CREX, 0):
            with pytest.raises(InvalidValueError, match=f"{what} is {value}") as caught:
                queues.open(flags, **{what: value})
            assert (caught.value.errno, caught.value.endpoint) == (errno.EINVAL, queues.name)
        with pytest.raises(InvalidValueError):
            queues.open(max_messages=65537)
        with pytest.raises(InvalidValueError):
            queues.open(max_message_size=2**30 + 1)

    @pytest.mark.parametrize("what", ["flags", "max_messages", "max_message_size", "mode"])
    def test_queue_size_of_wrong_type_is_refused(self, queues: Queues, what: str) -> None:
        with pytest.raises((TypeError, InvalidValueError)):
            queues.open(**{what: "many"})
        with pytest.raises((TypeError, InvalidValueError)):
            queues.open(**{what: [1]})

    @pytest.mark.parametrize("flags", [1, 2, 3, O_CREX | 1, 1 << 40, -1])
    def test_queue_with_unknown_flags_is_refused(self, queues: Queues, flags: int) -> None:
        with pytest.raises(InvalidValueError, match="O_CREAT"):
            queues.open(flags)

    @pytest.mark.parametrize("mode", [0o620, 0o640, 0o602, 0o604, 0o642, 0o700, 0o060, 0o1600, -1])
    def test_queue_mode_out_of_range_is_refused(self, queues: Queues, mode: int) -> None:
        with pytest.raises(InvalidValueError, match="mode") as caught:
            queues.open(mode=mode)
        assert caught.value.endpoint == queues.name

    @each_case("name", ["", "/", "a/b", "//a", ".", "..", "a\0", "x" * 247, b"", b"\xff"])
    def test_queue_with_invalid_name_is_refused(self, queues: Queues, name: Any) -> None:
        with pytest.raises(EndpointNameError) as caught:
            queues.MessageQueue(name)
        assert caught.value.errno == errno.EINVAL
        with pytest.raises(EndpointNameError):
            queues.MessageQueue.unlink_name(name)

    @pytest.mark.parametrize("name", [None, 5, ["a"]], ids=repr)
    def test_queue_name_of_wrong_type_is_refused(self, queues: Queues, name: Any) -> None:
        with pytest.raises(TypeError):
            queues.MessageQueue(name)
        with pytest.raises(TypeError):
            queues.MessageQueue.unlink_name(name)

    @pytest.mark.parametrize("prefix", ["a/b", "..", "x" * 300])
    def test_queue_with_invalid_prefix_is_refused(self, queues: Queues, prefix: str) -> None:
        with pytest.raises(EndpointNameError):
            queues.open(prefix=prefix)
        with pytest.raises(EndpointNameError):
            queues.MessageQueue.unlink_name(queues.name, prefix)

    def test_queue_handle_with_neither_read_nor_write_is_refused(self, queues: Queues) -> None:
        with pytest.raises(InvalidValueError, match="read and write"):
            queues.open(read=False, write=False)

    def test_queue_with_invalid_spin_trust_or_schema_is_refused(self, queues: Queues) -> None:
        with pytest.raises(InvalidValueError):
            queues.open(spin_us=-1)
        with pytest.raises(InvalidValueError):
            queues.open(trust="nobody of this name")
        with pytest.raises(TypeError):
            queues.open(trust=5)
        with pytest.raises(TypeError):
            queues.open(schema="text")


def test_queue_mode_omits_read_only_rights_of_msgq_mode_variable(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MSGQ_MODE is meant for topics, too, which others may read."""
    monkeypatch.setenv("MSGQ_MODE", "664")
    assert queues.open().mode == 0o660


def test_receive_with_spin_times_out_and_returns_messages(queues: Queues) -> None:
    queue = queues.open(spin_us=100)
    assert queue.receive(0.01) is None
    queue.send(b"message")
    assert queue.receive(0.01) == (b"message", 0)
