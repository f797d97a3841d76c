"""Imports go one way, and what comes from outside is used in its place only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.meta.sources import ROOT, code, header_name, headers, imports, modules

#: The boxes of the library from the bottom up: a box may import the boxes of the rows above its own, and no other. A
#: box is a module or a folder directly under msgq, or the package visionipc.
LAYERS = [
    {"msgq.errors"},
    {"msgq.common"},
    {"msgq.impl", "msgq.decoding"},
    {"msgq.kinds"},
    {"msgq.topic", "msgq.channel", "visionipc", "msgq.stats", "msgq.simulation", "msgq.bridge"},
    {"msgq.workqueue", "msgq.records"},  # events of queues, and samples of several producers, are messages of channels
    {"msgq", "msgq.ipc_pyx", "msgq.visionipc", "msgq.posix_ipc"},
    {"msgq.recording", "msgq.monitor"},
    {"msgq.lake"},
    {"msgq.spark"},
    {"msgq.cli"},
    {"msgq.__main__"},
]
#: The names by which users and stock's programs import the library: they hand names on, and count as one box.
FACES = {"msgq", "msgq.__main__", "msgq.ipc_pyx", "msgq.visionipc"}
#: The folders of msgq.impl, in the same way. Each backend stands on the base and knows no other backend.
IMPL_LAYERS = [
    {"base"},
    {"sockets", "gate"},
    {"ring", "channel", "records", "zeromq"},
    {"workqueue"},  # its events are messages of a channel
    {"fake", "sources", "backend"},
    {"meter"},
]
#: The folders of C headers, in the same way; msgq/ and include/ are what C programs include.
HEADER_LAYERS = [
    {"base", "msgq", "mcap_io", "decoding"},
    {"ring", "channel", "records", "workqueue", "gate", "visionipc", "include"},
    {"sources", "c"},
    {"meter", "recorder"},
]
OUTSIDE = {
    "numpy": {
        *(
            "msgq.common.schema",
            "msgq.topic.api",
            "msgq.topic.typed_publisher",
            "msgq.topic.typed_subscriber",
        ),  # types only
        "msgq.workqueue.job_client",  # types only
        "msgq.impl.channel.core",
        *("msgq.impl.ring.core", "msgq.impl.zeromq"),
        *(
            "msgq.common.dtypes",
            "msgq.common.dtype_descriptions",
            "msgq.impl.records",
        ),
        *("msgq.records", "msgq.common.record_changes"),
        *("msgq.cli", "msgq.decoding", "msgq.lake", "msgq.monitor", "msgq.recording", "msgq.spark"),
        *("visionipc.convert", "visionipc.fake", "visionipc.formats", "visionipc.impl.core"),
    },
    "click": {"msgq.cli"},
    "aiohttp": {"msgq.cli.common.web", "msgq.cli.serve"},
    "prometheus_client": {"msgq.monitor.prometheus_metrics"},
    "rich": {"msgq.cli"},
    "psutil": {"msgq.cli"},
    "zmq": {"msgq.impl.zeromq"},
    "mcap": {"msgq.recording", "msgq.spark"},
    "zstandard": {"msgq.recording"},
    "lz4": {"msgq.recording"},
    "deltalake": {"msgq.lake"},
    "pyarrow": {"msgq.decoding", "msgq.lake", "msgq.recording", "msgq.spark", "msgq.common.storage"},
    "obstore": {"msgq.common.storage.file_creation"},
    "pyspark": {"msgq.spark"},
    "plotly": {"msgq.lake.report"},
    "duckdb": {"msgq.lake.duckdb_engine"},
}


def box_of_module(module: str) -> str:
    """Return the box of a module: `msgq.NAME`, or `visionipc`."""
    parts = module.split(".")
    return parts[0] if parts[0] == "visionipc" else ".".join(parts[:2])


def layer_index(layers: list[set[str]], name: str) -> int:
    levels = [i for i, layer in enumerate(layers) if name in layer]
    assert len(levels) == 1, f"{name} is in no layer: say where it belongs"
    return levels[0]


def is_within(module: str, folder: str) -> bool:
    return module == folder or module.startswith(f"{folder}.")


def our_imports() -> set[tuple[str, str]]:
    """Return which module imports which, of ours."""
    return {
        (module, found.module)
        for module, paths in modules().items()
        for path in paths
        for found in imports(path)
        if found.module.partition(".")[0] in ("msgq", "visionipc")
    }


def find_upward_imports(layers: list[set[str]], edges: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the edges between two boxes that do not lead down."""
    return sorted((a, b) for a, b in set(edges) if a != b and layer_index(layers, b) >= layer_index(layers, a))


def test_modules_import_only_from_lower_layers() -> None:
    assert not find_upward_imports(
        LAYERS, ((box_of_module(module), box_of_module(imported)) for module, imported in our_imports())
    )


