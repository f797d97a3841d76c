"""Exceptions of signal handlers, which Python raises in whatever code runs when the signal arrives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, TracebackType


def raise_handler_error(error: BaseException) -> None:
    """Raise the exception of a signal handler, if it is this error, or if code replaced it by this error.

    Call this before an error of foreign code is taken for a property of the data. Otherwise, an exception such as that
    of an alarm would be lost.
    """
    signal = sys.modules.get("signal")
    if signal is None:  # then the program has no handlers
        return
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {code for handler in handlers if (code := _find_code(handler)) is not None}
    seen: BaseException | None = error
    while codes and seen is not None:
        if any(code in codes for code in _list_codes(seen.__traceback__)):
            raise seen
        seen = seen.__context__


def _find_code(handler: object) -> CodeType | None:
    """Return the code of a handler: a function, method, partial, or object with `__call__`."""
    function = getattr(handler, "func", handler)
    if not hasattr(function, "__code__"):
        function = vars(type(function)).get("__call__")
    return getattr(function, "__code__", None)


def _list_codes(traceback: TracebackType | None) -> Iterator[CodeType]:
    while traceback is not None:
        yield traceback.tb_frame.f_code
        traceback = traceback.tb_next
