"""The extensions under the address and undefined behaviour sanitizers.

What: the Python API on a sanitized build of the extensions, first used as intended, then on hostile bytes.
Why: an access just beyond a segment or a buffer rarely crashes by itself.
A failure would mean: memory that is not ours is read or written, or arithmetic that C does not define.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tools.fuzz import build

ROUNDS = 10  # rounds with hostile bytes
WATCHDOG = 240
UNUSUAL_LOCALS = "-ftrivial-auto-var-init=pattern"  # a read of an uninitialized variable fails in each run
# Folders of the extensions that run on the sanitized build.
USED = ("msgq/common", "msgq/impl/gate", "msgq/impl/base", "msgq/impl/ring", "visionipc")
pytestmark = [
    pytest.mark.skipif(not build.has_sanitizer("address,undefined"), reason="the compiler has no address sanitizer"),
    pytest.mark.watchdog(3 * WATCHDOG),
]

SMOKE = """
import sys
import numpy as np
import msgq
from msgq import stats
from visionipc import FrameFormat, VisionIpcClient, VisionIpcServer

assert msgq.__file__.startswith(sys.argv[1]), msgq.__file__
poller = msgq.Poller()
with msgq.pub_sock("smoke", 4096) as pub, msgq.sub_sock("smoke", poller, timeout=100) as sub:
    newest = msgq.sub_sock("smoke", conflate=True, timeout=0)
    watching = msgq.SubSocket()
    watching.connect(msgq.context, "smoke", passive=True)
    for size in (0, 1, 7, 8, 1000, 1352):
        pub.send(bytes(size))
        assert poller.poll(1000) == [sub]
        assert sub.receive() == newest.receive() == watching.receive() == bytes(size)
    for _ in range(30):
        assert pub.send_many(np.arange(64, dtype="u8").reshape(16, 4)) == 16
        assert sub.receive_array("u8,u8,u8,u8").shape == (16,)
        pub.send_many([b"a" * 100, bytearray(3)])
        assert sub.receive_into(bytearray(100)) == 100
        assert sub.receive_many() == [bytes(3)]
        with pub.reserve(12) as view:
            view[:] = b"written here"
        assert sub.receive() == b"written here"
    assert newest.receive() == b"written here"
    watching.receive_many()
    assert watching.stats().resets == 1
    pub.wait_for_readers(n=2)
    pub.all_readers_updated()
    assert [topic.endpoint for topic in stats.topics()] == ["smoke"]
    for wrong in (lambda: pub.send(bytes(1400)), lambda: sub.setTimeout(-2), lambda: msgq.sub_sock("a/b")):
        try:
            wrong()
        except msgq.IpcError as error:
            str(error)
        else:
            raise AssertionError(wrong)

with VisionIpcServer("smoke") as server, VisionIpcClient("smoke", 0, False) as client:
    server.create_buffers(0, 3, 1001, 1, FrameFormat.RAW)
    server.start_listener()
    assert client.connect(True)
    held = []
    for number in range(50):
        with server.frame(0) as frame:
            frame.array[:] = number
        held.append(client.frame(1000).array)
        assert held[-1][1000] == number and len(held[-1]) == 1001
        held = held[-2:]
    while server.send(0, bytes(1001)):
        held.append(client.frame(1000))
    assert client.dropped == 1
    try:
        server.send(0, bytes(1002))
    except msgq.IpcError as error:
        str(error)
assert held[0][0] == 48
"""


def runtime(name: str) -> str:
    """Return the path of a sanitizer's library."""
    command = [build.compiler(), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


PACKAGES = ("msgq", "visionipc", "tools/fuzz")
SETUP = ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE")
MADE_OF = (".pyx", ".pxi", ".pxd", ".pyi", ".h", ".c")  # a stub gives a module its docstrings


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the library whose extensions are sanitized, and come from the cache."""
    files = [path for name in PACKAGES for path in (build.ROOT / name).rglob("*.*") if path.suffix in MADE_OF]
    files += [build.ROOT / name for name in SETUP]
    files += [Path(__file__), *(build.ROOT / "tools" / "building").glob("*.py")]
    made = build.cached_path("sanitized", build.digest([sys.version, version("cython")], files), build_modules)
    folder = tmp_path / "package"
    copy_library(folder)
    for module in made.rglob("*.so"):
        (folder / module.relative_to(made)).symlink_to(module)
    return folder


def copy_library(folder: Path) -> None:
    for name in PACKAGES:
        shutil.copytree(build.ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))


def build_modules(folder: Path) -> None:
    """Build sanitized extensions in a new folder. Not optimised: they are built faster, and hide less."""
    copy_library(folder)
    shutil.copytree(build.ROOT / "tools" / "building", folder / "tools" / "building")
    for name in SETUP:
        shutil.copy(build.ROOT / name, folder)
    modules = folder / "tools" / "building" / "extensions.py"
    text = modules.read_text().replace('"-O3"', '"-O0", "-g1"')
    modules.write_text(text.replace('in files("pyx")]', f'in files("pyx") if source.startswith({USED})]'))
    sanitize = "-fsanitize=address,undefined -fno-sanitize-recover=all"
    if build.accepts_flag(UNUSUAL_LOCALS):  # since GCC 12
        sanitize += f" {UNUSUAL_LOCALS}"
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j2"],
        cwd=folder,
        env={**os.environ, "CFLAGS": sanitize, "LDFLAGS": sanitize},
        capture_output=True,
        check=True,
    )
    shutil.rmtree(folder / "build")


def run_sanitized(package: Path, prefix: str, arguments: list[str]) -> None:
    """Run Python on the sanitized build."""
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter frees little at its end
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        "OPENPILOT_PREFIX": prefix,
        "PYTHONPATH": str(package),
        "PYTHONMALLOC": "malloc",  # so that each object has its own red zones
    }
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=package, env=environment, capture_output=True, text=True, check=False, timeout=WATCHDOG
    )
    assert done.returncode == 0, done.stderr[-6000:]


def test_sanitized_extensions_pass_smoke_test(package: Path, prefix: str) -> None:
    run_sanitized(package, prefix, ["-c", SMOKE, str(package)])


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(30 * ROUNDS, marks=pytest.mark.nightly)])
def test_sanitized_extensions_survive_hostile_bytes(package: Path, prefix: str, seed: int, rounds: int) -> None:
    options = ["--seed", str(seed), "--seconds", str(WATCHDOG / 2), "--first", "0", "--rounds", str(rounds)]
    run_sanitized(package, prefix, ["-m", "tools.fuzz.sockets", *options])
