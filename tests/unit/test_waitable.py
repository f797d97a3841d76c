"""A reader that is no socket (bell.pyx), compiled on the installed headers: one poller, descriptor and loop for all."""

from __future__ import annotations

import asyncio
import importlib.util
import select
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import msgq
from msgq.errors import ConcurrentUseError, EndpointClosedError
from tests.support import DEADLINE, DEADLINE_MS, Task

SOURCE = Path(__file__).with_name("bell.pyx")
BUILD = """
from Cython.Build import cythonize
from setuptools import Extension, setup

bell = Extension(
    "bell", ["bell.pyx"], include_dirs=["{package}/impl"], define_macros=[("_GNU_SOURCE", "1")],
    extra_compile_args=["-std=gnu11", "-O1", "-Werror=incompatible-pointer-types"],
)
setup(name="bell", ext_modules=cythonize([bell], include_path=["{package}/.."], quiet=True))
"""

pytestmark = [
    pytest.mark.ci,
    pytest.mark.xdist_group("bells"),  # one process compiles the module
    pytest.mark.watchdog(180),
    pytest.mark.skipif(not shutil.which("cc"), reason="there is no compiler"),
]


@pytest.fixture(scope="module")
def bells(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module, compiled as another project would."""
    pytest.importorskip("Cython")
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("bell")
    shutil.copy(SOURCE, folder)
    (folder / "setup.py").write_text(BUILD.format(package=Path(msgq.__file__).parent))
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    spec = importlib.util.spec_from_file_location("bell", next(folder.glob("bell.*.so")))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bell(bells: ModuleType) -> Any:
    return bells.Bell(bells.Tower(), "bell")


def test_poller_waits_for_socket_and_custom_waitable(bell: Any, endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        poller = msgq.Poller()
        poller.registerSocket(sub)
        poller.registerSocket(bell)
        assert poller.poll(0) == []
        for number in range(20):
            task = Task(lambda: poller.poll(DEADLINE_MS))
            task.wait_asleep()
            bell.ring()
            assert task.result() == [bell]
            assert bell.receive() == number
            task = Task(lambda: poller.poll(DEADLINE_MS))
            task.wait_asleep()
            pub.send(b"x")
            assert task.result() == [sub]
            assert sub.receive(True) == b"x"
        bell.ring()
        pub.send(b"x")
        assert poller.poll(0) == [sub, bell]


def test_waitables_with_shared_futex_word_wait_together(bells: ModuleType) -> None:
    tower = bells.Tower()
    both = [bells.Bell(tower, "one"), bells.Bell(tower, "two")]
    poller = msgq.Poller()
    for each in both:
        poller.registerSocket(each)
    for each in both:
        each.fileno()
    task = Task(lambda: poller.poll(DEADLINE_MS))
    task.wait_asleep()
    before = both[0].naps
    assert before < 10, "an announcement must not end the sleep that another one prepared"
    both[1].ring()
    assert task.result() == [both[1]]


def test_waitable_descriptor_is_readable_until_receive(bell: Any) -> None:
    assert not select.select([bell], [], [], 0)[0]
    for _ in range(20):
        bell.ring()
        assert select.select([bell], [], [], DEADLINE)[0]
        bell.receive()
        assert not select.select([bell], [], [], 0)[0]


def test_asyncio_task_can_wait_for_custom_waitable(bell: Any, endpoint: str) -> None:
    async def main() -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            both = asyncio.gather(bell.arecv(), sub.arecv())
            await asyncio.sleep(0)
            bell.ring()
            pub.send(b"x")
            assert list(await both) == [0, b"x"]
            poller = msgq.Poller()
            poller.registerSocket(bell)
            bell.ring()
            assert await poller.apoll(DEADLINE_MS) == [bell]

    asyncio.run(asyncio.wait_for(main(), DEADLINE))


def test_close_of_waitable_ends_wait_of_another_thread(bell: Any) -> None:
    task = Task(bell.receive)
    task.wait_asleep()
    with pytest.raises(ConcurrentUseError):
        bell.receive(True)
    bell.close()
    with pytest.raises(EndpointClosedError):
        task.result()
    assert bell.closed
    assert bell.given_back
    with pytest.raises(EndpointClosedError):
        msgq.Poller().registerSocket(bell)
