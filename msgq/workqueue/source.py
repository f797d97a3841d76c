"""Messages of work queues, read passively: waiting messages, and events. No message is taken."""

from __future__ import annotations

import errno
import struct
import time
from typing import Any

from msgq.channel.source import ALL_HISTORY, ChannelFeed
from msgq.common.formatting import format_microseconds
from msgq.common.naming import events_channel
from msgq.common.queue_events import EVENT_FIELDS, EVENT_HEAD_BYTES, EVENT_HEAD_FORMAT, Event
from msgq.common.schema import Schema
from msgq.common.stats.workqueue import QueueMessage
from msgq.common.texts import format_count_noun
from msgq.errors import SegmentError
from msgq.impl.meter import EndpointMeter, QueueEventsMeter, QueueMeter
from msgq.impl.sources import open_events_source
from msgq.impl.workqueue.core import QueueBrowser, QueueWatch
from msgq.kinds.source import EndpointFeed, KindSource, SourceItem

_COMPLAINT_INTERVAL_S = 1.0  # time between two complaints of one queue
_EVENT_FIELD_NAMES = tuple(name for name, _ in EVENT_FIELDS)


class QueueFeed(EndpointFeed):
    """Feed of a queue without events: waiting messages, each once."""

    def __init__(self, browser: QueueBrowser) -> None:
        self._browser = browser
        self._before: int | None = None  # number of sent messages at the first poll
        self._sent = self._shown = self._missed = 0
        self._said_s = time.monotonic()

    def take_items(self) -> list[SourceItem]:
        """Return the waiting messages that were not returned before.

        Sent messages are counted, to detect missed ones.
        """
        counted, self._sent = self._sent, self._browser.sent
        items = self._browser.unseen()
        if self._before is None:
            self._before = self._sent = self._browser.sent
        else:
            self._shown += len(items)
            # Compare with the count of the last poll, because a message is counted shortly before it is visible.
            self._missed = max(self._missed, counted - self._before - self._shown)
        schema = self._browser.schema
        return [_describe_waiting_message(message, schema) for message in items]

    def describe_losses(self) -> str:
        """Return a text about messages that were taken between two polls, at most once per second."""
        now_s = time.monotonic()
        if not self._missed or now_s - self._said_s < _COMPLAINT_INTERVAL_S:
            return ""
        missed, self._missed, self._said_s = self._missed, 0, now_s
        self._shown += missed
        return (
            f"{format_count_noun(missed, 'message')} not shown, because they were taken "
            "first; to see all, create the queue with events"
        )


class EventsFeed(EndpointFeed):
    """Feed of a queue with events: first the waiting messages, then all events."""

    def __init__(self, name: str, prefix: str, browser: QueueBrowser) -> None:
        self._channel, self._prefix, self._browser = events_channel(name), prefix, browser
        self._shown_waiting: set[tuple[int, int]] | None = None  # number and time of waiting messages that were shown
        self._events: ChannelFeed | None = None
        self._subscribe_events(0)

    def _subscribe_events(self, history: int) -> None:
        """Subscribe to the events channel, which the first event creates."""
        try:
            self._events = ChannelFeed(self._channel, self._prefix, history)
        except SegmentError as error:
            if error.errno != errno.ENOENT:
                raise
        else:
            self.waitable = self._events.waitable

    def take_items(self) -> list[SourceItem]:
        """Return the waiting messages at first, then events.

        The sending events of already returned messages are omitted.
        """
        schema = self._browser.schema
        items: list[SourceItem] = []
        if self._shown_waiting is None:
            waited = self._browser.messages()
            self._shown_waiting = {(message.number, message.sent_time) for message in waited}
            items = [_describe_waiting_message(message, schema) for message in waited]
        if self._events is None:
            self._subscribe_events(ALL_HISTORY)  # it was not there before, so all that is in it came since
        events = [] if self._events is None else self._events.take_items()
        for event in (_decode_event(item, schema) for item in events):
            was_shown = (event.json_fields.get("number"), event.json_fields.get("sent_time")) in self._shown_waiting
            if not was_shown or event.json_fields["event"] != "sent":
                items.append(event)
        return items

    @property
    def lost(self) -> int | None:
        """Number of lost events."""
        return 0 if self._events is None else self._events.lost


def open_feed(name: str, prefix: str, _whole: bool) -> EndpointFeed:
    """Return the feed of a work queue."""
    browser = QueueBrowser(name, prefix)
    return EventsFeed(name, prefix, browser) if browser.events else QueueFeed(browser)


def open_meter(name: str, prefix: str) -> EndpointMeter:
    """Return a meter: of the queue's events if it publishes events, else of its counters."""
    has_events = QueueWatch(name, prefix).stats().events
    return QueueEventsMeter(name, prefix) if has_events else QueueMeter(name, prefix)


def _describe_waiting_message(message: QueueMessage, schema: Schema | None) -> SourceItem:
    facts = {
        "event": "waiting",
        "number": message.number,
        "priority": message.priority,
        "deliveries": message.deliveries,
        "sent_time": message.sent_time,
        "origin_time": message.origin_time,
    }
    return SourceItem(message.data, facts, f"waiting {_describe_message(facts)}", schema)


def _decode_event(item: SourceItem, schema: Schema | None) -> SourceItem:
    """Return a message of the events channel as an event. Other messages stay unchanged."""
    if item.data is None or len(item.data) < EVENT_HEAD_BYTES or item.data[0] not in set(Event):
        return SourceItem(item.data, {**item.json_fields, "event": "none"}, "invalid event")
    head: dict[str, Any] = dict(zip(_EVENT_FIELD_NAMES, struct.unpack_from(EVENT_HEAD_FORMAT, item.data), strict=True))
    payload = item.data[EVENT_HEAD_BYTES:]
    head["event"] = Event(head["event"]).name.lower()
    facts = {**head, "origin_time": item.json_fields["origin_time"]}
    text = f"{head['event']} {_describe_message(head)}"
    if head["taken_time"] and head["event"] != "taken":
        text += f", {format_microseconds((head['publish_time'] - head['taken_time']) / 1000)} us after it was taken"
    elif head["event"] not in ("sent", "refused"):
        text += f", {format_microseconds((head['publish_time'] - head['sent_time']) / 1000)} us after it was sent"
    has_payload = head["event"] == "sent" and len(payload) == head["size"]
    return SourceItem(payload if has_payload else None, facts, text, schema)


def _describe_message(facts: dict[str, Any]) -> str:
    deliveries = facts["deliveries"]
    came = f", delivery {deliveries}" if deliveries else ""
    return f"{facts['number']}, priority {facts['priority']}{came}"


SOURCE = KindSource(open_source=open_events_source, open_feed=open_feed, open_meter=open_meter)
