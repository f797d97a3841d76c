"""Modules that a command imports. The imports take most of the time of a short command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from msgq import Schema
from msgq.recording import Writer
from tests.command import run

DEADLINE_S = 60
RUN_AND_LIST_MODULES = """
import sys
from msgq.cli import main
try:
    main(sys.argv[1:] or None)
except SystemExit as end:
    assert not end.code, end.code
finally:
    print(*sys.modules, file=sys.stderr)
"""
SHELL_COMPLETION = {"_MSGQ_COMPLETE": "bash_complete", "COMP_WORDS": "msgq ", "COMP_CWORD": "1"}
#: Packages whose imports take several milliseconds. The import of rich or NumPy takes tens.
PACKAGES = {"click", "ctypes", "lz4", "mcap", "numpy", "psutil", "pyarrow", "rich", "zstandard"}
SHARED_MODULES = {"app", "common"}


def find_loaded_modules(*words: str, **environment: str) -> set[str]:
    """Run a command in a new process without a terminal. Return the modules that the process has imported."""
    command = [sys.executable, "-c", RUN_AND_LIST_MODULES, *words]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


def find_verbs(modules: set[str]) -> set[str]:
    """Return the verbs among imported modules, such as "list" and "bag.info"."""
    verbs = {name.removeprefix("msgq.cli.") for name in modules if name.startswith("msgq.cli.")}
    return {name for name in verbs if name.partition(".")[0] not in SHARED_MODULES}


@pytest.mark.parametrize("words", ["--help", "--version"])
def test_command_without_verb_imports_no_verb(words: str) -> None:
    modules = find_loaded_modules(words)
    assert find_verbs(modules) == set()
    assert modules & PACKAGES == {"click"}


def test_shell_completion_of_verbs_imports_no_verb() -> None:
    modules = find_loaded_modules(**SHELL_COMPLETION)
    assert find_verbs(modules) == set()
    assert modules & PACKAGES == {"click"}


def test_help_of_group_imports_only_the_group() -> None:
    modules = find_loaded_modules("bag", "--help")
    assert find_verbs(modules) == {"bag"}
    assert modules & PACKAGES == {"click"}


def test_version_imports_only_its_verb() -> None:
    modules = find_loaded_modules("version")
    assert find_verbs(modules) == {"version"}
    assert modules & PACKAGES == {"click"}


def test_bag_info_reads_summary_without_numpy_and_decompression(tmp_path: Path) -> None:
    """Statistics of the file contain all totals and times, so the command reads no message."""
    path = tmp_path / "log.mcap"
    with Writer(path, compression="zstd") as writer:
        channel = writer.channel("imu", Schema("Imu", "json"))
        for time in (5_000_000_000, 3_000_000_000, 4_000_000_000):
            writer.write(channel, b"{}", time)
    modules = find_loaded_modules("bag", "info", str(path))
    assert find_verbs(modules) == {"bag", "bag.arguments", "bag.info"}
    assert modules & PACKAGES == {"click", "mcap", "rich"}
    assert "rich.console" not in modules
    about = json.loads(run("bag", "info", "--json", path).stdout.splitlines()[0])
    assert (about["start"], about["end"], about["source"]) == (3_000_000_000, 5_000_000_000, "summary")


def test_table_without_terminal_does_not_import_console_of_rich(prefix: str) -> None:
    modules = find_loaded_modules("list", "--duration", "0")
    assert find_verbs(modules) == {"list"}
    assert "rich.console" not in modules
