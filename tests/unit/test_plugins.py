"""Kinds and verbs of other distributions: found without imports, loaded when needed, harmless when broken."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete

from msgq import kinds
from msgq.cli.app import app
from msgq.common.plugins import find_plugins
from msgq.errors import InvalidValueError, MsgqWarning, PluginError
from tests.cases import each_case
from tests.command import run
from tests.support import DEADLINE, ROOT, SHM, wait_until

Install = Callable[..., None]
LOADING, MAY_GO_ON, INTERRUPTED = (threading.Event() for _ in range(3))  # steps of plug-ins that are imported
WAITING_CODE = """
from tests.unit.test_plugins import DEADLINE, LOADING, MAY_GO_ON
LOADING.set()
assert MAY_GO_ON.wait(DEADLINE)
"""
KIND_CODE = """
from msgq.kinds import Kind
KIND = Kind(name={name!r}, package={package!r}, validate_name=str, name_prefix={prefix!r},
            locate_files=lambda prefix: ("/dev/shm/msgqnone", ""))
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install distributions with one module each. The process forgets them afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(kinds, "_loaded_kinds", ())
    monkeypatch.setattr(kinds, "_registered_kinds", {})
    monkeypatch.setattr(kinds, "_kind_plugins", {})
    monkeypatch.setattr(kinds, "_part_failures", {})
    known = set(sys.modules)
    vars(app).pop("_verb_plugins", None)

    def write_distribution(name: str, entry_points: str, code: str = "") -> None:
        metadata = tmp_path / f"{name}-1.2.dist-info"
        metadata.mkdir()
        (metadata / "entry_points.txt").write_text(entry_points)
        (tmp_path / f"{name}.py").write_text(code)
        find_plugins.cache_clear()

    yield write_distribution
    find_plugins.cache_clear()
    vars(app).pop("_verb_plugins", None)
    for module in set(sys.modules) - known:
        del sys.modules[module]


def test_entry_points_are_found_without_imports(install: Install) -> None:
    install(
        "plug_a", "[other]\nx = no:no\n[msgq.commands]\n# text\none = plug_a:first [extra]\n\ntwo=plug_a:sub.second\n"
    )
    install("plug_b", "[msgq.commands]\none = plug_b:first\n")
    found = {plugin.name: plugin for plugin in find_plugins("msgq.commands")}
    assert (found["one"].target, found["two"].target) == ("plug_a:first", "plug_a:sub.second")
    assert found["one"].distribution == "plug_a 1.2"
    assert "plug_a" not in sys.modules
    assert [plugin for plugin in find_plugins("msgq.kinds") if plugin.distribution.startswith("plug")] == []


