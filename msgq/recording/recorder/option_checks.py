"""Checks of the arguments of a recorder."""

from __future__ import annotations

from msgq.errors import BackendNotAvailableError, InvalidValueError
from msgq.impl.backend import is_fake_backend
from msgq.recording.mcap_io.segment_writer import check_chunk_bytes


def check_backend() -> None:
    """Raise BackendNotAvailableError on the fake backend."""
    if is_fake_backend():
        text = (
            "backend 'fake' has no recorder, because a recorder has threads and works in real time; use the backend "
            "msgq (MSGQ_BACKEND), or write the messages of a simulation with msgq.recording.Writer"
        )
        raise BackendNotAvailableError(text)


def check_size_options(chunk_bytes: int, chunk_seconds: float, cache_bytes: int) -> None:
    """Raise InvalidValueError if a size or time of `Recorder` is out of range."""
    check_chunk_bytes(chunk_bytes)
    if not 0.001 <= chunk_seconds <= 60:
        raise InvalidValueError(f"chunk_seconds={chunk_seconds} is out of range; use 0.001 to 60 s")
    if cache_bytes < 0:
        raise InvalidValueError(f"cache_bytes={cache_bytes} is negative; use 0 or more")
