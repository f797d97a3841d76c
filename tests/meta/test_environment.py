"""The suite does not care about the shell that it is started from, and says what a run leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

import pytest

import msgq
from tests.leftovers import Leftovers
from tests.support import ROOT, SHM, Child, hear, say

HOSTILE = {
    "OPENPILOT_PREFIX": "",  # the test's own
    "MSGQ_BACKEND": "nonsense",
    "MSGQ_GROUP": "nobody-has-this-name",
    "MSGQ_MODE": "999",
    "MSGQ_PREALLOC": "1",
    "MSGQ_SIGBUS": "0",
    "MSGQ_SPIN_US": "many",
    "MSGQ_TRUST": "nobody-has-this-name",
    "MSGQ_ZMQ_BIND": "nowhere",
    "MSGQ_ZMQ_MAX_BYTES": "1",
    "MSGQ_ZMQ_STOCK": "1",
    "MSGQ_ZMQ_TRANSPORT": "pigeon",
    "CEREAL_FAKE": "1",
    "CEREAL_FAKE_PREFIX": "hostile",
    "ZMQ": "1",
}


def pytest_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.ci
@pytest.mark.xdist_group("runs")  # each of them would take what the other leaves for its own
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_hostile_environment_changes_nothing(token: str, processes: str) -> None:
    tests = ["tests/contract/test_pubsub.py", "tests/unit/test_schema.py"]
    hostile = {**HOSTILE, "OPENPILOT_PREFIX": f"hostile{token}"}
    done = pytest_in(ROOT, "-n", processes, *tests, **hostile)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert not [path for path in SHM.iterdir() if token in path.name]


UNTIDY = """
import os, pathlib, tempfile

def test_untidy():
    pathlib.Path("/dev/shm/msgq_" + os.environ["WORD"]).touch()
    tempfile.mkdtemp(prefix="untidy")
    os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")
"""


@pytest.mark.ci
@pytest.mark.xdist_group("runs")
def test_a_run_that_leaves_something_behind_fails(tmp_path: Path) -> None:
    word = f"untidy{uuid4().hex}"
    (tmp_path / "test_untidy.py").write_text(UNTIDY)
    options = ["-c", "pyproject.toml", "-p", "tests.conftest", "-n", "0"]
    done = pytest_in(ROOT, *options, str(tmp_path / "test_untidy.py"), WORD=word)
    (SHM / f"msgq_{word}").unlink()
    assert "1 passed" in done.stdout
    assert done.returncode == 1
    left = done.stderr.partition("left behind by the run:\n")[2].splitlines()
    assert {line.strip() for line in left} >= {f"/dev/shm/msgq_{word}"}
    assert [line for line in left if "untidy" in line]
    assert [line for line in left if "sleep 600" in line]


def hold(endpoint: str) -> None:
    with msgq.pub_sock(endpoint):
        say()
        hear()


def test_what_others_use_is_not_left_behind(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their leftovers look like ours, though, if no word tells."""
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", others := tempfile.gettempdir())
    leftovers = Leftovers()
    endpoint = f"lone{uuid4().hex}"
    of_another_run = SHM / f"msgq_{token}"
    of_another_run.touch()
    assert str(of_another_run) not in leftovers.left()
    of_another_run.unlink()
    ring = f"/dev/shm/msgq_{endpoint}"
    with Child(hold, endpoint, env={"TMPDIR": others}) as stranger:
        stranger.hear()
        assert ring not in leftovers.left()
        with Child(hold, f"{endpoint}x") as ours:
            ours.hear()
            left = leftovers.left()
            assert f"{ring}x" in left
            assert [text for text in left if text.startswith(f"process {ours.pid}: ")]
            assert ring not in left
            ours.say()
            ours.result()
        stranger.kill()
    assert ring in leftovers.left()
    leftovers.folder.rmdir()
    for path in SHM.glob(f"msgq*_{endpoint}*"):
        path.unlink()
