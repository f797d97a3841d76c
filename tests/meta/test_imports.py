"""Imports go one way, and what comes from outside is used in its place only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.meta.sources import ROOT, code, headers, imports, modules

# From the ground up: a module may import what stands on a line above it, never its own line's or what is below.
LAYERS = [
    {"msgq.errors", "msgq.impl.core"},
    {"msgq.impl.liveness"},
    {"msgq.naming", "msgq.schema", "msgq.impl.event_loop", "msgq.impl.habits", "msgq.impl.fake.clock"},
    {"msgq.impl.awaitable", "msgq.impl.plain", "msgq.sharing"},
    {"msgq.stats", "msgq.impl.wake", "msgq.impl.segment", "msgq.impl.context"},
    {"msgq.impl.gatefile"},
    {"msgq.impl.gate"},
    {"msgq.impl.publisher", "msgq.impl.connection", "msgq.impl.snapshot", "msgq.impl.guard"},
    {"msgq.impl.subscriber"},
    {"msgq.impl.poller", "msgq.impl.meter"},
    {"msgq.impl.fake.bus", "msgq.impl.fake.socket"},
    {"msgq.impl.fake.publisher", "msgq.impl.fake.subscriber"},
    {"msgq.impl", "msgq.impl.ring", "msgq.impl.fake", "msgq.impl.zeromq", "msgq.backend"},
    {"msgq.api", "msgq.fake_events", "msgq.bridge"},
    {"msgq.ipc_pyx"},
    {"visionipc.formats", "visionipc.impl.memory", "visionipc.shared", "visionipc.spelling"},
    {"visionipc.wire", "visionipc.convert", "visionipc.picture", "visionipc.impl", "visionipc.impl.leases"},
    {"visionipc.listener", "visionipc.impl.frames"},
    {"visionipc.buffers"},
    {"visionipc.connection"},
    {"visionipc.client", "visionipc.server", "visionipc.sync"},
    {"visionipc"},
    {"msgq.visionipc", "msgq.visionipc.visionipc_pyx"},
    {"msgq.masters.pace", "msgq.masters.topics"},
    {"msgq.masters.submaster", "msgq.masters.pubmaster"},
    {"msgq.masters"},
    {"msgq"},
    {"msgq.simulation"},
    {"msgq.recording"},
    {"msgq.spark"},
    {"pyspark_msgq", "pyspark_msgq_daemon"},
    {"msgq.cli"},
    {"msgq.__main__", "msgq_command"},
]
# Upwards all the same, each from within a function.
UPWARDS = {
    ("msgq.stats", "msgq.impl.snapshot"): "the snapshot makes the dataclasses that stats defines",
    ("msgq.api", "msgq.impl.ring"): "for type checkers; at run time backend.load chooses",
    ("msgq.impl.fake.bus", "msgq.impl.fake.socket"): "for type checkers: the sockets that a bus is told of",
}
HEADER_LAYERS = [
    {"atomics.h", "scan.h", "thread.h"},
    {"layout.h", "leases.h"},
    {"position.h", "futex.h", "liveness.h", "whole.h", "mapguard.h"},
    {"life.h", "schema.h", "helper.h"},
    {"slots.h", "gate.h", "walk.h"},
    {"publisher.h"},
    {"subscriber.h"},
    {"registry.h", "watcher.h"},
    {"snapshot.h", "meter.h", "capture.h"},
]
OUTSIDE = {
    "numpy": {
        *("msgq.impl.subscriber", "msgq.impl.fake.publisher", "msgq.impl.fake.subscriber", "msgq.impl.zeromq"),
        *("msgq.cli", "msgq.recording", "msgq.spark"),
        *("visionipc.buffers", "visionipc.convert", "visionipc.formats", "visionipc.picture"),
    },
    "click": {"msgq.cli"},
    "rich": {"msgq.cli"},
    "psutil": {"msgq.cli"},
    "zmq": {"msgq.impl.zeromq"},
    "mcap": {"msgq.recording", "msgq.spark"},
    "zstandard": {"msgq.recording"},
    "lz4": {"msgq.recording"},
    "pyarrow": {"msgq.recording", "msgq.spark"},
    "pyspark": {"msgq.spark"},
    "plotly": {"msgq.spark"},
}


def layer_name(module: str) -> str:
    """All of the command line is one layer, and so are the simulation, the recorder and the ZMQ backend."""
    packages = ("msgq.cli", "msgq.simulation", "msgq.recording", "msgq.spark", "msgq.impl.zeromq")
    return next((name for name in packages if module.startswith(f"{name}.")), module)


def level(layers: list[set[str]], name: str) -> int:
    found = [i for i, layer in enumerate(layers) if name in layer]
    assert len(found) == 1, f"{name} is in no layer: say where it belongs"
    return found[0]


def test_modules_import_from_below_only():
    wrong = []
    for module, paths in modules().items():
        here = layer_name(module)
        for path in paths:
            for found in imports(path):
                there = layer_name(found.module)
                if not there.startswith(("msgq", "visionipc")) or there == here:
                    continue
                if found.lazy and (here, there) in UPWARDS:
                    continue
                if level(LAYERS, there) >= level(LAYERS, here):
                    wrong.append(f"{module} imports {found.module}")
    assert not wrong


def test_each_exception_is_still_needed():
    used = {(module, found.module) for module, paths in modules().items() for path in paths for found in imports(path)}
    assert set(UPWARDS) <= used


def test_headers_include_from_below_only():
    wrong = []
    for header in headers():
        for included in re.findall(r'^#include "(\S+)"', header.read_text(), re.MULTILINE):
            if level(HEADER_LAYERS, included) >= level(HEADER_LAYERS, header.name):
                wrong.append(f"{header.name} includes {included}")
    assert not wrong


@pytest.mark.parametrize("package", OUTSIDE)
def test_what_comes_from_outside_is_imported_in_its_place_only(package):
    users = {
        layer_name(module)
        for module, paths in modules().items()
        for path in paths
        for found in imports(path)
        if found.module.partition(".")[0] == package
    }
    assert users == OUTSIDE[package]


def test_library_imports_nothing_heavy():
    code = "import sys, msgq, msgq.stats, msgq.cli, visionipc; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "msgq.impl.publisher" in loaded
    assert not set(OUTSIDE) & set(loaded)


def test_nobody_imports_the_zmq_backend_by_name():
    """It is loaded when it is chosen: most programs do not have pyzmq."""
    there = "msgq.impl.zeromq"
    outsiders = {module: paths for module, paths in modules().items() if layer_name(module) != there}
    users = {module for module, paths in outsiders.items() for path in paths for found in imports(path)
             if layer_name(found.module) == there}  # fmt: skip
    assert not users


def test_numpy_is_imported_where_it_is_used():
    """It takes longer to import than all of msgq, and most programs do not need it."""
    users = ("msgq/impl/subscriber.pyx", "msgq/impl/fake/subscriber.py", "msgq/impl/zeromq/subscriber.py")
    for path in (*users, "visionipc/picture.py"):
        wanted = [found for found in imports(ROOT / path) if found.module == "numpy"]
        assert wanted
        assert all(found.lazy for found in wanted)


SPARKS = ("spark/cache.py", "spark/java.py", "spark/session.py")


def library() -> list:
    return [path for module, paths in modules().items() for path in paths if layer_name(module) != "msgq.cli"]


@pytest.mark.parametrize("path", library(), ids=lambda path: str(path.relative_to(ROOT)))
def test_library_does_not_print_assert_or_read_the_environment(path):
    text = code(path)
    assert not re.search(r"(?<![\w.])print\(", text), "logging is for that"
    assert not re.search(r"^\s*assert\b", text, re.MULTILINE), "python -O takes it away; raise an IpcError"
    readers = ("naming.py", "liveness.pyx", "liveness.pyi")  # the last two are how naming reads it
    if path.name not in readers and not str(path).endswith(SPARKS):  # not ours
        assert not re.search(r"\benviron\b|\bgetenv\b|\benvironment\(", text), "msgq.naming is the only reader"


def test_commands_assert_only_what_type_checkers_cannot_see():
    for path in (ROOT / "msgq" / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                assert ast.unparse(node.test).endswith("is not None"), f"{path}:{node.lineno}"
                assert not re.search(r"\benviron\b", code(path))
