"""The host's clock: nanoseconds since the epoch, without steps, the same for all processes of this host.

The clock is CLOCK_MONOTONIC plus one offset. The first process after a boot computes the offset from the wall clock and
writes it into a file (docs/internals/clock.md). Any thread may read the clock. A forked child uses its parent's offset.

Origins are times of the events that cause messages (docs/guides/tracking.md). Each thread has an origin or none.
Messages that the thread publishes inherit its origin. A forked child starts with the origin of the thread that called
fork.
"""

def time_ns() -> int:
    """Return the time in ns since the epoch.

    Raises no error. If the file is not accessible, or its owner is not trusted, this process computes a private offset
    and logs this once.
    """

def offset_ns() -> int:
    """Return `time_ns` minus CLOCK_MONOTONIC, in ns. The value is constant during the life of the process."""

def wall_offset_ns() -> int:
    """Return the wall clock (CLOCK_REALTIME) minus CLOCK_MONOTONIC, in ns, at the time of the call."""

def to_host_time(time_ns: int, clock: int) -> int:
    """Return a time of another clock as a time of the host's clock, in ns.

    All processes get the same result for the same time, unless the machine slept or a clock was set in between. The
    error is at most 0.5 ms, and 0 for CLOCK_BOOTTIME of a machine that never slept.

    Args:
        time_ns: nanoseconds of the other clock.
        clock: number of the clock, for example `time.CLOCK_BOOTTIME`.

    Raises:
        InvalidValueError: the system has no such clock.
    """

def clock_problem() -> str:
    """Return the reason why this process uses a private offset; "": this process uses the host's offset."""

def origin_time() -> int:
    """Return the origin of this thread in ns of the host's clock; 0: none."""

def set_origin(origin_time: int) -> None:
    """Set the origin of this thread in ns of the host's clock; 0: none.

    Raises:
        InvalidValueError: the time is negative.
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
