"""Recordings that the pipeline is measured with, made on a bus of their own."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import msgq
from msgq.common.dtypes import struct_schema
from msgq.common.schema import Schema
from msgq.recording import Recorder, RecordingLimits
from tools.bench.companions import SEGMENT_BYTES
from tools.bench.job import Job
from tools.bench.works import make_once
from tools.bench.works.files import write_file
from tools.bench.workspace import remove_rings

_TOPICS = 20
_RARE = 1000
_SENT_BYTES = 4 << 20  # bytes of a call, out of a ring of 64 MiB
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
def _bus(names: list[str], schema: Schema | None = None) -> Iterator[list[msgq.PubSocket]]:
    """Publishers whose endpoints are gone afterwards."""
    sockets = [msgq.pub_sock(name, segment_size=SEGMENT_BYTES, schema=schema) for name in names]
    try:
        yield sockets
    finally:
        for socket in sockets:
            socket.close()
        remove_rings(*names)


def make_recording(job: Job, segments: int = 1) -> Path:
    """Return a recording of 20 topics and a rare one, in about so many files. Messages without a size vary."""
    messages, names = job.case.messages, [f"t{number:02}-{job.name}" for number in range(_TOPICS)]
    sizes = (job.case.size, job.case.size) if job.case.size else (64, 256)

    def write(path: Path) -> None:
        payloads, rare = _Payloads(*sizes), f"rare-{job.name}"
        limits = RecordingLimits(split_messages=messages // segments) if segments > 1 else None
        kind = "none" if sizes[1] > 1024 else "zstd"
        with (
            _bus([*names, rare]) as (*topics, seldom),
            Recorder(path, [*names, rare], compression=kind, limits=limits) as recorder,
        ):
            sent, rares = 0, 0
            while sent < messages:
                for topic in topics:
                    sent += topic.send_many(payloads.renew())
                if sent * _RARE // messages > rares:
                    rares += 1
                    seldom.send(payloads.rows[0])
                _let_catch_up(recorder, sent, 10 * _TOPICS * len(payloads.rows))
            _stop(recorder)

    return make_once(job, f"recording-{messages}-{sizes[1]}-{segments}", write)


def make_numbers(job: Job) -> Path:
    """Return a recording of NumPy rows on one endpoint."""
    name = f"imu-{job.name}"

    def write(path: Path) -> None:
        rows = np.zeros(1000, _IMU)
        rows["count"] = np.arange(1000)
        with _bus([name], struct_schema(_IMU)) as (imu,), Recorder(path, [name]) as recorder:
            for sent in range(0, job.case.messages, 1000):
                imu.send_many(rows)
                _let_catch_up(recorder, sent, 200_000)
            _stop(recorder)

    return make_once(job, f"numbers-{job.case.messages}", write)


def _let_catch_up(recorder: Recorder, sent: int, ahead: int) -> None:
    while sent - recorder.stats().messages > ahead or recorder.stats().waiting_bytes > SEGMENT_BYTES:
        time.sleep(0.001)


def _stop(recorder: Recorder) -> None:
    if lost := recorder.stop().lost:
        raise RuntimeError(f"the recorder lost {lost} messages while the recording was made; try again")


def make_endpoints(job: Job, endpoints: int) -> Path:
    """Return a recording of JSON on many endpoints, each with the same few fields."""
    payloads: list[Any] = [json.dumps({"n": number, "x": number / 7}).encode() for number in range(1000)]

    def write(path: Path) -> None:
        path.mkdir()
        write_file(path / "000000.mcap", payloads, job.case.messages, [Schema("Sample", "json")] * endpoints)

    return make_once(job, f"endpoints-{job.case.messages}", write)


def make_cut(job: Job) -> Path:
    """Return a recording whose files lost their last kilobytes: as after a kill, without summary and index."""
    recording = make_recording(job)

    def write(path: Path) -> None:
        shutil.copytree(recording, path)
        for file in path.rglob("*.mcap"):
            os.truncate(file, file.stat().st_size - min(65536, file.stat().st_size // 2))

    return make_once(job, f"{recording.name}-cut", write)
