"""Slots of the header, sockets by the hundred, and what a publisher does for stock subscribers."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest

import msgq
from msgq import stats
from msgq.errors import MessageSizeError
from tests.support import DEADLINE, DEADLINE_MS, Child, Task, id_of_ended_thread, run_child
from tests.unit import children
from tests.unit.ringfile import (
    HEADER,
    SLOTS,
    STRANGER_UID,
    RingFile,
    lap_end,
    message_bytes_in_ring,
    ring_position,
)

SIZE = 1024


@pytest.fixture
def pub(endpoint: str) -> Iterator[msgq.PubSocket]:
    with msgq.pub_sock(endpoint, SIZE) as pub:
        yield pub


@pytest.fixture
def ring(endpoint: str, pub: msgq.PubSocket) -> Iterator[RingFile]:
    with RingFile(endpoint) as ring:
        yield ring


class TestSlots:
    @pytest.mark.parametrize("count", [15, 16, 17, 40])
    def test_more_than_fifteen_subscribers_receive_all_messages(
        self, endpoint: str, ring: RingFile, count: int
    ) -> None:
        """The original evicts somebody at every call of the 16th."""
        with msgq.pub_sock(endpoint) as pub:
            subs = [msgq.sub_sock(endpoint) for _ in range(count)]
            for i in range(200):
                pub.send(b"%d" % i)
                assert [sub.receive(True) for sub in subs] == [b"%d" % i] * count
            assert {sub.lost for sub in subs} == {0}
            assert ring.num_readers == SLOTS
            assert len(set(ring.read_uids())) == SLOTS
            pub.wait_for_readers(0, n=count)
            assert pub.all_readers_updated()
            for sub in subs:
                sub.close()

    def test_reader_slot_is_free_after_owner_closes(self, endpoint: str, ring: RingFile) -> None:
        subs = [msgq.sub_sock(endpoint) for _ in range(5)]
        for sub in subs[:3]:
            sub.close()
        assert [uid != 0 for uid in ring.read_uids()] == [False] * 3 + [True] * 2 + [False] * 10
        more = [msgq.sub_sock(endpoint) for _ in range(3)]
        assert ring.num_readers == 5
        assert all(ring.read_uids()[:5])
        for sub in subs + more:
            sub.close()
        assert ring.read_uids() == [0] * SLOTS

    def test_reader_slots_of_dead_subscribers_are_reused(
        self, endpoint: str, pub: msgq.PubSocket, ring: RingFile
    ) -> None:
        with Child(children.hold_sockets, endpoint, ["sub"] * SLOTS) as child:
            child.hear()
            of_the_dead = ring.read_uids()
            assert all(of_the_dead)
            child.kill()
        subs = [msgq.sub_sock(endpoint) for _ in range(SLOTS)]
        assert not set(ring.read_uids()) & set(of_the_dead)
        pub.send(b"x")
        assert [sub.receive(True) for sub in subs] == [b"x"] * SLOTS
        for sub in subs:
            sub.close()

    def test_reader_slots_of_live_subscribers_are_kept(self, endpoint: str, ring: RingFile) -> None:
        subs = [msgq.sub_sock(endpoint) for _ in range(SLOTS)]
        uids = ring.read_uids()
        with msgq.sub_sock(endpoint):
            assert ring.read_uids() == uids
        for sub in subs:
            sub.close()

    def test_reader_slots_are_free_after_process_exit(self, endpoint: str, ring: RingFile) -> None:
        assert run_child(children.subscribe_and_exit, endpoint, 4) == 4
        assert ring.read_uids() == [0] * SLOTS

    def test_new_publisher_keeps_live_subscribers(self, endpoint: str, ring: RingFile) -> None:
        subs = [msgq.sub_sock(endpoint) for _ in range(3)]
        before = ring.num_readers, ring.read_uids(), ring.read_pointers(), ring.read_valids()
        with msgq.pub_sock(endpoint):
            assert (ring.num_readers, ring.read_uids(), ring.read_pointers(), ring.read_valids()) == before
        for sub in subs:
            sub.close()

    def test_new_publisher_removes_dead_subscribers(self, endpoint: str, ring: RingFile) -> None:
        with Child(children.hold_sockets, endpoint, ["sub"] * 3) as child:
            child.hear()
            child.kill()
        with msgq.sub_sock(endpoint) as sub:
            with msgq.pub_sock(endpoint) as successor:
                assert sum(uid != 0 for uid in ring.read_uids()) == 1
                assert not successor.closed
            assert not sub.closed

    def test_subscriber_registers_again_after_its_slot_is_erased(
        self, endpoint: str, pub: msgq.PubSocket, ring: RingFile
    ) -> None:
        """A stock publisher zeroes the slots at its start; messages after it must arrive, and the slot come back."""
        with msgq.sub_sock(endpoint) as sub:
            uid = ring.read_uids()[0]
            ring.write_uid = STRANGER_UID
            ring[0] = ring[144] = ring[264] = 0
            ring.publish(b"from the stranger")
            assert sub.receive(True) == b"from the stranger"
            assert ring.num_readers == 1
            assert ring.read_uids()[0] == uid
            assert ring.read_valids()[0] == 1
        pub.close()

    def test_poll_without_messages_registers_again_after_the_slot_is_erased(
        self, endpoint: str, pub: msgq.PubSocket, ring: RingFile
    ) -> None:
        """A stock publisher waits for its readers before its first message."""
        poller = msgq.Poller()
        with msgq.sub_sock(endpoint, poller):
            uid = ring.read_uids()[0]
            ring.write_uid = STRANGER_UID
            ring[0] = ring[144] = ring[264] = 0
            assert poller.poll(0) == []
            assert (ring.num_readers, ring.read_uids()[0], ring.read_valids()[0]) == (1, uid, 1)
        pub.close()

    def test_subscriber_uses_another_slot_after_overwrite_of_its_slot(self, endpoint: str, ring: RingFile) -> None:
        """A stock reader that counted itself before our write of the uid overwrites it afterwards."""
        with msgq.sub_sock(endpoint) as sub, msgq.pub_sock(endpoint) as pub:
            uid = ring.read_uids()[0]
            ring[264] = STRANGER_UID | threading.get_native_id()
            pub.send(b"x")
            assert sub.receive(True) == b"x"
            assert ring.read_uids()[1] == uid
            assert sub.lost == 0

    @pytest.mark.parametrize("hostile", [16, 1000, 2**31, 2**63, 2**64 - 1])
    def test_invalid_reader_count_does_not_crash_sockets(self, endpoint: str, ring: RingFile, hostile: int) -> None:
        ring[0] = hostile
        with msgq.sub_sock(endpoint) as sub, msgq.pub_sock(endpoint) as pub:
            pub.send(b"x")
            assert sub.receive(True) == b"x"
            assert stats.topic(endpoint).endpoint == endpoint


class TestManySockets:
    def test_poller_with_200_sockets_works(self, prefix: str) -> None:
        """The original asserts at 128; the kernel waits for no more than that at once, either."""
        poller = msgq.Poller()
        pubs = [msgq.pub_sock(f"e{i}", 4096) for i in range(200)]
        subs = [msgq.sub_sock(f"e{i}", poller) for i in range(200)]
        for i in (0, 100, 127, 128, 199):
            task = Task(poller.poll, -1)
            task.wait_asleep()
            pubs[i].send(b"%d" % i)
            (ready,) = task.result()
            assert ready is subs[i]
            assert ready.receive(True) == b"%d" % i
        for pub in pubs:
            pub.send(b"all")
        assert poller.poll(DEADLINE_MS) == subs
        for socket in pubs + subs:
            socket.close()

    def test_topic_supports_more_than_128_subscribers(self, endpoint: str, pub: msgq.PubSocket) -> None:
        """Beyond 128 they are not seen by others, and otherwise the same."""
        subs = [msgq.sub_sock(endpoint) for _ in range(140)]
        assert len(stats.topic(endpoint).subscribers) == 128
        task = Task(subs[-1].receive)
        task.wait_asleep()
        pub.send(b"x")
        assert task.result() == b"x"
        assert [sub.receive(True) for sub in subs[:-1]] == [b"x"] * 139
        for sub in subs:
            sub.close()
        assert stats.topic(endpoint).subscribers == ()


def stock_reader(ring: RingFile, slot: int, where: int, thread_id: int = 0) -> None:
    """Put a stock subscriber into a slot; thread 0 gets no signals."""
    ring[0] = max(ring.num_readers, slot + 1)
    ring[264 + 8 * slot], ring[24 + 8 * slot], ring[144 + 8 * slot] = STRANGER_UID | thread_id, where, 1


class TestForStockSubscribers:
    """They trust their flag: it must be cleared before their message is overwritten, and not for nothing."""

    @pytest.mark.parametrize("slot", [0, 7, 14])
    @pytest.mark.parametrize("num_readers", [0, 15])
    def test_valid_flag_of_lapped_stock_reader_is_cleared_in_any_slot(
        self, pub: msgq.PubSocket, ring: RingFile, slot: int, num_readers: int
    ) -> None:
        """Also beyond num_readers: one that joins while a stock publisher starts may sit there."""
        stock_reader(ring, slot, where=ring_position(0, 160))
        ring[0] = num_readers
        while ring.write_pointer < ring_position(1, 160 + 16):
            pub.send(b"12345678")
        assert ring.read_valids()[slot] == 0

    @pytest.mark.parametrize("offset", range(0, lap_end(SIZE), 16))
    def test_valid_flag_of_stock_reader_is_cleared_before_overwrite(
        self, pub: msgq.PubSocket, ring: RingFile, offset: int
    ) -> None:
        """At every position of the ring, over one lap: never overwritten (or exactly lapped) while valid."""
        while ring.write_pointer < ring_position(0, offset):
            pub.send(b"before..")
        stock_reader(ring, 0, where=ring.write_pointer)
        mine = ring.write_pointer
        pub.send(b"the one!")
        start = HEADER + (mine & 0xFFFFFFFF)
        kept = 0
        while ring.read_valids()[0]:
            assert ring.bytes[start + 8 : start + 16] == b"the one!"
            assert ring.write_pointer != mine + ring_position(1, 0)
            pub.send(b"another.")
            kept += 1
        assert kept >= (lap_end(SIZE) - SIZE // 16) // message_bytes_in_ring(8) - 2  # and not long before it must

    def test_valid_flag_of_up_to_date_stock_reader_is_kept(self, pub: msgq.PubSocket, ring: RingFile) -> None:
        stock_reader(ring, 0, where=0)
        for _ in range(300):
            pub.send(b"12345678")
            assert ring.read_valids()[0] == 1
            ring[24] = ring.write_pointer

    def test_empty_message_is_refused_if_stock_reader_exists(self, pub: msgq.PubSocket, ring: RingFile) -> None:
        """It would abort."""
        pub.send(b"")
        stock_reader(ring, 0, where=ring.write_pointer, thread_id=threading.get_native_id())
        for call in (
            lambda: pub.send(b""),
            lambda: pub.send(bytearray()),
            lambda: pub.send_many([b""]),
            lambda: pub.reserve(0).__enter__(),
        ):
            with pytest.raises(MessageSizeError, match="empty") as caught:
                call()
            assert caught.value.endpoint == pub.endpoint
        pub.send(b"x")
        ring[264] = 0
        pub.send(b"")

    def test_stock_reader_without_signal_handler_is_not_signalled(self, pub: msgq.PubSocket, ring: RingFile) -> None:
        """One that called exec after subscribing; or a thread id that is somebody else's by now."""
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
            stock_reader(ring, 0, where=0, thread_id=cat.pid)
            for _ in range(50):
                pub.send(b"x")
            answer, _ = cat.communicate(b"alive")
        assert answer == b"alive"
        assert cat.returncode == 0

    def test_stock_reader_with_signal_handler_is_signalled(self, pub: msgq.PubSocket, ring: RingFile) -> None:
        with Child(children.count_signals) as child:
            pid = child.hear()
            stock_reader(ring, 0, where=0, thread_id=pid)
            for _ in range(3):
                pub.send(b"x")
                assert child.hear() == signal.SIGUSR2

    def test_wait_for_readers_counts_stock_reader(self, pub: msgq.PubSocket, ring: RingFile) -> None:
        stock_reader(ring, 0, where=0, thread_id=threading.get_native_id())
        pub.send(b"x")
        pub.wait_for_readers(0, n=1)
        assert not pub.all_readers_updated()
        ring[24] = ring.write_pointer
        assert pub.all_readers_updated()
        ring[144] = 0  # lapped, so it has not read all
        assert not pub.all_readers_updated()
        ring[264] = STRANGER_UID | id_of_ended_thread()
        with pytest.raises(TimeoutError, match="0 subscribers"):
            pub.wait_for_readers(0, n=1)


