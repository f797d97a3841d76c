"""Threads that take part in endpoints, read without a trace."""

from __future__ import annotations

from msgq.common.thread_samples import ThreadParticipant
from msgq.errors import EndpointNameError, SegmentError
from msgq.kinds.snapshots import endpoint


def read_participants(name: str, prefix: str) -> list[ThreadParticipant]:
    """Return the threads of an endpoint's participants that may be alive; empty: the endpoint cannot be read.

    Args:
        name: name with the prefix of its kind.
        prefix: prefix of the endpoint.
    """
    try:
        participants = endpoint(name, prefix).participants
    except (SegmentError, EndpointNameError):
        return []
    return [
        ThreadParticipant(name, role, each.pid, each.thread_id, each.start_time, each.name)
        for role, each in participants
        if each.alive is not False
    ]