def test_entries_of_path_that_are_no_folder_names_are_skipped(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("plug_a", "[msgq.commands]\none = plug_a:first\n")
    monkeypatch.setattr(sys, "path", [Path("x"), None, 5, b"x", "x\0", "x\udfff", *sys.path])
    assert "one" in [plugin.name for plugin in find_plugins("msgq.commands")]


def test_verb_is_listed_without_import_and_runs(install: Install) -> None:
    code = "import click\n@click.command()\ndef command():\n    'Print a word.'\n    print('hello')\n"
    install("plug_verb", "[msgq.commands]\nhello = plug_verb:command\nlist = plug_verb:command\n", code)
    listed = run("--help").output
    assert "hello    From plug_verb 1.2." in listed
    assert "plug_verb" not in sys.modules
    assert run("hello").output == "hello\n"
    assert "hello" in run("helo", code=2).output
    assert "endpoints" in run("list", "--help").output, "the library's own verb has priority"


@each_case(
    "code, reason",
    [
        ("raise ImportError('no library')", "ImportError: no library"),
        ("command = 5", "object is of type int, not click.Command"),
        ("", "AttributeError: module 'plug_broken' has no attribute 'command'"),
        ("def", "SyntaxError: "),
    ],
)
def test_broken_verb_fails_in_one_line_that_names_it(install: Install, code: str, reason: str) -> None:
    install("plug_broken", "[msgq.commands]\nbroken = plug_broken:command\n", code)
    assert "broken" in run("--help").output
    [line] = run("broken", code=1).output.splitlines()
    assert f"plug-in 'broken' of plug_broken 1.2 (plug_broken:command) cannot be used: {reason}" in line
    assert "update or uninstall" in line
    sys.modules.pop("plug_broken", None)
    shutil.rmtree(Path(sys.path[0]) / "plug_broken-1.2.dist-info")


def test_completion_of_broken_verb_completes_help_only(install: Install) -> None:
    install("plug_broken", "[msgq.commands]\nbroken = plug_broken:command\n", "raise ImportError('no library')")
    completion = BashComplete(app, {}, "msgq", "_MSGQ_COMPLETE")
    assert [item.value for item in completion.get_completions(["broken"], "-")] == ["-h", "--help"]
    assert [item.value for item in completion.get_completions([], "brok")] == ["broken"]


def test_kind_is_registered_when_kinds_are_first_used(install: Install) -> None:
    code = KIND_CODE.format(name="cell", package="plug_kind", prefix="cell/")
    install("plug_kind", "[msgq.kinds]\ncell = plug_kind:KIND\n", code)
    assert "plug_kind" not in sys.modules
    assert kinds.kind_of("cell/a").name == "cell"
    assert [kind.name for kind in kinds.list_kinds()] == ["topic", "channel", "records", "queue", "frames", "cell"]


@each_case(
    "code, reason",
    [
        ("raise RuntimeError('not today')", "RuntimeError: not today"),
        ("KIND = 'cell'", "object is of type str, not msgq.kinds.Kind"),
        (KIND_CODE.format(name="topic", package="plug_kind", prefix="cell/"), "kind 'topic' exists already"),
        (KIND_CODE.format(name="cell", package="plug_kind", prefix="channel/x"), "name prefix 'channel/x' belongs to"),
        (KIND_CODE.format(name="cell", package="plug_kind", prefix="chan"), "name prefix 'chan' belongs to"),
        (KIND_CODE.format(name="cell", package="plug_kind", prefix=""), "name prefix '' belongs to"),
        (KIND_CODE.format(name="cell", package="plug_kind", prefix="cell"), "name prefix 'cell' does not end with '/'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_unusable_kind_is_a_warning_and_leaves_other_kinds(install: Install, code: str, reason: str) -> None:
    install("plug_kind", "[msgq.kinds]\ncell = plug_kind:KIND\n", code)
    with pytest.warns(MsgqWarning, match="plug-in 'cell' of plug_kind 1.2") as warned:
        known = [kind.name for kind in kinds.list_kinds()]
    assert reason in str(warned[0].message)
    assert known == ["topic", "channel", "records", "queue", "frames"]
    kinds._loaded_kinds = ()
    sys.modules.pop("plug_kind", None)
    shutil.rmtree(Path(sys.path[0]) / "plug_kind-1.2.dist-info")


def test_kind_without_usable_part_is_skipped_with_a_warning(install: Install, tmp_path: Path) -> None:
    (tmp_path / "plug_parts").mkdir()
    (tmp_path / "plug_parts/stats.py").write_text("import nosuchlibrary")
    (tmp_path / "plug_parts/source.py").write_text("SOURCE = 5")
    install(
        "plug_kind",
        "[msgq.kinds]\ncell = plug_kind:KIND\n",
        KIND_CODE.format(name="cell", package="plug_parts", prefix="cell/"),
    )
    with pytest.warns(MsgqWarning, match=r"plug_parts.stats: ModuleNotFoundError: No module named 'nosuchlibrary'"):
        assert "cell" not in [kind.name for kind in kinds.list_stored_kinds("stats")]
    assert "cell" in [kind.name for kind in kinds.list_stored_kinds("source")]
    with pytest.raises(PluginError, match="nosuchlibrary"):
        _ = kinds.kind_of("cell/a").stats
    with pytest.raises(InvalidValueError, match="do not support this"):
        _ = kinds.kind_of("cell/a").cleanup


def test_part_that_cannot_be_imported_is_executed_once(install: Install, tmp_path: Path) -> None:
    (tmp_path / "plug_cell").mkdir()
    (tmp_path / "plug_cell/__init__.py").write_text(
        KIND_CODE.format(name="cell", package="plug_cell", prefix="cell/") + "EXECUTED = []\n"
    )
    (tmp_path / "plug_cell/stats.py").write_text("import plug_cell\nplug_cell.EXECUTED.append('stats')\n1 / 0\n")
    install("plug_cell", "[msgq.kinds]\ncell = plug_cell:KIND\n")
    for _ in range(3):
        with pytest.warns(MsgqWarning, match=r"plug_cell.stats: ZeroDivisionError: division by zero; update"):
            kinds.list_stored_kinds("stats")
        with pytest.raises(PluginError, match="ZeroDivisionError"):
            _ = kinds.kind_of("cell/a").stats
    assert sys.modules["plug_cell"].EXECUTED == ["stats"]


def test_part_that_asks_for_kinds_with_itself_is_imported_afterwards(install: Install, tmp_path: Path) -> None:
    (tmp_path / "plug_parts").mkdir()
    (tmp_path / "plug_parts/stats.py").write_text(
        "from msgq.kinds import list_stored_kinds\nlist_stored_kinds('stats')\nSTATS = 5\n"
    )
    code = KIND_CODE.format(name="cell", package="plug_parts", prefix="cell/")
    install("plug_kind", "[msgq.kinds]\ncell = plug_kind:KIND\n", code)
    with pytest.warns(MsgqWarning, match="plug_parts.stats"):
        assert "cell" in [kind.name for kind in kinds.list_stored_kinds("stats")]


def test_kind_of_a_package_that_cannot_be_imported_has_no_parts(install: Install) -> None:
    code = KIND_CODE.format(name="cell", package="nosuchpackage", prefix="cell/")
    install("plug_kind", "[msgq.kinds]\ncell = plug_kind:KIND\n", code)
    with pytest.warns(MsgqWarning, match="No module named 'nosuchpackage'"):
        assert [kind.name for kind in kinds.list_stored_kinds("stats")] != []
    with pytest.warns(MsgqWarning, match="No module named 'nosuchpackage'"):
        assert not kinds.kind_of("cell/a").has_part("stats")


def test_interrupted_load_of_kinds_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def interrupt_third(name: str) -> Any:
        loaded.append(name)
        if len(loaded) == 3:
            raise KeyboardInterrupt
        return import_module(name)

    known = kinds.list_kinds()
    monkeypatch.setattr(kinds, "_loaded_kinds", ())
    monkeypatch.setattr(kinds, "import_module", interrupt_third)
    with pytest.raises(KeyboardInterrupt):
        kinds.list_kinds()
    assert [kind.name for kind in kinds.list_kinds()] == [kind.name for kind in known]


def install_kind(install: Install, name: str, code: str = "") -> None:
    """Install a kind whose module runs this code first."""
    kind_code = KIND_CODE.format(name=name, package=f"plug_{name}", prefix=f"{name}/")
    install(f"plug_{name}", f"[msgq.kinds]\n{name} = plug_{name}:KIND\n", code + kind_code)


def test_plugin_interrupted_once_and_the_others_are_kinds_at_the_next_call(install: Install) -> None:
    code = "from tests.unit.test_plugins import INTERRUPTED\nif not INTERRUPTED.is_set():\n"
    INTERRUPTED.clear()
    install_kind(install, "a", f"{code}    INTERRUPTED.set()\n    raise KeyboardInterrupt\n")
    install_kind(install, "b")
    with pytest.raises(KeyboardInterrupt):
        kinds.list_kinds()
    assert [kind.name for kind in kinds.list_kinds()][-2:] == ["a", "b"]


def test_warning_about_plugin_as_error_leaves_the_other_plugins(install: Install) -> None:
    install_kind(install, "a", "raise RuntimeError\n")
    install_kind(install, "b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MsgqWarning, match="plug-in 'a'"):
            kinds.list_kinds()
        assert [kind.name for kind in kinds.list_kinds()][-2:] == ["frames", "b"]


def test_kinds_are_loaded_while_another_thread_imports_a_plugin_that_asks_for_them(install: Install) -> None:
    LOADING.clear()
    MAY_GO_ON.clear()
    install_kind(install, "a", "from tests.unit.test_plugins import MAY_GO_ON\nMAY_GO_ON.set()\n")
    install_kind(install, "b", f"{WAITING_CODE}\nfrom msgq.kinds import list_kinds\nlist_kinds()\n")
    importing = threading.Thread(target=import_module, args=("plug_b",), daemon=True)
    loading = threading.Thread(target=kinds.list_kinds, daemon=True)
    importing.start()
    assert LOADING.wait(DEADLINE)
    loading.start()
    loading.join(DEADLINE)
    importing.join(DEADLINE)
    assert not loading.is_alive()
    assert [kind.name for kind in kinds.list_kinds()][-2:] == ["a", "b"]


def test_plugin_that_asks_for_kinds_while_it_is_imported_gets_those_before_it(install: Install) -> None:
    names = "from msgq.kinds import list_kinds\nNAMES = [kind.name for kind in list_kinds()]\n"
    install_kind(install, "a")
    install_kind(install, "b", names)
    install_kind(install, "c", names)
    import_module("plug_c")
    assert sys.modules["plug_c"].NAMES[-2:] == ["a", "b"]
    assert sys.modules["plug_b"].NAMES[-1] == "a"
    assert [kind.name for kind in kinds.list_kinds()][-3:] == ["a", "b", "c"]


def list_kinds_after_fork() -> None:
    """In a new interpreter: list the kinds in a fork, while another thread imports a plug-in."""
    threading.Thread(target=kinds.list_kinds).start()
    assert LOADING.wait(DEADLINE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pid = os.fork()
        if pid == 0:
            signal.alarm(int(DEADLINE))
            names = [kind.name for kind in kinds.list_kinds()]
            print(json.dumps([names, [str(each.message) for each in caught if each.category is MsgqWarning]]))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
    MAY_GO_ON.set()


def test_fork_during_import_of_plugin_lists_the_other_kinds_and_warns(install: Install, tmp_path: Path) -> None:
    install_kind(install, "a", WAITING_CODE)
    install_kind(install, "b")
    code = "from tests.unit.test_plugins import list_kinds_after_fork; list_kinds_after_fork()"
    done = run_python(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    names, [warning] = json.loads(done.stdout)
    assert names[-2:] == ["frames", "b"]
    assert "another thread imported it when this process was forked; call msgq.kinds.list_kinds before" in warning


def run_process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_python(folder, "-m", "msgq", *words)


def run_python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages of a folder."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-P", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE)


def test_broken_kind_prints_one_line_and_verbs_run(prefix: str, tmp_path: Path) -> None:
    metadata = tmp_path / "plug_kind-1.2.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[msgq.kinds]\ncell = nosuchmodule:KIND\n")
    done = run_process(tmp_path, "list", "--duration", "0")
    assert done.returncode == 0, done.stderr
    line, other = done.stderr.splitlines()
    assert other.startswith("msgq: no endpoints")
    assert line.startswith("msgq: plug-in 'cell' of plug_kind 1.2 (nosuchmodule:KIND) cannot be used: ModuleNotFound")
    assert run_process(tmp_path, "--help").stderr == ""


def record_changes(path: str) -> None:
    """In a new interpreter: record a message of the installed kind. A fork of the tests may have loaded the kinds."""
    from msgq_blobs.stats import append

    from msgq.recording import Recorder

    with Recorder(path, ["blob/notes"]) as recorder:
        append("notes", os.environ["OPENPILOT_PREFIX"], b"third")
        wait_until(lambda: recorder.stats().messages == 1)


@pytest.mark.ci
def test_installed_example_package_works_in_all_verbs(prefix: str, tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ROOT / "examples/plugin", source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--disable-pip-version-check", "--target", site, source], check=True, timeout=DEADLINE)

    def lines(*words: str) -> list[dict[str, object]]:
        done = run_process(site, *words, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert "append   From msgq_blobs 1.0." in run_process(site, "--help").stdout
    for message in ("first", "second"):
        assert run_process(site, "append", "blob/notes", message).returncode == 0
    assert "not a blob" in run_process(site, "append", "notes", "x").stderr
    [row] = lines("list", "--duration", "0")
    assert (row["endpoint"], row["kind"], row["messages"]) == ("blob/notes", "blob", 2)
    assert lines("stat", "--once", "--interval", "0.01")[0]["blobs"] == 1
    assert [line["text"] for line in lines("echo", "blob/notes", "-n", "2")] == ["first", "second"]
    assert "messages     2" in run_process(site, "info", "blob/notes").stdout
    assert lines("hz", "blob/notes", "--once", "--interval", "0.01")[0]["endpoint"] == "blob/notes"
    log = tmp_path / "log"
    code = f"from tests.unit.test_plugins import record_changes; record_changes({str(log)!r})"
    run_python(site, "-c", code).check_returncode()
    assert run_process(site, "clean", "blob/notes").returncode == 0
    assert run_process(site, "play", str(log), "--rate", "1000").returncode == 0
    assert [line["text"] for line in lines("echo", "blob/notes", "-n", "1")] == ["third"]
    assert [line["action"] for line in lines("clean", "blob/notes")] == ["removed"]
    shutil.rmtree(SHM / f"msgqblob_{prefix}", ignore_errors=True)
