"""Who this process is, and files that it holds for as long as it lives."""

from typing import final

def is_process_alive(pid: int, start_time: int, pid_namespace: int) -> bool | None:
    """Tell whether the process with this id that started at this time still runs: liveness without locks.

    Parameters
    ----------
    pid : process id, in `pid_namespace`.
    start_time : clock ticks since boot, as in field 22 of /proc/<pid>/stat.
    pid_namespace : inode of /proc/<pid>/ns/pid.

    Returns
    -------
    False for a process that is gone, a zombie, or another one with a recycled id; None when that cannot be known,
    because the id belongs to another namespace.
    """

def is_thread_alive(thread_id: int) -> bool | None:
    """Tell whether there is a thread of this id in this PID namespace."""

@final
class LockFile:
    """A file that nobody else can lock before `release`, or before this process ends or calls exec.

    Forks do not keep it, whichever way they are made, and closing descriptors does not end it: a mapping holds the lock
    (liveness_lock.h). A file that a dead holder left is taken as it is. In a forked child it is the parent's, and does
    nothing.
    """

    def __init__(self, path: str) -> None:
        """Lock the file, made if need be (mode 600).

        Raises
        ------
        BlockingIOError : a living process holds it.
        OSError : it cannot be opened.
        """

    def write(self, text: bytes) -> None:
        """Put this into the file, in place of what is there: who holds it, for the texts of errors."""

    def release(self) -> None:
        """Remove the file, unless its name is another's by now, and let go of it."""

def process_name() -> str:
    """Return the name of this process, as the kernel had it when it was asked for first."""

def identity() -> tuple[int, int, int]:
    """Return this process's (pid, start time, PID namespace)."""
