"""Messages of a kind, read passively: no process notices. Interface of the file source.py of each kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgq.common.schema import Schema
from msgq.common.texts import format_count_noun
from msgq.impl.base.core import Waitable
from msgq.impl.meter import EndpointMeter
from msgq.impl.sources import EndpointSource


class PayloadTime(NamedTuple):
    """Where payloads have their publish time: byte offset of a u64 of nanoseconds, and its clock.

    The clock is "host" (docs/internals/clock.md), "realtime" or "monotonic".
    """

    offset: int
    clock: str


class TimeStamps(NamedTuple):
    """Whether messages have a publish time beside their payload, and the schema in which it may be a field else."""

    is_beside_payload: bool
    schema: Schema | None


@dataclass(frozen=True, slots=True)
class SourceItem:
    """A message, value or event.

    Attributes
    ----------
    data : its payload; None: there is none to be seen.
    json_fields : what is known of it beside that, for programs.
    text : the same for people, in front of the payload; "": nothing.
    schema : of the payload.
    """

    data: bytes | None
    json_fields: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    schema: Schema | None = None


class EndpointFeed(ABC):
    """An endpoint that is listened to.

    Attributes
    ----------
    waitable : what tells that something has come; None: only a look does.
    """

    waitable: Waitable | None = None

    @abstractmethod
    def take_items(self, most: int | None) -> list[SourceItem]:
        """Return what has come since the last call, at most so much. Who gets as much as that asks no more."""

    def describe_losses(self) -> str:
        """Return what is to be said of messages that were missed since the last call; "": nothing."""
        return ""


def describe_lost(messages: int | None) -> str:
    """Return a sentence about lost messages; None: an unknown number."""
    if messages == 0:
        return ""
    return f"lost {'messages' if messages is None else format_count_noun(messages, 'message')} (printing was too slow)"


@dataclass(frozen=True, slots=True)
class KindSource:
    """How messages of a kind are read without a trace.

    Attributes
    ----------
    open_source : takes a bare name, a prefix, `whole` and `files` as `open_source`; returns the source for recorder and
        Spark.
    open_feed : takes a bare name and a prefix; returns what `msgq echo` shows.
    open_meter : takes a bare name, a prefix, and where payloads have their publish time (None: it is beside them, or
        there is none); returns the meter for hz, bw and delay.
    find_stamps : takes a bare name and a prefix. None: payloads of this kind cannot have a publish time.
    has_better_meter : a meter knows more than the counters that `KindStats.open_watch` reads, so check uses one: sizes,
        or messages of programs that do not count.
    schema_begins_epoch : another schema begins another epoch of the endpoint; else its numbering goes on.
    """

    open_source: Callable[[str, str, bool, Mapping[str, int] | None], EndpointSource]
    open_feed: Callable[[str, str], EndpointFeed]
    open_meter: Callable[[str, str, PayloadTime | None], EndpointMeter]
    find_stamps: Callable[[str, str], TimeStamps] | None = None
    has_better_meter: bool = False
    schema_begins_epoch: bool = False