def test_import_layers_have_at_most_20_packages() -> None:
    boxes = {box_of_module(module) for module in modules()}
    assert len(boxes - FACES) + 1 <= 20
    assert set().union(*LAYERS) == boxes
    assert len(LAYERS) <= 12


def test_backends_do_not_import_each_other() -> None:
    inner = [
        (module.split(".")[2], imported.split(".")[2])
        for module, imported in our_imports()
        if module.startswith("msgq.impl.") and imported.startswith("msgq.impl.")
    ]
    assert not find_upward_imports(IMPL_LAYERS, [edge for edge in inner if "utilities" not in edge])


def test_imports_between_files_have_no_cycles() -> None:
    """Imports within functions and for type checkers count as well; one file of a circle needs them all."""
    graph = {module: {found.module for path in paths for found in imports(path)} for module, paths in modules().items()}
    try:
        TopologicalSorter({module: there & set(graph) - {module} for module, there in graph.items()}).prepare()
    except CycleError as circle:
        pytest.fail(" <- ".join(circle.args[1]))


def test_headers_include_only_headers_of_lower_layers() -> None:
    includes = {
        header_name(header): set(re.findall(r'^#include "(\S+)"', header.read_text(), re.MULTILINE))
        for header in headers()
    }
    folders = [(header_folder(a), header_folder(b)) for a, included in includes.items() for b in included]
    assert not find_upward_imports(HEADER_LAYERS, folders)
    try:
        TopologicalSorter(includes).prepare()
    except CycleError as circle:
        pytest.fail(" <- ".join(circle.args[1]))


def header_folder(name: str) -> str:
    return name.rpartition("/")[0] or "visionipc"


@pytest.mark.parametrize("package", OUTSIDE)
def test_external_packages_are_imported_only_in_listed_modules(package: str) -> None:
    users = {
        next((name for name in OUTSIDE[package] if is_within(module, name)), module)
        for module, paths in modules().items()
        for path in paths
        for found in imports(path)
        if is_within(found.module, package)
    }
    assert users == OUTSIDE[package]


