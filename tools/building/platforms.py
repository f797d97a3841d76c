"""Refuses platforms on which msgq cannot be compiled, before a compiler reports missing headers."""

from __future__ import annotations

import sys
import sysconfig

_NAMES = {"darwin": "macOS", "win32": "Windows", "cygwin": "Cygwin"}


def find_platform_problem() -> str:
    """Return the reason why msgq does not run on this platform, as one sentence; "": it does."""
    if sys.platform != "linux":
        name = _NAMES.get(sys.platform, sys.platform)
        return (
            f"msgq-bus runs on Linux only, not on {name}, because it uses futexes and /dev/shm: use a Linux container"
        )
    if "musl" in str(sysconfig.get_config_var("SOABI")):
        return "msgq-bus needs glibc, and this Python uses musl (Alpine): use an image with glibc, such as Debian's"
    if sys.maxsize < 2**32:
        return "msgq-bus needs a 64-bit Python, because other processes read its 64-bit words: install a 64-bit Python"
    return ""


def require_platform() -> None:
    """End the build with one sentence if msgq does not run on this platform."""
    if problem := find_platform_problem():
        sys.exit(problem)
