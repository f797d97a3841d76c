"""Waiting for subscribers of topics and channels: in virtual time, by descriptors, and by a poller."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from msgq.common.units import NS_PER_MS
from msgq.errors import ConcurrentUseError, EndpointClosedError
from msgq.impl.base.argument_checks import timeout_ms, warn_in_event_loop
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.endpoint_state import Inbox, SharedInbox
from msgq.impl.fake.socket import FakeSocket
from msgq.impl.sockets.async_receiver import AsyncReceiver
from msgq.impl.sockets.polling import PythonPoller, PyzmqPoller

if TYPE_CHECKING:
    from msgq.impl.base.event_loop import AsyncWait


def copy_into_buffer(buffer: Any, data: bytes) -> int:
    """Copy bytes into a writable, contiguous buffer, as far as they fit. Return the number of copied bytes."""
    return BytesIO(data).readinto(buffer)


class Waitable(AsyncReceiver, FakeSocket):
    """A subscriber that can be waited for."""

    __slots__ = ("_asyncio_wait", "_bus", "_event_fd", "_is_in_use")

    def __init__(self) -> None:
        super().__init__()
        self._asyncio_wait: AsyncWait | None = None
        self._event_fd = -1
        self._bus = current_bus()
        self._is_in_use = False

    # ---- methods of subclasses ----

    @property
    def closed(self) -> bool:
        """True if the subscriber is closed."""
        raise NotImplementedError

    def _check_usable(self) -> Inbox:
        """Return the inbox. Raises an error if the subscriber may not be used now."""
        raise NotImplementedError

    def _receive_now(self) -> bytes | None:
        """Take the next message without waiting; None: no message."""
        raise NotImplementedError

    def _default_timeout_ns(self) -> int | None:
        """Return the default timeout of a receive in ns; None: forever."""
        return None

    # ---- waiting ----

    def _can_receive_now(self) -> bool:
        """Return True if the next receive returns or raises. Otherwise make the descriptor unreadable."""
        if self._check_usable().can_receive():
            return True
        self._rearm_fd()
        return False

    def _check_not_in_use(self) -> None:
        if self._is_in_use:
            text = "is in use by another thread; use a socket in one thread at a time"
            raise ConcurrentUseError(text, self._endpoint)

    def _acquire(self) -> None:
        """Exclude other users."""
        self._is_in_use = True

    def _release(self, _inbox: Inbox) -> None:
        """Allow other users again."""
        self._is_in_use = False

    def _end_all_waits(self) -> None:
        """After a close: release the descriptor, and wake the waiting task."""
        if self._event_fd >= 0:
            os.close(self._event_fd)
            self._event_fd = -1
        self._end_async_wait()

    def fileno(self) -> int:
        """Return a descriptor that is readable while a message is available. In a simulation: `DeadlockError`."""
        inbox = self._check_usable()
        self._bus.check_descriptor_allowed(self._endpoint)
        if self._event_fd < 0:
            self._event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            inbox.set_arrival_callback(partial(os.eventfd_write, self._event_fd, 1))
        self._rearm_fd()
        return self._event_fd

    def _rearm_fd(self) -> None:
        """After a receive: make the descriptor unreadable if no message is left."""
        if self._event_fd >= 0 and not self.closed and not self._check_usable().has_pending_messages():
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._event_fd)


class SharedWaitable(Waitable):
    """A handle with which several calls may wait at once. The endpoint updates its descriptor."""

    __slots__ = ()

    def _check_usable(self) -> SharedInbox:
        raise NotImplementedError

    def _acquire(self) -> None:
        """Do nothing, because other calls may wait."""

    def _release(self, _inbox: object) -> None:
        """See `_acquire`."""

    def _rearm_fd(self) -> None:
        """Do nothing, because the endpoint updates the descriptor."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while a receive returns at once. In a simulation: `DeadlockError`."""
        inbox = self._check_usable()
        self._bus.check_descriptor_allowed(self._endpoint)
        if self._event_fd < 0:
            self._event_fd = inbox.event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            inbox.update_descriptor()
        return self._event_fd


def wait_until_ready(subscribers: list[Waitable], timeout_ns: int | None) -> None:
    """Wait until a receive of one subscriber would return at once, or until the timeout; None: forever."""
    warn_in_event_loop()
    inboxes = [subscriber._check_usable() for subscriber in subscribers]
    endpoints = [subscriber.endpoint for subscriber in subscribers]
    for subscriber in subscribers:
        subscriber._acquire()
    try:
        subscribers[0]._bus.wait_until(
            lambda: any(map(would_receive_return, inboxes)), timeout_ns, _describe_awaited(subscribers)
        )
    finally:
        for subscriber, inbox in zip(subscribers, inboxes, strict=True):
            subscriber._release(inbox)
    for inbox, endpoint in zip(inboxes, endpoints, strict=True):
        if inbox.closed:
            raise EndpointClosedError("was closed during the wait", endpoint)


def would_receive_return(inbox: Inbox) -> bool:
    """Return True if a receive would return or raise at once."""
    return inbox.closed or inbox.can_receive()


def make_wait_condition(awaited: Waitable | Poller) -> tuple[Callable[[], bool], int | None, str]:
    """Return the condition, the timeout in ns and the name of a wait, for nodes that wait by yielding."""
    subscribers = [awaited] if isinstance(awaited, Waitable) else awaited._registered_sockets()
    inboxes = [subscriber._check_usable() for subscriber in subscribers]
    timeout_ns = awaited._default_timeout_ns() if isinstance(awaited, Waitable) else None
    return lambda: any(map(would_receive_return, inboxes)), timeout_ns, _describe_awaited(subscribers)


def _describe_awaited(subscribers: list[Waitable]) -> str:
    return "a message on " + " or ".join(repr(subscriber.endpoint) for subscriber in subscribers)


class _FakePoller(PythonPoller):
    _socket_type = Waitable

    def poll(self, timeout: float) -> list[Waitable]:
        """Return the registered subscribers whose next receive returns at once, in their order."""
        milliseconds = timeout_ms(timeout)
        ready = self._find_ready()
        if not ready and milliseconds and self._sockets:
            wait_until_ready(self._sockets.copy(), None if milliseconds < 0 else milliseconds * NS_PER_MS)
            ready = self._find_ready()
        return ready

    def _find_ready(self) -> list[Waitable]:
        return [socket for socket in self._sockets if socket._can_receive_now()]


class Poller(PyzmqPoller[Waitable], _FakePoller):
    """Waits for several subscribers, and descriptors, at once. See the ring's core.pyi."""