def loaded_by(code: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_mcap_records_are_written_by_one_module() -> None:
    """Its records are laid out in the format's writer; the library's own writer would be a second one."""
    users = {
        module
        for module, paths in modules().items()
        for path in paths
        for found in imports(path)
        if is_within(found.module, "mcap.writer")
    }
    assert not users


def test_msgq_import_loads_no_optional_package() -> None:
    loaded = loaded_by("import msgq.cli, visionipc; msgq.PubSocket")
    assert "msgq.impl.ring.core" in loaded
    assert not set(OUTSIDE) & loaded


def test_msgq_import_loads_no_other_kind_or_backend() -> None:
    loaded = loaded_by("import msgq, msgq.topic.api, msgq.ipc_pyx, msgq.stats, msgq.cli")
    assert not {name for name in loaded if any(is_within(name, one) for one in ("msgq.channel", "msgq.impl.channel"))}
    assert not {name for name in loaded if is_within(name, "msgq.impl.fake")}


@pytest.mark.parametrize(("backend", "is_loaded"), [("", True), ("msgq", True), ("zmq", False), ("fake", False)])
def test_msgq_import_loads_topic_module_unless_other_backend_is_set(
    backend: str, is_loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSGQ_BACKEND", backend)
    assert ("msgq.impl.ring.core" in loaded_by("import msgq")) == is_loaded


#: Modules of the library that `import msgq` loads, and those that the first use of each kind adds. All others are late.
IMPORT = {
    *("msgq", "msgq.errors", "msgq.errors.base", "msgq.topic", "msgq.topic.api"),
    *("msgq.common", "msgq.common.environment", "msgq.common.naming", "msgq.common.settings"),
    *("msgq.common.shm_paths", "msgq.common.units"),
    *("msgq.impl", "msgq.impl.backend", "msgq.impl.utilities", "msgq.impl.ring", "msgq.impl.ring.core"),
    *("msgq.impl.base", "msgq.impl.base.argument_checks", "msgq.impl.base.clock", "msgq.impl.base.core"),
    *("msgq.impl.base.foreign_names", "msgq.impl.base.process"),
}
POLLER = {"msgq.impl.ring.poller", "msgq.impl.sockets", "msgq.impl.sockets.polling"}
MASTERS = POLLER | {
    *("msgq.common.choices", "msgq.common.closing", "msgq.common.formatting", "msgq.common.texts"),
    *("msgq.topic.masters", "msgq.topic.masters.pubmaster", "msgq.topic.masters.rate_check"),
    *("msgq.topic.masters.submaster", "msgq.topic.masters.topic_names", "msgq.topic.masters.topic_receiver"),
}
CHANNEL = {
    *("msgq.channel", "msgq.channel.channel", "msgq.common.closing", "msgq.impl.channel", "msgq.impl.channel.core"),
    *("msgq.impl.base.files", "msgq.impl.channel.pool_files"),
}
QUEUE = {
    *("msgq.common.formatting", "msgq.common.texts", "msgq.impl.workqueue", "msgq.impl.workqueue.core"),
    *("msgq.impl.base.files", "msgq.impl.workqueue.message", "msgq.impl.workqueue.options"),
    "msgq.impl.workqueue.removal",
}
FIRST_MESSAGES: dict[str, tuple[str, set[str]]] = {
    "topic": (
        "pub = msgq.pub_sock({name!r}); sub = msgq.sub_sock({name!r}); pub.send(b'1'); sub.receive()",
        set(),
    ),
    "poller": (
        "poller = msgq.Poller(); pub = msgq.pub_sock({name!r}); sub = msgq.sub_sock({name!r}, poller); pub.send(b'1'); "
        "poller.poll(0)",
        POLLER,
    ),
    "masters": (
        "pub = msgq.PubMaster({name!r}); sub = msgq.SubMaster({name!r}); pub.send({name!r}, b'1'); sub.update(0)",
        MASTERS,
    ),
    "channel": (
        "c = msgq.Channel({name!r}); p = c.publisher(); s = c.subscriber(); p.send(b'1'); s.receive()",
        CHANNEL,
    ),
    "queue": ("q = msgq.MessageQueue({name!r}); q.send(b'1'); q.take(0).ack()", QUEUE),
}
#: Modules of Python that the library may load: small ones, all but the first in C. `collections`, `contextlib`,
#: `functools`, `threading`, `typing` and others like them need more memory in each process than topics with all they
#: need, and Python has not loaded them at its start.
STANDARD = {"__future__", "_collections", "_operator", "atexit", "errno", "math"}
#: Names that Cython gives to modules of its own.
CYTHON_MODULE = re.compile(r"_cython_\w+|cython_runtime|utilities")


@pytest.mark.parametrize("kind", FIRST_MESSAGES)
def test_first_message_loads_only_modules_of_its_kind(kind: str, endpoint: str) -> None:
    """Opening one endpoint must not import dataclasses, schemas, regular expressions or gates."""
    code, expected = FIRST_MESSAGES[kind]
    loaded = loaded_by(f"import msgq; {code.format(name=endpoint)}") - loaded_by("pass")
    ours = {name for name in loaded if is_within(name, "msgq")}
    assert ours == IMPORT | expected
    assert not {name for name in loaded - ours - STANDARD if not CYTHON_MODULE.fullmatch(name)}


def test_zmq_backend_is_not_imported_by_name() -> None:
    """It is loaded when it is chosen: most programs do not have pyzmq."""
    there = "msgq.impl.zeromq"
    outsiders = {module: paths for module, paths in modules().items() if not is_within(module, there)}
    users = {
        module
        for module, paths in outsiders.items()
        for path in paths
        for found in imports(path)
        if is_within(found.module, there)
    }
    assert not users


def test_numpy_is_imported_only_in_functions() -> None:
    """It takes longer to import than all of msgq, and most programs do not need it."""
    users = ("msgq/impl/ring/subscriber.pxi", "msgq/impl/zeromq/subscriber.py")
    for path in (*users, "msgq/impl/channel/subscriber.pxi", "visionipc/impl/pictures.pxi"):
        wanted = [found for found in imports(ROOT / path) if found.module == "numpy"]
        assert wanted
        assert all(found.lazy for found in wanted)


SPARKS = ("runtime/cache_dir.py", "runtime/java.py", "runtime/session.py")


def is_command(module: str) -> bool:
    return is_within(module, "msgq.cli")


def library_files() -> list[Path]:
    return [path for module, paths in modules().items() for path in paths if not is_command(module)]


@each_case("path", library_files())
def test_library_code_does_not_print_or_assert_or_read_environment(path: Path) -> None:
    text = code(path)
    assert not re.search(r"(?<![\w.])print\(", text), "logging is for that"
    assert not re.search(r"^\s*assert\b", text, re.MULTILINE), "python -O takes it away; raise an IpcError"
    readers = ("settings.py", "environment.pyx", "environment.pyi")  # the last two are how settings reads it
    if path.name not in readers and not str(path).endswith(SPARKS):  # not ours
        assert not re.search(r"\benviron\b|\bgetenv\b|\benvironment\(", text), "msgq.common.settings is the only reader"


def test_cli_commands_use_assert_only_for_type_checkers() -> None:
    for path in [path for module, paths in modules().items() if is_command(module) for path in paths]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                assert ast.unparse(node.test).endswith("is not None"), f"{path}:{node.lineno}"
                assert not re.search(r"\benviron\b", code(path))
