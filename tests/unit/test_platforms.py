"""The build refuses a platform that msgq does not support, with one sentence and before it compiles."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tools.building import platforms

RUN_SETUP = """
import runpy, sys, sysconfig
{change}
sys.argv = ["setup.py", "--name"]
runpy.run_path("setup.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("sys.platform = 'darwin'", "msgq-bus runs on Linux only, not on macOS, because"),
        ("sys.platform = 'win32'", "msgq-bus runs on Linux only, not on Windows, because"),
        ("sys.platform = 'freebsd14'", "msgq-bus runs on Linux only, not on freebsd14, because"),
        ("sysconfig.get_config_var = lambda name: 'cpython-312-x86_64-linux-musl'", "msgq-bus needs glibc, and"),
        ("sys.maxsize = 2**31 - 1", "msgq-bus needs a 64-bit Python, because"),
    ],
)
def test_build_on_unsupported_platform_ends_with_one_sentence(change: str, sentence: str) -> None:
    command = [sys.executable, "-c", RUN_SETUP.format(change=change)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1


def test_this_platform_is_supported() -> None:
    assert platforms.find_platform_problem() == ""


def test_wheels_for_missing_versions_fail_with_their_names(tmp_path: Path) -> None:
    programs = tmp_path / "programs"  # without apt-get, which would search for packages
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(str(shutil.which(name)))
    for name in ("pythons.py", "wheels.sh"):
        shutil.copy(ROOT / "tools" / name, tmp_path)
    command = [str(tmp_path / "wheels.sh"), str(tmp_path), "9.8", "9.9"]
    environment = {"PATH": str(programs)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    reasons = [line.partition(";")[0] for line in done.stderr.splitlines()]
    assert reasons == ["Python 9.8 is missing: install it", "Python 9.9 is missing: install it"]
    assert done.stdout == "wheels: built for no version; missing: 9.8 9.9\n"
