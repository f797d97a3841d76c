"""Who is alive: process id, start time and PID namespace make a participant; and this process itself."""

def process_alive(pid: int, start_time: int, pid_namespace: int) -> bool | None:
    """Tell whether the process with this id that started at this time still runs.

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

def thread_alive(thread_id: int) -> bool | None:
    """Tell whether there is a thread of this id in this PID namespace."""

def set_name(name: str) -> str:
    """Let participants of rings that join from now on have this name, cut to 15 bytes; return the former one.

    It is the process's own at first, and concerns all its threads.
    """

def identity() -> tuple[int, int, int]:
    """Return this process's (pid, start time, PID namespace)."""

def environment(name: str) -> str | None:
    """Return a variable of this process's environment as `os.environ` has it; None when it is not set.

    For `msgq.naming`, which alone knows the names.
    """
