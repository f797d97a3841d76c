"""Who is told when a message comes to an empty queue. One thread a process waits for all of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgq.impl.workqueue.notice import Notice
    from msgq.impl.workqueue.options import Notification

_EVENT = (1).to_bytes(8, sys.byteorder)


class Registration:
    """A handle's wish to be told, until it is cancelled.

    Parameters
    ----------
    queue : the handle; it is referred to weakly.
    notice : of the queue.
    how : what was asked for; it is kept, so that a descriptor stays open.
    wanted : the same, checked.
    once : only the first time.
    """

    def __init__(self, queue: Any, notice: Notice, how: Any, wanted: Notification, once: bool) -> None:
        self.queue, self.notice, self.how, self.wanted, self.once = weakref.ref(queue), notice, how, wanted, once
        self.fd = notice.fileno()
        _thread.add(self)

    def cancel(self) -> None:
        """Be told no more. A call that has begun goes on."""
        _thread.remove(self)
        self.notice.close()

    def tell(self) -> None:
        """Do what was asked for, if there is reason to."""
        queue = self.queue()
        if queue is None or self.notice.closed or not self.notice.taken():
            return
        if self.once:
            queue._forget(self)
        if self.wanted.function is not None:
            self.wanted.function(queue)
        elif self.wanted.signal is not None:
            # Python runs handlers in the main thread: it shall notice, also when it sleeps.
            signal.pthread_kill(threading.main_thread().ident or 0, self.wanted.signal)
        elif self.wanted.descriptor is not None:
            with contextlib.suppress(OSError):  # full, or closed by now
                os.write(self.wanted.descriptor, _EVENT)


class _Thread:
    """The thread, which begins with the first registration."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # signal handlers and finalizers run anywhere, and close queues
        self.registrations: dict[int, Registration] = {}
        self.ready: select.epoll | None = None

    def add(self, registration: Registration) -> None:
        with self.lock:
            if self.ready is None:
                self.ready = select.epoll()
                threading.Thread(target=self.run, name="msgq notifications", daemon=True).start()
            self.registrations[registration.fd] = registration
            self.ready.register(registration.fd, select.EPOLLIN)

    def remove(self, registration: Registration) -> None:
        with self.lock:
            if self.registrations.get(registration.fd) is registration and self.ready is not None:
                del self.registrations[registration.fd]
                self.ready.unregister(registration.fd)

    def run(self) -> None:
        """Tell whoever wants to know, for ever; not in a child that a callback forked and that came back here."""
        ready = self.ready
        while ready is not None and self is _thread:
            for fd, _ in ready.poll():
                if self is not _thread:
                    return
                with self.lock:
                    registration = self.registrations.get(fd)
                try:
                    if registration is not None:
                        registration.tell()
                except BaseException:  # the callback's, which is nobody's to catch: others are told no less
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
                registration = None  # keeps nothing alive while it waits


_thread = _Thread()


def _forget() -> None:
    """In a forked child there is no such thread, and the registrations are the parent's."""
    global _thread
    _thread = _Thread()


os.register_at_fork(after_in_child=_forget)
