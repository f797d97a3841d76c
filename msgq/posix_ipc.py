"""Message queues with the names and the behaviour of posix_ipc 1.3.2, on work queues: ``from msgq import posix_ipc``.

A program that uses the message queues of that library runs on work queues when it imports this module instead. The
order in which arguments are checked, the classes of the errors, and what is left to ask of a closed queue are the
same; tests run random programs on both. What differs:

- The queues are those of `msgq.MessageQueue` ("/jobs" here is "jobs" there), not the kernel's; both ends must use
  msgq. The names of `MessageQueue` hold: UTF-8, at most 246 bytes behind the "/" (the kernel's: 255). The prefix
  (OPENPILOT_PREFIX) and the rule whose files are used (MSGQ_TRUST) hold as well.
- The limits are those of `MessageQueue`: 65536 messages of 1 GiB, 128 handles of a queue, the room in /dev/shm. The
  defaults are Linux': 10 messages of 8192 bytes. A limit that was reached is an OSError, as there, and says its errno.
- Who receives writes to the queue's file, and who sends reads it. So a mode that gives the group, or others, only one
  of the two rights gives them none, and the owner always has both. The attribute `mode` says what was asked for.
- `mqd` and `fileno()` are a descriptor that is readable while a message is there, within the moment that it takes a
  thread of this process to see it. It never becomes writable or not by the room in the queue, and belongs to the
  object: `os.close` is not for it. Without asking for it there is none.
- A notification comes from a thread of the receiving process, a moment after the send that caused it, and is over
  then; the signal's `si_pid` is this process, not the sender. What a callback raises is shown (`threading.excepthook`)
  where posix_ipc drops it.
- A handler that interrupts a wait ends it with SignalError, also one that was set with SA_RESTART.
- `close()` ends what other threads wait for in it, with ExistentialError; there they go on. An object that nobody
  refers to is closed, there it stays open until the process ends. `block` is each process's own after a fork.
- Time-outs are measured by the monotonic clock; setting the system's clock changes none.
- Errors derive from `msgq.errors.IpcError`, too, and have an errno; texts differ.
- Some calls crash posix_ipc: those with a wrong number of arguments, "\\0" in a name, ``del queue.block``. Here they
  raise TypeError, ValueError, AttributeError. Flags that the kernel does not use for queues are ignored.

Semaphores and shared memory are not here. Any thread may use an object, at any time.
"""

from __future__ import annotations

import contextlib
import errno
import math
import operator
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from msgq import workqueue
from msgq.errors import IpcError, MsgqError
from msgq.impl.workqueue.options import MESSAGE_SIZE_MAX, MESSAGES_MAX

VERSION = __version__ = "1.3.2"  # of posix_ipc, that this module behaves as

O_CREAT, O_EXCL, O_TRUNC, O_NONBLOCK = os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_NONBLOCK
O_CREX = O_CREAT | O_EXCL
O_RDONLY, O_WRONLY, O_RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
PAGE_SIZE = os.sysconf("SC_PAGESIZE")
MESSAGE_QUEUES_SUPPORTED = True
QUEUE_MESSAGES_MAX_DEFAULT = 10
QUEUE_MESSAGE_SIZE_MAX_DEFAULT = 8192
QUEUE_PRIORITY_MAX = 32767
USER_SIGNAL_MIN, USER_SIGNAL_MAX = int(signal.SIGRTMIN), int(signal.SIGRTMAX)

_NAME_BYTES_MAX = 255  # behind the "/", in the kernel
_SIGNAL_MAX = 64
_NO_RIGHT = O_WRONLY | O_RDWR  # what the kernel makes of both
_LONGEST_WAIT = 2_000_000.0  # seconds; whoever waits longer waits for ever
_TIME_MAX = 2.0**63 - 2.0**32  # what a time-out may be, so that the kernel can add the time of day to it
_ELSEWHERE = ("Semaphore", "SharedMemory", "unlink_semaphore", "unlink_shared_memory")


class Error(IpcError):
    """What goes wrong with queues; the others derive from it."""


class SignalError(Error):
    """A signal's handler ran while a call waited. What it raised is the error's context."""


class PermissionsError(Error):
    """The queue, or the way in which it was opened, does not allow it."""


class ExistentialError(Error):
    """There is no such queue, or there is one already, or the object was closed."""


class BusyError(Error):
    """The queue was full or empty for as long as the call could wait; or another process asked to be notified."""


