"""Descriptor of a subscriber for event loops."""

from __future__ import annotations

import ctypes
import functools
import os
import select
import time

from msgq.common.units import NS_PER_S

ALREADY_READY_NS = 1  # a time long ago, of the monotonic clock
TFD_TIMER_ABSTIME = 1

_libc = ctypes.CDLL(None, use_errno=True)


@functools.cache
def _get_readable_fd() -> int:
    """Return a descriptor of this process that is always readable."""
    return os.eventfd(1, os.EFD_CLOEXEC)


class EventLoopDescriptor:
    """A descriptor that is readable while another one is, or from a given time on.

    Attributes:
        fd: descriptor of an epoll instance, usable in event loops.
    """

    def __init__(self, watched_fd: int) -> None:
        _get_readable_fd()  # now, because `close_readable` must succeed when this process can open no more
        self._epoll = select.epoll()
        self._timer_fd, self._ready_time_ns = (
            _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC | os.O_NONBLOCK),
            0,
        )
        if self._timer_fd < 0:
            raise OSError(ctypes.get_errno(), "cannot create a timer")
        self._epoll.register(watched_fd, select.EPOLLIN)
        self._epoll.register(self._timer_fd, select.EPOLLIN)
        self.fd = self._epoll.fileno()

    def set_ready_time(self, time_ns: int) -> None:
        """Make the descriptor readable from this time of the monotonic clock on; 0: only while the other one is."""
        if time_ns != self._ready_time_ns:
            setting = (ctypes.c_long * 4)(0, 0, *divmod(time_ns, NS_PER_S))  # itimerspec: no interval, a time
            _libc.timerfd_settime(self._timer_fd, TFD_TIMER_ABSTIME, setting, None)
            self._ready_time_ns = time_ns

    def close_readable(self) -> None:
        """Close the descriptor. Copies, and polls that sleep on it, become readable."""
        self._epoll.register(_get_readable_fd(), select.EPOLLIN)
        self.close()

    def close(self) -> None:
        """Close the descriptors of this process. In a forked child, the parent's stay open."""
        self._epoll.close()
        os.close(self._timer_fd)
