"""Eight threads at once use one server or client of frames; also without the GIL.

See test_shared_handles.py. In addition, a frame keeps its bytes until its release, in whichever thread that happens.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest

from msgq.errors import ConcurrentUseError, EndpointClosedError, IpcError, MultiplePublishersError
from tests.stress.thread_calls import (
    CALLS,
    THREADS,
    WORDS,
    beside,
    check_once,
    flow,
    in_threads,
    repeat,
    spread,
    until,
    words,
)
from tests.support import run_child
from visionipc import FrameFormat, VisionIpcClient, VisionIpcServer

FRAME_BYTES = 1 << 14
REPLACED = (EndpointClosedError, MultiplePublishersError)  # a sender's errors while the stream is created again


def serve() -> VisionIpcServer:
    server = VisionIpcServer("shared")
    create(server)
    server.start_listener()
    return server


def create(server: VisionIpcServer) -> None:
    server.create_buffers(0, 4, FRAME_BYTES, 1, FrameFormat.RAW)


def connect() -> VisionIpcClient:
    client = VisionIpcClient("shared", 0, False)
    assert client.connect(True)
    return client


def picture(number: int) -> bytes:
    return words(number) * (FRAME_BYTES // (8 * WORDS))


def check_frame(frame: Any) -> None:
    found = np.frombuffer(frame.data, "<u8")
    assert (found == frame.frame_id).all(), "torn"


def release_frames_in_other_threads() -> None:
    server, client = serve(), connect()
    kept: deque[Any] = deque()

    def receive() -> Any:
        frame = client.recv(1)
        if frame is None:
            return None
        check_frame(frame)
        kept.append(frame)
        if len(kept) > 2:
            with contextlib.suppress(IndexError):
                other = kept.popleft()
                check_frame(other)
                if frame.frame_id % 2:
                    other.release()
                del other
        if frame.frame_id % 50 == 0:
            gc.collect()
        return words(frame.frame_id)

    sent, *received = flow([repeat(lambda number: server.send(0, picture(number), number), 1)], receive, THREADS - 1)
    stats = server.stats(0)
    check_once(sent, [*chain(*received)], (client.lost or 0) + stats.dropped)
    kept.clear()
    gc.collect()
    assert server.stats(0).held == 0
    server.close()


def render_frames() -> None:
    server, client = serve(), connect()

    def render(number: int) -> None:
        with server.frame(0) as frame:
            frame.data[:] = picture(number)
            frame.frame_id = number

    def receive() -> Any:
        frame = client.recv(0)
        if frame is None:
            return None
        with frame:
            check_frame(frame)
            return words(frame.frame_id)

    sent, received = flow(spread(render), receive, 1)
    check_once(sent, received, (client.lost or 0) + server.stats(0).dropped)
    server.close()


def join_and_replace_beside_sends() -> None:
    """Clients come and go, and the server creates its stream again, while frames are sent and received."""
    server, client = serve(), connect()

    def send(number: int) -> None:
        with contextlib.suppress(*REPLACED):
            server.send(0, picture(number), number)

    def receive() -> None:
        frame = client.recv(1)
        if frame is not None:
            check_frame(frame)

    def join() -> None:
        with contextlib.suppress(IpcError), contextlib.closing(connect()) as other:
            frame = other.recv(0)
            if frame is not None:
                check_frame(frame)

    def replace() -> None:
        create(server)
        server.stats(0)
        client.stats()

    beside(
        spread(send)[:2],
        [
            *[lambda over: until(over, receive)] * 3,
            *[lambda over: until(over, join)] * 2,
            lambda over: until(over, replace),
        ],
    )
    server.close()


def close_beside_calls() -> None:
    """Servers and clients are closed while other threads use them."""

    def close_all(number: int) -> None:
        server, client = serve(), connect()

        def use(call: Callable[[], Any]) -> Callable[[], None]:
            def run() -> None:
                with contextlib.suppress(EndpointClosedError):
                    while True:
                        with contextlib.suppress(ConcurrentUseError, MultiplePublishersError):
                            call()

            return run

        def render() -> None:
            with server.frame(0) as frame:
                frame.data[:] = picture(1)

        calls: list[Callable[[], Any]] = [
            lambda: server.send(0, picture(number), number),
            render,
            lambda: client.recv(-1 if number % 2 else 1),
            lambda: create(server),
        ]
        in_threads(*map(use, calls), server.close, server.close, client.close)

    for number in range(max(CALLS // 10, 10)):
        close_all(number)


def exit_beside_calls() -> None:
    """Daemon threads use a server and a client while the process ends."""
    server, client = serve(), connect()
    started = threading.Barrier(4)

    def repeat_forever(call: Callable[[], Any]) -> None:
        started.wait()
        with contextlib.suppress(EndpointClosedError):
            while True:
                call()

    for call in (lambda: server.send(0, picture(1)), lambda: client.recv(1), lambda: connect().close()):
        threading.Thread(target=repeat_forever, args=(call,), daemon=True).start()
    started.wait()


SCENARIOS = [
    release_frames_in_other_threads,
    render_frames,
    join_and_replace_beside_sends,
    close_beside_calls,
    exit_beside_calls,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_threads_that_use_frames_at_once_break_nothing(prefix: str, scenario: Callable[[], None]) -> None:
    run_child(scenario)
