"""Work queues: names, files in /dev/shm (`shm_paths.locate_queue_files`), and events channels."""

from __future__ import annotations

from msgq.common import naming, shm_paths
from msgq.common.naming import events_channel, parse_events_channel
from msgq.kinds import Kind, ReportedSubject


class _QueueKind(Kind):
    def find_carrier(self, bare_name: str) -> str:
        return naming.CHANNEL_NAME_PREFIX + events_channel(bare_name)

    def find_subject(self, endpoint: str) -> ReportedSubject | None:
        queue = (
            parse_events_channel(endpoint.removeprefix(naming.CHANNEL_NAME_PREFIX))
            if endpoint.startswith(naming.CHANNEL_NAME_PREFIX)
            else None
        )
        return None if queue is None else ReportedSubject("queue event channel", self.endpoint(queue))


KIND = _QueueKind(
    name="queue",
    package="msgq.workqueue",
    validate_name=naming.validate_queue_name,
    name_prefix=naming.QUEUE_NAME_PREFIX,
    plural_name="queues",
    locate_files=shm_paths.locate_queue_files,
)
