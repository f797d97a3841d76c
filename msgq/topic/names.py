"""Topics: names, and files in /dev/shm (`naming.topic_files`)."""

from __future__ import annotations

from msgq.common import naming, timing
from msgq.kinds import Kind, ReportedSubject


def _find_subject(endpoint: str) -> ReportedSubject | None:
    return None if timing.parse_timing_topic(endpoint) is None else ReportedSubject("timing topics")


KIND = Kind(
    name="topic",
    package="msgq.topic",
    validate=naming.endpoint_name,
    plural="topics",
    heading="topics",
    files=naming.topic_files,
    crosses_bridges=True,
    names_senders=False,
    side_files=naming.side_files,
    find_subject=_find_subject,
)
