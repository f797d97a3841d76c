"""Loans, views, publishers and subscribers of channels at the wrong time: twice, closed, forked, too many, unlinked."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from msgq import stats
from msgq.channel import Channel
from msgq.errors import (
    EndpointClosedError,
    ForkedSocketError,
    InvalidValueError,
    LostMessagesError,
    MessageSizeError,
    MessageTooLargeError,
    PoolExhaustedError,
    SegmentError,
    StateError,
    TooManyPublishersError,
    TooManySubscribersError,
    TooManyViewsError,
)
from tests.support import DEADLINE, SHM, Child, Task, hear, in_fork, say, wait_until

# ---- loans ----


def test_loan_can_be_published_once(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    with publisher.loan(3) as loan:
        memoryview(loan)[:] = b"abc"
        loan.publish(2)
    for again in (loan.publish, lambda: memoryview(loan), loan.__enter__):
        with pytest.raises(StateError, match=f"{endpoint}.*already published"):
            again()
    loan.discard()
    assert subscriber.receive_many() == [b"ab"]


def test_loan_ended_by_the_index_of_an_assignment_is_not_written(endpoint: str) -> None:
    """The slot may already hold the next message."""
    publisher = Channel(endpoint, capacity=2).publisher(slots=1, slot_bytes=3)
    subscriber = Channel(endpoint).subscriber()
    loan = publisher.loan(3)

    class NextMessage:
        def __index__(self) -> int:
            loan.discard()
            publisher.send(b"new")
            return 0

    with pytest.raises(StateError, match="already published or discarded"):
        loan[NextMessage() :] = b"old"
    assert subscriber.receive(0) == b"new"


def test_loan_is_discarded_if_with_block_raises(endpoint: str) -> None:
    publisher = Channel(endpoint).publisher(slots=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), publisher.loan(1):
            1 / 0  # noqa: B018  # raises
    publisher.send(b"the slot is free")


def test_loan_with_an_exported_buffer_is_not_published(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    loan = publisher.loan(8)
    array = np.frombuffer(memoryview(loan), "u1")
    with pytest.raises(BufferError, match="open buffers: 1"):
        loan.publish()
    assert subscriber.receive(0) is None
    del array
    loan.publish()
    assert subscriber.receive(0) == bytes(8)


def test_loan_slot_stays_reserved_while_a_buffer_exists(endpoint: str) -> None:
    publisher = Channel(endpoint).publisher(slots=1)
    loan = publisher.loan(8)
    array = np.frombuffer(memoryview(loan), "u1")
    loan.discard()
    del loan
    with pytest.raises(PoolExhaustedError, match=f"{endpoint}.*all 1 slots.*1 in open loans"):
        publisher.send(b"1")
    assert publisher.refused == 1
    del array
    publisher.send(b"1")


def test_loan_has_the_requested_size(endpoint: str) -> None:
    publisher = Channel(endpoint).publisher()
    with pytest.raises(InvalidValueError, match="-1"):
        publisher.loan(-1)
    with publisher.loan(4) as loan:
        assert len(loan) == 4
        with pytest.raises(InvalidValueError, match="4 bytes, but 5"):
            loan.publish(5)
    assert publisher.sent == 1


def test_loans_are_ordered_by_publishing(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    loans = [publisher.loan(1) for _ in range(3)]
    for number, loan in enumerate(loans):
        memoryview(loan)[0] = number
    for number in (2, 0, 1):
        loans[number].publish()
    assert subscriber.receive_many() == [b"\2", b"\0", b"\1"]


def test_loan_survives_larger_pool_and_ends_at_publisher_close(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(slot_bytes=8), channel.subscriber()
    early, late = publisher.loan(8), publisher.loan(8)
    publisher.send(bytes(100))
    memoryview(early)[:] = b"in time!"
    early.publish()
    assert subscriber.receive_many() == [bytes(100), b"in time!"]
    publisher.close()
    with pytest.raises(EndpointClosedError):
        late.publish()
    del late


# ---- forks ----


def test_forked_child_has_new_publisher_without_loans_of_parent(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber(own=False)
    heard = channel.subscriber()
    publisher.send(b"parent")
    loan = publisher.loan(1)

    def child() -> None:
        for use in (loan.publish, lambda: memoryview(loan)):
            with pytest.raises(ForkedSocketError, match=endpoint):
                use()
        publisher.send(b"child")
        with publisher.loan(4) as own:
            memoryview(own)[:] = b"loan"
        publisher.send_many(np.frombuffer(b"rows", "S2"))
        publisher.send(bytes(100_000))  # a larger pool
        assert (publisher.sent, len({each.participant.pid for each in stats.channel(endpoint).publishers})) == (6, 2)
        loan.discard()
        publisher.close()

    assert in_fork(child) == 0
    memoryview(loan)[:] = b"1"
    loan.publish()
    assert (publisher.sent, sum(not each.left for each in stats.channel(endpoint).publishers)) == (2, 1)
    messages = [b"parent", b"child", b"loan", b"ro", b"ws", bytes(100_000), b"1"]
    assert heard.receive_many() == messages
    assert subscriber.receive_many() == messages[1:-1]


def test_forked_subscriber_keeps_position_without_views_of_parent(endpoint: str) -> None:
    channel = Channel(endpoint, capacity=4)
    publisher, subscriber = channel.publisher(slots=6), channel.subscriber()
    publisher.send_many([b"1", b"2", b"3"])
    view = subscriber.receive_view(0)
    assert view is not None

    def child() -> None:
        assert bytes(view) == b"1"
        view.release()
        second = subscriber.receive_view(0)
        assert second is not None
        assert bytes(second) == b"2"
        assert subscriber.receive(0) == b"3"
        subscriber.close()

    assert in_fork(child) == 0
    publisher.send_many([b"%d" % n for n in range(20)])
    assert bytes(view) == b"1", "the child released nothing of ours"
    view.release()
    assert subscriber.receive(0) is not None


# ---- views ----


def test_released_channel_view_cannot_be_read(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.send(b"abc")
    view = subscriber.receive_view(0)
    assert view is not None
    with memoryview(view) as inside:
        assert inside.readonly
        with pytest.raises(BufferError, match="open buffers: 1"):
            view.release()
    view.release()
    view.release()
    with pytest.raises(EndpointClosedError, match="released"):
        memoryview(view)


@pytest.mark.parametrize("end", ["subscriber", "publisher", "channel", "unlink", "all"])
def test_view_outlives_its_subscriber_and_publisher(endpoint: str, end: str) -> None:
    channel = Channel(endpoint, capacity=2)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.send(b"abc" * 100)
    view = subscriber.receive_view(0)
    assert view is not None
    array = np.frombuffer(memoryview(view), "u1")
    for name, close in (
        ("subscriber", subscriber.close),
        ("publisher", publisher.close),
        ("channel", channel.close),
        ("unlink", channel.unlink),
    ):
        if end in (name, "all"):
            close()
    if end not in ("publisher", "all"):
        publisher.send_many([bytes(300)] * 10)
    if end in ("publisher", "channel", "unlink", "all"):
        del publisher, subscriber, channel
        gc.collect()
    assert array.tobytes() == b"abc" * 100
    del array
    view.release()


def dying_publisher(name: str) -> None:
    publisher = Channel(name).publisher()
    publisher.send(b"last words")
    say()
    hear()


def test_view_of_a_dead_publisher_stays_readable(endpoint: str) -> None:
    channel = Channel(endpoint, capacity=2)
    subscriber = channel.subscriber()
    with Child(dying_publisher, endpoint) as child:
        child.hear()
        view = subscriber.receive_view(0)
        child.kill()
    assert view is not None
    for _ in range(3):
        with channel.publisher() as publisher:
            publisher.send_many([b"x"] * 5)
    assert bytes(view) == b"last words"
    assert view.publisher.pid == child.pid
    view.release()


def hold_view(name: str) -> None:
    view = Channel(name).subscriber(history=1).receive_view(0)
    say(view is not None)
    hear()


@pytest.mark.parametrize("place", ["order", "limbo"])
@pytest.mark.parametrize("waits", [False, True])
def test_publisher_whose_slots_a_viewer_held_sends_after_its_death(endpoint: str, place: str, waits: bool) -> None:
    """The publisher has looked for dead viewers before, and none of its sends succeeded since then."""
    channel = Channel(endpoint, capacity=4)
    publisher, other = channel.publisher(slots=1), channel.publisher()
    publisher.send(b"held")
    with Child(hold_view, endpoint) as child:
        assert child.hear()
        if place == "limbo":
            other.send_many([b"x"] * 4)
        with pytest.raises(PoolExhaustedError):
            publisher.send(b"refused")
        if waits:
            task = Task(lambda: publisher.send(b"sent", timeout=DEADLINE))
            task.wait_asleep()
        child.kill()
    if waits:
        task.result()
    else:
        publisher.send(b"sent")


def test_too_many_views_raise_only_in_their_subscriber(endpoint: str) -> None:
    channel = Channel(endpoint, capacity=4)
    publisher, subscriber = channel.publisher(), channel.subscriber(max_views=2)
    other = channel.subscriber()
    publisher.send_many([b"1", b"2", b"3"])
    views = [subscriber.receive_view(0), subscriber.receive_view(0)]
    with pytest.raises(TooManyViewsError, match=f"{endpoint}.*holds 2 views"):
        subscriber.receive_view(0)
    assert other.receive_many() == [b"1", b"2", b"3"]
    views.pop()
    gc.collect()
    third = subscriber.receive_view(0)
    assert third is not None
    assert bytes(third) == b"3"


def test_publisher_without_free_slots_raises_or_waits_for_timeout(endpoint: str) -> None:
    channel = Channel(endpoint, capacity=2)
    publisher, subscriber = channel.publisher(slots=2), channel.subscriber()
    publisher.send_many([b"1", b"2"])
    views = [subscriber.receive_view(0), subscriber.receive_view(0)]
    with pytest.raises(PoolExhaustedError, match=f"{endpoint}.*all 2 slots.* {os.getpid()} holds 2"):
        publisher.send(b"3")
    with pytest.raises(PoolExhaustedError):
        publisher.send(b"3", timeout=0.01)
    assert publisher.refused == 2
    waiting = Task(lambda: publisher.send(b"3", timeout=None))
    wait_until(waiting.is_alive)
    views.pop()
    gc.collect()
    waiting.join()
    assert subscriber.receive(1) == b"3"


def test_passive_channel_subscriber_receives_only_copies(endpoint: str) -> None:
    publisher = Channel(endpoint).publisher()
    passive = Channel(endpoint, passive=True)
    with passive.subscriber() as subscriber:
        publisher.send(b"1")
        assert subscriber.receive(1) == b"1"
        with pytest.raises(StateError, match="passive"):
            subscriber.receive_view(0)
    with pytest.raises(StateError, match="passive"):
        passive.publisher()


def test_channel_objects_can_be_garbage_collected_together(endpoint: str) -> None:
    for _ in range(3):
        channel = Channel(endpoint)
        publisher, subscriber = channel.publisher(), channel.subscriber()
        publisher.send_many([b"1", b"2"])
        circle: list[Any] = [channel, publisher, subscriber, publisher.loan(1), subscriber.receive_view(0)]
        circle.append(circle)
        del channel, publisher, subscriber, circle
        gc.collect()
    assert Channel(endpoint, publishers=63).publisher().slots == 66


# ---- limits ----


@pytest.mark.parametrize("most", [1, 3])
def test_publisher_limit_counts_publisher_with_two_pools_once(endpoint: str, most: int) -> None:
    channel = Channel(endpoint, publishers=most)
    publishers = [channel.publisher() for _ in range(most)]
    loan = publishers[0].loan(1)
    publishers[0].send(bytes(10_000))
    with pytest.raises(TooManyPublishersError, match=f"{endpoint}.*{most}.*{os.getpid()}"):
        channel.publisher()
    loan.publish()
    publishers.pop().close()
    channel.publisher().close()


def test_64th_channel_publisher_is_refused(endpoint: str) -> None:
    channel = Channel(endpoint, capacity=2)
    publishers = [channel.publisher(slots=1, slot_bytes=1) for _ in range(63)]
    for _ in range(2):
        with pytest.raises(TooManyPublishersError, match=f"63.*{os.getpid()}"):
            channel.publisher(slots=1, slot_bytes=1)
    for publisher in publishers:
        publisher.send(b"1")
        publisher.close()
    subscriber = channel.subscriber()
    with channel.publisher() as publisher:
        publisher.send(b"2")
    assert subscriber.receive(0) == b"2"
    assert len(list(SHM.glob(f"msgqpool_{endpoint}:*"))) <= 9


def test_channel_with_subscriber_limit_refuses_more_subscribers(endpoint: str) -> None:
    channel = Channel(endpoint, subscribers=1)
    subscriber = channel.subscriber()
    with pytest.raises(TooManySubscribersError, match=f"{endpoint}.*\\(1\\).*{os.getpid()}"):
        channel.subscriber()
    channel.publisher().close()
    Channel(endpoint, passive=True).subscriber().close()
    subscriber.close()
    channel.subscriber().close()


def test_channel_allows_64_view_subscribers_and_unlimited_copy_subscribers(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher = channel.publisher(slots=4)
    viewers = [channel.subscriber() for _ in range(65)]
    copying = [channel.subscriber() for _ in range(30)]
    publisher.send(b"1")
    views = [viewer.receive_view(0) for viewer in viewers[:64]]
    assert {bytes(view) for view in views if view is not None} == {b"1"}
    with pytest.raises(TooManySubscribersError, match=f"{endpoint}.*64"):
        viewers[64].receive_view(0)
    assert [each.receive(0) for each in (viewers[64], *copying)] == [b"1"] * 31
    del views
    viewers[0].close()
    publisher.send(b"2")
    for each in viewers[64:]:
        assert bytes(each.receive_view(0) or b"") == b"2"


# ---- receiving ----


def test_receive_into_small_buffer_keeps_the_message(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.send(b"12345")
    with pytest.raises(MessageTooLargeError, match="5 bytes, but the buffer has 4"):
        subscriber.receive_into(bytearray(4))
    buffer = bytearray(6)
    assert subscriber.receive_into(buffer) == 5
    assert buffer == b"12345\0"
    assert subscriber.receive_into(buffer, 0) is None


def test_receive_array_ends_before_different_size_or_loss(endpoint: str) -> None:
    channel = Channel(endpoint, capacity=16)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.send_many([b"%4d" % n for n in range(3)])
    publisher.send(b"long")
    publisher.send(b"longer")
    assert subscriber.receive_array("S4").tolist() == [b"   0", b"   1", b"   2", b"long"]
    with pytest.raises(MessageSizeError, match="6 bytes, but the dtype has 4"):
        subscriber.receive_array("S4")
    assert subscriber.receive(0) == b"longer"
    for dtype in ("O", np.dtype([])):
        with pytest.raises(InvalidValueError, match="dtype"):
            subscriber.receive_array(dtype)
    with pytest.raises(InvalidValueError, match="limit"):
        subscriber.receive_many(-1)


def test_on_lost_raise_reports_each_loss_once(endpoint: str) -> None:
    channel = Channel(endpoint, capacity=16)
    publisher, subscriber = channel.publisher(), channel.subscriber(on_lost="raise")
    publisher.send_many([b"%d" % n for n in range(20)])
    for receive in (lambda: subscriber.receive(0), subscriber.receive_many):
        with pytest.raises(LostMessagesError, match=endpoint) as caught:
            receive()
        assert caught.value.lost == 4
        assert len(subscriber.receive_many()) == 16
        publisher.send_many([b"%d" % n for n in range(20)])


def test_closed_channel_handles_raise_on_each_call(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.close()
    subscriber.close()
    channel.close()
    uses: list[Callable[[], Any]] = [lambda: publisher.send(b"1"), lambda: publisher.loan(1)]
    uses += [lambda: subscriber.receive(0), lambda: subscriber.receive_view(0), subscriber.fileno]
    for use in uses:
        with pytest.raises(EndpointClosedError, match=endpoint):
            use()
    for make in (channel.publisher, channel.subscriber):
        with pytest.raises(StateError, match="closed"):
            make()


def test_loan_of_size_above_limit_is_refused(endpoint: str) -> None:
    channel = Channel(endpoint)
    for publisher in (channel.publisher(), channel.publisher(slots=3)):
        for size in (2**64 - 1, 2**63, 2**64 // 3, 2**50, 2**30 + 1):
            with pytest.raises(MessageTooLargeError, match=str(size)):
                publisher.loan(size)
        publisher.send(b"")


def test_channel_trust_applies_to_its_publishers_and_subscribers(endpoint: str) -> None:
    first = Channel(endpoint).publisher()
    try:
        os.chown(SHM / f"msgqchan_{endpoint}", 65001, -1)
    except PermissionError:
        pytest.skip("only root may give files away")
    channel = Channel(endpoint, trust="65001")
    subscriber, publisher = channel.subscriber(), channel.publisher()
    first.send(b"1")
    publisher.send(b"2")
    with subscriber.receive_view(0) as view:
        assert bytes(view) == b"1"
    assert subscriber.receive(0) == b"2"
    channel.unlink()


def test_channel_receive_many_returns_messages_before_error(endpoint: str) -> None:
    def child() -> None:
        channel = Channel(endpoint)
        known, new = channel.publisher(), channel.publisher()
        for many in (True, False):
            subscriber = channel.subscriber()
            known.send(b"1")
            assert subscriber.receive(0) == b"1"
            known.send_many([b"2", b"3"])
            new.send(b"4")
            most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))  # so the pool of the other one cannot be mapped
            take = subscriber.receive_many if many else partial(subscriber.receive_array, "S1")
            assert list(take()) == [b"2", b"3"]
            with pytest.raises(SegmentError, match="Too many open files"):
                take()
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
            assert list(take()) == [b"4"]
            assert (subscriber.received, subscriber.lost) == (4, 0)

    assert in_fork(child) == 0


def test_forked_subscriber_is_registered_with_its_position(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.send_many([b"1", b"2"])
    late = channel.subscriber(history=1)
    assert subscriber.receive_many() == [b"1", b"2"]

    def child() -> None:
        assert subscriber.receive(0) is None
        assert late.fileno() >= 0  # in this process, too
        (ours, lates) = [one for one in channel.diagnose().subscribers if one.participant.pid == os.getpid()]
        assert (ours.received, ours.lost, ours.lag) == (2, 0, 0)
        assert (lates.received, lates.lost, lates.lag) == (0, 0, 1)

    assert in_fork(child) == 0


def test_subscriber_limit_counts_earlier_subscribers(endpoint: str) -> None:
    channel = Channel(endpoint)
    first, second = channel.subscriber(), channel.subscriber()
    first.close()
    limited = Channel(endpoint, subscribers=1)
    with pytest.raises(TooManySubscribersError, match=str(os.getpid())):
        limited.subscriber()
    second.close()
    limited.subscriber()
