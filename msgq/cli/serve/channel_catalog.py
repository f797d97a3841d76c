"""Existing endpoints as channels for clients."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from msgq.cli.serve.foxglove_protocol import FoxgloveChannel
from msgq.cli.serve.message_formats import MessageFormat
from msgq.cli.serve.picture_reader import find_picture_stream
from msgq.common.schema import Schema
from msgq.impl.sources import EndpointSource
from msgq.kinds.opening import open_source
from msgq.monitor.endpoint_selection import EndpointFollower, EndpointSelection
from msgq.recording.recorder.frame_receiver import FrameStream


class CatalogChanges(NamedTuple):
    """New channels by number, and the numbers of removed channels."""

    added: dict[int, FoxgloveChannel]
    removed: list[int]


class CatalogEntry(NamedTuple):
    """An endpoint, and the number of its channel.

    Attributes
    ----------
    inode : inode of the endpoint's file.
    schema : schema of the endpoint; None: unknown.
    picture_stream : frames that the endpoint announces; the channel has their pictures. None: no frames.
    """

    number: int
    inode: int
    schema: Schema | None
    picture_stream: FrameStream | None


class ChannelCatalog:
    """Channels of the existing endpoints. If the schema of an endpoint changes, a new channel replaces its channel.

    One thread at a time.

    Attributes
    ----------
    entries : existing endpoints.
    endpoints : endpoint by channel number.
    formats : format of the messages by channel number. Numbers are never used again.
    """

    def __init__(self, selection: EndpointSelection) -> None:
        """Start without channels."""
        self._selection, self._numbers = selection, itertools.count(1)
        self.clear()

    def clear(self) -> None:
        """Remove all channels, and close all files."""
        self.entries: dict[str, CatalogEntry] = {}
        self.endpoints: dict[int, str] = {}
        self.formats: dict[int, MessageFormat] = {}
        self._sources: EndpointFollower[EndpointSource] = EndpointFollower(
            self._selection, lambda endpoint: open_source(endpoint, self._selection.prefix), skips_named=True
        )

    def refresh(self) -> CatalogChanges:
        """Add new endpoints, remove missing ones, and read all schemas."""
        self._sources.refresh()
        before = self.endpoints
        self.entries = {endpoint: self._update_entry(source) for endpoint, source in self._sources.by_name.items()}
        self.endpoints = {entry.number: endpoint for endpoint, entry in self.entries.items()}
        removed = [number for number in before if number not in self.endpoints]
        for number in removed:
            del self.formats[number]
        added = {}
        for endpoint, entry in self.entries.items():
            if entry.number not in self.formats:
                self.formats[entry.number] = _make_format(endpoint, entry)
                added[entry.number] = self.formats[entry.number].channel
        return CatalogChanges(added, removed)

    def _update_entry(self, source: EndpointSource) -> CatalogEntry:
        """Return the entry of an endpoint: with the same number, unless the endpoint is new or has another schema."""
        entry, schema = self.entries.get(source.endpoint), source.schema
        if entry is not None and entry.schema == schema:
            return entry._replace(inode=source.inode)
        return CatalogEntry(next(self._numbers), source.inode, schema, find_picture_stream(source.endpoint))


def _make_format(endpoint: str, entry: CatalogEntry) -> MessageFormat:
    stream = entry.picture_stream
    return MessageFormat(endpoint, entry.schema) if stream is None else MessageFormat(stream.endpoint, stream.schema)
