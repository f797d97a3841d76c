"""The C core and the extensions under the address and undefined behaviour sanitizers.

What: the stress of threads.c, and the Python API on a sanitized build of the extensions, first used as intended, then
on hostile bytes. (The driver of tests/fuzz is sanitized too, and made for hostile bytes.)
Why: an access just beyond a segment or a buffer rarely crashes by itself.
A failure would mean: memory that is not ours is read or written, or arithmetic that C does not define.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.fuzz import build

SECONDS = 3
WATCHDOG = 240
USED = ("msgq/impl/gate", "msgq/impl/ground", "msgq/impl/ring", "visionipc")  # by what runs on the sanitized build
pytestmark = [
    pytest.mark.ci,
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
            frame.data[:] = number
        held.append(client.frame(1000).data)
        assert held[-1][1000] == number and len(held[-1]) == 1001
        held = held[-2:]
    held.append(server.send(0, bytes(1001)) and client.frame(1000))
    assert not server.send(0, bytes(1001))
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


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the library whose extensions are sanitized. Not optimised: it is built faster, and hides less."""
    folder = tmp_path / "package"
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("msgq", "visionipc", "tools/building", "tools/fuzz"):
        shutil.copytree(build.ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE"):
        shutil.copy(build.ROOT / name, folder)
    modules = folder / "tools" / "building" / "extensions.py"
    text = modules.read_text().replace('"-O3"', '"-O0", "-g1"')
    modules.write_text(text.replace('in files("pyx")]', f'in files("pyx") if source.startswith({USED})]'))
    sanitize = "-fsanitize=address,undefined -fno-sanitize-recover=all"
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j2"],
        cwd=folder,
        env={**os.environ, "CFLAGS": sanitize, "LDFLAGS": sanitize},
        capture_output=True,
        check=True,
    )
    return folder


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


def test_threads_stay_inside_their_memory(tmp_path: Path) -> None:
    source = Path(__file__).with_name("threads.c")
    program = build.compile_program(source, tmp_path / "threads", *build.SANITIZED)
    done = subprocess.run([program, str(SECONDS), "1"], capture_output=True, text=True, check=False, timeout=WATCHDOG)
    assert done.returncode == 0, done.stderr


def test_sanitized_extensions_in_use_and_on_hostile_bytes(package: Path, prefix: str) -> None:
    """One test: building takes the longest."""
    run_sanitized(package, prefix, ["-c", SMOKE, str(package)])
    options = ["--seed", "1", "--seconds", str(SECONDS), "--first", "0", "--rounds", "999"]
    run_sanitized(package, prefix, ["-m", "tools.fuzz.sockets", *options])
