"""Origins: times of the events that cause messages (docs/guides/tracking.md).

Each thread has an origin or none. Messages that the thread publishes inherit its origin. A forked child starts with the
origin of the thread that called fork.
"""

def origin_time() -> int:
    """Return the origin of this thread in ns of the host's clock; 0: none."""

def set_origin(origin_time: int) -> None:
    """Set the origin of this thread in ns of the host's clock; 0: none.

    Raises
    ------
    InvalidValueError : the time is negative.
    """

def new_origin_time(count: int = 1) -> int:
    """Return a new origin: the current time in ns of the host's clock.

    The origin is unique among all processes of this user.

    The call reserves `count` consecutive origins and returns the first.

    Processes reserve origins in the file `/dev/shm/msgqorigin_<uid>`. If the file is not accessible, origins are unique
    within this process, and a message is logged once.
    """

def origin_problem() -> str:
    """Return the reason why origins are unique only in this process; "": unique among all processes of this user."""
