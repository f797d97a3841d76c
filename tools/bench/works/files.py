"""Files of messages for the rows of files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from msgq.common.schema import Schema
from msgq.recording import Writer
from tools.bench.job import Job
from tools.bench.works import make_once
from tools.bench.works.libraries import DEFINITION, TYPE

TEXT = Schema(TYPE, "cdr", DEFINITION.encode())
TOPICS = 20
_DISTINCT_PAYLOAD_BYTES = 8 << 20


def make_texts(size: int, count: int) -> np.ndarray:
    """Return texts in CDR, half of whose bytes are noise: compressible as telemetry is."""
    rows = np.full((min(count, _DISTINCT_PAYLOAD_BYTES // size), size), ord("x"), np.uint8)
    rows[:, 8 : size // 2] = np.random.default_rng(1).integers(32, 127, (len(rows), size // 2 - 8), np.uint8)
    rows[:, :4] = (0, 1, 0, 0)
    rows[:, 4:8] = np.frombuffer(np.uint32(size - 8).tobytes(), np.uint8)
    rows[:, -1] = 0
    return rows


def make_text_file(job: Job, size: int = 64, topics: int = TOPICS) -> Path:
    """Return a file of texts, which every library reads."""
    payloads = [row.tobytes() for row in make_texts(size, 1000)]
    endpoints, count = [f"/t{number}" for number in range(topics)], job.case.messages

    def write(path: Path) -> None:
        write_file(path, payloads, count, endpoints, [TEXT] * topics, "zstd")

    return make_once(job, f"texts-{size}-{count}-{topics}.mcap", write)


def write_file(
    path: Path,
    payloads: Sequence[bytes],
    count: int,
    endpoints: Sequence[str],
    schemas: Sequence[Schema],
    compression: str,
) -> None:
    """Write so many messages. The payloads are repeated, and the messages belong to the endpoints in turn."""
    with Writer(path, profile="ros2", compression=compression) as writer:
        channels = [writer.channel(*each) for each in zip(endpoints, schemas, strict=True)]
        for number in range(count):
            payload = payloads[number % len(payloads)]
            writer.write(channels[number % len(channels)], payload, 1000 * number)