#: What an error of a work queue is here, by its errno.
_KINDS: dict[int | None, type[Error]] = {
    errno.EAGAIN: BusyError,
    errno.ETIMEDOUT: BusyError,
    errno.EBUSY: BusyError,
    errno.EINTR: SignalError,
    errno.ENOENT: ExistentialError,
    errno.EEXIST: ExistentialError,
    errno.EBADF: ExistentialError,
    errno.EACCES: PermissionsError,
    errno.EPERM: PermissionsError,
}
_OF_THE_SYSTEM = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def _translated(error: MsgqError) -> Exception:
    """Return what posix_ipc raises where a work queue raises `error`."""
    if error.errno in (errno.EMSGSIZE, errno.EINVAL):
        return ValueError(str(error))
    if error.errno in _OF_THE_SYSTEM:
        return OSError(error.errno, str(error))
    kind = _KINDS.get(error.errno, Error)
    text = str(error) if kind is not SignalError else "a signal ended the wait"
    return kind(text, errno=error.errno)


# ---- arguments ----


def _long(value: Any) -> int:
    """Return an integer that fits into 64 bits."""
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} needs more than 64 bits")
    return number


def _permissions(value: Any) -> int:
    """Return a mode, which fits into 32 bits, without its sign."""
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        raise OverflowError(f"the mode {number} needs more than 32 bits")
    return number & 0xFFFFFFFF


def _patience(timeout: Any) -> float | None:
    """Return seconds, None for ever. What is no time is NaN: that comes later, behind other errors."""
    if timeout is None:
        return None
    if not isinstance(timeout, (int, float)) or timeout < 0 or (isinstance(timeout, int) and timeout >= 2**63):
        raise TypeError(f"the timeout is {timeout!r}; give None, or seconds from 0 on")
    seconds = float(timeout)
    if seconds <= _LONGEST_WAIT:
        return seconds
    return None if seconds < _TIME_MAX else math.nan


def _bytes_of(message: Any) -> Any:
    """Return a message as what has a buffer."""
    if isinstance(message, str):
        return message.encode()
    if not memoryview(message).c_contiguous:
        raise BufferError("the message is not contiguous in memory")
    return message


def _asked_name(name: Any) -> str | None:
    """Return the argument `name`, which may be bytes."""
    if name is None or isinstance(name, str):
        return name
    if not isinstance(name, bytes):
        raise TypeError(f"the name is {type(name).__name__}; give a str, or None for a new one")
    return name.decode()


def _within(name: str) -> str:
    """Return what follows the "/" of a name that starts with one, or raise what the kernel does."""
    rest = name[1:]
    if not rest:
        raise ExistentialError(f"{name!r} names no queue; something must follow the '/'", errno=errno.ENOENT)
    if len(os.fsencode(rest)) > _NAME_BYTES_MAX:
        raise ValueError(f"the name {name[:40]!r}... is too long")
    if "/" in rest or rest in (".", ".."):
        raise PermissionsError(f"{name!r} cannot name a queue: no second '/', nor '.' or '..'", errno=errno.EACCES)
    if "\0" in rest:
        raise ValueError(f"the name {name!r} has a null character")
    return rest


def _narrowed(mode: int) -> int:
    """Return the mode of the file: the umask taken off, half a right none, the owner's whole."""
    with open("/proc/self/status") as status:  # os.umask would change it for the files of other threads
        mask = next((int(line.split()[1], 8) for line in status if line.startswith("Umask:")), 0o077)
    mode &= ~mask
    return 0o600 | sum(both for both in (0o060, 0o006) if mode & both == both)


# ---- opening ----


