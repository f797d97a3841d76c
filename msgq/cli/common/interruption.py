"""Signals that end a command, and the exit code of unfinished work."""

import signal
import time
from types import FrameType

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REPETITION_S = 1.0  # a closed terminal and its shell both send SIGHUP, and must not interrupt the clean-up
_SHELL_OFFSET = 128  # shells report 128 + N for a program that signal N ended

_received: list[int] = []


def note_signal(number: int) -> None:
    """Store a signal, for `get_interruption_exit_code`."""
    _received.append(number)


def forget_signals() -> None:
    """Remove the stored signals, before a command begins."""
    _received.clear()


def get_interruption_exit_code() -> int:
    """Return the exit code of a command that a signal ended before its work was finished: 130 for Ctrl-C."""
    return _SHELL_OFFSET + (_received[-1] if _received else signal.SIGINT)


def interrupt_on_termination() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, so that a command cleans up as after Ctrl-C.

    An ignored signal stays ignored, for `nohup`.
    """
    raised_s = float("-inf")

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal raised_s
        if time.monotonic() - raised_s < _REPETITION_S:
            return
        raised_s = time.monotonic()
        note_signal(number)
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)
