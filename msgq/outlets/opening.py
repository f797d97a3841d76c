"""Which outlet an endpoint gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgq.kinds import CHANNEL, FRAMES, QUEUE, RECORDS, TOPIC
from msgq.outlets.base import Outlet, Place, UnplayableError, Wanted
from msgq.outlets.channels import ChannelOutlet
from msgq.outlets.queues import QueueOutlet
from msgq.outlets.records import open_records
from msgq.outlets.topics import TopicOutlet

if TYPE_CHECKING:
    from visionipc import VisionIpcServer


def open_outlet(wanted: Wanted, place: Place, servers: dict[str, VisionIpcServer]) -> Outlet:
    """Open what is wanted, making it if it is not there.

    Parameters
    ----------
    wanted, place : what, and where.
    servers : of frames, by name; outlets for the streams of one server share it, and a new one is put in.

    Raises
    ------
    UnplayableError : it cannot be played there.
    IpcError : it is there with another geometry, or belongs to somebody who lives; what the endpoint's class raises.
    """
    if wanted.kind == TOPIC.name:
        return TopicOutlet(wanted, place)
    if place.backend == "zmq":
        raise UnplayableError("ZMQ has topics only")
    if wanted.kind == FRAMES:
        from msgq.outlets.frames import FramesOutlet  # brings what only frames need

        return FramesOutlet(wanted, place, servers)
    if wanted.kind == CHANNEL.name:
        return ChannelOutlet(wanted, place)
    if wanted.kind == RECORDS.name:
        return open_records(wanted, place)
    if wanted.kind == QUEUE.name:
        return QueueOutlet(wanted, place)
    raise UnplayableError(f"this version knows no endpoints of kind {wanted.kind!r}")
