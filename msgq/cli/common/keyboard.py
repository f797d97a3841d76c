"""Single keys from the terminal."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

UP, DOWN, RIGHT = "\x1b[A", "\x1b[B", "\x1b[C"


def is_keyboard_available() -> bool:
    """Return True if a terminal exists and this program runs in its foreground."""
    if not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # it controls nobody, so there is no foreground either
        return True


@contextmanager
def unbuffered_keyboard() -> Iterator[None]:
    """Within the block, receive each key at once and without echo."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def read_key(seconds: float) -> str:
    """Return the next key, an arrow key as three characters; "": no key within `seconds`."""
    descriptor = sys.stdin.fileno()
    if not select.select([descriptor], [], [], seconds)[0]:
        return ""
    key = os.read(descriptor, 1)
    if not key:  # the terminal is gone
        time.sleep(seconds)
    if key == b"\x1b" and select.select([descriptor], [], [], 0)[0]:
        key += os.read(descriptor, 2)
    return key.decode(errors="replace")
