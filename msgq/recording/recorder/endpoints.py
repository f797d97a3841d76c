"""Which endpoints are recorded: those that are there, and those that appear."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from msgq import naming, stats
from msgq.errors import MsgqError, SegmentError
from msgq.impl.ring import Context, SubSocket
from msgq.recording.reader.decoders import time_offset
from msgq.recording.recorder.capture import Capture
from msgq.schema import Schema
from msgq.selection import Selection

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
    inode : of its ring; another one is another ring.
    lost : on former rings; None: unknown.
    """

    endpoint: str
    inode: int
    schema: Schema | None
    largest: int
    lost: int | None = 0


class RecordedEndpoints:
    """The endpoints of a capture, in its order."""

    def __init__(self, capture: Capture, selection: Selection, prefix: str | None) -> None:
        self.all: list[RecordedEndpoint] = []
        self.refused: dict[str, str] = {}  # endpoints that cannot be recorded, and why
        self._capture = capture
        self._selection = selection
        self._prefix = naming.checked_prefix(prefix)
        self._known: dict[str, int] = {}
        self._turn = 0

    def look(self) -> None:
        """Join endpoints that appeared, were made anew or changed their size; notice schemas that changed."""
        directory, start = naming.topic_files(self._prefix)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
            for entry in entries:
                endpoint = entry.name[len(start) :]
                if not entry.name.startswith(start) or endpoint not in self._selection:
                    continue
                index = self._known.get(endpoint)
                if index is None or self.all[index].inode != entry.inode() or self._capture.ended(index):
                    self._join(endpoint, index)
        self._look_at_schemas()

    def _join(self, endpoint: str, index: int | None, wants_unread: bool = True) -> None:
        socket = SubSocket()
        try:
            with naming.chosen(self._prefix):
                # Before: if the ring is another one when we connect, the next look joins again.
                inode = os.stat(naming.ring_path(endpoint, self._prefix)).st_ino
                socket.connect(Context(), endpoint, passive=True)
            topic = stats.topic(endpoint, self._prefix)
        except (MsgqError, OSError) as error:
            self.refused[endpoint] = str(error)
            return
        self.refused.pop(endpoint, None)
        source = RecordedEndpoint(endpoint, inode, topic.schema, topic.data_bytes // 3)
        if index is None:
            self._known[endpoint] = self._capture.add(socket, publish_offset(topic.schema))
            self.all.append(source)
            return
        unread = self._capture.unread(index) if wants_unread else 0
        before = self.lost(index)
        source.lost = None if before is None or unread is None else before + unread
        self._capture.replace(index, socket, publish_offset(topic.schema))
        self.all[index] = source

    def _look_at_schemas(self) -> None:
        for _ in range(min(_SCHEMAS_A_LOOK, len(self.all))):
            self._turn = (self._turn + 1) % len(self.all)
            source = self.all[self._turn]
            with contextlib.suppress(SegmentError):
                schema = stats.topic(source.endpoint, self._prefix).schema
                if schema is not None and schema != source.schema:
                    source.schema = schema
                    self._capture.begin_epoch(self._turn, publish_offset(schema))

    def rejoin(self) -> None:
        """Go on at the present, everywhere: what came meanwhile was not wanted, and is no loss."""
        for index, source in enumerate(self.all):
            self._join(source.endpoint, index, wants_unread=False)

    def lost(self, index: int) -> int | None:
        """Return the messages of a source that were lost so far; None: unknown."""
        before, now = self.all[index].lost, self._capture.lost(index)
        return None if before is None or now is None else before + now

    def losses(self) -> dict[str, int | None]:
        """Return what each endpoint has lost so far."""
        return {source.endpoint: self.lost(index) for index, source in enumerate(self.all)}

    @property
    def largest(self) -> int:
        """Bytes of the largest message that can come."""
        return max((source.largest for source in self.all), default=0)
