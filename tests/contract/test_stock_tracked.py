"""Stock processes on a tracked topic: they know nothing of stamps, and neither harm it nor are harmed."""

from __future__ import annotations

from typing import Any

import pytest

import msgq
from msgq.errors import CorruptSegmentError
from tests.stock import StockPublisher, StockSubscriber
from tests.stock.ours import subscriber

pytest_plugins = ("tests.stock.fixtures",)


def test_stock_subscriber_receives_stamps_as_bytes(endpoint: str, stack: Any) -> None:
    pub = stack.enter_context(msgq.pub_sock(endpoint, tracked=True))
    stock = stack.enter_context(StockSubscriber(endpoint))
    for size in (0, 1, 100):
        pub.send(bytes(size))
        assert stock.receive().size == 16 + size, "an empty payload is no empty message, on which it would abort"


def test_stock_message_on_tracked_topic_is_split_into_stamps_and_payload(endpoint: str, stack: Any) -> None:
    with msgq.pub_sock(endpoint, tracked=True) as pub:
        pub.send(b"ours")
        ours = [stack.enter_context(subscriber(endpoint, passive=passive)) for passive in (False, True)]
    stock = stack.enter_context(StockPublisher(endpoint))
    stock.send(1, 64)
    for sub in ours:
        assert len(sub.receive()) == 64 - 16
    stock.send(2, 12)  # has no room for stamps
    for sub in ours:
        with pytest.raises(CorruptSegmentError):
            sub.receive()
    stock.send(3, 100)
    for sub in ours:
        assert len(sub.receive()) == 100 - 16
    with msgq.pub_sock(endpoint, tracked=True) as pub:  # the topic is what it was
        pub.send(b"ours again", origin_time=5)
        for sub in ours:
            assert sub.receive_tracked()[::2] == (b"ours again", 5)
