"""Existing endpoints as channels for clients."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgq.cli.serve.foxglove_protocol import FoxgloveChannel
from msgq.cli.serve.message_formats import MessageFormat
from msgq.cli.serve.message_reader import ReadMessage
from msgq.cli.serve.picture_reader import find_picture_stream
from msgq.common.schema import Schema
from msgq.impl.sources import EndpointSource
from msgq.kinds.opening import open_source
from msgq.monitor.endpoint_selection import EndpointFollower, EndpointSelection
from msgq.recording.recorder.frame_receiver import FrameStream

_NO_SCHEMAS: Mapping[tuple[str, int], Schema | None] = MappingProxyType({})


class CatalogChanges(NamedTuple):
    """New channels by number, and the numbers of removed channels."""

    added: dict[int, FoxgloveChannel]
    removed: list[int]


class CatalogEntry(NamedTuple):
    """An endpoint, and the number of its channel.

    Attributes:
        inode: inode of the endpoint's file.
        schema: schema of the endpoint; None: unknown.
        picture_stream: frames that the endpoint announces; the channel has their pictures. None: no frames.
    """

    number: int
    inode: int
    schema: Schema | None
    picture_stream: FrameStream | None

    @property
    def message_schema(self) -> Schema | None:
        """Schema of the messages of the channel."""
        return self.schema if self.picture_stream is None else self.picture_stream.schema


class ChannelCatalog:
    """Channels of the existing endpoints. If the schema of an endpoint changes, a new channel replaces its channel.

    One thread at a time.

    Attributes:
        entries: existing endpoints.
        endpoints: endpoint by channel number.
        formats: format of the messages by channel number. Numbers are never used again.
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

    def refresh(self, reader_schemas: Mapping[tuple[str, int], Schema | None] = _NO_SCHEMAS) -> CatalogChanges:
        """Add new endpoints, remove missing ones, and read all schemas.

        Args:
            reader_schemas: schemas of the next messages of a `MessageReader`, by endpoint and inode of the file. These
                endpoints keep the channel of their unread messages.
        """
        self._sources.refresh()
        before, former_entries = self.endpoints, self.entries
        self.entries = {}
        for endpoint, source in self._sources.by_name.items():
            schema = reader_schemas.get((endpoint, source.inode), source.schema)
            self.entries[endpoint] = self._update_entry(source, former_entries.get(endpoint), schema)
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

    def find_entry(self, message: ReadMessage) -> CatalogEntry | None:
        """Return the entry whose channel has the endpoint and the schema of a message; None: no such channel."""
        entry = self.entries.get(message.endpoint)
        return entry if entry is not None and entry.message_schema == message.schema else None

    def _update_entry(self, source: EndpointSource, former: CatalogEntry | None, schema: Schema | None) -> CatalogEntry:
        """Return the entry of an endpoint: with the same number, unless the endpoint is new or has another schema."""
        if former is not None and former.schema == schema:
            return former._replace(inode=source.inode)
        return CatalogEntry(next(self._numbers), source.inode, schema, find_picture_stream(source.endpoint))


def _make_format(endpoint: str, entry: CatalogEntry) -> MessageFormat:
    stream = entry.picture_stream
    return MessageFormat(endpoint if stream is None else stream.endpoint, entry.message_schema)
