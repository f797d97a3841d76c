"""Opening an endpoint of any kind: its source, feed, meter or writer."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from msgq.common.schema import Schema
from msgq.errors import SegmentError
from msgq.impl.backend import resolve_prefix
from msgq.impl.meter import EndpointMeter, SourceMeter
from msgq.impl.sources import EndpointSource
from msgq.kinds import find_kind, kind_of, snapshots, validate_endpoint
from msgq.kinds.playback import EndpointSpec, EndpointWriter, PlaybackTarget, UnplayableError
from msgq.kinds.source import EndpointFeed, PayloadTime


def open_source(
    endpoint: str, prefix: str | None = None, *, whole: bool = False, files: Mapping[str, int] | None = None
) -> EndpointSource:
    """Return a source of the messages of an endpoint of any kind.

    Args:
        endpoint: name with the name prefix of its kind. "queue/NAME" gives the queue's events.
        prefix: prefix of the endpoint; None: the current prefix, "": none.
        whole: True: read from the very first message. Messages that are gone count as lost: for a topic that has
            wrapped, all messages before the current lap. False: read new messages only. For vectors and boards, all
            existing values come first as changes, in both cases.
        files: open descriptors by path, to use instead of files that may be unlinked. The caller keeps the descriptors.

    Raises:
        EndpointNameError: the name is invalid.
        SegmentError: the endpoint does not exist, its files are not readable, or they contain invalid data.
    """
    kind = kind_of(validate_endpoint(endpoint))
    return kind.source.open_source(kind.bare_name(endpoint), resolve_prefix(prefix), whole, files)


def open_feed(endpoint: str, whole: bool = False) -> EndpointFeed:
    """Return a feed of new items of an endpoint of any kind, in the current prefix. `whole`: as in `open_source`."""
    kind = kind_of(endpoint)
    return kind.source.open_feed(kind.bare_name(endpoint), resolve_prefix(None), whole)


def open_meter(endpoint: str, payload_time: PayloadTime | None = None) -> EndpointMeter:
    """Return a meter of an endpoint of any kind, in the current prefix.

    Args:
        endpoint: name with the name prefix of its kind.
        payload_time: location of publish times in payloads, for kinds with `find_stamps`; None: next to the payload, or
            none.
    """
    kind = kind_of(endpoint)
    if kind.source.open_meter is not None:
        return kind.source.open_meter(kind.bare_name(endpoint), resolve_prefix(None))
    return SourceMeter(open_source(endpoint), *(payload_time or ()))


def open_writer(spec: EndpointSpec, target: PlaybackTarget) -> EndpointWriter:
    """Open an endpoint of any kind for playback, and create it if necessary.

    Raises:
        UnplayableError: the endpoint cannot be played in this place.
        IpcError: the endpoint exists with another configuration, or a living process owns it.
    """
    kind = find_kind(spec.kind)
    if kind is None:
        raise UnplayableError(f"endpoint kind {spec.kind!r} is unknown to this version of msgq")
    if target.backend == "zmq" and not kind.playback.is_carried_by_zmq:
        raise UnplayableError("ZMQ has only topics")
    return kind.playback.open_writer(spec, target)


def read_existing_schema(endpoint: str) -> Schema | None:
    """Return the schema of an endpoint; None: the endpoint has no schema, or does not exist yet."""
    try:
        return snapshots.endpoint(endpoint).schema
    except SegmentError as error:
        if error.errno != errno.ENOENT:
            raise
        return None
