"""Create, open, validate and map the two files of a topic."""

from types import TracebackType

class TopicLock:
    """Holds off everybody who connects to, or removes, a topic: ``with TopicLock(endpoint, prefix) as there: ...``.

    For tools that look and then act; keep it for microseconds. `there` is False when there is no ring: then nothing is
    held, a newcomer may make one at any moment, and nothing may be removed.

    Raises
    ------
    SegmentError : another process holds it for over 5 s.
    """

    def __init__(self, endpoint: str | bytes, in_prefix: str | None = None) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def unlink_topic(endpoint: str | bytes, in_prefix: str | None = None) -> bool:
    """Remove an endpoint's files. Processes that have them mapped keep what they have, apart from newcomers.

    Parameters
    ----------
    endpoint : the endpoint's name.
    in_prefix : the prefix it lives in; None: the one in force, "": none.

    Returns
    -------
    Whether there was anything to remove.

    Raises
    ------
    SegmentError : a file could not be removed.
    """

def unlink_orphan(endpoint: str | bytes, in_prefix: str | None = None) -> bool:
    """Remove an endpoint's side segment if there is no ring; safe against everybody who connects meanwhile.

    Processes that still have the ring that was removed keep what they have mapped. The directories of a prefix must be
    there.

    Returns
    -------
    Whether it was removed; not when there is a ring (again), or no side segment (any more).

    Raises
    ------
    SegmentError : it could not be removed, a directory is missing, or another user's.
    """
