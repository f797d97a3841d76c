"""The wheel in an empty environment with the extras `cli` and `record`, as a new user installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.meta.sources import PACKAGES, ROOT
from tests.support import SHM
from tests.terminal import Terminal

# One process makes the wheel and its environment.
pytestmark = [pytest.mark.ci, pytest.mark.watchdog(900), pytest.mark.xdist_group("wheel")]

COLUMNS, LINES = 80, 24
SHELL_LINES = 2  # the line of the command, and the prompt after its output
BUILD_FOLDERS = ("msgq", "msgq_demo", "visionipc", "tools/building")
UNWANTED = ("pyspark", "cv2", "zmq", "pyarrow", "Cython")


def copy_sources(tree: Path) -> None:
    """Copy the sources of the wheel. The build then finds the compiled modules, and compiles only changed ones."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    for folder in BUILD_FOLDERS:
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignore)
    for path in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy2(path, tree)
    library = tree / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for module in (path for package in PACKAGES for path in package.rglob("*.so")):
        compiled = library / module.relative_to(ROOT)
        compiled.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(module, compiled)


def run_quietly(*command: object, **options: Any) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the commands of a new environment. No compiler is in the path of its installation."""
    folder = tmp_path_factory.mktemp("wheel")
    tree, environment = folder / "tree", folder / "environment"
    copy_sources(tree)
    pip = ("-m", "pip", "--disable-pip-version-check")
    run_quietly(sys.executable, *pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, tree)
    run_quietly(sys.executable, "-m", "venv", environment)
    (wheel,) = folder.glob("*.whl")
    binaries = environment / "bin"
    variables = {**os.environ, "PATH": str(binaries)}
    run_quietly(binaries / "python", *pip, "install", f"{wheel}[cli,record]", env=variables, cwd=folder)
    return binaries


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Return a folder whose path is nearly as short as that of /tmp, so that lines with the path fit."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def start_program(*words: object, env: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program in the environment that its first word is in, outside of the sources."""
    variables = {**os.environ, **env, "PATH": str(Path(str(words[0])).parent)}
    return subprocess.Popen([*map(str, words)], env=variables, cwd=tempfile.gettempdir(), **options)


def list_shared_files(prefix: str) -> list[Path]:
    return sorted(SHM.glob(f"msgq*_{prefix}/*"))


def test_environment_of_wheel_has_only_packages_of_the_extras(binaries: Path) -> None:
    program = f"from importlib.util import find_spec; print([n for n in {UNWANTED} if find_spec(n)])"
    done = subprocess.run([binaries / "python", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_demo_of_wheel_fits_on_one_screen_and_leaves_only_its_recording(
    binaries: Path, prefix: str, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_folder))
    with Terminal(COLUMNS, LINES, binaries / "msgq", "demo", starter=start_program) as terminal:
        lines = terminal.read_all()
        assert terminal.wait() == 0, "\n".join(lines)
    assert len(lines) <= LINES - SHELL_LINES, "\n".join(lines)
    assert max(map(len, lines)) <= COLUMNS, "\n".join(lines)
    assert any(line.startswith("all checks passed") for line in lines)
    (play,) = [line.split() for line in lines if line.startswith("  msgq play")]
    assert [str(path) for path in short_folder.iterdir()] == play[-1:]
    assert list_shared_files(prefix) == []
    run_quietly(binaries / "msgq", "bag", "doctor", play[-1])


def test_full_demo_of_wheel_names_missing_extra(binaries: Path, prefix: str) -> None:
    done = subprocess.run([binaries / "msgq", "demo", "--full"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (error,) = done.stderr.splitlines()
    assert "pip install 'msgq-bus[frames]'" in error
    assert list_shared_files(prefix) == []
