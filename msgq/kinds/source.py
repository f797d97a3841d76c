"""Passive reading of messages of a kind, unnoticed by other processes. Interface of the file source.py of each kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgq.common.schema import Schema
from msgq.common.texts import format_count_noun
from msgq.impl.base.core import Waitable
from msgq.impl.meter import EndpointMeter
from msgq.impl.sources import EndpointSource, PolledSource

FEED_BATCH_MESSAGES = 1000  # messages of one endpoint before it is another endpoint's turn


class PayloadTime(NamedTuple):
    """Location of the publish time in payloads: byte offset of a u64 in nanoseconds, and its clock.

    The clock is "host" (docs/internals/clock.md), "realtime" or "monotonic".
    """

    offset: int
    clock: str


class TimeStamps(NamedTuple):
    """Location of publish times: next to the payload, or else in a field of the schema."""

    is_beside_payload: bool
    schema: Schema | None


@dataclass(frozen=True, slots=True)
class SourceItem:
    """A message, value or event.

    Attributes:
        data: payload; None: not available.
        json_fields: other properties, for JSON output.
        text: the same properties as text before the payload; "": none.
        schema: schema of the payload.
    """

    data: bytes | None
    json_fields: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    schema: Schema | None = None


class EndpointFeed(ABC):
    """Feed of new items of an endpoint.

    Attributes:
        waitable: object that is readable when an item arrives; None: the feed must be polled.
    """

    waitable: Waitable | None = None
    _reported_lost: int | None = 0

    @abstractmethod
    def take_items(self) -> list[SourceItem]:
        """Return the new items since the last call, or a part of them if there are many."""

    @property
    def lost(self) -> int | None:
        """Number of messages that were missed; None: unknown."""
        return 0

    def describe_losses(self) -> str:
        """Return a text about messages missed since the last call; "": none. An unknown number is reported once."""
        before, self._reported_lost = self._reported_lost, self.lost
        if self._reported_lost == before:
            return ""
        lost = None if self._reported_lost is None else self._reported_lost - (before or 0)
        return f"lost {'messages' if lost is None else format_count_noun(lost, 'message')} (printing was too slow)"


@dataclass(frozen=True, slots=True)
class KindSource:
    """Functions that read messages of a kind passively.

    Attributes:
        open_source: takes a bare name, a prefix, `whole` and `files` as `open_source`; returns the source for the
            recorder and Spark.
        open_feed: takes a bare name, a prefix and `whole` as `open_source`; returns the feed for `msgq echo`. Queues
            and records ignore `whole`, because their feeds always begin with what is there.
        open_meter: takes a bare name and a prefix; returns the meter for hz, bw and delay. None: the meter counts the
            messages of the source.
        find_stamps: takes a bare name and a prefix; returns the location of publish times. None: payloads of this kind
            have no publish time.
    """

    open_source: Callable[[str, str, bool, Mapping[str, int] | None], EndpointSource]
    open_feed: Callable[[str, str, bool], EndpointFeed]
    open_meter: Callable[[str, str], EndpointMeter] | None = None
    find_stamps: Callable[[str, str], TimeStamps] | None = None


class _PolledFeed(EndpointFeed):
    def __init__(self, source: PolledSource) -> None:
        self._source = source

    def take_items(self) -> list[SourceItem]:
        return [SourceItem(data, schema=self._source.schema) for data, _ in self._source.poll()]


def make_polled_part(open_source: Callable[[str, str, bool], PolledSource]) -> KindSource:
    """Return the part of a kind whose files C code cannot read: recorder and feed poll the same source.

    `open_source`: takes a bare name, a prefix, and `whole` as `open_source`. A feed begins with the first message.
    """
    return KindSource(
        open_source=lambda name, prefix, whole, _: open_source(name, prefix, whole),
        open_feed=lambda name, prefix, _: _PolledFeed(open_source(name, prefix, True)),
    )
