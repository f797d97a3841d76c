"""Where a player sends: a writer for each endpoint of a log, all of them there before the first message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from msgq.common.schema import Schema
from msgq.common.texts import join_first
from msgq.errors import InvalidValueError, QueueFullError, RecordingError, SegmentSizeError
from msgq.kinds.opening import open_writer
from msgq.kinds.playback import EndpointSpec, EndpointWriter, PlaybackMessage, PlaybackTarget, UnplayableError
from msgq.recording.log_reader import LogReader
from msgq.recording.player.plan import make_plan
from msgq.recording.player.remapping import EndpointRemapping

if TYPE_CHECKING:
    from msgq.impl.ring import PubSocket

_CLOCK_SCHEMA = Schema("time_ns", "struct", b'"<u8"')


class PlaybackWriters:
    """The writers of a player.

    Attributes
    ----------
    by_name : by the new name of the endpoint.
    plan : what is played of the log, and why not the rest.
    unplayed : messages that could not be played, by the new name of the endpoint, a colon, and the reason.
    closed : whether they were closed.
    """

    def __init__(
        self,
        log: LogReader,
        before: LogReader,
        names: EndpointRemapping,
        clock_endpoint: str | None,
        target: PlaybackTarget,
    ) -> None:
        """Open them all, or none; log, before and names are those of `plan`, the others those of `Player`."""
        self.by_name: dict[str, EndpointWriter] = {}
        self.unplayed: Counter[str] = Counter()
        self.closed = False
        self._place = target
        self._shared: dict[str, Any] = {}
        self.plan = make_plan(log, before, names)
        if clock_endpoint in self.plan.specs:
            raise InvalidValueError("the clock's endpoint is one that is played; give another one", str(clock_endpoint))
        with ExitStack() as stack:
            stack.callback(self.close)
            for wanted in list(self.plan.specs.values()):
                self._open_writer(wanted)
            if not self.by_name:
                reasons = join_first((f"{name!r}: {why}" for name, why in self.plan.skipped.items()), separator="; ")
                raise RecordingError(f"there is nothing to play: {reasons}")
            if clock_endpoint is not None:
                clock = EndpointSpec(clock_endpoint, schema=_CLOCK_SCHEMA, largest=8)
                self.by_name[clock_endpoint] = open_writer(clock, target, self._shared)
            stack.pop_all()

    def _open_writer(self, wanted: EndpointSpec) -> None:
        """Open a writer, or note why it cannot be played."""
        try:
            try:
                writer = open_writer(wanted, self._place, self._shared)
            except SegmentSizeError:  # what is there is smaller than the largest message could be: how large is it?
                largest = self.plan.log_index.largest(self.plan.former[wanted.endpoint])
                writer = open_writer(wanted._replace(largest=largest), self._place, self._shared)
            self.by_name[wanted.endpoint] = writer
        except UnplayableError as error:
            self.plan.skip(wanted.endpoint, str(error))

    def find_publisher(self, name: str | None) -> PubSocket | None:
        """Return what publishes to a topic; None: it is no topic, or is not played."""
        writer = self.by_name.get(name or "")
        return None if writer is None else writer.ring_socket

    def send(self, message: PlaybackMessage) -> bool:
        """Send a message; tell whether it was. False: its endpoint is skipped, or it is counted in `unplayed`."""
        writer = self.by_name.get(message.endpoint)
        if writer is None:
            return False
        try:
            writer.send(message)
        except UnplayableError as error:
            self.unplayed[f"{message.endpoint}: {error}"] += 1
            return False
        except QueueFullError:
            self.unplayed[f"{message.endpoint}: the queue was full"] += 1
            return False
        return True

    def restore(self, messages: Iterable[PlaybackMessage]) -> None:
        """Let vectors and boards have what these messages, oldest first, leave."""
        by_endpoint: dict[str, list[PlaybackMessage]] = {}
        for message in messages:
            by_endpoint.setdefault(message.endpoint, []).append(message)
        for name, writer in self.by_name.items():
            writer.restore(by_endpoint.get(name, ()))

    def close(self) -> None:
        """Close them all. Twice does nothing more."""
        self.closed = True
        for writer in self.by_name.values():
            writer.close()
