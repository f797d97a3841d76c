"""Opening an endpoint of any kind: its source, feed, meter or writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgq.channel.names import KIND as CHANNEL
from msgq.channel.playback import ChannelWriter
from msgq.common import naming
from msgq.impl.meter import Meter
from msgq.impl.sources import Source
from msgq.kinds import kind_of, validate_endpoint
from msgq.kinds.playback import EndpointSpec, EndpointWriter, PlaybackTarget, UnplayableError
from msgq.kinds.source import Feed, PayloadTime
from msgq.records.names import KIND as RECORDS
from msgq.records.playback import open_records
from msgq.topic.names import KIND as TOPIC
from msgq.topic.playback import TopicWriter
from msgq.workqueue.names import KIND as QUEUE
from msgq.workqueue.playback import QueueWriter
from visionipc.names import KIND as FRAMES

if TYPE_CHECKING:
    from visionipc import VisionIpcServer


def open_source(
    endpoint: str, prefix: str | None = None, *, whole: bool = False, files: Mapping[str, int] | None = None
) -> Source:
    """Return a source of the messages of an endpoint of any kind.

    Parameters
    ----------
    endpoint : with its name prefix. Of "queue/NAME" the events are taken.
    prefix : of the endpoint; None: the one in force, "": none.
    whole : read from the very first message on. Messages that are gone count as lost (of a topic that has wrapped, all
        before the present lap). Else read from now on. Vectors and boards have all values as changes at first, in any
        case.
    files : descriptors by path, open for reading, to use instead of files that may have lost their names. They stay the
        caller's.

    Raises
    ------
    EndpointNameError : no endpoint can have this name.
    SegmentError : there is no such endpoint, its files cannot be read, or they contain invalid data.
    """
    kind = kind_of(validate_endpoint(endpoint))
    return kind.source.open(kind.bare_name(endpoint), naming.resolve_prefix(prefix), whole, files)


def open_feed(endpoint: str) -> Feed:
    """Return what listens to an endpoint of any kind, under the prefix in force."""
    kind = kind_of(endpoint)
    return kind.source.open_feed(kind.bare_name(endpoint), naming.resolve_prefix(None))


def open_meter(endpoint: str, payload_time: PayloadTime | None = None) -> Meter:
    """Return a meter of an endpoint of any kind, under the prefix in force."""
    kind = kind_of(endpoint)
    return kind.source.open_meter(kind.bare_name(endpoint), naming.resolve_prefix(None), payload_time)


def open_writer(spec: EndpointSpec, target: PlaybackTarget, servers: dict[str, VisionIpcServer]) -> EndpointWriter:
    """Open what is spec, making it if it is not there.

    Parameters
    ----------
    spec, target : what, and where.
    servers : of frames, by name; writers for the streams of one server share it, and a new one is put in.

    Raises
    ------
    UnplayableError : it cannot be played there.
    IpcError : it is there with another configuration, or a living process owns it; what the endpoint's class raises.
    """
    if spec.kind == TOPIC.name:
        return TopicWriter(spec, target)
    if target.backend == "zmq":
        raise UnplayableError("ZMQ has topics only")
    if spec.kind == FRAMES.name:
        from visionipc.playback import FramesWriter  # brings what only frames need

        return FramesWriter(spec, target, servers)
    if spec.kind == CHANNEL.name:
        return ChannelWriter(spec, target)
    if spec.kind == RECORDS.name:
        return open_records(spec, target)
    if spec.kind == QUEUE.name:
        return QueueWriter(spec, target)
    raise UnplayableError(f"this version knows no endpoints of kind {spec.kind!r}")