class _Opening(NamedTuple):
    """How a queue is to be opened: checked arguments of `MessageQueue`."""

    flags: int
    mode: int
    max_messages: int
    max_message_size: int
    read: bool
    write: bool

    @property
    def access(self) -> int:
        """The kernel's two bits for the rights to read and to write, to which the flags may add."""
        rights = O_RDWR if self.read and self.write else O_WRONLY if self.write else O_RDONLY
        return rights | self.flags & 3

    @property
    def possible(self) -> bool:
        """Whether a new queue can be so."""
        return 0 < self.max_messages <= MESSAGES_MAX and 0 < self.max_message_size <= MESSAGE_SIZE_MAX

    def open(self, name: str) -> workqueue.MessageQueue:
        """Open or make the queue of that name. What makes no sense matters only where the kernel looks at it."""
        if not name.startswith("/"):
            raise ValueError(f"the name {name!r} does not start with '/'")
        rest = _within(name)
        if self.flags & O_CREAT and self.possible and self.access != _NO_RIGHT:
            return self._open(rest, self.flags & O_CREX)
        try:
            queue = self._open(rest, 0)
        except ExistentialError:
            if not self.flags & O_CREAT:
                raise
            if not self.possible:
                sizes = f"max_messages={self.max_messages}, max_message_size={self.max_message_size}"
                text = f"{sizes}; they may be 1 to {MESSAGES_MAX} and 1 to {MESSAGE_SIZE_MAX}"
                raise ValueError(text) from None
            return self._open(rest, O_CREX)
        if self.flags & O_EXCL:
            queue.close()
            raise ExistentialError(f"there is a queue {name!r} already", errno=errno.EEXIST)
        if self.access == _NO_RIGHT:
            queue.close()
            raise ValueError(f"flags={self.flags:#x} leaves no right of read={self.read}, write={self.write}")
        return queue

    def _open(self, rest: str, making: int) -> workqueue.MessageQueue:
        bits = making | self.flags & O_NONBLOCK
        mode = _narrowed(self.mode) if making else None
        sizes = (self.max_messages, self.max_message_size) if making else (None, None)
        try:
            return workqueue.MessageQueue(rest, bits, mode, *sizes, read=self.read, write=self.write)
        except MsgqError as error:
            raise _translated(error) from error

    def open_new(self) -> tuple[str, workqueue.MessageQueue]:
        """Make a queue with a name that no other has."""
        while True:
            name = f"/{os.urandom(8).hex()}"
            with contextlib.suppress(ExistentialError):
                return name, self.open(name)


def unlink_message_queue(name: str, /) -> None:
    """Take a queue's name away. Who has it open goes on with it.

    Raises
    ------
    ExistentialError : there is no queue of that name. PermissionsError: it is not ours.
    ValueError : the name is too long. TypeError: it is no str.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name is {type(name).__name__}; give a str")
    if "\0" in name:
        raise ValueError(f"the name {name!r} has a null character")
    if not name.startswith("/"):
        raise ExistentialError(f"{name!r} names no queue; a '/' must stand before it", errno=errno.ENOENT)
    try:
        workqueue.MessageQueue.unlink_name(_within(name))
    except MsgqError as error:
        if isinstance(error, Error):
            raise
        raise _translated(error) from error


# ---- notifications ----


class _Requests:
    """Who is to be told in this process that a queue got a message: one request a queue, as the kernel has it.

    The handle that waits for it is kept here, so that it goes on when nobody else refers to it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a signal's handler may ask for the next one
        self.of: dict[Any, workqueue.MessageQueue] = {}

    def cancel(self, queue: workqueue.MessageQueue) -> None:
        """Forget the request for this queue, by whichever of its handles it was made."""
        with self.lock:
            asked = self.of.pop(queue.identity, None)
            if asked is not None and not asked.closed:
                asked.notify(None)

    def add(self, queue: workqueue.MessageQueue, tell: Callable[[], object]) -> None:
        """Ask for one notification."""

        def arrived(_: workqueue.MessageQueue) -> None:
            with self.lock:
                if self.of.get(queue.identity) is queue:
                    del self.of[queue.identity]
            tell()

        with self.lock:
            queue.notify(arrived, once=True, exclusive=True)
            self.of[queue.identity] = queue


_requests = _Requests()


def _forget_requests() -> None:
    """Begin anew in a forked child: what was asked for is the parent's."""
    global _requests
    _requests = _Requests()


os.register_at_fork(after_in_child=_forget_requests)


