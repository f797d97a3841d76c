"""What the base gives to modules in Cython: views that hold, files mapped in two parts, schemas in one piece."""

from __future__ import annotations

import gc
import importlib.util
import mmap
import os
import resource
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import EndpointClosedError, SegmentError
from tests.support import ROOT, SHM, in_fork
from tools.fuzz.build import HEADERS, compiler

PAGE = mmap.PAGESIZE
pytestmark = pytest.mark.xdist_group("base")  # one process compiles the module


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module of base_user.pyx."""
    folder = tmp_path_factory.mktemp("base")
    source, built = folder / "base_user.c", folder / f"base_user{sysconfig.get_config_var('EXT_SUFFIX')}"
    cython = [sys.executable, "-m", "cython", "-3", "-I", str(ROOT), "-o", str(source)]
    cython += ["-X", "freethreading_compatible=True"]
    subprocess.run([*cython, str(ROOT / "tests/unit/base_user.pyx")], check=True, cwd=ROOT)
    folders = (f"-I{HEADERS}", f"-I{sysconfig.get_path('include')}")
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-O0", "-shared", "-fPIC", *folders)
    subprocess.run([compiler(), *flags, "-o", str(built), str(source)], check=True)
    spec = importlib.util.spec_from_file_location("base_user", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def path(token: str) -> Iterator[Path]:
    """A file of three pages, each full of its number."""
    path = SHM / token
    path.write_bytes(b"".join(bytes([number]) * PAGE for number in range(3)))
    yield path
    path.unlink()


@pytest.fixture
def parts(user: Any, path: Path) -> Any:
    return user.Parts(str(path), PAGE)


def dies_of(number: int, function: Callable[[], None]) -> None:
    def alone() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(number, signal.SIG_DFL)
        function()

    assert in_fork(alone) == -number


class TestParts:
    def test_file_header_write_is_visible_to_other_processes(self, parts: Any, path: Path) -> None:
        parts.write(PAGE - 1, 77)
        assert path.read_bytes()[PAGE - 1] == 77
        assert [parts.read(page * PAGE) for page in range(3)] == [0, 1, 2]

    @pytest.mark.parametrize("offset", [PAGE, 3 * PAGE - 1])
    def test_write_beyond_file_header_kills_process(self, parts: Any, path: Path, offset: Any) -> None:
        dies_of(signal.SIGSEGV, lambda: parts.write(offset, 77))
        assert 77 not in path.read_bytes()

    def test_writable_file_header_can_be_empty_or_whole_file(self, user: Any, path: Path) -> None:
        whole = user.Parts(str(path), 3 * PAGE)
        whole.write(3 * PAGE - 1, 77)
        assert path.read_bytes()[-1] == 77
        dies_of(signal.SIGSEGV, lambda: user.Parts(str(path), 0).write(0, 1))

    @pytest.mark.parametrize("size", [1, PAGE - 1, 4 * PAGE])
    def test_segment_with_invalid_header_size_is_refused(self, user: Any, path: Path, size: Any) -> None:
        with pytest.raises(SegmentError, match=f"{size} of them"):
            user.Parts(str(path), size)

    @pytest.mark.parametrize("left", [0, PAGE])
    def test_process_survives_truncation_of_mapped_file(self, parts: Any, path: Path, left: Any) -> None:
        assert not parts.lost
        os.truncate(path, left)
        assert parts.read(2 * PAGE) == 0
        assert parts.lost
        parts.write(0, 5)
        assert parts.read(0) == 5


class TestHeldViews:
    def test_deleting_view_releases_its_pin(self, user: Any, parts: Any) -> None:
        pins = user.Pins()
        view = pins.view(parts, PAGE, 8)
        assert bytes(view) == b"\1" * 8
        assert len(view) == 8
        assert memoryview(view).readonly
        assert pins.gone == []
        del view
        assert pins.gone == [PAGE]

    def test_exported_buffer_keeps_pin_of_deleted_view(self, user: Any, parts: Any) -> None:
        pins = user.Pins()
        look = memoryview(pins.view(parts, PAGE, 8))
        part = look[2:4]
        look.release()
        gc.collect()
        assert pins.gone == []
        assert bytes(part) == b"\1\1"
        part.release()
        del part, look
        assert pins.gone == [PAGE]

    def test_release_of_view_with_open_buffer_is_refused(self, user: Any, parts: Any) -> None:
        pins = user.Pins()
        view = pins.view(parts, PAGE, 8)
        look = memoryview(view)
        with pytest.raises(BufferError, match="open buffers: 1"):
            view.release()
        assert bytes(look) == b"\1" * 8
        assert pins.gone == []
        look.release()
        view.release()
        assert pins.gone == [PAGE]

    def test_released_view_cannot_be_read(self, user: Any, parts: Any) -> None:
        pins = user.Pins()
        view = pins.view(parts, PAGE, 8)
        view.release()
        view.release()
        with pytest.raises(EndpointClosedError, match="released"):
            memoryview(view)
        del view
        assert pins.gone == [PAGE], "once"

    def test_forked_child_does_not_release_views_of_parent(self, user: Any, parts: Any) -> None:
        pins = user.Pins()
        views = [pins.view(parts, PAGE, 8), pins.view(parts, 2 * PAGE, 8)]

        def child() -> None:
            views[0].release()
            views.clear()
            gc.collect()
            assert pins.gone == []

        assert in_fork(child) == 0
        views.clear()
        assert sorted(pins.gone) == [PAGE, 2 * PAGE]

    def test_view_in_garbage_cycle_is_released(self, user: Any, parts: Any) -> None:
        pins = user.Pins()
        circle: list[Any] = [pins.view(parts, PAGE, 8)]
        circle += [circle, memoryview(circle[0])]
        del circle
        gc.collect()
        assert pins.gone == [PAGE]

    def test_view_cannot_be_created_from_python(self, user: Any, parts: Any) -> None:
        pins = user.Pins()
        with pytest.raises(TypeError, match="directly"):
            type(pins.view(parts, 0, 8))()


class TestSchema:
    ROOM = 2000

    def test_schema_read_returns_last_written_value(self, user: Any, path: Path) -> None:
        path.write_bytes(bytes(3 * PAGE))
        parts = user.Parts(str(path), PAGE)
        assert parts.describe(None, self.ROOM) is None
        for schema in (msgq.Schema("a", "json", b"x" * 300), msgq.Schema("b" * 192, "c" * 48, b"y" * self.ROOM)):
            assert parts.describe(schema, self.ROOM) == schema
            assert parts.describe(None, self.ROOM) == schema
        assert not any(path.read_bytes()[304 + self.ROOM :]), "nothing beyond its room"

    def test_next_schema_writer_succeeds_after_killed_writer(self, user: Any, path: Path) -> None:
        path.write_bytes(bytes(3 * PAGE))
        parts = user.Parts(str(path), PAGE)
        schema, other = msgq.Schema("a", "json", b"x" * 300), msgq.Schema("o", "json", b"o")
        parts.describe(schema, self.ROOM)
        for offset in range(64, 64 + 240 + 300):  # the turn of the spare, and the place half written
            parts.write(offset, 0x55)
        parts.write(0, 1)
        assert parts.describe(None, self.ROOM) == schema, "from the spare"
        assert parts.describe(other, self.ROOM) == other
