"""The class MessageQueue of posix_ipc, on a work queue."""

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
    """A queue of messages, the highest priority first, that processes share. See the module for what differs.

    Attributes
    ----------
    name, mode : as given, or the name that was chosen.
    max_messages, max_message_size : of the queue: messages; bytes of each.
    block : False: calls raise BusyError where they would wait.
    current_messages : how many are there now.
    mqd : a descriptor, readable while a message is there; -1 when closed.
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
        """Open a queue, or make one.

        Parameters
        ----------
        name : starts with "/"; None: a new one is chosen, with O_CREX only.
        flags : 0 opens a queue that is there; O_CREAT makes it if there is none, O_CREX makes it and nothing else.
            O_NONBLOCK: `block` is False.
        mode : permissions of a new queue, of which the umask is taken off.
        max_messages, max_message_size : of a new queue: messages; bytes of each.
        read, write : what the object is for: receiving, sending.

        Raises
        ------
        ExistentialError : there is no such queue, or (O_CREX) there is one.
        PermissionsError : the queue is not for this user.
        ValueError, TypeError, OverflowError : an argument makes no sense.
        OSError : no room, or too many handles, or descriptors.
        """
        asked = check_name(name)
        bits, mode = operator.index(flags), to_permissions(mode)
        options = OpenOptions(bits, mode, to_long(max_messages), to_long(max_message_size), bool(read), bool(write))
        if bits & O_CREX == O_EXCL:
            raise ValueError("O_EXCL needs O_CREAT beside it")
        if asked is None and not bits & O_EXCL:
            raise ValueError("only with O_CREX may the name be None: a new one is chosen")
        if not (options.read or options.write):
            raise ValueError("read and write are both False; one of them is needed")
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
        raise TypeError(f"cannot pickle {type(self).__name__!r} object; msgq.MessageQueue can be")

    @property
    def name(self) -> str:
        """The name, with its "/"."""
        return self._name

    @property
    def mode(self) -> int:
        """The permissions that were asked for."""
        return self._options.mode

    @property
    def max_messages(self) -> int:
        """How many messages the queue holds."""
        return self._options.max_messages

    @property
    def max_message_size(self) -> int:
        """How many bytes a message may have."""
        return self._options.max_message_size

    def _get_open_queue(self) -> workqueue.MessageQueue:
        queue = self._queue
        if queue is None:
            raise self._closed_error()
        return queue

    def _closed_error(self) -> ExistentialError:
        return ExistentialError(f"{self._name!r} was closed", errno=errno.EBADF)

    @property
    def current_messages(self) -> int:
        """How many messages are there now."""
        return int(self._get_open_queue().current_messages)

    @property
    def block(self) -> bool:
        """Whether calls wait; False: they raise BusyError instead."""
        return bool(self._get_open_queue().block)

    @block.setter
    def block(self, value: Any) -> None:
        self._get_open_queue().block = bool(value)

    @property
    def mqd(self) -> int:
        """A descriptor that is readable while a message is there; -1 when closed."""
        return -1 if self._queue is None else self._queue.fileno()

    def fileno(self) -> int:
        """Return `mqd`."""
        return self.mqd

    def send(self, message: Any, timeout: float | None = None, priority: int = 0) -> None:
        """Send a message, waiting for room.

        Parameters
        ----------
        message : str, which is sent as UTF-8, or anything with a contiguous buffer.
        timeout : seconds; None waits for ever, 0 not at all. Without `block` nothing waits.
        priority : 0 to 32767, the largest is received first.

        Raises
        ------
        BusyError : there was no room in time.
        ValueError : the message is too large, or the priority.
        PermissionsError : the object was opened without `write`. ExistentialError: it was closed.
        SignalError : a signal's handler ran meanwhile.
        TypeError : an argument is of another kind, or the time-out negative.
        """
        data = message if type(message) is bytes else to_bytes(message)
        seconds = None if timeout is None else to_timeout_s(timeout)
        rank = priority if type(priority) is int and not priority >> _PRIORITY_BITS else to_long(priority)
        queue = self._queue
        if queue is None or not self._sends or rank >> _PRIORITY_BITS or seconds != seconds:
            raise self._access_error("write", rank)
        try:
            queue.send(data, rank, timeout=seconds)
        except MsgqError as error:
            raise translate_error(error) from error

    def receive(self, timeout: float | None = None) -> tuple[bytes, int]:
        """Take the first message of the highest priority, waiting for one.

        Parameters
        ----------
        timeout : seconds; None waits for ever, 0 not at all. Without `block` nothing waits.

        Returns
        -------
        The message and its priority.

        Raises
        ------
        BusyError : there was none in time.
        PermissionsError : the object was opened without `read`. ExistentialError: it was closed.
        SignalError : a signal's handler ran meanwhile.
        TypeError : the time-out is negative, or no number.
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
        """Return the first of the reasons why a call is none, as they are looked for there."""
        if not getattr(self._options, right):
            return PermissionsError(f"{self._name!r} was opened with {right}=False", errno=errno.EBADF)
        if not 0 <= rank <= QUEUE_PRIORITY_MAX:
            return ValueError(f"the priority is {rank}; it may be 0 to QUEUE_PRIORITY_MAX ({QUEUE_PRIORITY_MAX})")
        if self._queue is None:
            return self._closed_error()
        access = "receive" if right == "read" else "send"
        text = f"the timeout is not a number (NaN), or the flags that opened the queue do not let it {access}"
        return ExistentialError(f"{self._name!r}: {text}", errno=errno.EINVAL)

    def request_notification(self, notification: Any = None) -> None:
        """Ask to be notified once, when the empty queue gets a message that no receiver waits for.

        Parameters
        ----------
        notification : a signal's number; or a function and its argument (a tuple), which is called in a new thread;
            None: what this process asked for is cancelled.

        Raises
        ------
        BusyError : another process waits for a notification of this queue.
        ValueError : it is something else. OSError: there is no such signal, or the object was closed.
        """
        is_call = isinstance(notification, tuple) and len(notification) == 2 and callable(notification[0])
        if not (notification is None or isinstance(notification, int) or is_call):
            raise ValueError(f"{notification!r} notifies nobody; give None, a signal, or (function, argument)")
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
        """Close the object; the queue stays. A notification that this process asked for is cancelled.

        Raises
        ------
        ExistentialError : it was closed before.
        """
        queue = self._get_open_queue()
        self._queue = None
        notifications.cancel_request(queue)
        queue.close()

    def unlink(self) -> None:
        """Take the queue's name away, as `unlink_message_queue`; it works when closed, too."""
        unlink_message_queue(self._name)
