"""Requests of this process to be notified of messages: one a queue, as the kernel has it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Any

from msgq import workqueue
from msgq.posix_ipc.arguments import long

SIGNAL_MAX = 64


#: What was asked for: which handle waits, and what it does then. A handle here goes on when nobody else refers to it.
_asked: dict[Any, tuple[workqueue.MessageQueue, Callable[..., None]]] = {}
_lock = threading.RLock()  # of the above, for moments; a signal's handler may ask for the next notification


def cancel(queue: workqueue.MessageQueue) -> None:
    """Forget what was asked for this queue, by whichever of its handles."""
    with _lock:
        handle, _ = _asked.pop(queue.identity, (None, None))
    if handle is not None and not handle.closed:
        handle.notify(None)


def add(queue: workqueue.MessageQueue, tell: Callable[[], object]) -> None:
    """Ask for one notification, in place of none.

    Raises
    ------
    MsgqError : with EBUSY: another process asked already.
    """
    identity = queue.identity

    def forget() -> bool:
        with _lock:
            wanted = _asked.get(identity, (None, None))[1] is arrived
            if wanted:
                del _asked[identity]
        return wanted

    def arrived(_: workqueue.MessageQueue) -> None:
        if forget():
            tell()

    with _lock:
        _asked[identity] = queue, arrived
    try:
        queue.notify(arrived, once=True, exclusive=True)
    except BaseException:
        forget()
        raise


def _begin_anew() -> None:
    """In a forked child: what was asked for is the parent's."""
    global _asked, _lock
    _asked, _lock = {}, threading.RLock()


os.register_at_fork(after_in_child=_begin_anew)


def teller(notification: Any) -> Callable[[], object]:
    """Return what notifies as asked for.

    Raises
    ------
    OSError : there is no such signal.
    """
    if isinstance(notification, tuple):
        function, argument = notification
        return lambda: threading.Thread(target=function, args=(argument,), daemon=True).start()
    number = long(notification) & 0xFFFFFFFF
    if number > SIGNAL_MAX:
        raise OSError(errno.EINVAL, f"{os.strerror(errno.EINVAL)}: {notification} is no signal")
    return lambda: os.kill(os.getpid(), number)