class TestTakeoverByStock:
    """A stock publisher waits for nobody: it may start in the middle of a send of ours."""

    def test_reserved_message_is_not_published_after_takeover(self, pub: msgq.PubSocket, ring: RingFile) -> None:
        before = ring.write_pointer
        reservation = pub.reserve(8)
        reservation.__enter__()[:] = b"12345678"
        ring.start_stranger()
        with pytest.raises(msgq.MultiplePublishersError, match="a stock process"):
            reservation.__exit__(None, None, None)
        assert ring.write_pointer == before
        with pytest.raises(msgq.MultiplePublishersError):
            pub.send(b"x")
        assert ring.write_pointer == before

    def test_send_many_stops_at_takeover(self, pub: msgq.PubSocket, ring: RingFile) -> None:
        def messages() -> Iterator[bytes]:
            yield b"1"
            ring.start_stranger()
            yield b"2"

        with pytest.raises(msgq.MultiplePublishersError):
            pub.send_many(messages())
        assert ring.write_pointer == message_bytes_in_ring(1)

    def test_msgq_publisher_replaces_unregistered_publisher_without_loss(
        self, endpoint: str, pub: msgq.PubSocket, ring: RingFile
    ) -> None:
        with msgq.sub_sock(endpoint) as sub:
            pub.send(b"1")
            ring.start_stranger()
            ring.publish(b"2")
            with msgq.pub_sock(endpoint) as successor:
                successor.send(b"3")
                assert sub.receive_many() == [b"1", b"2", b"3"]
                assert sub.lost == 0
                successor.send_many([b"12345678"] * 500)
                received = len(sub.receive_many())
                assert sub.lost is None or sub.lost + received == 500


