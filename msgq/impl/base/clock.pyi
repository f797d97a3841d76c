"""The host's clock: nanoseconds since the epoch that never step, and are the same for all processes of this host.

It is CLOCK_MONOTONIC plus one offset, which the first process after a boot takes from the wall clock and leaves in a
file (docs/internals/clock.md). Any thread may ask; a forked child goes on by its parent's.
"""

def time_ns() -> int:
    """Return the time, in ns since the epoch.

    Never an error: where the file cannot be had, or is somebody's who is not trusted, this process goes by an offset of
    its own, and logs that once.
    """

def offset_ns() -> int:
    """Return what `time_ns` adds to CLOCK_MONOTONIC. It stays the same for as long as this process lives."""

def wall_offset_ns() -> int:
    """Return what the wall clock (CLOCK_REALTIME) adds to CLOCK_MONOTONIC just now. Setting it changes that."""

def clock_problem() -> str:
    """Return why this process goes by an offset of its own; "" when it goes by the host's."""
