"""Threads that take part in endpoints, read without a trace."""

from __future__ import annotations

from msgq.common.thread_samples import ThreadParticipant
from msgq.errors import EndpointNameError, SegmentError
from msgq.kinds import kind_of
from msgq.kinds.snapshots import endpoint


def read_participants(name: str, prefix: str) -> tuple[list[ThreadParticipant], str]:
    """Return the threads of an endpoint's participants that may be alive, and the reason why they are unknown.

    The reason is "" if the threads are known, or if the endpoint cannot have any: its kind has no statistics, or the
    endpoint has just been removed. An error in the code of a plug-in is a reason.

    Args:
        name: name with the prefix of its kind.
        prefix: prefix of the endpoint.
    """
    try:
        if not kind_of(name).has_part("stats"):
            return [], ""
        participants = endpoint(name, prefix).participants
        return [
            ThreadParticipant(name, str(role), int(each.pid), int(each.thread_id), int(each.start_time), str(each.name))
            for role, each in participants
            if each.alive is not False
        ], ""
    except (SegmentError, EndpointNameError):
        return [], ""
    except Exception as error:  # whatever the code of a plug-in raises
        return [], f"{type(error).__name__}: {error}"
