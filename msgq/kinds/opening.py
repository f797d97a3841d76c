"""Which writer an endpoint gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgq.channel.playback import ChannelWriter
from msgq.kinds import CHANNEL, FRAMES, QUEUE, RECORDS, TOPIC
from msgq.kinds.playback import EndpointSpec, EndpointWriter, PlaybackTarget, UnplayableError
from msgq.records.playback import open_records
from msgq.topic.playback import TopicWriter
from msgq.workqueue.playback import QueueWriter

if TYPE_CHECKING:
    from visionipc import VisionIpcServer


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
    if spec.kind == FRAMES:
        from visionipc.playback import FramesWriter  # brings what only frames need

        return FramesWriter(spec, target, servers)
    if spec.kind == CHANNEL.name:
        return ChannelWriter(spec, target)
    if spec.kind == RECORDS.name:
        return open_records(spec, target)
    if spec.kind == QUEUE.name:
        return QueueWriter(spec, target)
    raise UnplayableError(f"this version knows no endpoints of kind {spec.kind!r}")
