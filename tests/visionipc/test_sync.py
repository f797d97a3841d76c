"""Frames that belong together: every match that is possible, every other frame counted, at most one a stream held."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgq.errors import EndpointClosedError, InvalidValueError
from visionipc import FrameSync, VisionIpcClient, VisionIpcServer

WIDTH, HEIGHT = 64, 48


@dataclass(frozen=True)
class Frame:
    timestamp_sof: int


class Script:
    """A client that returns what it is given, and nothing more."""

    def __init__(self, times: Sequence[int]) -> None:
        self.frames = deque(map(Frame, times))

    def recv(self, timeout_ms: float = 100) -> Any:
        return self.frames.popleft() if self.frames else None

    async def arecv(self) -> Any:
        if not self.frames:
            await asyncio.Event().wait()
        return self.frames.popleft()


def matches(sync: FrameSync) -> list[tuple[int, ...]]:
    found = []
    while (frames := sync.recv(0)) is not None:
        found.append(tuple(frame.timestamp_sof for frame in frames))
    return found


def most_matches(streams: Sequence[Sequence[int]], tolerance: int) -> int:
    """As many as there can be, by trying everything."""

    @cache
    def best(*at: int) -> int:
        if any(i == len(times) for i, times in zip(at, streams, strict=True)):
            return 0
        heads = [times[i] for i, times in zip(at, streams, strict=True)]
        found = 0
        if max(heads) - min(heads) <= tolerance:
            found = 1 + best(*(i + 1 for i in at))
        return max(found, *(best(*at[:i], at[i] + 1, *at[i + 1 :]) for i in range(len(at))))

    return best(*(0 for _ in streams))


times = st.lists(st.integers(0, 60), max_size=9).map(sorted)


@given(st.lists(times, min_size=1, max_size=3), st.integers(0, 8))
def test_frame_sync_finds_all_matches_and_counts_all_frames(streams: list[list[int]], tolerance: int) -> None:
    clients = [Script(one) for one in streams]
    sync = FrameSync(clients, tolerance)
    found = matches(sync)
    assert all(max(frames) - min(frames) <= tolerance for frames in found)
    assert len(found) == most_matches(streams, tolerance)
    for stream, client in enumerate(clients):
        taken = [frames[stream] for frames in found]
        received = len(streams[stream]) - len(client.frames)
        assert taken == sorted(taken)
        assert 0 <= received - len(taken) - sync.dropped[stream] <= 1, "more than one frame is held"


def test_frame_sync_with_different_rates_matches_close_frames() -> None:
    fast, slow = Script([0, 33, 66, 100, 133, 166, 200]), Script([2, 101, 199])
    sync = FrameSync([fast, slow], 5)
    assert matches(sync) == [(0, 2), (100, 101), (200, 199)]
    assert sync.dropped == (4, 0)


def test_frame_sync_after_stream_restart_drops_earlier_frames() -> None:
    left, right = Script([1000, 1033, 0, 33, 66]), Script([1000, 1066, 0, 33, 66])
    sync = FrameSync([left, right], 5)
    assert matches(sync) == [(1000, 1000), (0, 0), (33, 33), (66, 66)]
    assert sync.dropped == (1, 1)


class Endless:
    """A client that always has a later frame. Each receive takes 15.625 ms of the test's clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timeouts: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def recv(self, timeout_ms: float = 100) -> Any:
        assert len(self.timeouts) < 100, "the stream never ends, but the call should"
        self.timeouts.append(timeout_ms)
        self.now_s += 1 / 64
        return Frame(len(self.timeouts) * 1000)

    async def arecv(self) -> Any:
        return self.recv()


@pytest.mark.parametrize("timeout_ms", [39.0625, 46.875])
def test_frame_sync_with_endless_unmatched_frames_ends_at_timeout(
    monkeypatch: pytest.MonkeyPatch, timeout_ms: float
) -> None:
    endless = Endless()
    monkeypatch.setattr("visionipc.sync.backend", endless)
    sync = FrameSync([Script([10**9]), endless], 1)
    assert sync.recv(timeout_ms) is None
    assert endless.timeouts == [timeout_ms, timeout_ms - 15.625, timeout_ms - 31.25]
    assert sync.dropped == (0, 3)


