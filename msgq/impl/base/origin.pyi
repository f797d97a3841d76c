"""Origins: when that came about which messages are made from, one for each thread, and unique ones.

While a thread has an origin, what it publishes inherits it (tracking.md). Each thread has its own, none at first; a
forked child goes on with that of the thread that forked.
"""

def origin_time() -> int:
    """Return this thread's origin, in ns of the host's clock; 0: it has none."""

def set_origin(origin_time: int) -> None:
    """Let this thread have an origin, in ns of the host's clock; 0: none.

    Raises
    ------
    InvalidValueError : a negative one.
    """

def new_origin_time(count: int = 1) -> int:
    """Return the time of the host's clock, in ns, as an origin that nobody else has.

    With a `count` so many are one's own: this one, and the nanoseconds that follow.

    It is unique among all processes of this user, since two that ask in the same nanosecond share a word in a file,
    `/dev/shm/msgqorigin_<uid>`: then one is told the next nanosecond. Never an error: where the file cannot be had,
    origins are unique in this process alone, which is logged once.
    """

def origin_problem() -> str:
    """Return why this process has a word of its own; "" when it shares the user's."""
