"""Opening an endpoint of any kind: its source, feed, meter or writer."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from msgq.common import settings
from msgq.common.schema import Schema
from msgq.errors import SegmentError
from msgq.impl.meter import EndpointMeter
from msgq.impl.sources import EndpointSource
from msgq.kinds import find_kind, kind_of, snapshots, validate_endpoint
from msgq.kinds.playback import EndpointSpec, EndpointWriter, PlaybackTarget, UnplayableError
from msgq.kinds.source import EndpointFeed, PayloadTime


def open_source(
    endpoint: str, prefix: str | None = None, *, whole: bool = False, files: Mapping[str, int] | None = None
) -> EndpointSource:
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
    return kind.source.open_source(kind.bare_name(endpoint), settings.resolve_prefix(prefix), whole, files)


def open_feed(endpoint: str) -> EndpointFeed:
    """Return what listens to an endpoint of any kind, under the prefix in force."""
    kind = kind_of(endpoint)
    return kind.source.open_feed(kind.bare_name(endpoint), settings.resolve_prefix(None))


def open_meter(endpoint: str, payload_time: PayloadTime | None = None) -> EndpointMeter:
    """Return a meter of an endpoint of any kind, under the prefix in force."""
    kind = kind_of(endpoint)
    return kind.source.open_meter(kind.bare_name(endpoint), settings.resolve_prefix(None), payload_time)


def open_writer(spec: EndpointSpec, target: PlaybackTarget, shared: dict[str, Any]) -> EndpointWriter:
    """Open an endpoint of any kind for playback, and create it if there is none.

    Parameters
    ----------
    spec, target : what, and where.
    shared : objects that several writers of one player share, by name; a writer may add some.

    Raises
    ------
    UnplayableError : it cannot be played there.
    IpcError : it is there with another configuration, or a living process owns it; what the endpoint's class raises.
    """
    kind = find_kind(spec.kind)
    if kind is None:
        raise UnplayableError(f"endpoint kind {spec.kind!r} is unknown to this version of msgq")
    if target.backend == "zmq" and not kind.playback.is_carried_by_zmq:
        raise UnplayableError("ZMQ has only topics")
    return kind.playback.open_writer(spec, target, shared)


def read_existing_schema(endpoint: str) -> Schema | None:
    """Return the schema of an endpoint; None: it has none, or will be created."""
    try:
        return snapshots.endpoint(endpoint).schema
    except SegmentError as error:
        if error.errno != errno.ENOENT:
            raise
        return None
