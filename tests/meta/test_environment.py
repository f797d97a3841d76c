"""A run ignores the shell's variables and other programs, and names the files and processes that it leaves behind."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import leftovers
from tests.leftovers import TMP, Leftovers, new_token
from tests.support import ROOT, SHM, Child, say

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
@pytest.mark.parametrize("processes", ["0", "1"])
def test_hostile_environment_does_not_change_test_results(token: str, processes: str) -> None:
    tests = ["tests/contract/test_pubsub.py", "tests/unit/test_schema.py"]
    hostile = {**HOSTILE, "OPENPILOT_PREFIX": f"hostile{token}"}
    done = pytest_in(ROOT, "-n", processes, *tests, **hostile)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert not [path for path in SHM.iterdir() if token in path.name]


def run_of(text: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module with this text in a run of its own."""
    module = folder / "test_module.py"
    module.write_text(text)
    return pytest_in(ROOT, "-c", "pyproject.toml", "-p", "tests.conftest", "-n", "0", str(module), **environment)


UNTIDY = """
import os, pathlib, tempfile
from tests.leftovers import new_token

def test_leaves_files_and_process():
    pathlib.Path(f"/dev/shm/msgq_{new_token()}").touch()
    pathlib.Path(f"/tmp/p{new_token()}_visionipc_camera").touch()
    tempfile.mkdtemp(prefix="untidy")
    os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")

def test_leaves_file_with_its_token(token):
    pathlib.Path(f"/dev/shm/msgqchan_{token}").touch()
"""


@pytest.mark.ci
def test_pytest_run_with_leftovers_fails_names_and_removes_them(tmp_path: Path) -> None:
    done = run_of(UNTIDY, tmp_path)
    left = [line.strip() for line in done.stderr.partition("left behind by the run:\n")[2].splitlines()]
    assert [path for path in left if os.path.exists(path)] == []
    assert "2 passed, 1 error" in done.stdout
    assert done.returncode == 1
    starts = ("process ", f"{SHM}/msgq_t", f"{TMP}/msgq-run-", f"{TMP}/pt")
    assert [[line.startswith(start) for start in starts].index(True) for line in left] == [0, 1, 2, 3]
    assert left[0].endswith("sleep 600")
    assert "/untidy" in left[2]
    assert "msgqchan_t" in done.stdout, "a file with the token of a test fails that test"


TIDY = """
import os, pathlib
from tests.support import wait_until

def test_waits_for_files_of_other_program():
    rounds = pathlib.Path(os.environ["ROUNDS"])
    first = rounds.stat().st_size
    wait_until(lambda: rounds.stat().st_size > first + 1, "the other program makes and removes its files")
"""


def create_and_remove_folders(rounds: str, names: list[str]) -> None:
    """Make and remove folders with a file until killed; add a byte to the file `rounds` each time."""
    for number in itertools.count():
        folders = [Path(f"{name}-{number}") for name in names]
        for folder in folders:
            folder.mkdir()
            (folder / "file").touch()
        with open(rounds, "a") as file:
            file.write(".")
        if number == 0:
            say()
        for folder in folders:
            (folder / "file").unlink()
            folder.rmdir()


@pytest.mark.ci
def test_pytest_run_ignores_files_of_other_programs(tmp_path: Path, token: str) -> None:
    rounds = tmp_path / "rounds"
    names = [f"{SHM}/msgq_{token}", f"{SHM}/msgqframes_{token}", f"{TMP}/{token}_visionipc"]
    try:
        with Child(create_and_remove_folders, str(rounds), names) as other:
            other.hear()
            done = run_of(TIDY, tmp_path, ROUNDS=str(rounds))
    finally:
        for name in names:
            for path in Path(name).parent.glob(f"{Path(name).name}-*"):
                shutil.rmtree(path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leftovers]:
    """Another run, which begins and ends within the test."""
    monkeypatch.setenv("TMPDIR", os.environ["TMPDIR"])
    monkeypatch.setattr("tempfile.tempdir", None)
    found = Leftovers()
    yield found
    found.folder.rmdir()


def test_leftover_files_are_found_by_token_of_test_run(token: str, run: Leftovers) -> None:
    own = [
        SHM / f".msgq_p{new_token()}.draft",
        SHM / f"of_another_program_{new_token()}",
        TMP / f"p{new_token()}_visionipc",
    ]
    others = [SHM / f"msgq_{token}", SHM / f"msgq_demo_{os.getpid()}", TMP / f"visionipc_{token}"]
    for path in [*own, *others]:
        path.touch()
    found = run.left()
    for path in [*own, *others]:
        path.unlink()
    assert found == sorted(map(str, own))


def test_leftover_empty_folder_of_a_prefix_is_found(token: str, run: Leftovers) -> None:
    own, other = SHM / f"msgqside_desk{new_token()}", SHM / f"msgqside_desk{token}"
    for folder in (own, other):
        folder.mkdir()
    found = run.left()
    for folder in (own, other):
        folder.rmdir()
    assert found == [str(own)]


def test_leftover_zmq_and_frame_files_are_found(token: str, run: Leftovers) -> None:
    frames, zmq = SHM / f"msgqframes_{token}", SHM / f"msgqzmq_{token}"
    own = [frames / f"p{new_token()}_visionipc", zmq / "claims" / "a hash", zmq / "ipc" / new_token()]
    others = [frames / f"visionipc_{token}", zmq / "claims" / "another hash", zmq / "ipc" / token]
    for path in [*own, *others]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"name": "{new_token() if path in own else token}"}}')
    found = run.left()
    for folder in (frames, zmq):
        shutil.rmtree(folder)
    assert found == sorted(map(str, own))


def test_leftover_processes_are_found_by_folder_of_test_run(run: Leftovers) -> None:
    before = {**os.environ, "TMPDIR": str(run.folder.parent)}
    with subprocess.Popen(["sleep", "600"], env=before) as other, subprocess.Popen(["sleep", "601"]) as own:
        found = run.left()
        own.kill()
        own.wait()
        rest = run.left()
        other.kill()
    assert found == [f"process {own.pid}: sleep 601 "]
    assert rest == []


def test_pytest_runs_have_different_tokens(run: Leftovers, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = run.folder.name[-4:], new_token()
    words = [taken, taken, free]
    monkeypatch.setattr("secrets.token_hex", lambda _: words.pop(0))
    folder = leftovers._new_folder()
    folder.rmdir()
    assert folder == TMP / f"msgq-run-{free}"
