"""Imports go one way, and what comes from outside is used in its place only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.meta.sources import ROOT, code, header_name, headers, imports, modules

# From the bottom up: a place may import what stands on a line above it, never its own line's or one below. A name is
# a module or a folder; the longest that fits counts.
LAYERS = [
    {
        "msgq.errors",
        "msgq.common.environment",
        "msgq.common.units",
        "msgq.common.formatting",
        "msgq.common.texts",
        "msgq.common.schema",
        "msgq.common.message_source",
        "msgq.common.native",
    },
    {
        "msgq.impl.base.process",
        "msgq.common.stats",
        "msgq.common.dtypes",
        "msgq.common.timing",
        "msgq.common.queue_events",
    },
    {
        "msgq.common.naming",
        "msgq.common.selection",
        "msgq.common.record_changes",
        "msgq.common.optional",
        "msgq.impl.base.event_loop",
    },
    {"msgq.common.file_permissions", "msgq.impl.sockets"},
    {
        *("msgq.impl.base", "msgq.impl.workqueue.options", "msgq.impl.workqueue.message"),
        *("msgq.impl.records.options", "msgq.impl.records.arrays", "msgq.impl.records.values"),
    },
    {"msgq.impl.gate"},
    {
        *("msgq.impl.ring", "msgq.impl.channel", "msgq.impl.records", "msgq.impl.zeromq"),
        "msgq.impl.fake",
    },
    {"msgq.impl.workqueue"},  # whose events are messages of a channel
    {"msgq.impl.meter", "msgq.impl.sources"},
    {"msgq.impl", "msgq.impl.backend"},
    {"msgq.kinds.source", "msgq.kinds.stats", "msgq.kinds.cleanup", "msgq.kinds.playback"},
    {"msgq.kinds.publish", "msgq.kinds.bridge"},
    {"msgq.kinds.simulation"},
    {"msgq.kinds"},
    {"msgq.stats"},
    {"msgq.kinds.persistent", "msgq.kinds.opening"},
    {"msgq.topic", "msgq.channel"},
    {"msgq.workqueue"},  # whose events are messages of a channel
    {"msgq.records", "msgq.bridge"},
    {"msgq.ipc_pyx"},
    {"msgq.decoding"},
    {"visionipc"},
    {"msgq.visionipc"},
    {"msgq.topic.masters"},
    {"msgq"},
    {"msgq.kinds.maintenance"},
    {"msgq.simulation"},
    {"msgq.recording.mcap_io"},
    {"msgq.recording.repair", "msgq.recording.reader"},
    {"msgq.recording.export"},
    {"msgq.recording.log_reader"},
    {"msgq.recording.merge", "msgq.recording.comparison", "msgq.recording.recorder", "msgq.recording.player"},
    {"msgq.recording"},
    {"msgq.lake"},
    {"msgq.spark"},
    {"pyspark_msgq", "pyspark_msgq_daemon"},
    {"msgq.monitor"},
    {"msgq.cli.common"},
    {"msgq.cli.bag", "msgq.cli.demo", "msgq.cli.lake", "msgq.cli.frames"},
    {"msgq.cli"},
    {"msgq.__main__"},
]
HEADER_LAYERS = [
    {"mcap_io/tally.h"},
    {
        "msgq/common.h",
        "base/atomics.h",
        "base/thread.h",
        "mcap_io/chunk_buffer.h",
        "mcap_io/crc.h",
        "mcap_io/scan.h",
        "decoding/cdr_columns.h",
    },
    {"msgq/topic.h", "msgq/channel.h", "msgq/queue.h", "msgq/records.h"},
    {
        "base/layout.h",
        "base/populate.h",
        "base/truncation.h",
        "base/futex.h",
        "base/mapguard.h",
        "leases.h",
        "include/msgq.h",
    },
    {
        "channel/index_ring.h",
        "base/origin.h",
        "base/eventcount.h",
        "base/process_info.h",
        "base/schema.h",
        "ring/layout.h",
        "gate/layout.h",
        "meter/counting.h",
    },
    {
        *(
            "channel/pool.h",
            "base/poll_ops.h",
            "base/liveness_lock.h",
            "ring/position.h",
            "ring/stamps.h",
            "ring/canary.h",
        ),
        "records/layout.h",
    },
    {"base/row_table.h", "base/watcher.h", "records/cell.h"},
    {"c/file.h"},
    {
        "ring/reader_slots.h",
        "ring/walk.h",
        "ring/signal_thread.h",
        "gate/gate.h",
        "channel/layout.h",
        "workqueue/layout.h",
    },
    {"records/writer.h"},
    {"records/vector.h"},
    {"records/board.h"},
    {"ring/publisher.h", "channel/header.h", "channel/publisher.h", "workqueue/slot_state.h", "records/snapshot.h"},
    {"workqueue/events.h"},
    {"ring/subscriber.h", "channel/subscriber.h", "workqueue/handle.h", "workqueue/peek.h"},
    {"ring/sleeper.h"},
    {
        *("ring/registry.h", "ring/batch.h", "ring/seek.h"),
        *("channel/snapshot.h", "workqueue/handoff.h", "workqueue/snapshot.h"),
    },
    {
        *("ring/snapshot.h", "workqueue/sender.h"),
        *("meter/topic.h", "meter/channel.h", "meter/records.h", "meter/queue.h"),
    },
    {"workqueue/receiver.h"},
    {"workqueue/recovery.h", "c/topicfile.h", "c/channelfile.h", "c/recordfile.h"},
    {"workqueue/poll_state.h", "c/queueevents.h"},
    {"sources/message.h", "recorder/file_watcher.h"},
    {"sources/channel.h", "sources/records.h", "sources/polled.h"},
    {"sources/source.h"},
    {"recorder/capture.h"},
]
OUTSIDE = {
    "numpy": {
        *("msgq.impl.channel.core", "msgq.impl.fake.channel_subscriber"),
        *("msgq.impl.ring.core", "msgq.impl.fake.publisher", "msgq.impl.fake.subscriber", "msgq.impl.zeromq"),
        *("msgq.common.dtypes", "msgq.impl.records", "msgq.impl.fake.records_store", "msgq.impl.fake.records_vector"),
        *("msgq.records", "msgq.common.record_changes"),
        *("msgq.cli", "msgq.decoding", "msgq.cli.demo", "msgq.lake", "msgq.monitor", "msgq.recording", "msgq.spark"),
        *("visionipc.buffers", "visionipc.convert", "visionipc.formats", "visionipc.picture"),
    },
    "click": {"msgq.cli"},
    "rich": {"msgq.cli"},
    "psutil": {"msgq.cli", "msgq.cli.demo"},
    "zmq": {"msgq.impl.zeromq"},
    "mcap": {"msgq.recording", "msgq.spark"},
    "zstandard": {"msgq.recording"},
    "lz4": {"msgq.recording"},
    "deltalake": {"msgq.lake"},
    "pyarrow": {"msgq.decoding", "msgq.lake", "msgq.recording", "msgq.spark"},
    "pyspark": {"msgq.spark"},
    "plotly": {"msgq.lake.report"},
}


def place(module: str) -> str:
    """Return the line of LAYERS that a module is on: its own name, or the nearest folder's."""
    named = set().union(*LAYERS)
    while module not in named:
        module, dot, _ = module.rpartition(".")
        assert dot, "say where it belongs"
    return module


