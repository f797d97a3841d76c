"""Topics: names, and files in /dev/shm (`shm_paths.locate_ring_files`)."""

from __future__ import annotations

from msgq.common import naming, shm_paths, timing
from msgq.kinds import Kind, ReportedSubject


def _find_subject(endpoint: str) -> ReportedSubject | None:
    return None if timing.parse_timing_topic(endpoint) is None else ReportedSubject("timing topic")


KIND = Kind(
    name="topic",
    package="msgq.topic",
    validate_name=naming.validate_endpoint_name,
    plural_name="topics",
    column_heading="topics",
    locate_files=shm_paths.locate_ring_files,
    crosses_bridges=True,
    names_senders=False,
    locate_side_files=shm_paths.locate_side_files,
    find_subject=_find_subject,
)
