r"""Message queues with the names and the behaviour of posix_ipc 1.3.2, on work queues: ``from msgq import posix_ipc``.

A program that uses the message queues of posix_ipc runs on work queues after it imports this module instead. The order
of argument checks, the error classes, and the methods of a closed queue are the same. Tests run random programs on
both. The differences:

- Queues: the queues are those of `msgq.MessageQueue` ("/jobs" here is "jobs" there), not the kernel's. Both ends must
  use msgq. The rules of `MessageQueue` hold for names: UTF-8, at most 246 bytes after the "/" (the kernel allows 255).
  The prefix (OPENPILOT_PREFIX) and the trusted users (MSGQ_TRUST) apply, too.
- Limits: the limits are those of `MessageQueue`: 65536 messages of 1 GiB, 128 handles per queue, the space in /dev/shm.
  The defaults are those of Linux: 10 messages of 8192 bytes. A reached limit raises an OSError with an errno, as in
  posix_ipc.
- Permissions: receiving writes to the queue's file, and sending reads it. If a mode gives the group or others only one
  of the two rights, they have none. The owner always has both. The attribute `mode` is the requested mode.
- Descriptors: `mqd` and `fileno()` are a descriptor that is readable while a message waits. A thread of this process
  updates the descriptor, with a short delay. The descriptor does not show free slots, and belongs to the object: do not
  call `os.close`. The descriptor is created at its first use.
- Notifications: a thread of the receiving process notifies, shortly after the send. The `si_pid` of the signal is this
  process, not the sender. Exceptions of a callback go to `threading.excepthook`; posix_ipc drops them.
- Fairness: the receiver that has waited longest gets a message, as in posix_ipc. Until that process runs, a call with a
  time-out of 0 can take the message. A receiver that lost two messages in this way has priority: until the receiver is
  served, calls with a time-out of 0 may raise BusyError although a message waits. The same holds for senders and free
  slots.
- Signals: a handler that runs during a wait ends the wait with SignalError, also with SA_RESTART. A long wait consists
  of sleeps of at most 1 s. If the program has called `signal.set_wakeup_fd`, a signal between two sleeps runs its
  handler, but does not end the wait. Otherwise, the wait uses the wakeup descriptor to detect such signals.
- Lifetime: `close()` ends the waits of other threads with ExistentialError; in posix_ipc they continue. Objects without
  references close; in posix_ipc they stay open until the process ends. After a fork, each process has its own `block`.
- Time-outs use the monotonic clock. Changes of the system's clock have no effect.
- Errors also derive from `msgq.errors.IpcError` and have an errno. The texts differ.
- Some calls crash posix_ipc: a wrong number of arguments, a message that is not bytes, "\0" in a name, or
  ``del queue.block``. Here they raise TypeError, ValueError or AttributeError. Flags that the kernel does not use for
  queues are ignored.

Semaphores and shared memory are not included. Any thread may use an object at any time.
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

VERSION = __version__ = "1.3.2"  # the version of posix_ipc that this package imitates
O_TRUNC = os.O_TRUNC
PAGE_SIZE = os.sysconf("SC_PAGESIZE")
MESSAGE_QUEUES_SUPPORTED = True
USER_SIGNAL_MIN, USER_SIGNAL_MAX = int(signal.SIGRTMIN), int(signal.SIGRTMAX)

_UNSUPPORTED_NAMES = ("Semaphore", "SharedMemory", "unlink_semaphore", "unlink_shared_memory")


def __getattr__(name: str) -> NoReturn:
    if name in _UNSUPPORTED_NAMES or name.startswith("SEMAPHORE_"):
        raise AttributeError(f"msgq.posix_ipc has only message queues; for {name}, use the library posix_ipc")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
