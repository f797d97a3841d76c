"""A pseudo terminal of a given size, on which a test runs the command `msgq` and presses keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from tests.command import start
from tests.support import DEADLINE

_CONTROL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9])")
_CURSOR_HOME = "\x1b[H"  # begins each picture of rich's `Live`


class Terminal:
    """Runs a verb in a terminal. Use as a context manager, whose end kills the verb.

    `starter`: takes the words and the options of `Popen`, and starts the program.
    """

    def __init__(self, columns: int, lines: int, *words: object, starter: Callable[..., Any] = start) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(columns, lines)
        streams: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
        # readline sets the two other variables in the processes of pytest-xdist
        self.process = starter(*words, env={"TERM": "xterm", "COLUMNS": "", "LINES": ""}, **streams)
        os.close(theirs)
        self.output = ""

    def resize(self, columns: int, lines: int) -> None:
        """Set the size of the terminal."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Press keys. They are read one after the other."""
        os.write(self._ours, keys.encode())

    def wait_screen(self, condition: Callable[[list[str]], object]) -> list[str]:
        """Return the lines of the first whole picture from now on that meets a condition."""
        until_s = time.monotonic() + DEADLINE
        self.output = self.output[max(0, self.output.rfind(_CURSOR_HOME)) :]
        while True:
            for picture in self.output.split(_CURSOR_HOME)[1:-1]:
                lines = [line.rstrip() for line in _CONTROL_SEQUENCE.sub("", picture).splitlines()]
                if condition(lines):
                    return lines
            self.output = self.output[max(0, self.output.rfind(_CURSOR_HOME)) :]
            assert self._read(until_s - time.monotonic()), self.output

    def read_all(self) -> list[str]:
        """Return the lines of all output until the end of the verb."""
        with suppress(OSError):  # the terminal is gone
            while self._read(DEADLINE):
                pass
        return [line.rstrip() for line in _CONTROL_SEQUENCE.sub("", self.output).splitlines()]

    def wait(self) -> int:
        """Return the exit code of the verb."""
        self.read_all()
        exit_code: int = self.process.wait(DEADLINE)
        return exit_code

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], max(0, seconds))[0]:
            return False
        data = os.read(self._ours, 1 << 16)
        self.output += data.decode(errors="replace")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.process.__exit__(*details)
        os.close(self._ours)