def test_frame_sync_returns_match_that_last_frame_before_timeout_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless()
    monkeypatch.setattr("visionipc.sync.backend", endless)
    sync = FrameSync([Script([3000]), endless], 1)
    frames = sync.recv(46.875)
    assert frames is not None
    assert [frame.timestamp_sof for frame in frames] == [3000, 3000]


@pytest.mark.parametrize("tolerance", [-1, float("nan")])
def test_frame_sync_with_impossible_tolerance_is_refused(tolerance: Any) -> None:
    with pytest.raises(InvalidValueError, match="tolerance"):
        FrameSync([Script([])], tolerance)


def test_frame_sync_with_shared_client_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="one client for each stream"):
        FrameSync([], 1)
    one = Script([])
    with pytest.raises(InvalidValueError, match="one client for each stream"):
        FrameSync([one, one], 1)


@pytest.fixture
def cameras(name: str) -> Iterator[VisionIpcServer]:
    with VisionIpcServer(name) as server:
        for kind in (0, 1):
            server.create_buffers(kind, 3, WIDTH, HEIGHT)
        server.start_listener()
        yield server


def send(server: VisionIpcServer, kind: int, sof: int) -> None:
    assert server.send(kind, bytes([sof % 256]) * (WIDTH * HEIGHT * 3 // 2), sof, sof, sof)


def test_frame_sync_holds_at_most_one_buffer_per_stream(
    cameras: VisionIpcServer, connect: Callable[..., VisionIpcClient]
) -> None:
    sync = FrameSync([connect(0), connect(1)], 3)
    assert sync.recv(0) is None
    send(cameras, 0, 10)
    send(cameras, 0, 20)
    assert sync.recv(1) is None
    assert (cameras.stats(0).held, cameras.stats(1).held) == (1, 0)
    send(cameras, 1, 21)
    pair = sync.recv(1000)
    assert pair is not None
    assert [frame.timestamp_sof for frame in pair] == [20, 21]
    assert [int(frame.array[0]) for frame in pair] == [20, 21]
    assert sync.dropped == (1, 0)
    assert (cameras.stats(0).held, cameras.stats(1).held) == (1, 1)
    del pair
    assert (cameras.stats(0).held, cameras.stats(1).held) == (0, 0)


def test_frame_sync_close_releases_held_frames(
    cameras: VisionIpcServer, connect: Callable[..., VisionIpcClient]
) -> None:
    with FrameSync([connect(0), connect(1)], 3) as sync:
        send(cameras, 0, 10)
        assert sync.recv(0) is None
        assert cameras.stats(0).held == 1
    assert cameras.stats(0).held == 0
    assert sync.dropped == (0, 0)


def test_frame_sync_task_cancellation_loses_no_frame(
    cameras: VisionIpcServer, connect: Callable[..., VisionIpcClient]
) -> None:
    async def pairs() -> list[tuple[int, ...]]:
        sync = FrameSync([connect(0), connect(1)], 3)
        send(cameras, 0, 10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sync.arecv(), 0.02)
        send(cameras, 1, 11)
        found = []
        async for frames in sync:
            found.append(tuple(frame.timestamp_sof for frame in frames))
            if len(found) == 2:
                return found
            send(cameras, 1, 30)
            send(cameras, 0, 31)
        raise AssertionError("it ended")

    assert asyncio.run(pairs()) == [(10, 11), (31, 30)]


def test_frame_sync_with_closed_client_ends(cameras: VisionIpcServer, connect: Callable[..., VisionIpcClient]) -> None:
    client = connect(0)
    sync = FrameSync([client, connect(1)], 3)
    client.close()
    with pytest.raises(EndpointClosedError):
        sync.recv(0)


def test_frame_sync_with_impossible_timeout_is_refused(
    cameras: VisionIpcServer, connect: Callable[..., VisionIpcClient]
) -> None:
    with pytest.raises(InvalidValueError):
        FrameSync([connect(0), connect(1)], 3).recv(-2)
