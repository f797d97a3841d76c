"""Identity and liveness of processes, and lock files."""

from typing import final

def is_process_alive(pid: int, start_time: int, pid_namespace: int) -> bool | None:
    """Return True if a process with this id and start time is running. Uses no locks.

    Args:
        pid: process id, in `pid_namespace`.
        start_time: clock ticks since boot, field 22 of /proc/<pid>/stat.
        pid_namespace: inode of /proc/<pid>/ns/pid.

    Returns:
        False if the process ended or is a zombie, or if a newer process has the same id. None if the id belongs to
        another PID namespace.
    """

def is_thread_alive(thread_id: int) -> bool | None:
    """Return True if this PID namespace has a thread with this id."""

@final
class LockFile:
    """A file with an exclusive lock until `release`, or until this process ends or calls exec.

    A mapping holds the lock (liveness_lock.h): forked children do not inherit the lock, and closing descriptors does
    not release it. If the process that created the file is dead, another process can lock the file. In a forked child,
    all methods have no effect.
    """

    def __init__(self, path: str) -> None:
        """Create the file if necessary (mode 600), and lock it.

        Raises:
            BlockingIOError: a living process holds the lock.
            OSError: the file cannot be opened.
        """

    def write(self, text: bytes) -> None:
        """Replace the content of the file, for example with the holder's name for error texts."""

    def release(self) -> None:
        """Remove the file, and release the lock. A newer file with the same name stays."""

def process_name() -> str:
    """Return the name of this process for other users of an endpoint, of at most 15 bytes.

    This is the name in the kernel (comm). A Python process whose kernel name begins with "python" has the name of its
    script instead, if it runs one. The first call reads the name, and later calls return the same name.
    """

def find_script_name(path: object) -> bytes:
    """Return the name of a script, UTF-8 of at most 15 bytes; empty: `python -c`. `path`: the first of `sys.argv`."""

def identity() -> tuple[int, int, int]:
    """Return pid, start time in clock ticks, and inode of the PID namespace of this process."""
