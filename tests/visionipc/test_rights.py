"""Frames are for reading: who gets a descriptor of one cannot make a writable one of it."""

from __future__ import annotations

import errno
import mmap
import os
from typing import Any

import pytest

from tests.support import DEADLINE_MS, in_fork
from tests.visionipc.conftest import HEIGHT, WIDTH
from visionipc import memfd

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def become_nobody() -> None:
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def get_error_number(function: Any, *arguments: Any) -> Any:
    """Return the system's error number; None: it was allowed."""
    try:
        function(*arguments)
    except OSError as error:
        return error.errno
    return None


def cannot_write(fd: Any) -> None:
    path = f"/proc/self/fd/{fd}"
    assert get_error_number(os.open, path, os.O_RDWR) == errno.EACCES
    assert get_error_number(os.open, path, os.O_WRONLY) == errno.EACCES
    assert get_error_number(os.truncate, path, 1) == errno.EACCES
    assert get_error_number(os.write, fd, b"x") == errno.EBADF
    assert get_error_number(mmap.mmap, fd, 4096) == errno.EACCES


def test_client_of_other_user_cannot_open_frame_for_writing(server: Any, connect: Any) -> None:
    """As a process that got the descriptor, and as one that finds it in the directory of another one."""
    client = connect()
    assert server.send(0, bytes(WIDTH * HEIGHT * 3 // 2))
    frame = client.frame(DEADLINE_MS)
    elsewhere = f"/proc/{os.getpid()}/fd/{frame.fd}"

    def child() -> None:
        become_nobody()
        cannot_write(frame.fd)
        assert get_error_number(os.open, elsewhere, os.O_RDWR) == errno.EACCES
        assert get_error_number(os.fchmod, frame.fd, 0o777) == errno.EPERM

    assert in_fork(child) == 0


def test_client_of_same_user_cannot_open_frame_for_writing_without_chmod() -> None:
    """The owner could after a change of the mode: seals cannot prevent it, since stock's clients map for writing."""

    def child() -> None:
        become_nobody()
        fd = memfd.create_memfd("test", 5000, "test")
        cannot_write(memfd.reopen_read_only(fd))
        os.write(fd, b"server")

    assert in_fork(child) == 0


def test_server_after_user_change_serves_clients() -> None:
    fd = memfd.create_memfd("test", 5000, "test")
    os.write(fd, b"server")

    def child() -> None:
        become_nobody()
        assert os.read(memfd.reopen_read_only(fd), 6) == b"server"

    assert in_fork(child) == 0
    os.close(fd)
