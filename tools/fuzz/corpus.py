"""Recordings to begin with: written by our recorder's own pieces and by the library `mcap`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from mcap.writer import CompressionType

from tests.recording.logs import build_chunk_record, channel, message, write_foreign, write_unclosed_file


def make_corpus(folder: Path) -> list[Path]:
    """Write a few small files, of which each kind of record is in one at least; return their paths."""
    rng = random.Random(1)
    payloads = [rng.randbytes(rng.choice((0, 1, 8, 300))) for _ in range(200)]
    messages = [message(1 + i % 7, i // 7, 1000 + 10 * i, data) for i, data in enumerate(payloads)]
    wraps = [message(1, 2**32 - 2 + i & 2**32 - 1, 5 + i, b"wraps") for i in range(5)]
    back = [message(2, 9 - i, 100 - i, b"back") for i in range(9)]
    mixed = [channel(1, "a"), *messages[:9], channel(2, "b")]
    parts: dict[str, list[Any]] = {"plain": messages, "numbers": wraps + back, "mixed": mixed}
    paths = [
        write_unclosed_file(folder / f"{name}.mcap", build_chunk_record(*some, compression=""))
        for name, some in parts.items()
    ]
    plain = CompressionType.NONE
    return [
        *paths,
        write_foreign(folder / "foreign.mcap", compression=plain),
        write_foreign(folder / "backwards.mcap", order=-1, compression=plain),
        write_foreign(folder / "compressed.mcap"),
        write_unclosed_file(folder / "loose.mcap", *messages[:20]),
    ]