def level(layers: list[set[str]], name: str) -> int:
    found = [i for i, layer in enumerate(layers) if name in layer]
    assert len(found) == 1, f"{name} is in no layer: say where it belongs"
    return found[0]


def within(module: str, folder: str) -> bool:
    return module == folder or module.startswith(f"{folder}.")


def ours(module: str) -> bool:
    return module.partition(".")[0] in ("msgq", "visionipc")


def wrong_ways() -> list[tuple[str, str]]:
    """Return who imports what from beside or above."""
    found = []
    for module, paths in modules().items():
        for there in {found.module for path in paths for found in imports(path) if ours(found.module)}:
            here_is, there_is = place(module), place(there)
            if here_is != there_is and level(LAYERS, there_is) >= level(LAYERS, here_is):
                found.append((module, there))
    return found


def test_modules_import_from_below_only() -> None:
    assert not wrong_ways()


def test_there_are_no_circles_of_files() -> None:
    """Imports within functions and for type checkers count as well; one file of a circle needs them all."""
    graph = {module: {found.module for path in paths for found in imports(path)} for module, paths in modules().items()}
    try:
        TopologicalSorter({module: there & set(graph) - {module} for module, there in graph.items()}).prepare()
    except CycleError as circle:
        pytest.fail(" <- ".join(circle.args[1]))


