"""The operations that the protocol's generators yield: the name of a method of `Machine`, and its arguments.

Between two yields a thread is atomic; it can be preempted or killed at every yield, before the operation.
"""

from collections.abc import Callable
from typing import Any

from .memory import RELAXED, Order
from .task import Op, Task

# Sequentially consistent loads, changes and exchanges: as machine code, and as the language defines them.
X86 = ("load_x86", "rmw_x86", "cas_x86")
AARCH64 = ("load_strong", "rmw", "cas")
C11 = ("load_c11", "rmw_c11", "cas_c11")
CPUS = (X86, AARCH64, C11)


def load(location: str, order: Order = RELAXED) -> Op:
    """Its value."""
    return ("load", location, order)


def load_strong(location: str) -> Op:
    """A sequentially consistent load as AArch64 compiles it: it stays behind all releases before it."""
    return ("load_strong", location)


def load_x86(location: str) -> Op:
    """The same as x86 compiles it, a plain load: it may overtake a release store before it."""
    return ("load_x86", location)


def store(location: str, value: Any, order: Order = RELAXED) -> Op:
    """No result."""
    return ("store", location, value, order)


def rmw(location: str, change: Callable[[Any], Any]) -> Op:
    """Read, modify, write; acquire and release. The value before."""
    return ("rmw", location, change)


def rmw_x86(location: str, change: Callable[[Any], Any]) -> Op:
    """As x86 compiles it: a locked instruction, behind which no load overtakes it."""
    return ("rmw_x86", location, change)


def cas(location: str, expected: Any, desired: Any) -> Op:
    """Compare and exchange; acquire and release. The value before."""
    return ("cas", location, expected, desired)


def fence(order: Order) -> Op:
    """A relaxed one (a mutation) does nothing."""
    return ("fence", order)


def membarrier() -> Op:
    """A fence on every thread that registered."""
    return ("membarrier",)


def futex_wait(location: str, unchanged: Callable[[Any], bool]) -> Op:
    """Sleep if the word is unchanged."""
    return ("futex_wait", location, unchanged)


def futex_wake() -> Op:
    """Wake all sleepers."""
    return ("futex_wake",)


def tkill() -> Op:
    """SIGUSR2 for the helper thread."""
    return ("tkill",)


def until(condition: Callable[[], bool]) -> Op:
    """A system call that blocks; the caller goes on in the same step in which it finds the condition true."""
    return ("until", condition)


def is_alive(task: Task) -> Op:
    """Neither killed nor closed."""
    return ("is_alive", task)


def preempt(task: Task) -> Op:
    """The caller runs because `task` lost its CPU."""
    return ("preempt", task)


def pause() -> Op:
    """Let others run: the end of one round of a polling loop."""
    return ("pause",)
