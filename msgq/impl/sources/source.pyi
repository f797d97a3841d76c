"""Where messages are taken from, whatever the kind of endpoint: for those who look on, as recorder and meter do.

A source leaves no trace: its subscriber is passive, its files are mapped read-only. C takes messages from it
(source.h).
"""

from collections.abc import Mapping

from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.impl.ring.core import SubSocket

@disjoint_base
class EndpointSource:
    """An endpoint, from now on; of state, from what it is now. For one thread at a time.

    When the endpoint is made anew, it goes on with the former one: open another one.
    """

    @property
    def endpoint(self) -> str:
        """The name, with the mark of its kind."""

    @property
    def kind(self) -> str:
        """One of "topic", "channel", "records", "queue"."""

    @property
    def prefix(self) -> str:
        """Of the endpoint; "": none."""

    @property
    def inode(self) -> int:
        """Of the file that is mapped: ring, file, vector or board. Another one is another life of the endpoint."""

    @property
    def schema(self) -> Schema | None:
        """What describes its messages now. Of a vector: index, count, time and value of a change."""

    @property
    def max_message_bytes(self) -> int:
        """Bytes of the largest message that is to be expected, as far as is known."""

    @property
    def options_json(self) -> str:
        """What it needs to be made anew, as a JSON object; "": nothing is known."""

    @property
    def lost(self) -> int | None:
        """Messages that were published since, and overwritten before they were taken; None: unknown. State: 0."""

    def skip_pending_messages(self) -> None:
        """Pass over the messages that are pending, which adds them to `lost`. State has none."""

    def is_finished(self, since_ns: int) -> bool:
        """Return whether nothing comes any more, for one whose file has no name: nobody publishes, and all was taken.

        Parameters
        ----------
        since_ns : CLOCK_MONOTONIC. Of state all is taken that was there then.
        """

    def get_origin_names(self, origin_id: int) -> tuple[str, str]:
        """Return publisher and key of messages, "" where there is none. number : `part` of mq_source_message."""

    def close(self) -> None:
        """Take no more."""

@disjoint_base
class TopicSource(EndpointSource):
    """A topic, by a passive subscriber."""

    @property
    def socket(self) -> SubSocket:
        """The subscriber."""

@disjoint_base
class ChannelSource(EndpointSource):
    """A channel, or the events of a work queue."""

@disjoint_base
class RecordSource(EndpointSource):
    """A vector or board, which is looked through for changes."""

@disjoint_base
class PolledSource(EndpointSource):
    """Messages that Python fetches: for kinds whose files C cannot read. A subclass has `poll`.

    Parameters
    ----------
    endpoint, kind, prefix : see `Source`.
    inode : of the file.
    """

    def __init__(self, endpoint: str, kind: str, prefix: str, inode: int) -> None: ...
    def is_finished(self, since_ns: int) -> bool:
        """Return whether all fetched messages were taken. since_ns : CLOCK_MONOTONIC, not used."""

    def poll(self) -> list[tuple[bytes, int]]:
        """Return the messages that came since the last call, each with its publish time by the host's clock (0: not
        known). Called before each run of a recorder or reader, in its thread.
        """

def open_topic_source(name: str, prefix: str, whole: bool, files: Mapping[str, int] | None = None) -> EndpointSource:
    """Return a source of a topic. See `msgq.kinds.source.KindSource.open`."""

def open_channel_source(name: str, prefix: str, whole: bool, files: Mapping[str, int] | None = None) -> EndpointSource:
    """Return a source of a channel. See `msgq.kinds.source.KindSource.open`."""

def open_events_source(queue: str, prefix: str, whole: bool, files: Mapping[str, int] | None = None) -> EndpointSource:
    """Return a source of the events of a work queue. See `msgq.kinds.source.KindSource.open`."""

def open_record_source(name: str, prefix: str, whole: bool, files: Mapping[str, int] | None = None) -> EndpointSource:
    """Return a source of a vector or board. See `msgq.kinds.source.KindSource.open`."""

def make_change_schema(schema: Schema | None, item_bytes: int) -> Schema | None:
    """Return what describes the changes of a vector; None: its header says no dtype of that size.

    Parameters
    ----------
    schema : of the vector's values, as its header has it.
    item_bytes : of a value.
    """