def test_headers_include_from_below_only() -> None:
    wrong = []
    for header in headers():
        name = header_name(header)
        for included in re.findall(r'^#include "(\S+)"', header.read_text(), re.MULTILINE):
            if level(HEADER_LAYERS, included) >= level(HEADER_LAYERS, name):
                wrong.append(f"{name} includes {included}")
    assert not wrong


@pytest.mark.parametrize("package", OUTSIDE)
def test_what_comes_from_outside_is_imported_in_its_place_only(package: str) -> None:
    users = {
        next((name for name in OUTSIDE[package] if within(module, name)), module)
        for module, paths in modules().items()
        for path in paths
        for found in imports(path)
        if within(found.module, package)
    }
    assert users == OUTSIDE[package]


def loaded_by(code: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_one_place_writes_mcap() -> None:
    """Its records are laid out in the format's writer; the library's own writer would be a second one."""
    users = {
        module
        for module, paths in modules().items()
        for path in paths
        for found in imports(path)
        if within(found.module, "mcap.writer")
    }
    assert not users


def test_library_imports_nothing_heavy() -> None:
    loaded = loaded_by("import msgq.cli, visionipc; msgq.PubSocket")
    assert "msgq.impl.ring.core" in loaded
    assert not set(OUTSIDE) & loaded


def test_importing_msgq_loads_no_backend() -> None:
    loaded = loaded_by("import msgq, msgq.topic.api, msgq.ipc_pyx, msgq.stats, msgq.cli")
    late = ("msgq.channel", "msgq.impl.ring", "msgq.impl.channel", "msgq.impl.fake")
    assert not {name for name in loaded if any(within(name, one) for one in late)}


def test_importing_msgq_and_its_sockets_loads_nothing_slow() -> None:
    """Each of these takes as long as the sockets with all that they need, and no socket needs it."""
    loaded = loaded_by("import msgq; msgq.PubSocket; msgq.SubSocket; msgq.Poller") - loaded_by("pass")
    assert not loaded & {"dataclasses", "inspect", "logging", "pathlib", "re", "socket", "tempfile", "typing"}
    assert not {name for name in loaded if within(name, "msgq.common.stats") or within(name, "msgq.topic.masters")}


def test_nobody_imports_the_zmq_backend_by_name() -> None:
    """It is loaded when it is chosen: most programs do not have pyzmq."""
    there = "msgq.impl.zeromq"
    outsiders = {module: paths for module, paths in modules().items() if not within(module, there)}
    users = {
        module
        for module, paths in outsiders.items()
        for path in paths
        for found in imports(path)
        if within(found.module, there)
    }
    assert not users


def test_numpy_is_imported_where_it_is_used() -> None:
    """It takes longer to import than all of msgq, and most programs do not need it."""
    users = ("msgq/impl/ring/subscriber.pxi", "msgq/impl/fake/subscriber.py", "msgq/impl/zeromq/subscriber.py")
    for path in (*users, "msgq/impl/channel/subscriber.pxi", "visionipc/picture.py"):
        wanted = [found for found in imports(ROOT / path) if found.module == "numpy"]
        assert wanted
        assert all(found.lazy for found in wanted)


SPARKS = ("runtime/cache_dir.py", "runtime/java.py", "runtime/session.py")


def is_command(module: str) -> bool:
    return within(module, "msgq.cli")


def library() -> list[Path]:
    return [path for module, paths in modules().items() for path in paths if not is_command(module)]


@pytest.mark.parametrize("path", library(), ids=lambda path: str(path.relative_to(ROOT)))
def test_library_does_not_print_assert_or_read_the_environment(path: Path) -> None:
    text = code(path)
    assert not re.search(r"(?<![\w.])print\(", text), "logging is for that"
    assert not re.search(r"^\s*assert\b", text, re.MULTILINE), "python -O takes it away; raise an IpcError"
    readers = ("naming.py", "environment.pyx", "environment.pyi")  # the last two are how naming reads it
    if path.name not in readers and not str(path).endswith(SPARKS):  # not ours
        assert not re.search(r"\benviron\b|\bgetenv\b|\benvironment\(", text), "msgq.common.naming is the only reader"


def test_commands_assert_only_what_type_checkers_cannot_see() -> None:
    for path in [path for module, paths in modules().items() if is_command(module) for path in paths]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                assert ast.unparse(node.test).endswith("is not None"), f"{path}:{node.lineno}"
                assert not re.search(r"\benviron\b", code(path))
