"""A subscriber that was lapped: a poll reports it only if its next receive returns a message."""

from __future__ import annotations

import asyncio
import select
from typing import Any

import pytest

from tests.contract.conftest import Backend, Channels
from tests.support import DEADLINE, DEADLINE_MS, Task

SIZE = 1024  # bytes of a ring in which 100 messages are more than a lap
LAP = [b"%d" % i for i in range(100)]
BEYOND = 300  # messages of a channel's test, more than its capacity

pytestmark = pytest.mark.needs("segment", "lost")


def lapped_pair(backend: Backend, name: str, **options: Any) -> tuple[Any, Any]:
    """Return a publisher, and a subscriber that it has lapped."""
    pub, sub = backend.pair(name, SIZE, **options)
    for message in LAP:
        pub.send(message)
    return pub, sub


def test_poll_of_lapped_subscriber_counts_the_loss_and_returns_nothing(backend: Backend, endpoint: str) -> None:
    _, sub = lapped_pair(backend, endpoint)
    poller = backend.poller(sub)
    assert poller.poll(0) == []
    assert (sub.lost, sub.stats().resets) == (len(LAP), 1)
    assert poller.poll(20) == []
    assert sub.receive(True) is None
    assert (sub.lost, sub.stats().resets) == (len(LAP), 1)


def test_message_between_poll_and_receive_arrives_after_a_lap(backend: Backend, endpoint: str) -> None:
    pub, sub = lapped_pair(backend, endpoint)
    poller = backend.poller(sub)
    poller.poll(0)
    pub.send(b"next")
    assert sub.receive(True) == b"next"
    pub.send(b"last")
    assert poller.poll(DEADLINE_MS) == [sub]
    assert sub.receive() == b"last"
    assert sub.lost == len(LAP)


def test_usual_loop_receives_all_messages_of_a_topic_beside_a_lapped_one(backend: Backend, prefix: str) -> None:
    _, lapped = lapped_pair(backend, "lapped")
    pub, sub = backend.pair("served")
    poller = backend.poller(lapped, sub)
    sent = [b"%d" % i for i in range(102)]
    received = []
    for message in sent:
        pub.send(message)
        for socket in poller.poll(100):
            assert socket is sub, "poll returned a subscriber without a message, and its receive would wait forever"
            received.append(socket.receive())
    assert received == sent


@pytest.mark.needs("threads")
@pytest.mark.parametrize("passive", [False, True])
def test_poll_that_skipped_a_lap_wakes_for_the_next_message(backend: Backend, endpoint: str, passive: bool) -> None:
    pub = backend.pub(endpoint, SIZE)
    sub = backend.sub(endpoint, passive=passive)
    for message in LAP:
        pub.send(message)
    waiting = Task(backend.poller(sub).poll, -1)
    if not passive:
        waiting.wait_asleep()
    pub.send(b"next")
    assert waiting.result() == [sub]
    assert sub.receive(True) == b"next"
    assert sub.lost == len(LAP)


def test_poll_of_lapped_conflating_subscriber_returns_it_with_the_newest_message(
    backend: Backend, endpoint: str
) -> None:
    pub, sub = lapped_pair(backend, endpoint, conflate=True)
    assert backend.poller(sub).poll(0) == [sub]
    assert sub.receive(True) == LAP[-1]
    assert backend.poller(sub).poll(0) == []
    pub.send(b"next")
    assert backend.poller(sub).poll(DEADLINE_MS) == [sub]
    pub.send(b"newer")
    assert sub.receive(True) == b"newer"
    assert sub.lost == len(LAP)


def test_lapped_subscriber_that_keeps_the_oldest_records_is_ready(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, SIZE)
    sub._set_record_bytes(8)
    pub.send_many([b"%8d" % i for i in range(len(LAP))])
    assert backend.poller(sub).poll(0) == [sub]
    first = int(sub.receive(True))
    assert sub.lost == first > 0


def test_fileno_of_lapped_subscriber_is_not_readable(backend: Backend, endpoint: str) -> None:
    pub, sub = lapped_pair(backend, endpoint)
    assert not select.select([sub], [], [], 0)[0]
    pub.send(b"next")
    assert select.select([sub], [], [], DEADLINE)[0]
    assert sub.receive(True) == b"next"


def test_descriptor_is_not_readable_after_a_poll_that_skipped_a_lap(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, SIZE)
    fd = sub.fileno()
    for message in LAP:
        pub.send(message)
    assert select.select([fd], [], [], DEADLINE)[0]
    assert backend.poller(sub).poll(0) == []
    assert not select.select([fd], [], [], 0)[0]
    pub.send(b"next")
    assert select.select([fd], [], [], DEADLINE)[0]


@pytest.mark.needs("threads")
def test_asyncio_tasks_skip_a_lap_and_receive_the_next_message(backend: Backend, endpoint: str) -> None:
    pub, sub = lapped_pair(backend, endpoint)
    poller = backend.poller(sub)

    async def receive() -> bytes:
        assert await poller.apoll(0) == []
        polling = asyncio.ensure_future(poller.apoll(-1))
        while sub._asyncio_reader is None:
            await asyncio.sleep(0)
        pub.send(b"next")
        assert await polling == [sub]
        message = await sub.arecv()
        assert isinstance(message, bytes)
        return message

    assert asyncio.run(asyncio.wait_for(receive(), DEADLINE)) == b"next"


def test_poller_with_a_descriptor_does_not_return_a_lapped_subscriber(backend: Backend, prefix: str) -> None:
    _, sub = lapped_pair(backend, "lapped")
    other = backend.sub("other")
    poller = backend.Poller()
    poller.register(sub)
    poller.register(other.fileno())
    assert poller.poll(20) == []


def test_newest_message_after_lap_and_takeover_reaches_conflating_subscriber(backend: Backend, endpoint: str) -> None:
    _, sub = lapped_pair(backend, endpoint, conflate=True)
    backend.pub(endpoint)
    assert backend.poller(sub).poll(0) == [sub]
    assert sub.receive(True) == LAP[-1]
    assert (sub.lost, sub.stats().resets) == (len(LAP) - 1, 0)


def test_newest_message_after_lap_and_two_takeovers_reaches_conflating_subscriber(
    backend: Backend, endpoint: str
) -> None:
    _, sub = lapped_pair(backend, endpoint, conflate=True)
    backend.pub(endpoint)
    backend.pub(endpoint)
    assert sub.receive(True) == LAP[-1]
    assert sub.lost == len(LAP) - 1


def test_receive_into_of_lapped_subscriber_keeps_the_buffer(backend: Backend, endpoint: str) -> None:
    pub, sub = lapped_pair(backend, endpoint)
    buffer = bytearray(b"........")
    assert sub.receive_into(buffer, True) is None
    assert buffer == b"........"
    pub.send(b"next")
    assert sub.receive_into(buffer, True) == 4
    assert buffer == b"next...."


# ---- channels ----


@pytest.mark.parametrize("on_lost", ["count", "raise"])
def test_poll_of_lapped_channel_subscriber_is_ready_only_to_raise(channels: Channels, on_lost: str) -> None:
    pub, sub = channels.pair(capacity=32, on_lapped="newest", on_lost=on_lost)
    for i in range(BEYOND):
        pub.send(b"%d" % i)
    poller = channels.Poller()
    poller.registerSocket(sub)
    assert poller.poll(0) == ([sub] if on_lost == "raise" else [])
    assert sub.lost == BEYOND
