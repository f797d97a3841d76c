"""Recordings that the pipeline is measured with, made on a bus of their own."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
from mcap.writer import Writer

import msgq
from msgq.recording import Recorder, RecordingLimits
from tools.bench.workspace import remove_rings

_TOPICS = 20
_RARE = 1000
_SENT_BYTES = 4 << 20  # at once, of a ring of 64 MiB
_IMU = np.dtype([("time", "<i8"), ("x", "<f4", 3), ("gyro", "<f4", 3), ("count", "<u4")])


class _Payloads:
    """Half noise, half zeros, as telemetry is about as compressible. Each time other noise, so that nothing repeats."""

    def __init__(self, smallest: int, largest: int) -> None:
        self._random = np.random.default_rng(1)
        sizes = self._random.integers(smallest, largest + 1, max(1, min(1000, _SENT_BYTES // largest)))
        ends = np.cumsum(sizes)
        self._bytes = np.zeros(int(ends[-1]), np.uint8)
        begins = ends - sizes
        self._noise = np.concatenate(
            [np.arange(begin, begin + size // 2) for begin, size in zip(begins, sizes, strict=True)]
        )
        spans = zip(begins.tolist(), ends.tolist(), strict=True)
        self.rows = [self._bytes.data[begin:end] for begin, end in spans]

    def renew(self) -> list[memoryview]:
        self._bytes[self._noise] = self._random.integers(0, 256, len(self._noise), np.uint8)
        return self.rows


@contextmanager
def _bus(names: list[str], schema: msgq.Schema | None = None) -> Iterator[list[msgq.PubSocket]]:
    """Publishers whose endpoints are gone afterwards."""
    sockets = [msgq.PubSocket() for _ in names]
    for socket, name in zip(sockets, names, strict=True):
        socket.connect(msgq.context, name, segment_size=64 << 20, schema=schema)
    try:
        yield sockets
    finally:
        for socket in sockets:
            socket.close()
        remove_rings(*names)


def make(
    where: Path, messages: int, compression: str = "zstd", size: tuple[int, int] = (64, 256), segments: int = 1
) -> Path:
    """Record messages of some topics, and a few of a rare one; return the recording.

    segments : about so many files.
    """
    names = [f"t{number:02}-{uuid4().hex[:6]}" for number in range(_TOPICS)]
    rare = f"rare-{uuid4().hex[:6]}"
    payloads = _Payloads(*size)
    limits = RecordingLimits(split_messages=messages // segments) if segments > 1 else None
    with (
        _bus([*names, rare]) as (*topics, seldom),
        Recorder(where, [*names, rare], compression=compression, limits=limits) as recorder,
    ):
        sent, rares = 0, 0
        while sent < messages:
            for topic in topics:
                sent += topic.send_many(payloads.renew())
            if sent * _RARE // messages > rares:
                rares += 1
                seldom.send(payloads.rows[0])
            ahead = 10 * _TOPICS * len(payloads.rows)
            while sent - recorder.stats().messages > ahead or recorder.stats().waiting_bytes > 64 << 20:
                time.sleep(0.001)
        lost = recorder.stop().lost
    if lost:
        sys.exit(f"the recorder lost {lost} messages while the recording was made; try again")
    return where


def make_layout(where: Path, messages: int) -> Path:
    """Record messages of a fixed layout on the endpoint "imu-..."."""
    rows = np.zeros(1000, _IMU)
    rows["count"] = np.arange(1000)
    name = f"imu-{uuid4().hex[:6]}"
    schema = msgq.Schema("imu", "struct", json.dumps(_IMU.descr).encode())
    with _bus([name], schema) as (imu,), Recorder(where, [name]) as recorder:
        for sent in range(0, messages, 1000):
            imu.send_many(rows)
            while sent - recorder.stats().messages > 200_000:
                time.sleep(0.001)
    return where


def make_many(where: Path, endpoints: int, messages: int) -> Path:
    """Write a recording of JSON on very many endpoints, each with the same few fields."""
    where.mkdir()
    with (where / "000000.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("Sample", "jsonschema", b'{"type": "object"}')
        channels = [writer.register_channel(f"e{number:05}", "json", schema) for number in range(endpoints)]
        begin = time.time_ns()
        for number in range(messages):
            data = json.dumps({"n": number, "x": number / 7}).encode()
            at = begin + number * 100_000
            writer.add_message(channels[number % endpoints], at, data, at - 1000, number // endpoints)
        writer.finish()
    return where


def cut(recording: Path, where: Path) -> Path:
    """Return a copy whose files lost their last kilobytes: as after a kill, without summary and index."""
    shutil.copytree(recording, where)
    for path in where.rglob("*.mcap"):
        os.truncate(path, path.stat().st_size - min(65536, path.stat().st_size // 2))
    return where
