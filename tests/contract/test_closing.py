"""Each close ends each wait for the closed object. close_cases.py has the table of closes and waits."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from msgq.errors import EndpointClosedError
from tests.contract.close_cases import APART, EVERY_BACKEND, POLLS, TABLE, Place, Row, each_call, make_call, place_on
from tests.support import DEADLINE, ROOT, Task

#: Folders and files whose classes are not for users to wait with.
INTERNAL = (
    "cli",
    "spark",
    "lake",
    "report",
    "decoding",
    "kinds",
    "playback.py",
    "publish.py",
    "repair",
    "mcap_io",
    "common",
    "fake",
    "zeromq",
    "recorder",
    "simulation",
)
#: Classes there are none of in users' programs: parts of the public ones, protocols, files.
PARTS = {
    "AsyncReadable", "AsyncReceiver", "Capture", "ChannelTransport", "FrameClient", "PlayerClock",
    "PythonPoller", "PyzmqPoller", "PyzmqReceiver", "ReceivingSocket", "RecordTransport", "Replay",
    "ReservingPublisher", "StreamReceiver", "TopicReceiver", "TopicTransport", "TracedMessageIterator", "Waitable",
}  # fmt: skip
#: Bases whose methods count as those of the classes that users have.
BASES = {
    "RecordHandle": ("SeqlockVector", "Seqlock", "Board"),
    "VectorBase": ("SeqlockVector", "Seqlock"),
}
WAITING_PARAMETERS = {"timeout", "deadline", "timeout_ms", "timeout_s", "non_blocking", "wait_for_one", "blocking"}
WAITING_NAMES = {"__next__", "wait", "run", "recv", "recv_into", "update"}


@pytest.fixture
def place(prefix: str, token: str, backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    with place_on(backend, token, prefix, tmp_path) as place:
        yield place


def _check_end(row: Row, name: str, result: Callable[[], Any]) -> None:
    ends = EndpointClosedError if name.startswith("Poller") else row.ends
    if isinstance(ends, type) and issubclass(ends, Exception):
        with pytest.raises(ends, match="clos"):
            result()
    elif isinstance(ends, type):
        assert isinstance(result(), ends)
    else:
        assert result() == ends


@pytest.mark.parametrize("backend", EVERY_BACKEND[:2])  # no other thread can end a wait in virtual time
@each_call("waits")
def test_close_ends_the_wait_of_another_thread(place: Place, row: Row, name: str) -> None:
    for how in row.open(place)[1] if place.backend in row.backends else ():
        place.close()
        one, closes = row.open(place)
        task = Task(make_call(place, row, name, one))
        task.wait_asleep()
        closes[how]()
        _check_end(row, name, task.result)


@pytest.mark.parametrize("closer", ["the task's thread", "another thread"])
@pytest.mark.parametrize("backend", EVERY_BACKEND)
@each_call("tasks")
def test_close_ends_the_wait_of_an_asyncio_task(place: Place, row: Row, name: str, closer: str) -> None:
    async def main(how: str) -> None:
        one, closes = row.open(place)
        task = asyncio.ensure_future(make_call(place, row, name, one)())
        await asyncio.sleep(0)
        assert not task.done()
        if closer == "another thread":
            await asyncio.to_thread(closes[how])
        else:
            closes[how]()
        await asyncio.wait([task], timeout=DEADLINE)
        assert task.done()
        _check_end(row, name, task.result)

    for how in row.open(place)[1] if place.backend in row.backends else ():
        place.close()
        asyncio.run(main(how))


# ---- completeness of the table ----


def waiting_methods() -> set[str]:
    """Return the methods of public classes that wait, as their parameters and results tell."""
    files = [path for folder in ("msgq", "visionipc") for path in (ROOT / folder).rglob("*.py*")]
    found: set[str] = set()
    for path in files:
        if (
            path.suffix not in (".py", ".pyi")
            or set(INTERNAL) & set(path.relative_to(ROOT).parts)
            or path.name == "fake.py"
        ):
            continue
        classes = [one for one in ast.parse(path.read_text()).body if isinstance(one, ast.ClassDef)]
        for one in classes:
            names = BASES.get(one.name, (one.name,)) if "records" in path.parts else (one.name,)
            prefix = "posix_ipc." if "posix_ipc" in path.parts else ""
            found |= {f"{prefix}{name}.{method}" for name in names for method in _waiting(one)}
    return found


def _waiting(one: ast.ClassDef) -> list[str]:
    """Return the methods of a class that wait."""
    if one.name in PARTS or one.name.startswith("_"):
        return []
    methods = [each for each in one.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [method.name for method in methods if _waits(method)]


def _waits(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    public = not method.name.startswith("_") or method.name in ("__next__", "__anext__")
    parameters = {each.arg for each in (*method.args.args, *method.args.kwonlyargs)}
    awaited = isinstance(method, ast.AsyncFunctionDef) or "Coroutine" in ast.unparse(method.returns or ast.Constant(""))
    return public and bool(awaited or parameters & WAITING_PARAMETERS or method.name in WAITING_NAMES)


def test_each_waiting_method_has_a_close_test_case() -> None:
    covered = {name for row in TABLE for name in (*row.waits, *row.tasks)} | POLLS
    assert waiting_methods() - covered - APART.keys() == set()
    assert APART.keys() & covered == set()


@pytest.mark.parametrize("method", ["def wait_more(self, timeout: float) -> None: ...", "async def anew(self): ..."])
def test_new_waiting_method_without_close_test_case_is_detected(method: str) -> None:
    (one,) = ast.parse(f"class Board:\n    {method}").body
    assert isinstance(one, ast.ClassDef)
    assert len(_waiting(one)) == 1
