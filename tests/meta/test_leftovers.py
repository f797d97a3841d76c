"""A run of the tests that is told to end removes its files and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import FOLDER, TMP, files_named
from tests.support import ROOT, SHM, wait_until

TEST = """
import pathlib, sys, time
import pytest

@pytest.mark.parametrize("number", range(4))
def test_waits(number, endpoint, token):
    pathlib.Path(f"/dev/shm/msgq_{endpoint}").touch()
    pathlib.Path(f"/dev/shm/other_{token}").touch()
    pathlib.Path("begun").write_text(token)
    time.sleep(250)
"""


@pytest.mark.ci
@pytest.mark.parametrize("options", [(), ("-n", "2", "--dist", "worksteal")], ids=["one process", "workers"])
def test_run_that_gets_sigterm_removes_its_files(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p tests.conftest -p no:cacheprovider")
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with run:
        try:
            wait_until(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text())
            token = (tmp_path / "begun").read_text()
            assert (SHM / f"other_{token}").exists()
            run.send_signal(signal.SIGTERM)
            assert run.wait() in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.TESTS_FAILED)
        finally:
            run.kill()
    word = token[1:-8]
    assert files_named(f"t{word}[0-9a-f]{{8}}") == set()
    assert not (TMP / f"{FOLDER}{word}").exists()
