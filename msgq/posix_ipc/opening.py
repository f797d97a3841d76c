"""Opening, creating and unlinking of queues, with the errors of the kernel in the order of the kernel."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from msgq import workqueue
from msgq.errors import MsgqError
from msgq.impl.workqueue.options import MESSAGE_SIZE_MAX, MESSAGES_MAX
from msgq.posix_ipc.arguments import apply_umask, parse_queue_name
from msgq.posix_ipc.errors import ExistentialError, translate_error

O_CREAT, O_EXCL, O_NONBLOCK = os.O_CREAT, os.O_EXCL, os.O_NONBLOCK
O_CREX = O_CREAT | O_EXCL
O_RDONLY, O_WRONLY, O_RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
NO_ACCESS = O_WRONLY | O_RDWR  # the kernel then permits neither reading nor writing


class OpenOptions(NamedTuple):
    """Checked arguments of `MessageQueue`."""

    flags: int
    mode: int
    max_messages: int
    max_message_size: int
    read: bool
    write: bool

    @property
    def access(self) -> int:
        """The kernel's two bits for read and write access. The flags may add bits."""
        rights = O_RDWR if self.read and self.write else O_WRONLY if self.write else O_RDONLY
        return rights | self.flags & 3

    @property
    def has_valid_sizes(self) -> bool:
        """True if a new queue may have these sizes."""
        return 0 < self.max_messages <= MESSAGES_MAX and 0 < self.max_message_size <= MESSAGE_SIZE_MAX

    def open(self, name: str) -> workqueue.MessageQueue:
        """Open or create the queue of that name. Invalid arguments are errors only if the kernel would check them."""
        if not name.startswith("/"):
            raise ValueError(f"name {name!r} does not start with '/'")
        bare_name = parse_queue_name(name)
        if self.flags & O_CREAT and self.has_valid_sizes and self.access != NO_ACCESS:
            return self._open_queue(bare_name, self.flags & O_CREX)
        try:
            queue = self._open_queue(bare_name, 0)
        except ExistentialError:
            if not self.flags & O_CREAT:
                raise
            if not self.has_valid_sizes:
                sizes = f"max_messages={self.max_messages}, max_message_size={self.max_message_size}"
                text = f"{sizes}; give 1 to {MESSAGES_MAX} and 1 to {MESSAGE_SIZE_MAX}"
                raise ValueError(text) from None
            return self._open_queue(bare_name, O_CREX)
        if self.flags & O_EXCL:
            queue.close()
            raise ExistentialError(f"queue {name!r} exists", errno=errno.EEXIST)
        if self.access == NO_ACCESS:
            queue.close()
            raise ValueError(f"flags={self.flags:#x} excludes both read={self.read} and write={self.write}")
        return queue

    def _open_queue(self, bare_name: str, create_flags: int) -> workqueue.MessageQueue:
        """Open the queue with all rights. The object checks its own rights, and a send-only object needs `mqd`, too."""
        bits = create_flags | self.flags & O_NONBLOCK
        mode = apply_umask(self.mode) if create_flags else None
        sizes = (self.max_messages, self.max_message_size) if create_flags else (None, None)
        try:
            return workqueue.MessageQueue(bare_name, bits, mode, *sizes)
        except MsgqError as error:
            raise translate_error(error) from error

    def open_new(self) -> tuple[str, workqueue.MessageQueue]:
        """Create a queue with a new unique name."""
        while True:
            name = f"/{os.urandom(8).hex()}"
            try:
                return name, self.open(name)
            except ExistentialError as error:
                if error.errno != errno.EEXIST:
                    raise


def unlink_message_queue(name: str, /) -> None:
    """Remove the name of a queue. Open objects continue to use the queue.

    Raises:
        ExistentialError: the queue does not exist.
        PermissionsError: the queue belongs to another user.
        ValueError: the name is too long.
        TypeError: the name is not a str.
    """
    if not isinstance(name, str):
        raise TypeError(f"name is of type {type(name).__name__}; give a str")
    if "\0" in name:
        raise ValueError(f"name {name!r} has a null character")
    if not name.startswith("/"):
        raise ExistentialError(f"name {name!r} does not start with '/'", errno=errno.ENOENT)
    bare_name = parse_queue_name(name)
    try:
        workqueue.MessageQueue.unlink_name(bare_name)
    except MsgqError as error:
        raise translate_error(error) from error
