"""Participants of Python programs have the names of their scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msgq.impl.base.process import find_script_name
from tests.support import ROOT

SHOW_NAME = "from msgq.impl.base.process import process_name\nprint(process_name())\n"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/me/camera_driver.py", b"camera_driver"),
        ("camera", b"camera"),
        ("/lib/planner/__main__.py", b"planner"),
        ("a_name_of_more_than_15_bytes.py", b"a_name_of_more_"),
        ("abcdefghijklmnö.py", b"abcdefghijklmn"),
        ("-c", b""),
        ("-m", b""),
        ("", b""),
        (b"camera", b""),
    ],
)
def test_script_name_is_file_or_package_without_suffix(path: str | bytes, name: bytes) -> None:
    assert find_script_name(path) == name


def run_python(*words: object) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_process_of_script_has_its_name(tmp_path: Path) -> None:
    script = tmp_path / "camera_driver.py"
    script.write_text(SHOW_NAME)
    assert run_python(script) == "camera_driver"


def test_process_of_package_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planner").mkdir()
    (tmp_path / "planner/__main__.py").write_text(SHOW_NAME)
    monkeypatch.chdir(tmp_path)
    assert run_python("-m", "planner") == "planner"


def test_process_without_script_has_name_of_kernel() -> None:
    assert run_python("-c", SHOW_NAME).startswith("python")


def test_name_that_program_chose_stays(tmp_path: Path) -> None:
    script = tmp_path / "camera_driver.py"
    script.write_text("open('/proc/self/comm', 'w').write('chosen')\n" + SHOW_NAME)
    assert run_python(script) == "chosen"
