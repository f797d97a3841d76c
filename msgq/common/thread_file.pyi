"""Times of one thread, from /proc. C code, because an observer reads thousands of these files per second."""

from typing import final

@final
class ThreadFile:
    """The file `schedstat` of a thread, which stays open. One thread at a time may call the methods.

    Attributes:
        descriptor: descriptor of the file; -1 after `close`.
        ran_ns: time that the thread has run, as of the last `read_times`.
        waited_ns: time that the thread has waited for a processor as a runnable thread. A wait counts from its end.
    """

    descriptor: int
    ran_ns: int
    waited_ns: int

    def __init__(self, directory: str) -> None:
        """Open and read the file. `directory`: directory of the thread, /proc/PID/task/TID.

        Raises:
            OSError: the file does not exist, or is not readable.
        """

    def read_times(self) -> bool:
        """Read the times. Return False if they have not changed.

        Raises:
            OSError: the thread has ended.
        """

    def read_state(self) -> tuple[str, int]:
        """Return the state of the thread as in proc_pid_stat(5), and its last processor; "" and -1 if unreadable."""

    def close(self) -> None:
        """Close the file."""
