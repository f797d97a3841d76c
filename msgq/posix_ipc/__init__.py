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
- A message goes to the receiver that has waited longest, as there, but is not handed over: until that process runs, a
  call with a time-out of 0 can take the message. A receiver that has lost two messages in this way has priority: until
  it is served, calls with a time-out of 0 may raise BusyError although a message is there. The same holds for senders
  and free places.
- A handler that interrupts a wait ends it with SignalError, also one that was set with SA_RESTART.
- `close()` ends what other threads wait for in it, with ExistentialError; there they go on. An object that nobody
  refers to is closed, there it stays open until the process ends. `block` is each process's own after a fork.
- Time-outs are measured by the monotonic clock; setting the system's clock changes none.
- Errors derive from `msgq.errors.IpcError`, too, and have an errno; texts differ.
- Some calls crash posix_ipc: those with a wrong number of arguments, a message that is no bytes, "\\0" in a name,
  ``del queue.block``. Here they raise TypeError, ValueError, AttributeError. Flags that the kernel does not use for
  queues are ignored.

Semaphores and shared memory are not here. Any thread may use an object, at any time.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from msgq.posix_ipc.errors import BusyError, Error, ExistentialError, PermissionsError, SignalError
from msgq.posix_ipc.opening import (
    O_CREAT,
    O_CREX,
    O_EXCL,
    O_NONBLOCK,
    O_RDONLY,
    O_RDWR,
    O_WRONLY,
    unlink_message_queue,
)
from msgq.posix_ipc.queue import (
    QUEUE_MESSAGE_SIZE_MAX_DEFAULT,
    QUEUE_MESSAGES_MAX_DEFAULT,
    QUEUE_PRIORITY_MAX,
    MessageQueue,
)

__all__ = [
    "MESSAGE_QUEUES_SUPPORTED",
    "O_CREAT",
    "O_CREX",
    "O_EXCL",
    "O_NONBLOCK",
    "O_RDONLY",
    "O_RDWR",
    "O_TRUNC",
    "O_WRONLY",
    "PAGE_SIZE",
    "QUEUE_MESSAGES_MAX_DEFAULT",
    "QUEUE_MESSAGE_SIZE_MAX_DEFAULT",
    "QUEUE_PRIORITY_MAX",
    "USER_SIGNAL_MAX",
    "USER_SIGNAL_MIN",
    "VERSION",
    "BusyError",
    "Error",
    "ExistentialError",
    "MessageQueue",
    "PermissionsError",
    "SignalError",
    "unlink_message_queue",
]

VERSION = __version__ = "1.3.2"  # of posix_ipc, that this package behaves as
O_TRUNC = os.O_TRUNC
PAGE_SIZE = os.sysconf("SC_PAGESIZE")
MESSAGE_QUEUES_SUPPORTED = True
USER_SIGNAL_MIN, USER_SIGNAL_MAX = int(signal.SIGRTMIN), int(signal.SIGRTMAX)

_UNSUPPORTED_NAMES = ("Semaphore", "SharedMemory", "unlink_semaphore", "unlink_shared_memory")


def __getattr__(name: str) -> NoReturn:
    if name in _UNSUPPORTED_NAMES or name.startswith("SEMAPHORE_"):
        raise AttributeError(f"msgq.posix_ipc has message queues only; {name} is in the library posix_ipc")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
