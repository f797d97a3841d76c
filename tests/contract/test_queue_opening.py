"""Work queues: making and opening them, what a handle says of its queue, pickling."""

from __future__ import annotations

import errno
import pickle

import pytest

from msgq.common.schema import Schema
from msgq.errors import (
    EndpointClosedError,
    InvalidValueError,
    IpcError,
    QueueFullError,
    QueueMismatchError,
    SegmentError,
)
from msgq.impl.workqueue.options import O_CREAT, O_CREX, O_EXCL, O_NONBLOCK, SCHEMA_DATA_MAX
from tests.contract.conftest import Queues, receive_all
from tests.support import SHM


class TestOpening:
    def test_queue_by_default_creates_or_opens_its_file(self, queues: Queues) -> None:
        queues.open().send(b"message")
        assert receive_all(queues.open()) == [b"message"]

    def test_flags_0_only_opens_existing_queue(self, queues: Queues) -> None:
        with pytest.raises(SegmentError) as caught:
            queues.open(0)
        assert caught.value.errno == errno.ENOENT
        assert queues.name in str(caught.value)
        queues.open()
        assert not queues.open(0).closed

    def test_flags_O_CREAT_creates_or_opens_queue(self, queues: Queues) -> None:
        queues.open(O_CREAT).send(b"message")
        assert receive_all(queues.open(O_CREAT)) == [b"message"]

    def test_flags_O_CREX_only_creates_new_queue(self, queues: Queues) -> None:
        assert O_CREX == O_CREAT | O_EXCL
        queues.open(O_CREX)
        with pytest.raises(SegmentError) as caught:
            queues.open(O_CREX)
        assert caught.value.errno == errno.EEXIST
        assert queues.name in str(caught.value)

    def test_flags_O_NONBLOCK_never_waits(self, queues: Queues) -> None:
        queue = queues.open(O_CREAT | O_NONBLOCK, max_messages=1)
        assert queue.block is False
        assert queue.receive() is None
        assert queue.take() is None
        assert queue.receive(timeout=100) is None
        queue.send(b"1")
        with pytest.raises(QueueFullError) as caught:
            queue.send(b"2", timeout=100)
        assert caught.value.errno == errno.EAGAIN
        assert queue.wait_space() is False
        assert queue.send_many([b"2"], timeout=100) == 0

    def test_block_attribute_is_separate_for_each_handle(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open(O_NONBLOCK)
        assert (queue.block, other.block) == (True, False)
        queue.block = False
        assert (queue.block, queue.receive()) == (False, None)
        other.block = True
        assert other.block is True

    @pytest.mark.parametrize("what", ["max_messages", "max_message_size"])
    def test_queue_mismatch_error_names_stored_and_given_size(self, queues: Queues, what: str) -> None:
        queues.open(**{what: 10})
        assert getattr(queues.open(**{what: 10}), what) == 10
        assert getattr(queues.open(), what) == 10
        with pytest.raises(QueueMismatchError, match=f"{what}=10.*{what}=11") as caught:
            queues.open(**{what: 11})
        assert caught.value.endpoint == queues.name

    @pytest.mark.parametrize("flags", [0, O_CREAT])
    def test_queue_size_with_flags_applies_to_new_queue_only(self, queues: Queues, flags: int) -> None:
        queues.open(max_messages=10)
        assert queues.open(flags, max_messages=11).max_messages == 10

    def test_queue_defaults_are_128_messages_of_8192_bytes(self, queues: Queues) -> None:
        queue = queues.open()
        assert (queue.max_messages, queue.max_message_size) == (128, 8192)
        assert (queue.block, queue.closed) == (True, False)
        assert (queue.current_messages, queue.in_flight) == (0, 0)
        assert (queue.prefix, queue.schema) == ("", None)

    def test_queue_attributes_are_read_only(self, queues: Queues) -> None:
        queue = queues.open()
        for name in ("max_messages", "max_message_size", "current_messages", "in_flight", "name", "mode", "closed"):
            with pytest.raises(AttributeError):
                setattr(queue, name, 1)

    def test_queue_name_may_begin_with_a_slash(self, queues: Queues) -> None:
        queue = queues.MessageQueue(f"/{queues.name}")
        assert queue.name == queues.name
        queue.send(b"message")
        assert queues.MessageQueue(queues.name.encode()).receive(0) == (b"message", 0)

    def test_longest_queue_name_is_accepted(self, queues: Queues) -> None:
        queues.open(name="x" * (246 - len(queues.name))).send(b"")

    def test_queues_of_different_names_are_separate(self, queues: Queues) -> None:
        one, other = queues.open(name="1"), queues.open(name="2")
        one.send(b"message")
        assert other.receive(0) is None

    def test_queues_of_different_prefixes_are_separate(self, queues: Queues, prefix: str) -> None:
        inside, outside = queues.open(), queues.open(prefix="")
        assert (inside.prefix, outside.prefix) == (prefix, "")
        inside.send(b"inside")
        assert outside.receive(0) is None
        assert queues.open(0, prefix=prefix).receive(0) == (b"inside", 0)
        queues.MessageQueue.unlink_name(queues.name)
        outside.send(b"outside")
        queues.MessageQueue.unlink_name(queues.name, "")

    def test_queue_is_one_file_with_the_requested_mode(self, queues: Queues) -> None:
        queue = queues.open(mode=0o660)
        path = SHM / f"msgqjobs_{queues.name}"
        assert queue.path.endswith(f"/{path.name}")
        assert queue.mode == queues.open(mode=0o600).mode == 0o660
        if queues.backend == "fake":
            assert not path.exists()  # the file is in the memory of the process
        else:
            assert queue.path == str(path)
            assert path.stat().st_mode & 0o777 == 0o660
        queue.unlink()
        assert not path.exists()

    def test_default_queue_mode_gives_access_only_to_owner(self, queues: Queues) -> None:
        assert queues.open().mode == 0o600

    def test_recreated_queue_has_another_identity(self, queues: Queues) -> None:
        first, same = queues.open(), queues.open()
        assert first.identity == same.identity
        first.unlink()
        assert queues.open().identity != first.identity


class TestSchema:
    ONE, OTHER = Schema("one", "text"), Schema("other", "text")

    def test_queue_schema_is_stored_in_the_queue_file(self, queues: Queues) -> None:
        queues.open(schema=self.ONE).close()
        assert queues.open().schema == self.ONE

    def test_queue_keeps_its_first_schema(self, queues: Queues) -> None:
        first = queues.open()
        assert first.schema is None
        assert queues.open(schema=self.ONE).schema == self.ONE
        assert queues.open(schema=self.OTHER).schema == self.ONE
        assert first.schema == self.ONE

    def test_queue_schema_is_a_schema_object(self, queues: Queues) -> None:
        with pytest.raises(TypeError, match="Schema"):
            queues.open(schema="text")

    def test_queue_schema_up_to_the_limit_is_accepted(self, queues: Queues) -> None:
        """It lies in front of the messages: none of them may be touched."""
        largest = Schema("largest", "text", bytes(range(1, 256)) * 78 + b"x" * (SCHEMA_DATA_MAX - 255 * 78))
        queue = queues.open(max_messages=1)
        queue.send(b"message", 5)
        assert queues.open(schema=largest).schema == largest
        with pytest.raises(InvalidValueError, match=f"{SCHEMA_DATA_MAX + 1} bytes.*at most {SCHEMA_DATA_MAX}"):
            queues.open(schema=Schema("larger", "text", largest.data + b"x"))
        assert queue.schema == largest
        assert queue.receive(0) == (b"message", 5)


class TestCreate:
    """`create` says with one word what `flags` say with POSIX's."""

    def test_create_true_only_creates_new_queue(self, queues: Queues) -> None:
        queues.open(create=True)
        with pytest.raises(SegmentError) as caught:
            queues.open(create=True)
        assert caught.value.errno == errno.EEXIST

    def test_create_false_only_opens_existing_queue(self, queues: Queues) -> None:
        with pytest.raises(SegmentError) as caught:
            queues.open(create=False)
        assert caught.value.errno == errno.ENOENT
        queues.open().send(b"message")
        assert receive_all(queues.open(create=False)) == [b"message"]

    def test_create_false_with_other_size_raises_mismatch_error(self, queues: Queues) -> None:
        queues.open(max_messages=3)
        with pytest.raises(QueueMismatchError):
            queues.open(create=False, max_messages=4)

    def test_create_with_flags_raises(self, queues: Queues) -> None:
        with pytest.raises(InvalidValueError, match="give one of them"):
            queues.open(O_CREAT, create=True)


class TestStats:
    def test_queue_stats_count_messages_and_slots(self, queues: Queues) -> None:
        queue = queues.open(max_messages=4, schema=None)
        for priority in (1, 1, 5):
            queue.send(b"message", priority)
        assert queue.receive(0) is not None
        job = queue.take(0, lease=60)
        assert job is not None
        found = queue.stats()
        assert (found.name, found.prefix, found.max_messages) == (queues.name, queue.prefix, 4)
        assert (found.depth, found.in_flight, found.free_slots, found.pending_slots) == (1, 1, 2, 0)
        assert (found.sent, found.received, found.acknowledged, found.returned) == (3, 2, 1, 0)
        assert (found.priorities, found.leases, found.most_deliveries) == (((1, 1),), 1, 1)
        (handle,) = found.handles
        assert (handle.sent, handle.received, handle.taken) == (3, 2, 1)
        job.nack()
        found = queue.stats()
        assert (found.depth, found.returned, found.redelivered, found.leases) == (2, 1, 1, 0)

    def test_stats_of_a_closed_handle_raise(self, queues: Queues) -> None:
        queue = queues.open()
        queue.close()
        with pytest.raises(EndpointClosedError):
            queue.stats()


class TestHandles:
    def test_queue_repr_names_queue_and_sizes(self, queues: Queues) -> None:
        queue = queues.open(max_messages=3)
        queue.send(b"message")
        assert "MessageQueue" in repr(queue)
        assert f"{queues.name!r}, 1 of 3 messages" in repr(queue)

    @pytest.mark.parametrize("block", [True, False])
    def test_unpickled_queue_opens_the_same_name(self, queues: Queues, block: bool) -> None:
        queue = queues.open(O_CREAT, max_messages=3, write=False)
        queue.block = block
        copy = pickle.loads(pickle.dumps(queue))
        queues.open().send(b"message")
        assert (copy.name, copy.block, copy.max_messages) == (queues.name, block, 3)
        assert copy.receive(0) == (b"message", 0)
        queue.close()
        assert not copy.closed
        with pytest.raises(IpcError, match="write=False"):
            copy.send(b"")
        copy.close()

    def test_unpickled_queue_keeps_its_prefix(
        self, queues: Queues, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = queues.open()
        queue.send(b"message")
        data = pickle.dumps(queue)
        monkeypatch.delenv("OPENPILOT_PREFIX")
        with pickle.loads(data) as copy:
            assert copy.prefix == prefix
            assert copy.receive(0) == (b"message", 0)

    def test_unlinked_queue_cannot_be_unpickled(self, queues: Queues) -> None:
        queue = queues.open()
        data = pickle.dumps(queue)
        queue.unlink()
        with pytest.raises(SegmentError) as caught:
            pickle.loads(data)
        assert caught.value.errno == errno.ENOENT
