"""Notifications of messages in empty queues. One thread of the process waits for all registrations."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import sys
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgq.errors import EndpointClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgq.impl.workqueue.options import Notification


class QueueNotification(Protocol):
    """A notification request of `msgq.impl.workqueue.core`."""

    @property
    def closed(self) -> bool:
        """True if the request is closed."""

    def fileno(self) -> int:
        """Return a descriptor that is readable after a message arrived."""

    def consume(self) -> bool:
        """Return True if a message arrived in the empty queue since the last call."""

    def set_notifying(self, is_notifying: bool) -> None:
        """Say whether the notifying thread is about to send a signal, for which sends of this process wait."""

    def close(self) -> None:
        """Close the request."""


# A signal handler may have interrupted a thread that holds the notifying thread's lock, so the wait needs an end.
_SIGNAL_WAIT_S = 1.0
_EVENTFD_INCREMENT = (1).to_bytes(8, sys.byteorder)


class Registration:
    """A handle's request for notifications, until it is cancelled.

    Args:
        queue: the handle, kept as a weak reference.
        notification: notification request of the queue.
        target: argument of `MessageQueue.notify`, kept so that its descriptor stays open.
        action: the checked target.
        once: True: notify only once.
    """

    def __init__(
        self, queue: Any, notification: QueueNotification, target: Any, action: Notification, once: bool
    ) -> None:
        self.queue, self.notification, self.once = weakref.ref(queue), notification, once
        self.target, self.action, self.bus = target, action, queue._bus
        if self.bus is not None:
            _bus_registrations[next(_registration_numbers)] = self
            return
        self.fd = notification.fileno()
        _notifier_thread.add(self)

    def belongs_to(self, identity: tuple[int, int]) -> bool:
        """Return True if the request is one for this queue, or one whose handle was deleted."""
        queue = self.queue()
        return queue is None or queue.identity == identity

    def cancel(self) -> None:
        """Cancel the notifications. A running call continues."""
        if self.bus is None:
            _notifier_thread.remove(self)
        self.notification.close()

    def notify(self) -> None:
        """Run the action if a message arrived in the empty queue."""
        queue = self.queue()
        if queue is None or not self._consume_notification():
            return
        if self.once:
            queue._cancel_registration(self)
        if self.action.function is not None and self.bus is not None:
            self.bus.run_notification(queue, partial(self.action.function, queue))
        elif self.action.function is not None:
            self.action.function(queue)
        elif self.action.signal is not None:
            # Python runs handlers in the main thread: it shall notice, also when it sleeps.
            signal.pthread_kill(threading.main_thread().ident or 0, self.action.signal)
        elif self.action.descriptor is not None:
            with contextlib.suppress(OSError):  # full, or closed by now
                os.write(self.action.descriptor, _EVENTFD_INCREMENT)

    def _consume_notification(self) -> bool:
        """Return True if a message arrived since the last call, and the notifications are not cancelled."""
        try:
            return not self.notification.closed and self.notification.consume()
        except EndpointClosedError:  # another thread has just cancelled them
            return False


class _NotifierThread:
    """The notifying thread, started with the first registration."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # signal handlers and finalizers run anywhere, and close queues
        # weak: the handle keeps its registration. If a signal handler raises during `add` or `cancel`, no entry remains
        self.registrations: weakref.WeakValueDictionary[int, Registration] = weakref.WeakValueDictionary()
        self.ready: select.epoll | None = None
        self.current: Registration | None = None  # the thread runs its action

    def add(self, registration: Registration) -> None:
        with self.lock:
            if self.ready is None:
                self.ready = select.epoll()
                threading.Thread(target=self.run, name="msgq notifications", daemon=True).start()
            self.registrations[registration.fd] = registration
            self.ready.register(registration.fd, select.EPOLLIN)

    def list_registrations(self) -> list[Registration]:
        """Return the registrations of this process."""
        with self.lock:
            return _list_values(self.registrations)

    def remove(self, registration: Registration) -> None:
        with self.lock:
            if self.registrations.get(registration.fd) is registration and self.ready is not None:
                del self.registrations[registration.fd]
                self.ready.unregister(registration.fd)

    def run(self) -> None:
        """Notify forever. Ends in a child process that a callback has forked."""
        ready = self.ready
        while ready is not None and self is _notifier_thread:
            for fd, _ in ready.poll():
                if self is not _notifier_thread:
                    return
                with self.lock:
                    registration = self.registrations.get(fd)
                try:
                    self.current = registration
                    if registration is not None:
                        registration.notification.set_notifying(registration.action.signal is not None)
                        registration.notify()
                except BaseException:  # an error of the callback: other registrations are still notified
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
                self.current = None
                if registration is not None:
                    registration.notification.set_notifying(False)
                registration = None  # keeps nothing alive while it waits


def _list_values(registrations: weakref.WeakValueDictionary[int, Registration]) -> list[Registration]:
    """Return the values. Unlike an iteration over them, the call allows that another thread drops a value."""
    found = [reference() for reference in registrations.valuerefs()]
    return [registration for registration in found if registration is not None]


_notifier_thread = _NotifierThread()
#: Registrations of handles on a bus, in their order.
_bus_registrations: weakref.WeakValueDictionary[int, Registration] = weakref.WeakValueDictionary()
_registration_numbers = itertools.count()


def deliver_signals(identity: tuple[int, int]) -> None:
    """Send this process the signals for messages that it has just sent to a queue.

    The notifying thread would send the signals a moment later. Whoever consumes the notification first sends the
    signal, so each notification causes one signal. If the thread was first, wait until it has sent the signal.
    """
    run_due_actions(identity, lambda registration: registration.action.signal is not None)


def run_due_actions(identity: tuple[int, int], choose: Callable[[Registration], bool] = lambda _: True) -> None:
    """Run the chosen actions for messages in a queue now, and wait for one that the notifying thread runs."""
    for registration in _notifier_thread.list_registrations():
        if choose(registration) and registration.belongs_to(identity):
            registration.notify()
    current = _notifier_thread.current
    if current is not None and choose(current) and current.belongs_to(identity):  # its request is in no list
        deadline = time.monotonic() + _SIGNAL_WAIT_S
        while current is _notifier_thread.current and time.monotonic() < deadline:
            time.sleep(0)  # lets the thread run
    time.sleep(0)  # a system call, at whose end this thread handles a signal that the other one has just sent


def notify_on_bus(identity: tuple[int, int]) -> None:
    """Run the actions for messages that arrived in an empty queue of a bus, where no thread waits for them."""
    for registration in _list_values(_bus_registrations):
        queue = registration.queue()
        if queue is not None and not queue.closed and queue.identity == identity:
            registration.notify()


def _reset_after_fork() -> None:
    """Reset the state in a forked child, because thread and registrations belong to the parent."""
    global _notifier_thread
    _notifier_thread = _NotifierThread()
    _bus_registrations.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
