"""Statistics of a recorder."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """Statistics of a recorder.

    Attributes:
        messages: number of received messages, without messages that could not be written. Messages in memory for
            snapshots count, even if they are never written.
        payload_bytes: bytes of these messages, including record heads.
        written_bytes: bytes on disk.
        waiting_bytes: bytes that wait for writing, or stay in memory for a snapshot.
        at_risk_bytes: bytes that a kill would cost now: `waiting_bytes` and the open chunk. Before compression.
        uncompressed_chunks: number of chunks written uncompressed, because too many bytes waited.
        lost: number of published messages that are missing in the recording, including received messages that could not
            be written. None: unknown, because of a stock publisher, or because endpoints may have appeared and
            disappeared unnoticed. Overwritten values of vectors and boards do not count as lost. The counts of the
            values show how many were overwritten.
        endpoints: number of recorded endpoints.
        segments: number of segments.
        removed_segments: number of segments removed because of `max_total_bytes`.
        free_bytes: free bytes on the disk.
        refused: endpoints that could not be recorded, with reasons. The reason of "timing:threads" names the endpoints
            whose threads have no samples because of an error.
        corrupt: number of times that an endpoint contained invalid data.
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