def _teller(notification: Any) -> Callable[[], object]:
    """Return what notifies as asked for.

    Raises
    ------
    OSError : there is no such signal.
    """
    if isinstance(notification, tuple):
        function, argument = notification
        return lambda: threading.Thread(target=function, args=(argument,), daemon=True).start()
    number = _long(notification) & 0xFFFFFFFF
    if number > _SIGNAL_MAX:
        raise OSError(errno.EINVAL, f"{os.strerror(errno.EINVAL)}: {notification} is no signal")
    return lambda: os.kill(os.getpid(), number)


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

    __slots__ = ("_how", "_name", "_queue")

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
        asked = _asked_name(name)
        bits, mode = operator.index(flags) & 0xFFFFFFFF, _permissions(mode)
        how = _Opening(bits, mode, _long(max_messages), _long(max_message_size), bool(read), bool(write))
        if bits & O_CREX == O_EXCL:
            raise ValueError("O_EXCL needs O_CREAT beside it")
        if asked is None and not bits & O_EXCL:
            raise ValueError("only with O_CREX may the name be None: a new one is chosen")
        if not (how.read or how.write):
            raise ValueError("read and write are both False; one of them is needed")
        self._name, queue = how.open_new() if asked is None else (asked, how.open(asked))
        self._how = how._replace(max_messages=queue.max_messages, max_message_size=queue.max_message_size)
        self._queue: workqueue.MessageQueue | None = queue
        queue.signals_end_waits = True

    def __repr__(self) -> str:
        how = self._how
        limits = f"max_message_size={how.max_message_size}, max_messages={how.max_messages}"
        return (
            f'posix_ipc.MessageQueue("{self._name}", mode=0{how.mode:o}, {limits}, read={how.read}, write={how.write})'
        )

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
        return self._how.mode

    @property
    def max_messages(self) -> int:
        """How many messages the queue holds."""
        return self._how.max_messages

    @property
    def max_message_size(self) -> int:
        """How many bytes a message may have."""
        return self._how.max_message_size

    def _open(self) -> workqueue.MessageQueue:
        queue = self._queue
        if queue is None or queue.closed:
            raise ExistentialError(f"{self._name!r} was closed", errno=errno.EBADF)
        return queue

    @property
    def current_messages(self) -> int:
        """How many messages are there now."""
        return self._open().current_messages

    @property
    def block(self) -> bool:
        """Whether calls wait; False: they raise BusyError instead."""
        return self._open().block

    @block.setter
    def block(self, value: Any) -> None:
        self._open().block = bool(value)

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
        data, seconds, number = _bytes_of(message), _patience(timeout), _long(priority)
        if not self._how.write:
            raise PermissionsError(f"{self._name!r} was opened with write=False", errno=errno.EBADF)
        if not 0 <= number <= QUEUE_PRIORITY_MAX:
            raise ValueError(f"the priority is {number}; it may be 0 to QUEUE_PRIORITY_MAX ({QUEUE_PRIORITY_MAX})")
        self._check(self._how.access in (O_WRONLY, O_RDWR), seconds)
        try:
            self._open().send(data, number, timeout=seconds)
        except MsgqError as error:
            if isinstance(error, Error):
                raise
            raise _translated(error) from error

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
        seconds = _patience(timeout)
        if not self._how.read:
            raise PermissionsError(f"{self._name!r} was opened with read=False", errno=errno.EBADF)
        self._check(self._how.access in (O_RDONLY, O_RDWR), seconds)
        try:
            message = self._open().receive(timeout=seconds)
        except MsgqError as error:
            if isinstance(error, Error):
                raise
            raise _translated(error) from error
        if message is None:
            raise BusyError(f"{self._name!r} is empty", errno=errno.EAGAIN)
        return message.data, message.priority

    def _check(self, right: bool, seconds: float | None) -> None:
        """Refuse what the kernel does not do: without the right, or until a time that it cannot express."""
        if not right or (seconds is not None and math.isnan(seconds)):
            what = "flags that leave it no right to do so" if not right else "no such time-out"
            raise ExistentialError(f"{self._name!r}: {what}", errno=errno.EINVAL if right else errno.EBADF)

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
            _requests.cancel(queue)
        if notification is None:
            return
        tell = _teller(notification)
        if queue is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            _requests.add(queue, tell)
        except MsgqError as error:
            raise _translated(error) from error

    def close(self) -> None:
        """Close the object; the queue stays. A notification that this process asked for is cancelled.

        Raises
        ------
        ExistentialError : it was closed before.
        """
        queue = self._open()
        self._queue = None
        _requests.cancel(queue)
        queue.close()

    def unlink(self) -> None:
        """Take the queue's name away, as `unlink_message_queue`; it works when closed, too."""
        unlink_message_queue(self._name)


def __getattr__(name: str) -> NoReturn:
    if name in _ELSEWHERE or name.startswith("SEMAPHORE_"):
        raise AttributeError(f"msgq.posix_ipc has message queues only; {name} is in the library posix_ipc")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
