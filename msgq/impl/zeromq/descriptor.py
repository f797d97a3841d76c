"""The descriptor of a subscriber, for event loops."""

from __future__ import annotations

import ctypes
import functools
import os
import select
import time

from msgq.common.units import NS_PER_S

PAST_TIME_NS = 1  # a time long ago, of the monotonic clock
TFD_TIMER_ABSTIME = 1

_libc = ctypes.CDLL(None, use_errno=True)


@functools.cache
def _always_readable() -> int:
    """Return a descriptor of this process that is readable for ever."""
    return os.eventfd(1, os.EFD_CLOEXEC)


class LoopDescriptor:
    """One descriptor that is readable when another one is, or from a time on.

    Attributes
    ----------
    fd : an epoll's, which event loops take as any other.
    """

    def __init__(self, other: int) -> None:
        _always_readable()  # now, because `end` must succeed when this process can open no more
        self._epoll = select.epoll()
        self._timer, self._time_ns = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC | os.O_NONBLOCK), 0
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "cannot make a timer")
        self._epoll.register(other, select.EPOLLIN)
        self._epoll.register(self._timer, select.EPOLLIN)
        self.fd = self._epoll.fileno()

    def set(self, time_ns: int) -> None:
        """Be readable from this time of the monotonic clock on; 0: no more so than the other one."""
        if time_ns != self._time_ns:
            setting = (ctypes.c_long * 4)(0, 0, *divmod(time_ns, NS_PER_S))  # itimerspec: no interval, a time
            _libc.timerfd_settime(self._timer, TFD_TIMER_ABSTIME, setting, None)
            self._time_ns = time_ns

    def end(self) -> None:
        """Close it. Copies of the descriptor, and polls that sleep on it, find it readable from now on."""
        self._epoll.register(_always_readable(), select.EPOLLIN)
        self.close()

    def close(self) -> None:
        """Close what is ours; in a forked child, the parent's goes on."""
        self._epoll.close()
        os.close(self._timer)
