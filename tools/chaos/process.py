"""Forked processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def fork(error_file: Path, function: Callable[..., int], *args: object) -> int:
    """Run a function in a forked process, which ends with the code that it returns; return the process id.

    What goes wrong there is written to the file `complaint`, and ends it with 1. SIGABRT makes it write where it is.
    """
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the other threads are none of Python's
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
            with error_file.open("w") as file:
                faulthandler.enable(file)
                code = function(*args)
                faulthandler.disable()
            error_file.unlink()
    except BaseException:
        error_file.write_text(traceback.format_exc())
        code = 1
    finally:
        os._exit(code)
