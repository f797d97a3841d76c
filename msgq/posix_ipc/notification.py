"""Notification requests of this process: one per queue, as in the kernel."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Any

from msgq import workqueue
from msgq.posix_ipc.arguments import to_long

SIGNAL_MAX = 64


#: Requested notifications: the waiting handle, and the function to call. A handle here lives without other references.
_requests: dict[Any, tuple[workqueue.MessageQueue, Callable[..., None]]] = {}
_requests_lock = threading.RLock()  # held for moments; a signal handler may request the next notification


def cancel_request(queue: workqueue.MessageQueue) -> None:
    """Cancel the request for this queue, made by any of its handles."""
    with _requests_lock:
        handle, _ = _requests.pop(queue.identity, (None, None))
    if handle is not None and not handle.closed:
        handle.notify(None)


def add_request(queue: workqueue.MessageQueue, notify: Callable[[], object]) -> None:
    """Request one notification. This process must have no request for the queue.

    Raises:
        MsgqError: EBUSY: another process has a request.
    """
    identity = queue.identity

    def remove_request() -> bool:
        with _requests_lock:
            was_requested = _requests.get(identity, (None, None))[1] is on_arrival
            if was_requested:
                del _requests[identity]
        return was_requested

    def on_arrival(_: workqueue.MessageQueue) -> None:
        if remove_request():
            notify()

    with _requests_lock:
        _requests[identity] = queue, on_arrival
    try:
        queue.notify(on_arrival, once=True, exclusive=True)
    except BaseException:
        remove_request()
        raise


def has_requests() -> bool:
    """Return True if this process has requested notifications."""
    return bool(_requests)


def notify_of_own_message(queue: workqueue.MessageQueue) -> None:
    """Notify this process of a message that it has just sent. With the kernel, too, no send returns before.

    Call this if there were requests before the send, because the notifying thread may have removed one since.
    """
    from msgq.impl.workqueue import notifier  # imported late: few programs request notifications

    notifier.run_due_actions(queue.identity)


def _reset_after_fork() -> None:
    """In a forked child: forget the requests, which belong to the parent."""
    global _requests, _requests_lock
    _requests, _requests_lock = {}, threading.RLock()


os.register_at_fork(after_in_child=_reset_after_fork)


def make_notifier(notification: Any) -> Callable[[], object]:
    """Return a function that notifies as requested.

    Raises:
        OSError: the signal number is invalid.
    """
    if isinstance(notification, tuple):
        function, argument = notification
        return lambda: threading.Thread(target=function, args=(argument,), daemon=True).start()
    number = to_long(notification) & 0xFFFFFFFF
    if number > SIGNAL_MAX:
        raise OSError(errno.EINVAL, f"{os.strerror(errno.EINVAL)}: {notification} is not a signal")
    return lambda: os.kill(os.getpid(), number)
