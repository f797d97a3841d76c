"""What a log is made of, for those who read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema


class Message(NamedTuple):
    """A message of a log. A tuple, because those are made in half the time that frozen dataclasses take.

    Attributes
    ----------
    endpoint : where it was published.
    data : the payload.
    log_time : when it was recorded, ns since the epoch.
    publish_time : when it was published, ns since the epoch; `log_time` where that is not known.
    sequence : number among those of its epoch, 32 bits that wrap.
    epoch : which life of the numbering, from 1; 0 where the file does not say.
    schema : what the payload means, if that is known.
    origin_time : when that came about which it was made from, ns since the epoch, if its topic was tracked
        (tracking.md); 0: the file does not say.
    source : its kind, publisher and key, which are attributes of the message, too.
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
        """Of its endpoint: "topic", "frames", "channel", "records" or "queue"."""
        return self.source.kind

    @property
    def publisher(self) -> str:
        """Return who published it, by the name of its node, where an endpoint has several; else ""."""
        return self.source.publisher

    @property
    def key(self) -> str:
        """Of a board; else ""."""
        return self.source.key


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """What a log has of an endpoint, within what was selected.

    Attributes
    ----------
    endpoint : the name.
    schema : the newest one, if any.
    messages, bytes : how many, and of their payloads.
    first_time, last_time : log_time of the first and the last message, ns since the epoch; None: there is none.
    lost : messages that are missing between those that are there, and before the first and after the last one where the
        recording states such losses; None: the numbers do not tell. An endpoint whose messages were all lost has these
        losses and no messages.
    epochs : lives of the numbering.
    largest : bytes of the largest payload.
    tracked : whether its topic was tracked, so that messages have an origin.
    kind : as of its messages.
    options : what it needs to be made anew, by name; of the newest that is there.
    publishers : the names of the nodes that published, sorted, where it has several.
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
