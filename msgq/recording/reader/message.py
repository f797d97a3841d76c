"""Messages and totals of a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema


class Message(NamedTuple):
    """A message of a log. A tuple, because tuples are created in half the time of frozen dataclasses.

    Attributes:
        endpoint: name of the endpoint.
        data: payload.
        log_time: recording time, in ns since the epoch.
        publish_time: publishing time, in ns since the epoch; `log_time` if unknown.
        sequence: number of the message within its epoch, 32 bits that wrap.
        epoch: number of the endpoint's incarnation, from 1. A new incarnation starts its numbers again. 0: the file
            contains no epoch.
        schema: description of the payload, if known.
        origin_time: time of the first event that led to the message, in ns since the epoch (docs/guides/tracking.md).
            0: unknown.
        source: kind, publisher and key of the message; also available as attributes.
    """

    endpoint: str
    data: bytes
    log_time: int
    publish_time: int
    sequence: int
    epoch: int
    schema: Schema | None
    origin_time: int = 0
    source: MessageSource = TOPIC_SOURCE

    @property
    def kind(self) -> str:
        """Kind of the endpoint: "topic", "frames", "channel", "records" or "queue"."""
        return self.source.kind

    @property
    def publisher(self) -> str:
        """Name of the publisher's node, if an endpoint can have several. Topics: only after a takeover. Else ""."""
        return self.source.publisher

    @property
    def key(self) -> str:
        """Key of a board; else ""."""
        return self.source.key


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """Totals of an endpoint in a log, within the selection.

    Attributes:
        endpoint: name of the endpoint.
        schema: newest schema, if any.
        messages: number of messages.
        bytes: bytes of their payloads.
        first_time: log_time of the first message, in ns since the epoch; None: no message.
        last_time: log_time of the last message, in ns since the epoch; None: no message.
        lost: number of lost messages: gaps between messages, and losses before the first and after the last message
            that the recording stores. None: unknown. An endpoint can have losses without messages.
        epochs: number of epochs.
        largest: bytes of the largest payload.
        tracked: True if the topic was tracked, so that its messages have an origin.
        kind: kind of the endpoint, as in `Message.kind`.
        options: options to create the endpoint again, by name, of the newest incarnation.
        publishers: sorted names of the publishing nodes, if the endpoint can have several.
    """

    endpoint: str
    schema: Schema | None
    messages: int
    bytes: int
    first_time: int | None
    last_time: int | None
    lost: int | None
    epochs: int
    largest: int
    tracked: bool = False
    kind: str = "topic"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    publishers: tuple[str, ...] = ()
