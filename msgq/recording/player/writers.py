"""Writers of a player: one for each endpoint of a log, opened before the first message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgq.common.schema import Schema
from msgq.common.texts import join_first_texts
from msgq.errors import InvalidValueError, QueueFullError, RecordingError, SegmentSizeError
from msgq.kinds.opening import open_writer
from msgq.kinds.playback import EndpointSpec, EndpointWriter, PlaybackMessage, PlaybackTarget, UnplayableError
from msgq.recording.player.plan import PlaybackPlan

if TYPE_CHECKING:
    from msgq.impl.ring import PubSocket

_CLOCK_SCHEMA = Schema("time_ns", "struct", b'"<u8"')


class PlaybackWriters:
    """The writers of a player.

    Attributes:
        writers_by_name: writers by the new name of the endpoint.
        playback_plan: plan of the playback.
        unplayed_counts: number of messages that could not be played, by new name, colon and reason.
        is_closed: True after `close_writers`.
    """

    def __init__(self, plan: PlaybackPlan, clock_endpoint: str | None, target: PlaybackTarget) -> None:
        """Open all writers, or none. For `clock_endpoint` see `Player`."""
        self.writers_by_name: dict[str, EndpointWriter] = {}
        self.unplayed_counts: Counter[str] = Counter()
        self.is_closed = False
        self._target, self.playback_plan = target, plan
        if clock_endpoint in plan.endpoint_specs:
            raise InvalidValueError(
                "the endpoint of the clock is also played from the recording; use another clock endpoint",
                str(clock_endpoint),
            )
        with ExitStack() as stack:
            stack.callback(self.close_writers)
            plan.create_endpoints(self._open_writer)
            if not self.writers_by_name:
                reasons = join_first_texts(
                    (f"{name!r}: {reason}" for name, reason in self.playback_plan.skip_reasons.items()), separator="; "
                )
                raise RecordingError(f"no endpoint can be played: {reasons}")
            if clock_endpoint is not None:
                clock = EndpointSpec(clock_endpoint, schema=_CLOCK_SCHEMA, max_message_bytes=8)
                self.writers_by_name[clock_endpoint] = open_writer(clock, target)
            stack.pop_all()

    def _open_writer(self, spec: EndpointSpec) -> None:
        try:
            writer = open_writer(spec, self._target)
        except SegmentSizeError:  # the topic exists, and is smaller than possible messages
            largest = self.playback_plan.log_index.measure_largest_payload(
                self.playback_plan.recorded_names[spec.endpoint]
            )
            writer = open_writer(spec._replace(max_message_bytes=largest), self._target)
        self.writers_by_name[spec.endpoint] = writer

    def find_publisher(self, name: str | None) -> PubSocket | None:
        """Return the publisher of a topic; None: the endpoint is not a topic, or is not played."""
        writer = self.writers_by_name.get(name or "")
        return None if writer is None else writer.ring_socket

    def send_message(self, message: PlaybackMessage) -> bool:
        """Send a message. Return False if its endpoint is skipped, or if `unplayed_counts` counts the message."""
        writer = self.writers_by_name.get(message.endpoint)
        if writer is None:
            return False
        try:
            writer.send(message)
        except UnplayableError as error:
            self.unplayed_counts[f"{message.endpoint}: {error}"] += 1
            return False
        except QueueFullError:
            self.unplayed_counts[f"{message.endpoint}: the queue was full"] += 1
            return False
        return True

    def restore_state(self, messages: Iterable[PlaybackMessage]) -> None:
        """Set vectors and boards to the state after these messages, which are in the order of time."""
        by_endpoint: dict[str, list[PlaybackMessage]] = {}
        for message in messages:
            by_endpoint.setdefault(message.endpoint, []).append(message)
        for name, writer in self.writers_by_name.items():
            writer.restore(by_endpoint.get(name, ()))

    def close_writers(self) -> None:
        """Close all writers. A second close has no effect."""
        self.is_closed = True
        for writer in self.writers_by_name.values():
            writer.close()
