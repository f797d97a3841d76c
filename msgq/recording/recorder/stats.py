"""What a recorder has done so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """What a recorder has done so far.

    Attributes
    ----------
    messages, payload_bytes : taken from endpoints (record headers included in the latter), without those that could not
        be written. Of those kept in memory for snapshots, not all are written.
    written_bytes : on disk.
    waiting_bytes : on the way there, or kept in memory.
    at_risk_bytes : what a kill would cost now: `waiting_bytes`, and the chunk that is open. Before compression.
    uncompressed_chunks : that were written as they are, because more waited than `cache_bytes` should.
    lost : messages that were published and are not in the recording, those included that were taken and could not be
        written; None: unknown, under a stock publisher. A value of a vector or board that is overwritten between two
        looks is not a loss: the counts of values tell it.
    endpoints : that are recorded.
    segments, removed_segments : of the recording; removed because of `max_total_bytes`.
    free_bytes : left on the disk.
    refused : endpoints that could not be recorded, and why.
    corrupt : times that an endpoint held nonsense.
    """

    messages: int
    payload_bytes: int
    written_bytes: int
    waiting_bytes: int
    at_risk_bytes: int
    uncompressed_chunks: int
    lost: int | None
    endpoints: int
    segments: int
    removed_segments: int
    free_bytes: int
    refused: dict[str, str]
    corrupt: int
