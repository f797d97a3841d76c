"""Class MessageQueue of posix_ipc, on a work queue."""

from __future__ import annotations

import errno
import operator
import os
from typing import Any, NoReturn

from msgq import workqueue
from msgq.errors import MsgqError
from msgq.posix_ipc import notification as notifications
from msgq.posix_ipc.arguments import check_name, to_bytes, to_long, to_permissions, to_timeout_s
from msgq.posix_ipc.errors import BusyError, ExistentialError, PermissionsError, translate_error
from msgq.posix_ipc.opening import O_CREX, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY, OpenOptions, unlink_message_queue

QUEUE_MESSAGES_MAX_DEFAULT = 10
QUEUE_MESSAGE_SIZE_MAX_DEFAULT = 8192
QUEUE_PRIORITY_MAX = 32767
_PRIORITY_BITS = 15


class MessageQueue:
    """A queue of messages between processes, highest priority first. The module's documentation lists the differences.

    Attributes:
        name: name given to the constructor, or the chosen name.
        mode: mode given to the constructor.
        max_messages: number of messages that the queue holds.
        max_message_size: maximum bytes of each message.
        block: False: calls raise BusyError instead of waiting.
        current_messages: number of messages in the queue now.
        mqd: descriptor that is readable while a message waits; -1 after `close`.
    """

    __slots__ = ("_name", "_options", "_queue", "_receives", "_sends")

    def __init__(
        self,
        name: str | None,
        flags: int = 0,
        mode: int = 0o600,
        max_messages: int = QUEUE_MESSAGES_MAX_DEFAULT,
        max_message_size: int = QUEUE_MESSAGE_SIZE_MAX_DEFAULT,
        read: bool = True,
        write: bool = True,
    ) -> None:
        """Open a queue, or create one.

        Args:
            name: name with a leading "/"; None: a new unique name, with O_CREX only.
            flags: 0 opens an existing queue. O_CREAT also creates a missing queue. O_CREX only creates a queue.
                O_NONBLOCK sets `block` to False.
            mode: permissions of a new queue, before the umask.
            max_messages: number of messages that a new queue holds.
            max_message_size: maximum bytes of each message of a new queue.
            read: True: the object may receive.
            write: True: the object may send.

        Raises:
            ExistentialError: the queue does not exist, or (O_CREX) exists already.
            PermissionsError: this user may not use the queue.
            ValueError, TypeError, OverflowError: an argument is invalid.
            OSError: no space, too many handles, or too many descriptors.
        """
        asked = check_name(name)
        bits, mode = operator.index(flags), to_permissions(mode)
        options = OpenOptions(bits, mode, to_long(max_messages), to_long(max_message_size), bool(read), bool(write))
        if bits & O_CREX == O_EXCL:
            raise ValueError("O_EXCL needs O_CREAT")
        if asked is None and not bits & O_EXCL:
            raise ValueError("name None needs O_CREX, which chooses a new name")
        if not (options.read or options.write):
            raise ValueError("read and write are both False; set one of them")
        self._name, queue = options.open_new() if asked is None else (asked, options.open(asked))
        self._options = options._replace(max_messages=queue.max_messages, max_message_size=queue.max_message_size)
        self._receives = options.read and options.access in (O_RDONLY, O_RDWR)
        self._sends = options.write and options.access in (O_WRONLY, O_RDWR)
        self._queue: workqueue.MessageQueue | None = queue
        queue.signals_end_waits = True

    def __repr__(self) -> str:
        options = self._options
        limits = f"max_message_size={options.max_message_size}, max_messages={options.max_messages}"
        rights = f"read={options.read}, write={options.write}"
        return f'posix_ipc.MessageQueue("{self._name}", mode=0{options.mode:o}, {limits}, {rights})'

    def __str__(self) -> str:
        return self._name

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object; use msgq.MessageQueue")

    @property
    def name(self) -> str:
        """Name with its leading "/"."""
        return self._name

    @property
    def mode(self) -> int:
        """Requested permissions."""
        return self._options.mode

    @property
    def max_messages(self) -> int:
        """Number of messages that the queue holds."""
        return self._options.max_messages

    @property
    def max_message_size(self) -> int:
        """Maximum bytes of a message."""
        return self._options.max_message_size

    def _get_open_queue(self) -> workqueue.MessageQueue:
        queue = self._queue
        if queue is None:
            raise self._closed_error()
        return queue

    def _closed_error(self) -> ExistentialError:
        return ExistentialError(f"{self._name!r} is closed", errno=errno.EBADF)

    @property
    def current_messages(self) -> int:
        """Number of messages in the queue now."""
        return int(self._get_open_queue().current_messages)

    @property
    def block(self) -> bool:
        """True if calls may wait. False: calls raise BusyError instead."""
        return bool(self._get_open_queue().block)

    @block.setter
    def block(self, value: Any) -> None:
        self._get_open_queue().block = bool(value)

    @property
    def mqd(self) -> int:
        """Descriptor that is readable while a message waits; -1 after `close`."""
        return -1 if self._queue is None else self._queue.fileno()

    def fileno(self) -> int:
        """Return `mqd`."""
        return self.mqd

    def send(self, message: Any, timeout: float | None = None, priority: int = 0) -> None:
        """Send a message. Waits for a free slot.

        Args:
            message: a str, sent as UTF-8, or any object with a contiguous buffer.
            timeout: seconds; None waits without limit, 0 does not wait. If `block` is False, no call waits.
            priority: 0 to 32767. The largest priority is received first.

        Raises:
            BusyError: no slot became free in time.
            ValueError: the message is too large, or the priority is out of range.
            PermissionsError: the object was opened without `write`.
            ExistentialError: the object is closed.
            SignalError: a signal handler ran during the wait.
            TypeError: an argument has a wrong type, or the time-out is negative.
        """
        data = message if type(message) is bytes else to_bytes(message)
        seconds = None if timeout is None else to_timeout_s(timeout)
        rank = priority if type(priority) is int and not priority >> _PRIORITY_BITS else to_long(priority)
        queue = self._queue
        if queue is None or not self._sends or rank >> _PRIORITY_BITS or seconds != seconds:
            raise self._access_error("write", rank)
        try:
            has_requests = notifications.has_requests()
            queue.send(data, rank, timeout=seconds)
            if has_requests or notifications.has_requests():
                notifications.notify_of_own_message(queue)
        except MsgqError as error:
            raise translate_error(error) from error

    def receive(self, timeout: float | None = None) -> tuple[bytes, int]:
        """Take the oldest message of the highest priority. Waits for a message.

        Args:
            timeout: seconds; None waits without limit, 0 does not wait. If `block` is False, no call waits.

        Returns:
            The message and its priority.

        Raises:
            BusyError: no message arrived in time.
            PermissionsError: the object was opened without `read`.
            ExistentialError: the object is closed.
            SignalError: a signal handler ran during the wait.
            TypeError: the time-out is negative, or not a number.
        """
        seconds = None if timeout is None else to_timeout_s(timeout)
        queue = self._queue
        if queue is None or not self._receives or seconds != seconds:
            raise self._access_error("read")
        try:
            message = queue.receive(seconds)
        except MsgqError as error:
            raise translate_error(error) from error
        if message is None:
            raise BusyError(f"{self._name!r} is empty", errno=errno.EAGAIN)
        data, priority = message
        return data, priority

    def _access_error(self, right: str, rank: int = 0) -> Exception:
        """Return the first reason against a call, in the order in which posix_ipc checks them."""
        if not getattr(self._options, right):
            return PermissionsError(f"{self._name!r} was opened with {right}=False", errno=errno.EBADF)
        if not 0 <= rank <= QUEUE_PRIORITY_MAX:
            return ValueError(f"priority is {rank}; give 0 to QUEUE_PRIORITY_MAX ({QUEUE_PRIORITY_MAX})")
        if self._queue is None:
            return self._closed_error()
        access = "receive" if right == "read" else "send"
        text = f"timeout is not a number (NaN), or the queue was opened without the right to {access}"
        return ExistentialError(f"{self._name!r}: {text}", errno=errno.EINVAL)

    def request_notification(self, notification: Any = None) -> None:
        """Request one notification: when the empty queue gets a message, and no receiver waits.

        Args:
            notification: number of a signal, or a tuple of a function and its argument. A new thread calls the
                function. None cancels the request of this process.

        Raises:
            BusyError: another process has a request for this queue.
            ValueError: `notification` is something else.
            OSError: the signal number is invalid, or the object is closed.
        """
        is_call = isinstance(notification, tuple) and len(notification) == 2 and callable(notification[0])
        if not (notification is None or isinstance(notification, int) or is_call):
            raise ValueError(f"notification {notification!r} is invalid; give None, a signal, or (function, argument)")
        queue = self._queue
        if queue is not None:
            notifications.cancel_request(queue)
        if notification is None:
            return
        tell = notifications.make_notifier(notification)
        if queue is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            notifications.add_request(queue, tell)
        except MsgqError as error:
            raise translate_error(error) from error

    def close(self) -> None:
        """Close the object. The queue stays. A notification request of this process is cancelled.

        Raises:
            ExistentialError: the object is closed already.
        """
        queue = self._get_open_queue()
        self._queue = None
        notifications.cancel_request(queue)
        queue.close()

    def unlink(self) -> None:
        """Remove the name of the queue, as `unlink_message_queue`. Also works after `close`."""
        unlink_message_queue(self._name)
