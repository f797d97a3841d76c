"""The feed of a topic for `msgq echo`: the schema of each message."""

from __future__ import annotations

import msgq
from msgq.kinds.opening import open_feed
from msgq.kinds.source import FEED_BATCH_MESSAGES, EndpointFeed, SourceItem

FIRST, SECOND, THIRD = (msgq.Schema(name, "json") for name in ("First", "Second", "Third"))


def send(*payloads: bytes, schema: msgq.Schema | None) -> None:
    with msgq.PubSocket() as publisher:
        publisher.connect(msgq.context, "pose", schema=schema)
        publisher.send_many(list(payloads))


def take(feed: EndpointFeed) -> list[tuple[bytes | None, msgq.Schema | None]]:
    return [(item.data, item.schema) for item in feed.take_items()]


def test_messages_have_schemas_of_their_publishers(prefix: str) -> None:
    send(schema=FIRST)
    feed = open_feed("pose")
    send(b"1", b"2", schema=FIRST)
    send(b"3", schema=SECOND)
    assert take(feed) == [(b"1", FIRST), (b"2", FIRST), (b"3", SECOND)]
    send(b"4", schema=None)  # the topic keeps its schema
    send(b"5", schema=FIRST)
    assert take(feed) == [(b"4", SECOND), (b"5", FIRST)]


def test_message_before_first_schema_has_no_schema(prefix: str) -> None:
    send(schema=None)
    feed = open_feed("pose")
    send(b"1", schema=None)
    send(b"2", schema=FIRST)
    assert take(feed) == [(b"1", None), (b"2", FIRST)]


def test_unread_messages_have_no_schema_after_two_changes(prefix: str) -> None:
    send(schema=FIRST)
    feed = open_feed("pose")
    send(b"1", schema=SECOND)
    send(b"2", schema=THIRD)
    assert take(feed) == [(b"1", None), (b"2", THIRD)]


def test_feed_takes_many_messages_in_batches(prefix: str) -> None:
    send(schema=FIRST)
    feed = open_feed("pose")
    send(*[b"1"] * (FEED_BATCH_MESSAGES + 1), schema=FIRST)
    assert [len(feed.take_items()) for _ in range(3)] == [FEED_BATCH_MESSAGES, 1, 0]


class LosingFeed(EndpointFeed):
    lost: int | None = 0

    def take_items(self) -> list[SourceItem]:
        return []


def test_feed_describes_only_losses_since_last_call() -> None:
    feed, texts = LosingFeed(), []
    for feed.lost in (0, 3, 3, 4, None, None):
        texts.append(feed.describe_losses().removesuffix(" (printing was too slow)"))
    assert texts == ["", "lost 3 messages", "", "lost 1 message", "lost messages", ""]
