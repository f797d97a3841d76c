"""The host's clock: nanoseconds since the epoch, without steps, the same for all processes of this host.

The clock is CLOCK_MONOTONIC plus one offset. The first process after a boot computes the offset from the wall clock and
writes it into a file (docs/internals/clock.md). Any thread may read the clock. A forked child uses its parent's offset.
"""

def time_ns() -> int:
    """Return the time in ns since the epoch.

    Raises no error: if the file is not accessible, or belongs to a user that is not trusted, this process uses an
    offset of its own and logs this once.
    """

def offset_ns() -> int:
    """Return the offset of `time_ns` from CLOCK_MONOTONIC in ns. Constant during the life of the process."""

def wall_offset_ns() -> int:
    """Return the current offset of the wall clock (CLOCK_REALTIME) from CLOCK_MONOTONIC in ns."""

def clock_problem() -> str:
    """Return the reason why this process uses an offset of its own; "": it uses the host's."""
