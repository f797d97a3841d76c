"""Topics: names, and files in /dev/shm (`shm_paths.locate_ring_files`)."""

from __future__ import annotations

from msgq.common import naming, shm_paths, timing
from msgq.kinds import Kind, ReportedSubject


class _TopicKind(Kind):
    def locate_side_files(self, prefix: str) -> tuple[str, str]:
        return shm_paths.locate_side_files(prefix)

    def find_subject(self, endpoint: str) -> ReportedSubject | None:
        return None if timing.parse_timing_topic(endpoint) is None else ReportedSubject("timing topic")


KIND = _TopicKind(
    name="topic",
    package="msgq.topic",
    validate_name=naming.validate_endpoint_name,
    plural_name="topics",
    locate_files=shm_paths.locate_ring_files,
    names_senders=False,
)
