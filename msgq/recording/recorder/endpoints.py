"""Which endpoints are recorded, of all kinds: those that are there, and those that appear."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from msgq import kinds, naming, source
from msgq.errors import MsgqError
from msgq.impl.sources import Source, open_source
from msgq.kinds import Kind
from msgq.queue_events import queue_of
from msgq.recording.format import conventions
from msgq.recording.format.writer import ChannelRecords, channel_records
from msgq.recording.reader.decoders import time_offset
from msgq.recording.recorder.capture import NO_CHANNEL, Capture
from msgq.schema import Schema
from msgq.selection import Selection

_EXPECTED_BYTES = 64 << 20  # of a message; room for larger ones is made when they come, for headers may say any size
_SCHEMAS_A_LOOK = 32  # to be read again each time, for publishers that changed theirs


def publish_offset(schema: Schema | None) -> int:
    """Return where in a message its publishing time is, the field `publish_time` of a struct schema; or -1."""
    offset = time_offset(schema, "publish_time")
    return -1 if offset is None else offset


@dataclass(slots=True)
class RecordedEndpoint:
    """An endpoint that is recorded.

    Attributes
    ----------
    source : of it; when it is made anew, or after a pause, another one.
    schema : of its messages now.
    lost : on former sources; None: unknown.
    """

    source: Source
    schema: Schema | None
    lost: int | None = 0

    @property
    def endpoint(self) -> str:
        """The name, with the mark of its kind."""
        return self.source.endpoint


class RecordedEndpoints:
    """The endpoints of a capture, in its order."""

    def __init__(
        self, capture: Capture, selection: Selection, prefix: str | None, wanted: tuple[Kind, ...] = kinds.KINDS
    ) -> None:
        """Look for none so far. wanted : the kinds that are recorded."""
        self.all: list[RecordedEndpoint] = []
        self.refused: dict[str, str] = {}  # endpoints that cannot be recorded, and why
        self._capture = capture
        self._selection = selection
        self._prefix = naming.checked_prefix(prefix)
        self._kinds = wanted
        self._known: dict[str, int] = {}
        self._turn = 0
        self._looked = False

    def look(self) -> None:
        """Join endpoints that appeared, were made anew or changed their size; notice schemas that changed."""
        for endpoint, inode in self._there():
            index = self._known.get(endpoint)
            if index is None or self.all[index].source.inode != inode or self._capture.ended(index):
                self._join(endpoint, index, is_new=self._looked)
        self._looked = True
        for index, recorded in enumerate(self.all):
            if self._capture.unnumbered(index):
                self.refused[recorded.endpoint] = NO_CHANNEL
        self._look_at_schemas()

    def _there(self) -> Iterator[tuple[str, int]]:
        """Give each endpoint that is there and wanted, with the inode of the file that it is taken from."""
        for kind in self._kinds:
            if kind is not kinds.QUEUE:  # whose events are a channel
                for name, inode in self._files(kind):
                    yield from self._wanted(kind, name, inode)

    def _files(self, kind: Kind) -> list[tuple[str, int]]:
        """Return the names of a kind's files, and their inodes; none of a directory that others keep from us."""
        directory, start = kind.files(self._prefix)
        self.refused.pop(directory, None)
        try:
            with os.scandir(directory) as entries:
                return [(one.name[len(start) :], one.inode()) for one in entries if one.name.startswith(start)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:  # the other kinds are recorded all the same
            self.refused[directory] = f"cannot list {directory}: {error.strerror}"
            return []

    def _wanted(self, kind: Kind, name: str, inode: int) -> Iterator[tuple[str, int]]:
        """Give the endpoint of a name, unless it is none that is wanted. Events of a queue are the queue's."""
        endpoint = kind.mark + name
        queue = queue_of(name)
        if kind is kinds.CHANNEL and kinds.QUEUE in self._kinds and queue is not None:
            endpoint = kinds.QUEUE.mark + queue
        if endpoint in self._selection:
            yield endpoint, inode

    def _join(self, endpoint: str, index: int | None, is_new: bool = False, wants_unread: bool = True) -> None:
        """Take what comes on an endpoint. is_new : it was made since the last look, and all that came is wanted."""
        try:
            found = open_source(endpoint, self._prefix, whole=is_new)
            schema = found.schema
        except (MsgqError, OSError, MemoryError) as error:  # its own bytes say how much memory it needs
            self.refused[endpoint] = str(error)
            return
        self.refused.pop(endpoint, None)
        recorded = RecordedEndpoint(found, schema)
        offset = publish_offset(schema)
        if index is None:
            self._known[endpoint] = self._capture.add(found, offset)
            self.all.append(recorded)
            return
        unread = self.all[index].source.unread() if wants_unread else 0
        before = self.lost(index)
        recorded.lost = None if before is None or unread is None else before + unread
        self._capture.replace(index, found, offset)
        self.all[index] = recorded

    def _look_at_schemas(self) -> None:
        for _ in range(min(_SCHEMAS_A_LOOK, len(self.all))):
            self._turn = (self._turn + 1) % len(self.all)
            recorded = self.all[self._turn]
            with contextlib.suppress(MsgqError):
                schema = recorded.source.schema
                if schema is not None and schema != recorded.schema:
                    recorded.schema = schema
                    self._describe_anew(self._turn, recorded)

    def _describe_anew(self, index: int, recorded: RecordedEndpoint) -> None:
        """Let what comes next have other channels. A channel's positions go on, so that its numbering does as well."""
        if recorded.source.kind == kinds.TOPIC.name:
            self._capture.begin_epoch(index, publish_offset(recorded.schema))
        else:
            self._capture.begin_channels(index)

    def rejoin(self) -> None:
        """Go on at the present, everywhere: what came meanwhile was not wanted, and is no loss."""
        for index, recorded in enumerate(self.all):
            self._join(recorded.endpoint, index, wants_unread=False)
        self._looked = False  # of what was made meanwhile the messages so far are not wanted, either
        self.look()

    def new_channels(self, start: int) -> Iterator[tuple[int, ChannelRecords]]:
        """Give the number and the records of each channel of the capture from `start` on, not those from elsewhere."""
        for number, index, epoch, part, counted, tracked in self._capture.channels(start):
            recorded = self.all[index]
            publisher, key = recorded.source.part(part)
            counting = conventions.PUBLISHED if counted else conventions.RECEIVED
            described = source.TOPIC
            if recorded.source.kind != kinds.TOPIC.name:
                described = source.Source(recorded.source.kind, publisher, key, recorded.source.options)
            yield (
                number,
                channel_records(number, recorded.endpoint, recorded.schema, epoch, counting, tracked, described),
            )

    def lost(self, index: int) -> int | None:
        """Return the messages of a source that were lost so far; None: unknown."""
        before, now = self.all[index].lost, self.all[index].source.lost
        return None if before is None or now is None else before + now + self._capture.passed(index)

    def losses(self) -> dict[str, int | None]:
        """Return what each endpoint has lost so far."""
        return {recorded.endpoint: self.lost(index) for index, recorded in enumerate(self.all)}

    @property
    def largest(self) -> int:
        """Bytes of the largest message that is to be expected, or for which there was no room."""
        expected = max((recorded.source.largest for recorded in self.all), default=0)
        return max(self._capture.needed, min(expected, _EXPECTED_BYTES))
