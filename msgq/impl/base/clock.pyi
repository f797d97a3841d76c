"""The host's clock: nanoseconds since the epoch, without steps, the same for all processes of this host.

The clock is CLOCK_MONOTONIC plus one offset. The first process after a boot computes the offset from the wall clock and
writes it into a file (docs/internals/clock.md). Any thread may read the clock. A forked child uses its parent's offset.
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

def clock_problem() -> str:
    """Return the reason why this process uses a private offset; "": this process uses the host's offset."""
