"""What a thread publishes while it has an origin inherits it, on each backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from msgq.impl.base import clock
from tests.support import Task


@pytest.fixture(autouse=True)
def no_origin() -> Iterator[None]:
    """Have none before the test, nor after it."""
    assert clock.origin_time() == 0
    yield
    clock.set_origin(0)


class TestChannels:
    def test_channel_message_has_the_origin_of_the_publishing_thread(self, channels: Any) -> None:
        publisher, subscriber = channels.pair()
        for told, given, found in ((0, 0, 0), (7, 0, 7), (7, 9, 9), (0, 9, 9)):
            clock.set_origin(told)
            publisher.send(b"one", origin_time=given)
            assert subscriber.receive() == b"one"
            assert subscriber.last.origin_time == found

    def test_channel_batch_has_the_origin_of_the_publishing_thread(self, channels: Any) -> None:
        publisher, subscriber = channels.pair()
        clock.set_origin(7)
        publisher.send_many([b"one", b"two"])
        for _ in range(2):
            with subscriber.receive_view() as view:
                assert view.origin_time == 7

    def test_channel_loan_has_the_origin_of_the_publishing_thread(self, channels: Any) -> None:
        publisher, subscriber = channels.pair()
        for given, found in ((0, 7), (9, 9)):
            clock.set_origin(0)
            with publisher.loan(3) as loan:
                loan.origin_time = given
                clock.set_origin(7)
            subscriber.receive()
            assert subscriber.last.origin_time == found

    @pytest.mark.needs("threads")
    def test_origin_of_one_thread_does_not_apply_to_other_threads(self, channels: Any) -> None:
        publisher, subscriber = channels.pair()
        clock.set_origin(7)
        Task(publisher.send, b"one").result()
        subscriber.receive()
        assert subscriber.last.origin_time == 0


class TestQueues:
    def test_queue_message_has_the_origin_of_the_sending_thread(self, queues: Any) -> None:
        queue = queues.open()
        for told, given, found in ((0, 0, 0), (7, 0, 7), (7, 9, 9), (0, 9, 9)):
            clock.set_origin(told)
            queue.send(b"one", origin_time=given)
            assert queue.receive(0).origin_time == found

    def test_queue_batch_and_jobs_have_the_origin_of_the_sending_thread(self, queues: Any) -> None:
        queue = queues.open()
        clock.set_origin(7)
        queue.send_many([b"one", b"two"])
        assert queue.receive(0).origin_time == 7
        with queue.take(0) as job:
            assert job.origin_time == 7
