"""Random programs for message queues, and what comes of them on posix_ipc and on msgq.posix_ipc.

A program is a list of steps: who does it (this thread, another thread of this process with the same objects, or another
process with its own), an operation, and its arguments. All are done one after the other, so each outcome is certain.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import pickle
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support import Child, hear, say, shortest

MODULES = ("posix_ipc", "msgq.posix_ipc")
KNOWN = {"Error", "BusyError", "ExistentialError", "PermissionsError", "SignalError"}
O_CREAT, O_EXCL, O_NONBLOCK, O_RDWR = 0o100, 0o200, 0o4000, 2
O_CREX = O_CREAT | O_EXCL
ACTORS = ("main", "main", "thread", "child")
SLOTS = 4
HARMLESS = int(signal.SIGURG)  # a signal that ends nothing by default
HARDLY = 0.0005  # seconds that a step waits in vain, at most

Step = tuple[Any, ...]

FLAGS = [O_CREAT] * 6 + [0] * 3 + [O_CREX] * 2 + [O_CREAT | O_NONBLOCK, O_NONBLOCK, O_EXCL, O_CREX | O_NONBLOCK]
FLAGS += [O_CREAT | O_RDWR, O_RDWR, 1, 3, 1 << 40, True]
ODD_FLAGS = [None, 1.0, "0"]
MODES = [0o600] * 6 + [0o644, 0o666, 0o700, 0o4600, -1, 2**31 - 1]
ODD_MODES = [2**31, 2**70, 1.0, None, "600"]
ODD_SIZES = [0, -1, 2**62, -(2**63), 2**63, -(2**63) - 1, 1.0, None, "1"]
ODD_NAMES = ["", "/", "jobs", "/a/b", "//a", "/.", "/..", "/" + "x" * 300, "x" * 300, None, 5, bytearray(b"/a"), "/a/"]
PRIORITIES = [0] * 6 + [1, 1, 2, 3, 31, 32767, True]
ODD_PRIORITIES = [-1, 32768, 2**32, -(2**40), 2**63, 1.0, None, "1"]
TIMEOUTS = [0] * 8 + [HARDLY, 1e-9, 0.0, -0.0, None, None, 1, 30.5, 1e9, 1e18, False, True]
ODD_TIMEOUTS = [-1, -0.5, math.nan, math.inf, -math.inf, 1e19, 2**63, 10**400, "1", b"", 1j]
ATTRIBUTES = ["name", "mode", "mqd", "block", "current_messages", "max_messages", "max_message_size", "messages"]
ODD_NOTIFICATIONS = ["x", 1.0, (), (1, 2), (print,), (print, 1, 2), print, -1, 65, 2**31, 2**63]


# ---- making them ----


def program(rng: random.Random, names: list[str]) -> list[Step]:
    """Return a program."""
    steps: list[Step] = [("main", "open", 0, _opening(rng, names[0], O_CREAT))]
    makers = [_send] * 30 + [_receive] * 24 + [_open] * 14 + [_other] * 14
    for number in range(rng.randrange(5, 45)):
        actor, maker = rng.choice(ACTORS), rng.choice(makers)
        steps.append((actor, *maker(rng, names, number)))
    return steps


def all_odd_values(names: list[str]) -> Iterator[list[Step]]:
    """Generate programs that give each odd argument once: to a queue that is there, and to one that is not."""
    sizes = {"max_messages": 2, "max_message_size": 9}
    start: Step = ("main", "open", 0, {"name": names[0], "flags": O_CREAT, **sizes})
    odd: dict[str, list[Any]] = {"name": ODD_NAMES, "flags": ODD_FLAGS + FLAGS, "mode": ODD_MODES}
    odd |= {"max_messages": ODD_SIZES, "max_message_size": ODD_SIZES}
    for what, values in odd.items():
        for value in values:
            for flags in (0, O_CREAT, O_CREX) if (what, value) != ("name", None) else (0, O_CREAT, O_EXCL):
                for name in names:
                    arguments = {"name": name, "flags": flags, **sizes, what: value}
                    yield [start, ("main", "open", 1, arguments), ("main", "send", 1, b"x", 0, 0)]
    for actor in ("main", "child"):
        yield [start, *((actor, "unlink_name", name) for name in ODD_NAMES)]
    closed: list[Step] = [("main", "close", 0)]
    for step in (start, *closed):
        steps: list[Step] = [start, *((step,) if step is not start else ())]
        steps += [("main", "send", 0, b"x", timeout, 0) for timeout in ODD_TIMEOUTS]
        steps += [("main", "receive", 0, timeout) for timeout in ODD_TIMEOUTS]
        steps += [
            ("main", "send", 0, b"xy" * 5, timeout, priority) for timeout in (0, -1) for priority in ODD_PRIORITIES
        ]
        steps += [("main", "notify", 0, notification) for notification in ODD_NOTIFICATIONS]
        steps += [("main", operation, 0, name) for operation in ("get", "set") for name in ATTRIBUTES]
        steps += [("main", "misuse", 0, number) for number in range(4)]
        yield steps


def _odd(rng: random.Random, usual: list[Any], odd: list[Any]) -> Any:
    return rng.choice(odd) if rng.random() < 0.03 else rng.choice(usual)


def _slot(rng: random.Random) -> int:
    return min(rng.randrange(SLOTS), rng.randrange(SLOTS))


def _opening(rng: random.Random, name: Any, flags: Any) -> dict[str, Any]:
    arguments = {
        "name": name,
        "flags": flags,
        "mode": _odd(rng, MODES, ODD_MODES),
        "max_messages": _odd(rng, [1, 2, 3, 3, 5, 10], ODD_SIZES),
        "max_message_size": _odd(rng, [1, 5, 8, 16, 64], ODD_SIZES),
    }
    rights = rng.random()
    if rights < 0.1:
        arguments["read"] = rng.choice([False, 0, None, ""])
    elif rights < 0.2:
        arguments["write"] = rng.choice([False, 0, None, []])
    elif rights < 0.22:
        arguments |= {"read": False, "write": 0}
    return arguments


def _open(rng: random.Random, names: list[str], _: int) -> Step:
    name: Any = _odd(rng, names, ODD_NAMES)
    if rng.random() < 0.05 and isinstance(name, str):
        name = name.encode()
    flags = _odd(rng, FLAGS, ODD_FLAGS)
    if name is None and flags in (O_CREX, O_CREX | O_NONBLOCK):
        name = names[0]  # a name that is chosen is another one each time
    return "open", _slot(rng), _opening(rng, name, flags)


def _send(rng: random.Random, _: list[str], number: int) -> Step:
    size = rng.choice([0, 1, 1, 2, 5, 5, 8, 8, 9, 16, 64, 65])
    message: Any = f"{number:x}".encode().ljust(size, b".")[:size]
    kind = rng.random()
    if kind < 0.1:
        message = message.decode() if kind < 0.05 else "\u20ac" * (size // 3)
    elif kind < 0.15:
        message = bytearray(message)
    timeout, priority = _odd(rng, TIMEOUTS, ODD_TIMEOUTS), _odd(rng, PRIORITIES, ODD_PRIORITIES)
    return "send", _slot(rng), message, timeout, priority


def _receive(rng: random.Random, _: list[str], __: int) -> Step:
    return "receive", _slot(rng), _odd(rng, TIMEOUTS, ODD_TIMEOUTS)


def _other(rng: random.Random, names: list[str], _: int) -> Step:
    slot = _slot(rng)
    choices: list[Step] = [
        ("close", slot),
        ("close", slot),
        ("unlink", slot),
        ("unlink_name", _odd(rng, names, [n for n in ODD_NAMES if n is not None] + [None, b"/a"])),
        ("block", slot, rng.choice([True, False, 0, 1, None, "", "x"])),
        ("get", slot, rng.choice(ATTRIBUTES)),
        ("set", slot, rng.choice(ATTRIBUTES)),
        ("show", slot),
        ("fileno", slot),
        ("notify", slot, rng.choice([HARMLESS, (print, "x"), 0])),
        ("notify", slot, rng.choice(ODD_NOTIFICATIONS)),
        ("misuse", slot, rng.randrange(4)),
        ("drain", slot),
    ]
    return rng.choice(choices)


# ---- doing them ----


class Machine:
    """The queues that one process has open, of one of the modules."""

    def __init__(self, module: str) -> None:
        self.module = importlib.import_module(module)
        self.handles: dict[int, Any] = {}

    def do(self, step: Step) -> Any:
        """Do a step, and return what came of it and what can be seen of all queues then."""
        operation, *arguments = step
        try:
            if operation in ("open", "unlink_name"):
                result = getattr(self, f"_{operation}")(*arguments)
            elif arguments[0] in self.handles:
                result = getattr(self, f"_{operation}")(self.handles[arguments[0]], *arguments[1:])
            else:
                return "none"
        except Exception as error:
            result = outcome(error)
        return result, [(slot, self._seen(handle)) for slot, handle in sorted(self.handles.items())]

    def _seen(self, handle: Any) -> Any:
        try:
            return handle.current_messages, handle.block
        except Exception as error:
            return outcome(error)

    def end(self) -> None:
        """Close all that is open."""
        for handle in self.handles.values():
            with contextlib.suppress(self.module.Error):
                handle.close()
        self.handles.clear()

    def _open(self, slot: int, arguments: dict[str, Any]) -> Any:
        handle = self.module.MessageQueue(**arguments)
        before = self.handles.get(slot)
        self.handles[slot] = handle
        if before is not None:
            with contextlib.suppress(self.module.Error):
                before.close()
        return self._show(handle)

    def _unlink_name(self, name: Any) -> Any:
        return self.module.unlink_message_queue(name)

    def _send(self, handle: Any, message: Any, timeout: Any, priority: Any) -> Any:
        return handle.send(message, self._short(handle, timeout, handle.max_messages), priority)

    def _receive(self, handle: Any, timeout: Any) -> Any:
        return handle.receive(self._short(handle, timeout, 0))

    def _short(self, handle: Any, timeout: Any, stuck: int) -> Any:
        """Return the time-out, or a short one where it would be waited for."""
        if timeout is not None and (not isinstance(timeout, (int, float)) or not HARDLY < timeout < 2**62):
            return timeout
        with contextlib.suppress(self.module.Error):
            return HARDLY if handle.current_messages == stuck else timeout
        return timeout

    def _close(self, handle: Any) -> Any:
        return handle.close()

    def _unlink(self, handle: Any) -> Any:
        return handle.unlink()

    def _block(self, handle: Any, value: Any) -> Any:
        handle.block = value
        return handle.block

    def _get(self, handle: Any, attribute: str) -> Any:
        value = getattr(handle, attribute)
        return value if attribute != "mqd" else min(value, 0)

    def _set(self, handle: Any, attribute: str) -> Any:
        return setattr(handle, attribute, 1)

    def _show(self, handle: Any) -> Any:
        return str(handle), repr(handle), bool(handle), handle == handle

    def _fileno(self, handle: Any) -> Any:
        return min(handle.fileno(), 0)

    def _notify(self, handle: Any, notification: Any) -> Any:
        try:
            return handle.request_notification(notification)
        finally:
            handle.request_notification()

    def _misuse(self, handle: Any, which: int) -> Any:
        calls: list[Callable[[], Any]] = [
            lambda: handle.receive(0, 0),
            lambda: handle.receive(soon=1),
            lambda: handle.send(b"", soon=1),
            lambda: pickle.dumps(handle),
        ]
        return calls[which]()

    def _drain(self, handle: Any) -> Any:
        return [handle.receive(0) for _ in range(handle.current_messages)]


def outcome(error: Exception) -> tuple[Any, ...]:
    """Return what a program can tell of an error: its classes, those of msgq aside, and the errno of an OSError."""
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins" or kind.__name__ in KNOWN]
    return "raised", names, error.errno if isinstance(error, OSError) else None


def far_end() -> None:
    """Do what the parent says, until it says nothing more. Runs in a child."""
    machines = {module: Machine(module) for module in MODULES}
    while (said := hear()) is not None:
        module, step = pickle.loads(bytes.fromhex(said))
        if step is None:
            machines[module].end()
            say()
        else:
            say(repr(machines[module].do(step)))


class Stage:
    """Where programs run: this process with two threads, and another one."""

    def __init__(self, child: Child, names: list[str]) -> None:
        self.child, self.names = child, names
        self.machines = {module: Machine(module) for module in MODULES}
        self.thread = ThreadPoolExecutor(1)

    def _there(self, module: str, step: Step | None) -> Any:
        self.child.say(pickle.dumps((module, step)).hex())
        return self.child.hear()

    def run(self, module: str, steps: list[Step]) -> list[str]:
        """Return what comes of each step."""
        machine = self.machines[module]
        results = []
        for actor, *step in steps:
            if actor == "child":
                results.append(self._there(module, tuple(step)))
            elif actor == "thread":
                results.append(repr(self.thread.submit(machine.do, tuple(step)).result()))
            else:
                results.append(repr(machine.do(tuple(step))))
        self.clear(module, there=any(actor == "child" for actor, *_ in steps))
        return results

    def clear(self, *modules: str, there: bool = True) -> None:
        """Close and unlink all queues."""
        for module in modules:
            machine = self.machines[module]
            machine.end()
            if there:
                self._there(module, None)
            for name in self.names:
                with contextlib.suppress(machine.module.Error):
                    machine.module.unlink_message_queue(name)

    def differs(self, steps: list[Step]) -> bool:
        """Whether the two modules do not agree."""
        return self.run(MODULES[0], steps) != self.run(MODULES[1], steps)

    def report(self, seed: int, steps: list[Step]) -> str:
        """Return, for people, where the modules part."""
        steps = list(shortest(steps, lambda part: self.differs(list(part))))
        lines = [f"seed {seed}: the modules differ; the shortest program that shows it:"]
        both = [self.run(module, steps) for module in MODULES]
        for step, *results in zip(steps, *both, strict=True):
            lines.append(f"  {step!r}")
            lines += [f"    {MODULES[0]}: {results[0]}"]
            lines += [f"    {MODULES[1]}: {results[1]}"] if results[0] != results[1] else []
        return "\n".join(lines)
