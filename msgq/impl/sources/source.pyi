"""Sources of messages of all kinds, for observers such as the recorder and meters.

A source writes nothing to the endpoint: the subscriber of the source is passive, and the files are mapped read-only. C
code takes the messages (source.h).
"""

from collections.abc import Mapping

from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.impl.ring.core import SubSocket

@disjoint_base
class EndpointSource:
    """Messages of one endpoint that are published after the source is opened.

    For records, the first messages are the current values. One thread at a time.

    If the endpoint is removed and created again, the source still reads the old files. Open a new source.
    """

    @property
    def endpoint(self) -> str:
        """Name of the endpoint with the prefix of its kind, for example "queue/jobs"."""

    @property
    def kind(self) -> str:
        """One of "topic", "channel", "records", "queue"."""

    @property
    def prefix(self) -> str:
        """Prefix of the endpoint; "": none."""

    @property
    def inode(self) -> int:
        """Inode of the mapped file. Another inode means that the endpoint was created again."""

    @property
    def schema(self) -> Schema | None:
        """Current schema of the endpoint. For a vector: index, count, time and value of a change.

        Waiting messages of a topic may have an older schema: see `read_message_schema`.
        """

    def read_message_schema(self) -> Schema | None:
        """Return the schema of the next message; None: the endpoint has no schema, or the schema is unknown.

        A `Capture` takes the messages with this schema, and stops at the first message with another schema. Then call
        this method again, and `Capture.accept_schema`. If the schema of a topic changes twice before the messages of
        the first change are taken, the schema of these messages is unknown.
        """

    @property
    def max_message_bytes(self) -> int:
        """Size of the largest expected message in bytes."""

    @property
    def options_json(self) -> str:
        """Options to create the endpoint again, as a JSON object; "": unknown."""

    @property
    def lost(self) -> int | None:
        """Number of messages that were overwritten before the source took them; None: unknown. For records: 0."""

    @property
    def schema_begins_epoch(self) -> bool:
        """True: a new schema begins a new epoch of the endpoint, as in topics. False: the numbering continues."""

    def skip_pending_messages(self) -> None:
        """Skip the waiting messages, and add them to `lost`. Records have no waiting messages."""

    def is_finished(self, since_ns: int) -> bool:
        """Return True if the file was removed, no publisher is left, and all messages were taken.

        Args:
            since_ns: time in ns of CLOCK_MONOTONIC. For records, all changes before this time must have been taken.
        """

    def get_origin_names(self, origin_id: int) -> tuple[str, str]:
        """Return publisher and key of messages with this `part` (mq_source_message); "": no publisher or key."""

    def poll_takeover(self) -> str | None:
        """Return the publisher that took a topic over from a living publisher, as "NAME PID".

        "": the publisher changed after the previous publisher had closed the topic or died. None: the publisher is
        unknown, or the same as at the last call. Always None for endpoints that are not topics.
        """

    def close(self) -> None:
        """Close the source."""

@disjoint_base
class TopicSource(EndpointSource):
    """Source of a topic, with a passive subscriber."""

    @property
    def socket(self) -> SubSocket:
        """The passive subscriber."""

    def receive_with_schema(self) -> tuple[bytes, Schema | None] | None:
        """Return the next message and its schema as in `read_message_schema`, without waiting; None: no message.

        Use either this method or a `Capture`.

        Raises:
            IpcError: as `SubSocket.receive`.
        """

@disjoint_base
class ChannelSource(EndpointSource):
    """Source of a channel, or of the events of a work queue."""

@disjoint_base
class RecordSource(EndpointSource):
    """Source of a vector or board. The source scans the elements for changes."""

@disjoint_base
class PolledSource(EndpointSource):
    """Source of an endpoint whose files C code cannot read. A subclass defines `poll`.

    Args:
        endpoint: see `EndpointSource`.
        kind: see `EndpointSource`.
        prefix: see `EndpointSource`.
        inode: inode of the file.
    """

    def __init__(self, endpoint: str, kind: str, prefix: str, inode: int) -> None: ...
    def is_finished(self, since_ns: int) -> bool:
        """Return True if all fetched messages were taken. `since_ns`: ignored."""

    def poll(self) -> list[tuple[bytes, int]]:
        """Return the messages since the last call, each with its publishing time (ns of the host's clock, 0: unknown).

        A recorder or reader calls this method before each run, in the thread of the caller.
        """

@disjoint_base
class SchemaReader:
    """Reads the schemas of the messages that one subscriber of a topic receives.

    One thread at a time. Use a reader for one connection of one subscriber.

    Attributes:
        is_replaced: True: the last message has a schema that was replaced before it was read.
    """

    is_replaced: bool

    def read_next(self, socket: SubSocket) -> None:
        """Read the schema of the next message after a connect, before another publisher replaces the schema."""

    def read_received(self, socket: SubSocket) -> Schema | None:
        """Return the schema of the message that the subscriber received last.

        Call this method after each receive. The result is the same object until the schema changes. None: the topic has
        no schema, or `is_replaced`.
        """

def open_topic_source(name: str, prefix: str, whole: bool, files: Mapping[str, int] | None = None) -> TopicSource:
    """Return a source of a topic. See `msgq.kinds.source.KindSource.open`."""

def open_channel_source(name: str, prefix: str, whole: bool, files: Mapping[str, int] | None = None) -> EndpointSource:
    """Return a source of a channel. See `msgq.kinds.source.KindSource.open`."""

def open_events_source(queue: str, prefix: str, whole: bool, files: Mapping[str, int] | None = None) -> EndpointSource:
    """Return a source of the events of a work queue. See `msgq.kinds.source.KindSource.open`."""

def open_record_source(name: str, prefix: str, whole: bool, files: Mapping[str, int] | None = None) -> EndpointSource:
    """Return a source of a vector or board. See `msgq.kinds.source.KindSource.open`."""

def make_change_schema(schema: Schema | None, item_bytes: int) -> Schema | None:
    """Return the schema of the changes of a vector; None: the header has no dtype of this size.

    Args:
        schema: schema of the values, from the header of the vector.
        item_bytes: size of a value in bytes.
    """
