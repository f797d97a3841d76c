"""How a subscriber judges what it finds in the ring: by position, all 64 bits, never by the header's flags.

Most of this is about what goes wrong in the original; each test fails on the naive way to do it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import msgq
from msgq.errors import CorruptSegmentError
from tests.unit.ringfile import (
    HEADER,
    SLOTS,
    WRAP_MARK,
    RingFile,
    announced_chunk_bytes,
    lap_end,
    message_bytes_in_ring,
    ring_path,
    ring_position,
    side_path,
)

SIZE = 1024
LAST_CYCLE = 2**32 - 1


def open_passive_subscriber(endpoint: str, conflate: bool = False) -> msgq.SubSocket:
    sub = msgq.SubSocket()
    sub.connect(msgq.context, endpoint, conflate=conflate, passive=True)
    return sub


#: Ways to receive all that is pending, as a list of bytes.
DRAINS: dict[str, Callable[[msgq.SubSocket], list[bytes]]] = {
    "receive": lambda sub: list(iter(lambda: sub.receive(True), None)),
    "receive_many": lambda sub: sub.receive_many(),
    "receive_array": lambda sub: [item.tobytes() for item in sub.receive_array("V8")],
    "receive_into": lambda sub: list(_receive_into(sub)),
    "iterator": lambda sub: list(_without_wait(sub)),
}
every_drain = pytest.mark.parametrize("drain", DRAINS.values(), ids=DRAINS)
every_kind = pytest.mark.parametrize("kind", ["attached", "passive"])


def _receive_into(sub: msgq.SubSocket) -> Iterator[bytes]:
    buffer = bytearray(64)
    while (size := sub.receive_into(buffer, True)) is not None:
        yield bytes(buffer[:size])


def _without_wait(sub: msgq.SubSocket) -> msgq.SubSocket:
    sub.setTimeout(0)
    return sub


def subscriber(kind: str, endpoint: str) -> msgq.SubSocket:
    return open_passive_subscriber(endpoint) if kind == "passive" else msgq.sub_sock(endpoint)


def numbered_messages(start: int, count: int) -> list[bytes]:
    """Messages of 8 bytes, 16 in the ring."""
    return [i.to_bytes(8, "big") for i in range(start, start + count)]


class TestFullLap:
    """A ring full of exactly one lap: the low halves of both positions are equal, and it is not empty."""

    @every_drain
    @every_kind
    def test_subscriber_exactly_one_lap_behind_loses_no_message(self, endpoint: str, kind: str, drain: Any) -> None:
        with msgq.pub_sock(endpoint, SIZE) as pub:
            pub.send_many(numbered_messages(0, 32))  # to offset 512, where a grant ends
            with subscriber(kind, endpoint) as sub, RingFile(endpoint) as ring:
                start = ring.write_pointer
                sent = numbered_messages(32, lap_end(SIZE) // message_bytes_in_ring(8))
                pub.send_many(sent)
                assert ring.write_pointer == start + ring_position(1, 0)
                assert drain(sub) == sent
                assert sub.lost == 0

    def test_poller_reports_subscriber_exactly_one_lap_behind(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, SIZE) as pub:
            pub.send_many(numbered_messages(0, 32))
            poller = msgq.Poller()
            with msgq.sub_sock(endpoint, poller) as sub:
                pub.send_many(numbered_messages(0, lap_end(SIZE) // message_bytes_in_ring(8)))
                assert poller.poll(0) == [sub]

    def test_subscriber_exactly_one_lap_behind_unregistered_publisher_is_lapped(self, endpoint: str) -> None:
        with RingFile.make(endpoint, SIZE) as ring, msgq.sub_sock(endpoint) as sub:
            ring.start_stranger()
            for message in numbered_messages(0, lap_end(SIZE) // message_bytes_in_ring(8)):
                ring.publish(message)
            ring.write_pointer = ring_position(1, 0)  # state between the wrap mark and the message behind it
            assert sub.receive(True) is None
            assert (sub.lost, sub.stats().resets) == (None, 1)
            ring.publish(b"afterwards")
            assert sub.receive(True) == b"afterwards"


class TestLapped:
    """Lagging too far is found out before and after copying, and counted."""

    @every_drain
    @every_kind
    def test_subscriber_receives_nearly_full_ring_without_loss(self, endpoint: str, kind: str, drain: Any) -> None:
        """With our publisher the lag may reach all but one chunk; more than the 2/3 that stock allows."""
        usable = lap_end(SIZE) - announced_chunk_bytes(SIZE) - message_bytes_in_ring(8)
        assert usable > SIZE * 2 // 3 + 100
        for skipped in range(0, 70, 7):  # from many offsets
            with msgq.pub_sock(endpoint, SIZE) as pub:
                pub.send_many(numbered_messages(0, skipped))
                with subscriber(kind, endpoint) as sub:
                    sent = numbered_messages(0, usable // message_bytes_in_ring(8))
                    pub.send_many(sent)
                    assert drain(sub) == sent
                    assert sub.lost == 0

    @every_drain
    @every_kind
    @pytest.mark.parametrize("count", [63, 64, 65, 100, 126, 127, 1000, 12345])
    def test_lapped_subscriber_counts_overwritten_messages(
        self, endpoint: str, kind: str, count: int, drain: Any
    ) -> None:
        with msgq.pub_sock(endpoint, SIZE) as pub, subscriber(kind, endpoint) as sub:
            sent = numbered_messages(0, count)
            pub.send_many(sent)
            received = drain(sub)
            assert received == sent[count - len(received) :]
            assert sub.lost == count - len(received)
            assert sub.stats().resets == (sub.lost > 0)
            pub.send(b"12345678")
            assert drain(sub) == [b"12345678"]
            assert len(received) + 1 == sub.stats().received

    @every_drain
    @every_kind
    def test_message_being_overwritten_is_not_delivered(self, endpoint: str, kind: str, drain: Any) -> None:
        """The publisher is in the middle of a write, and write_pointer does not show it yet: only the limit does."""
        with msgq.pub_sock(endpoint, SIZE) as pub, subscriber(kind, endpoint) as sub:
            sent = numbered_messages(0, lap_end(SIZE) // message_bytes_in_ring(8))  # the whole lap, from offset 0
            pub.send_many(sent)
            with pub.reserve(200) as view:
                view[:] = b"\xee" * 200
                assert drain(sub) == []
                assert sub.lost == len(sent)
            assert [len(message) for message in sub.receive_many()] == [200]

    def test_size_of_message_being_overwritten_is_ignored(self, endpoint: str) -> None:
        """Bytes of the payload lie where the subscriber looks for a size."""
        with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub:
            pub.send_many(numbered_messages(0, lap_end(SIZE) // message_bytes_in_ring(8)))
            sub.receive(True)
            for word in (0, 1, 8, 300, 2**31, 2**63, WRAP_MARK):
                with pub.reserve(256) as view:
                    view[:] = word.to_bytes(8, "little") * 32
                    assert sub.receive(True) is None
                assert len(sub.receive(True) or b"") == 256
                pub.send_many(numbered_messages(0, lap_end(SIZE) // message_bytes_in_ring(8)))
            assert sub.lost is not None

    @every_drain
    def test_lag_above_two_thirds_behind_unregistered_publisher_loses_messages(self, endpoint: str, drain: Any) -> None:
        """Where it may write, it is not believed: with a lag beyond 2/3 of the ring all is thrown away."""
        with RingFile.make(endpoint, SIZE) as ring:
            ring.start_stranger()
            for fits, count in ((True, 30), (False, 50)):
                ring.write_pointer = ring_position((ring.write_pointer >> 32) + 1, 0)
                with msgq.sub_sock(endpoint) as sub:
                    for message in numbered_messages(0, 40):
                        ring.publish(message)
                    assert drain(sub) == numbered_messages(0, 40)
                    for message in numbered_messages(0, count):
                        ring.publish(message)
                    assert drain(sub) == (numbered_messages(0, count) if fits else [])
                    assert sub.lost == (0 if fits else None)

    def test_subscriber_lapped_by_unregistered_publisher_has_unknown_loss(self, endpoint: str) -> None:
        with RingFile.make(endpoint, SIZE) as ring, msgq.sub_sock(endpoint) as sub:
            ring.start_stranger()
            for message in numbered_messages(0, 500):
                ring.publish(message)
            assert sub.receive(True) is None
            assert sub.lost is None
            assert sub.stats().lost is None
            assert sub.stats().resets == 1
            assert msgq.stats.topic(endpoint).subscribers[0].lost is None
            with msgq.pub_sock(endpoint) as pub:  # once unknown, for ever unknown
                pub.send(b"ours")
                assert sub.receive(True) == b"ours"
                assert sub.lost is None


class TestFlags:
    """Validity flags and pointers of the header are for stock programs; a subscriber of ours believes neither."""

    @pytest.mark.parametrize(("valid", "pointer"), [(0, 0), (1, 0), (1, ring_position(7, 8)), (2**64 - 1, 2**64 - 1)])
    def test_arbitrary_slot_flags_do_not_change_received_messages(
        self, endpoint: str, valid: int, pointer: int
    ) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub, RingFile(endpoint) as ring:
            for i in range(10):
                pub.send(b"%d" % i)
                for slot in range(SLOTS):
                    ring[24 + 8 * slot], ring[144 + 8 * slot] = pointer, valid
                assert sub.receive(True) == b"%d" % i
            assert sub.lost == 0

    def test_subscriber_updates_slot_flags_for_unregistered_publisher(self, endpoint: str) -> None:
        with RingFile.make(endpoint, SIZE) as ring, msgq.sub_sock(endpoint) as sub:
            ring.start_stranger()
            for i in range(200):
                ring.publish(b"%d" % i)
                assert sub.receive(True) == b"%d" % i
                assert ring.read_pointers()[0] == ring.write_pointer
                assert ring.read_valids()[0] == 1
                assert ring.read_uids()[0] != 0


@pytest.fixture
def late_ring(endpoint: str) -> Iterator[RingFile]:
    """A ring whose cycle counter is about to wrap."""
    with RingFile.make(endpoint, SIZE, write_pointer=ring_position(LAST_CYCLE - 1, 0)) as ring:
        yield ring


class TestCycleCounterWraps:
    """After 2^32 laps the cycle is 0 again: positions are compared by difference."""

    @every_drain
    @every_kind
    def test_ring_wrap_loses_no_message(self, endpoint: str, late_ring: RingFile, kind: str, drain: Any) -> None:
        with msgq.pub_sock(endpoint) as pub, subscriber(kind, endpoint) as sub:
            sent, received = numbered_messages(0, 250), []
            for batch in _batched(sent, 7):
                pub.send_many(batch)
                received += drain(sub)
            assert late_ring.write_pointer >> 32 < 10
            assert received == sent
            assert sub.lost == 0

    def test_conflating_subscriber_works_across_cycle_counter_wrap(self, endpoint: str, late_ring: RingFile) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint, conflate=True) as sub:
            for batch in _batched(numbered_messages(0, 250), 7):
                pub.send_many(batch)
                assert sub.receive(True) == batch[-1]
            assert sub.lost is not None
            assert sub.lost + sub.stats().received == 250

    @pytest.mark.parametrize("count", [100, 130, 190, 500])
    def test_losses_are_exact_across_cycle_counter_wrap(self, endpoint: str, late_ring: RingFile, count: int) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            pub.send_many(numbered_messages(0, count))
            received = sub.receive_many()
            assert sub.lost == count - len(received)

    def test_restarts_across_cycle_counter_wrap_lose_no_message(self, endpoint: str, late_ring: RingFile) -> None:
        with msgq.sub_sock(endpoint) as sub:
            for i in range(150):
                with msgq.pub_sock(endpoint) as pub:
                    pub.send(b"%07d" % i)
                assert sub.receive(True) == b"%07d" % i
            assert sub.lost == 0

    def test_subscriber_loses_no_message_when_cycle_counter_wraps(self, endpoint: str, late_ring: RingFile) -> None:
        with msgq.sub_sock(endpoint) as sub:
            late_ring.start_stranger()
            for message in numbered_messages(0, 250):
                late_ring.publish(message)
                assert sub.receive(True) == message
            assert sub.lost == 0
            assert late_ring.write_pointer >> 32 < 10

    def test_lag_is_exact_across_cycle_counter_wrap(self, endpoint: str, late_ring: RingFile) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            for batch in _batched(numbered_messages(0, 249), 3):
                pub.send_many(batch)
                lag = msgq.stats.topic(endpoint).subscribers[0].lag_bytes
                assert lag is not None
                assert (
                    3 * message_bytes_in_ring(8) - message_bytes_in_ring(8) <= lag <= 3 * message_bytes_in_ring(8) + 16
                )
                sub.receive_many()


def _batched(items: list[bytes], size: int) -> list[list[bytes]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def abandon(pub: msgq.PubSocket, data: bytes) -> None:
    """Write into a reservation, but do not publish it."""
    with pub.reserve(len(data)) as view:
        view[:] = data
        raise KeyError


class TestWrapMark:
    def test_wrap_mark_without_message_is_not_received(self, endpoint: str) -> None:
        """A reservation that goes around the ring has published the mark, and nothing behind it."""
        with msgq.pub_sock(endpoint, SIZE) as pub:
            poller = msgq.Poller()
            with (
                msgq.sub_sock(endpoint, poller) as sub,
                open_passive_subscriber(endpoint) as other,
                RingFile(endpoint) as ring,
            ):
                for message in numbered_messages(0, 60):  # up to 48 bytes before the end
                    pub.send(message)
                sub.receive_many()
                other.receive_many()
                with pub.reserve(100) as view:
                    assert ring.write_pointer == ring_position(1, 0)
                    assert poller.poll(0) == []
                    for socket in (sub, other):
                        assert socket.receive(True) is None
                        assert socket.receive_many() == []
                        assert len(socket.receive_array("V8")) == 0
                        assert socket.receive_into(bytearray(8), True) is None
                    view[:] = b"x" * 100
                assert poller.poll(0) == [sub]
                assert sub.receive(True) == other.receive(True) == b"x" * 100
                assert sub.lost == other.lost == 0

    def test_poll_waits_if_ring_has_only_wrap_mark(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint, conflate=True) as sub:
            poller = msgq.Poller()
            poller.registerSocket(sub)
            pub.send_many(numbered_messages(0, 60))
            sub.receive()
            with pub.reserve(100):
                assert poller.poll(20) == []
                sub.setTimeout(20)
                assert sub.receive() is None
            assert poller.poll(0) == [sub]

    def test_discarded_reservation_after_wrap_mark_leaves_valid_ring(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub:
            for i in range(100):
                with pytest.raises(KeyError):
                    abandon(pub, b"\xff" * 100)
                pub.send(b"%d" % i)
                assert sub.receive(True) == b"%d" % i
            assert sub.lost == 0


class TestHostileBytes:
    """A size word may say anything: bounded before copying, and an error when the position is intact."""

    @every_drain
    @pytest.mark.parametrize("size", [SIZE, SIZE - 8, 2**20, 2**31, 2**32, 2**63, 2**64 - 2, 17, 1000])
    def test_impossible_message_size_raises_and_next_receive_continues(
        self, endpoint: str, size: int, drain: Any
    ) -> None:
        with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub, RingFile(endpoint) as ring:
            pub.send(b"12345678")
            ring[HEADER] = size
            with pytest.raises((CorruptSegmentError, msgq.errors.MessageSizeError), match=endpoint):
                (drain(sub), sub.receive(True))
            assert sub.receive(True) is None  # it went on to the present
            pub.send(b"87654321")
            assert drain(sub) == [b"87654321"]

    def test_wrap_mark_at_start_of_ring_raises(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub, RingFile(endpoint) as ring:
            pub.send(b"x")
            ring[HEADER] = WRAP_MARK
            with pytest.raises(CorruptSegmentError):
                sub.receive()

    @pytest.mark.parametrize("conflate", [False, True])
    def test_wrap_mark_in_middle_of_ring_produces_no_false_message(self, endpoint: str, conflate: bool) -> None:
        with (
            msgq.pub_sock(endpoint, SIZE) as pub,
            msgq.sub_sock(endpoint, conflate=conflate) as sub,
            RingFile(endpoint) as ring,
        ):
            pub.send_many(numbered_messages(0, 3))
            ring[HEADER + 16] = WRAP_MARK
            with contextlib.suppress(CorruptSegmentError):  # or lost
                assert len(sub.receive_many(100)) <= 1  # bounded, should it go in circles
                assert sub.receive_many(100) == []
            pub.send(b"x")
            assert sub.receive(True) == b"x"

    @pytest.mark.parametrize("nonsense", [2**40, 17, WRAP_MARK])
    def test_receive_after_error_repeats_no_message(self, endpoint: str, nonsense: int) -> None:
        with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub, RingFile(endpoint) as ring:
            pub.send_many(numbered_messages(0, 3))
            assert sub.receive_many(2) == numbered_messages(0, 2)
            ring[HEADER + 32] = nonsense
            with contextlib.suppress(CorruptSegmentError):  # or lost
                assert sub.receive(True) is None
                assert sub.receive(True) is None
            pub.send_many(numbered_messages(3, 2))
            assert sub.receive_many(100) == numbered_messages(3, 2)

    def test_decreasing_write_position_raises(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub, RingFile(endpoint) as ring:
            pub.send_many(numbered_messages(0, 3))
            sub.receive_many()
            ring.write_pointer = 16
            with pytest.raises(CorruptSegmentError):
                sub.receive(True)

    def test_poll_reports_socket_with_error_as_ready(self, endpoint: str) -> None:
        """A socket with nonsense is reported as ready, so that receive can say what is wrong."""
        with msgq.pub_sock(endpoint, SIZE) as pub, RingFile(endpoint) as ring:
            poller = msgq.Poller()
            with msgq.sub_sock(endpoint, poller) as sub:
                pub.send(b"x")
                ring[HEADER] = 2**40
                assert poller.poll(-1) == [sub]
                with pytest.raises(CorruptSegmentError):
                    sub.receive()


class TestPassive:
    """A passive subscriber reads, and leaves no trace."""

    def test_passive_subscriber_does_not_change_files(self, endpoint: str) -> None:
        files = ring_path(endpoint), side_path(endpoint)
        with msgq.pub_sock(endpoint, 4096) as pub:
            pub.send(b"first")
            before = [path.read_bytes() for path in files]
            sub = open_passive_subscriber(endpoint)
            assert sub.receive(True) is None
            sub.setTimeout(5)
            assert sub.receive() is None
            poller = msgq.Poller()
            poller.registerSocket(sub)
            assert poller.poll(5) == []
            assert [path.read_bytes() for path in files] == before
            pub.send_many([b"1", b"2", b"3"])
            before = [path.read_bytes() for path in files]
            assert sub.receive() == b"1"
            assert sub.receive_many() == [b"2", b"3"]
            assert sub.stats().received == 3
            assert [path.read_bytes() for path in files] == before
            pub.send_many([b"%d" % i for i in range(1000)])  # lapped
            before = [path.read_bytes() for path in files]
            assert sub.lost == 0
            assert sub.receive_many(1000) == []
            assert sub.lost == 1000
            sub.close()
            assert [path.read_bytes() for path in files] == before

    def test_passive_subscriber_maps_files_read_only(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, 4096) as pub:
            pub.close()
            with open_passive_subscriber(endpoint), open("/proc/self/maps") as maps:
                mine = [line.split()[1] for line in maps if endpoint in line]
        assert "r--s" in mine

    def test_passive_subscriber_is_not_counted(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint) as pub, open_passive_subscriber(endpoint):
            assert not pub.all_readers_updated()
            with pytest.raises(TimeoutError, match="0 subscribers"):
                pub.wait_for_readers(0, n=1)
            assert msgq.stats.topic(endpoint).subscribers == ()

    def test_many_passive_subscribers_receive_all_messages(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint) as pub:
            subs = [open_passive_subscriber(endpoint) for _ in range(40)]
            sent = numbered_messages(0, 100)
            pub.send_many(sent)
            assert [sub.receive_many() for sub in subs] == [sent] * 40
            for sub in subs:
                sub.close()

    def test_passive_subscriber_creates_no_file(self, endpoint: str) -> None:
        with pytest.raises(msgq.errors.SegmentError, match="topic not found"):
            open_passive_subscriber(endpoint)
        assert not ring_path(endpoint).exists()
        assert not side_path(endpoint).exists()

    def test_passive_subscriber_works_without_side_segment(self, endpoint: str) -> None:
        ring = RingFile.make(endpoint, SIZE)
        with ring, open_passive_subscriber(endpoint) as sub, open_passive_subscriber(endpoint, conflate=True) as newest:
            ring.start_stranger()
            for message in numbered_messages(0, 300):
                ring.publish(message)
                assert sub.receive(True) == message
                if message[-1] % 20 == 0:
                    assert newest.receive(True) == message
            assert not side_path(endpoint).exists()

    def test_passive_subscriber_follows_changing_publishers(self, endpoint: str) -> None:
        msgq.pub_sock(endpoint, SIZE).close()
        with open_passive_subscriber(endpoint) as sub:
            for i in range(100):
                with msgq.pub_sock(endpoint) as pub:
                    pub.send(b"%d" % i)
                    assert sub.receive(True) == b"%d" % i
            assert sub.lost == 0

    @every_drain
    def test_passive_subscriber_has_unknown_loss_after_unregistered_takeover(self, endpoint: str, drain: Any) -> None:
        """While ours published, the limit told how far; from the stranger's start on it says nothing any more."""
        with (
            msgq.pub_sock(endpoint, SIZE) as pub,
            open_passive_subscriber(endpoint) as sub,
            msgq.sub_sock(endpoint) as attached,
            RingFile(endpoint) as ring,
        ):
            pub.send_many(numbered_messages(0, 5))
            assert drain(sub) == drain(attached) == numbered_messages(0, 5)
            ring.start_stranger()
            for message in numbered_messages(5, 100):
                ring.publish(message)
            assert drain(sub) == drain(attached) == []
            assert sub.lost is attached.lost is None
            ring.publish(b"12345678")
            assert drain(sub) == drain(attached) == [b"12345678"]
            assert ring.num_readers == 1
            assert ring.read_uids()[0] != 0  # it joined again
