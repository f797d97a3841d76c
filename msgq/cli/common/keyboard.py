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
PAGE_UP, PAGE_DOWN, HOME, END = "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F"
_OTHER_SEQUENCES = {  # sequences of other terminals, and of other modes of a terminal
    **{"\x1bOA": UP, "\x1bOB": DOWN, "\x1bOC": RIGHT, "\x1bOH": HOME, "\x1bOF": END},
    **{"\x1b[1~": HOME, "\x1b[4~": END, "\x1b[7~": HOME, "\x1b[8~": END, "\r": "\n", "\b": "\x7f"},
}
ESCAPE, ENTER, BACKSPACE = "\x1b", "\n", "\x7f"


def is_keyboard_available() -> bool:
    """Return True if a terminal exists and this program runs in its foreground."""
    if not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # not a controlling terminal, so it has no foreground process group
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
    """Return the next key; "": no key within `seconds`.

    An arrow key or a page key is the sequence of characters that the terminal sends.
    """
    descriptor = sys.stdin.fileno()
    if not select.select([descriptor], [], [], seconds)[0]:
        return ""
    key = os.read(descriptor, 1)
    if not key:  # the terminal is gone
        time.sleep(seconds)
    if key == b"\x1b" and _is_key_waiting(descriptor):
        key += _read_escape_sequence(descriptor)
    while _lacks_utf8_bytes(key) and _is_key_waiting(descriptor):
        key += os.read(descriptor, 1)
    text = key.decode(errors="replace")
    return _OTHER_SEQUENCES.get(text, text)


def _is_key_waiting(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def _read_escape_sequence(descriptor: int) -> bytes:
    """Return the rest of a key's sequence, after the escape character: "[A", "OA", "[5~"."""
    sequence = os.read(descriptor, 2)
    while sequence[-1:].isdigit() and _is_key_waiting(descriptor):
        sequence += os.read(descriptor, 1)
    return sequence


def _lacks_utf8_bytes(key: bytes) -> bool:
    if not key or key[0] < 0xC0:
        return False
    return len(key) < (2 if key[0] < 0xE0 else 3 if key[0] < 0xF0 else 4)