class TestCrashedPublisher:
    def test_incomplete_message_is_not_received(self, endpoint: str) -> None:
        with msgq.sub_sock(endpoint) as sub:
            with Child(children.reserve_and_wait, endpoint) as child:
                assert child.hear() == "in the middle"
                child.kill()
            assert sub.receive(True) == b"whole"
            assert sub.receive(True) is None
            with msgq.pub_sock(endpoint) as pub:  # at once: the dead are not waited for
                pub.send(b"next")
            assert sub.receive(True) == b"next"
            assert sub.lost == 0

    def test_bytes_overwritten_by_killed_publisher_remain_lost(self, endpoint: str) -> None:
        """Its limit outlives it: the next publisher did not write there, but the bytes are gone all the same."""
        with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub:
            pub.send_many([b"%08d" % i for i in range(lap_end(SIZE) // message_bytes_in_ring(8))])
            pub.close()
            with Child(children.reserve_and_wait, endpoint) as child:
                assert child.hear() == "in the middle"
                child.kill()
            with msgq.pub_sock(endpoint) as successor:
                assert sub.receive_many() in ([], [b"whole"])
                successor.send(b"next")
                assert sub.receive_many()[-1:] == [b"next"]
                assert sub.lost is not None
                assert sub.lost + sub.stats().received == successor.stats().messages


class TestPidNamespace:
    def test_subscriber_in_other_pid_namespace_is_woken(self, endpoint: str, pub: msgq.PubSocket) -> None:
        """Thread ids mean nothing there, the futex does."""
        with Child(children.subscribe_in_namespace, endpoint) as child:
            if child.hear() == "not permitted":
                pytest.skip("needs the right to make namespaces")
            pub.wait_for_readers(DEADLINE, n=1)
            (info,) = stats.topic(endpoint).subscribers
            assert info.participant.pid == 1
            pub.send(b"hello")
            assert child.hear() == "hello"
