"""Detection of signals between two sleeps of a wait.

If `_signals_end_wait` is set, a signal with a handler ends the wait. A signal during a sleep interrupts the sleep. A
signal between two sleeps interrupts no sleep, and PyErr_CheckSignals does not report whether a handler ran. During such
a wait, Python therefore writes a byte for each signal to a file in memory (`signal.set_wakeup_fd`).
"""


cdef extern from "sys/mman.h" nogil:
    int memfd_create(const char *name, unsigned flags)
    unsigned MFD_CLOEXEC


cdef int _log_fd = -1  # all waits use the same file, because its creation takes microseconds
cdef uint64_t _log_device = 0, _log_inode = 0  # identity of the file
cdef int _log_generation = 0  # fork generation of the process that created the file
cdef bint _is_logging = False
cdef bint _is_child_hook_registered = False


cdef bint _begin_signal_log() except -1:
    """Log signals until `_end_signal_log`.

    Return False if the log is not possible. Signals between two sleeps are then not detected. The reasons are:

    - This is not the main thread, so it runs no handlers.
    - This wait is in a signal handler, and the interrupted wait uses the log.
    - The program has its own wakeup descriptor.
    - No descriptor is left.
    """
    global _is_child_hook_registered, _is_logging
    import threading  # imported late: only waits of posix_ipc, which has imported it, need a log
    if _is_logging or threading.main_thread().ident != PyThread_get_thread_ident() or not _open_log_file():
        return False
    if not _is_child_hook_registered:
        os.register_at_fork(after_in_child=_stop_signal_log_of_parent)
        _is_child_hook_registered = True
    previous = _signal.set_wakeup_fd(_log_fd, warn_on_full_buffer=False)
    if previous >= 0:
        _restore_wakeup_fd(previous)
        _forward_logged_signals(previous)
        return False
    _is_logging = True
    return True


def _stop_signal_log_of_parent():
    """In a forked child: the parent's main thread may be in a wait, and a signal of the child must not end the wait."""
    if _is_logging:
        _end_signal_log()


cdef int _restore_wakeup_fd(object fd) except -1:
    """Restore the program's wakeup descriptor. If the program has closed the descriptor, remove it."""
    try:
        _signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
    except (OSError, ValueError):
        _signal.set_wakeup_fd(-1)
    return 0


cdef int _forward_logged_signals(int fd) except -1:
    """Write logged signals to the program's wakeup descriptor. They came while the log had replaced this descriptor."""
    cdef int64_t count = lseek(_log_fd, 0, SEEK_CUR)
    if count > 0:
        try:
            os.write(fd, os.pread(_log_fd, count, 0))
        except OSError:  # the pipe is full and already wakes the program, or the program has closed the pipe
            pass
    return 0


cdef bint _open_log_file() noexcept:
    """Open the file if necessary, and move to its start. Return False on failure."""
    global _log_fd, _log_device, _log_inode, _log_generation
    cdef struct_stat status
    # The program may have closed all its descriptors, and may use the number for another file.
    if fstat(_log_fd, &status) == 0 and status.st_dev == _log_device and status.st_ino == _log_inode:
        if _log_generation == fork_generation:
            return lseek(_log_fd, 0, SEEK_SET) == 0
        close(_log_fd)  # a forked child would share the position in the file with its parent
    _log_fd = memfd_create("msgq_signal_log", MFD_CLOEXEC)
    if _log_fd < 0 or fcntl(_log_fd, F_SETFL, O_NONBLOCK) < 0 or fstat(_log_fd, &status) < 0:
        return False
    _log_device, _log_inode, _log_generation = status.st_dev, status.st_ino, fork_generation
    return True


cdef bint _has_logged_signal() noexcept:
    """Return True if a signal came since `_begin_signal_log`."""
    return lseek(_log_fd, 0, SEEK_CUR) > 0


cdef int _end_signal_log() except -1:
    """End the log. The program gets back its wakeup descriptor: none, or one that a signal handler has set."""
    global _is_logging
    _is_logging = False
    current = _signal.set_wakeup_fd(-1)
    if current >= 0 and current != _log_fd:
        _restore_wakeup_fd(current)
    return 0
