"""`dir` lists public names only, each public callable has a signature, and names of other libraries are marked."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import msgq
import visionipc
from msgq import errors, stats
from tests.support import DEADLINE

PACKAGES = (msgq, visionipc)
LISTS = "import {0}\nprint(sorted(dir({0})) == sorted({0}.__all__))\n"
USES = {
    "msgq": "msgq.sub_sock({token!r}).close()\nfor name in msgq.__all__:\n    getattr(msgq, name)\n"
    "import msgq.recording, msgq.simulation, msgq.impl.fake\nmsgq.impl.ring.core.unlink_topic({token!r})\n",
    "visionipc": "for name in visionipc.__all__:\n    getattr(visionipc, name)\nimport visionipc.fake\n",
}


@pytest.mark.parametrize("package", USES)
def test_dir_of_package_lists_only_public_names(package: str, token: str) -> None:
    listed = LISTS.format(package)
    code = listed + USES[package].format(token=token) + listed
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout == "True\nTrue\n", done.stderr


def public_callables() -> Iterator[tuple[str, Any]]:
    """Return the functions, classes and methods of the packages' public names, by their names."""
    for module in (*PACKAGES, errors, stats, importlib.import_module("msgq.topic.fake_events")):
        public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        for name in public:
            value = getattr(module, name)
            if not callable(value) or isinstance(value, type(importlib)):
                continue
            yield f"{module.__name__}.{name}", value
            for kind in inspect.getmro(value) if isinstance(value, type) else ():
                if kind.__module__.partition(".")[0] not in ("msgq", "visionipc"):
                    continue  # a built-in base
                for member in vars(kind):
                    if not member.startswith("_") and callable(getattr(value, member, None)):
                        yield f"{module.__name__}.{name}.{member}", getattr(value, member)


CALLABLES = dict(public_callables())


def test_each_public_callable_has_signature() -> None:
    assert CALLABLES
    for name, value in CALLABLES.items():
        try:
            inspect.signature(value)
        except ValueError as error:
            error.add_note(f"of {name}")
            raise


#: Names of stock msgq and pyzmq: their docstrings say so.
COMPATIBILITY: list[Any] = [
    *(getattr(msgq.SubSocket, name) for name in ("setTimeout", "recv", "recv_into", "rcvtimeo", "rcvhwm")),
    *(getattr(msgq.SubSocket, name) for name in ("arecv", "linger")),
    *(getattr(msgq.PubSocket, name) for name in ("linger", "sndhwm", "sndtimeo", "all_readers_updated")),
    *(getattr(msgq.Poller, name) for name in ("registerSocket", "unregisterSocket", "register", "unregister")),
    msgq.drain_sock_raw,
]


@pytest.mark.parametrize("member", COMPATIBILITY, ids=lambda member: getattr(member, "__name__", str(member)))
def test_compatibility_name_is_marked_in_its_docstring(member: Any) -> None:
    text = inspect.getdoc(member) or ""
    assert "compatibility" in text.lower()


def test_timeouts_in_milliseconds_are_marked_as_compatibility() -> None:
    """Milliseconds are stock's and pyzmq's; a parameter or property of ours with them says so in its name."""
    stub = ast.parse((importlib.import_module("pathlib").Path(msgq.__file__).parent / "impl/ring/core.pyi").read_text())
    for kind in stub.body:
        for node in kind.body if isinstance(kind, ast.ClassDef) else []:
            if isinstance(node, ast.FunctionDef) and "illiseconds" in (text := ast.get_docstring(node) or ""):
                assert "compatibility" in text.lower() or "pyzmq's" in text, node.name
