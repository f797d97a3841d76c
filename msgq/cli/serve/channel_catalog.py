"""Existing endpoints as channels for clients."""

from __future__ import annotations

import itertools
import logging
from typing import NamedTuple

from msgq.cli.serve.foxglove_protocol import FoxgloveChannel
from msgq.cli.serve.message_formats import MessageFormat
from msgq.common.schema import Schema
from msgq.errors import MsgqError
from msgq.impl.sources import EndpointSource
from msgq.kinds.opening import open_source
from msgq.monitor.endpoint_selection import EndpointFollower, EndpointSelection

_logger = logging.getLogger(__name__)


class CatalogChanges(NamedTuple):
    """New channels by number, and the numbers of removed channels."""

    added: dict[int, FoxgloveChannel]
    removed: list[int]


class _AdvertisedEndpoint(NamedTuple):
    number: int
    schema: Schema | None


class ChannelCatalog:
    """Channels of the existing endpoints. If the schema of an endpoint changes, a new channel replaces its channel.

    One thread at a time.

    Attributes
    ----------
    formats : format of the messages by channel number. Numbers are never used again.
    inodes : inode of each endpoint's file.
    """

    def __init__(self, selection: EndpointSelection) -> None:
        """Start without channels."""
        self._selection, self._numbers = selection, itertools.count(1)
        self.clear()

    def clear(self) -> None:
        """Remove all channels, and close all files."""
        self.formats: dict[int, MessageFormat] = {}
        self.inodes: dict[str, int] = {}
        self._advertised: dict[str, _AdvertisedEndpoint] = {}
        self._sources: EndpointFollower[EndpointSource] = EndpointFollower(
            self._selection, lambda endpoint: open_source(endpoint, self._selection.prefix)
        )

    def find_number(self, endpoint: str) -> int | None:
        """Return the number of an endpoint's channel; None: no channel."""
        advertised = self._advertised.get(endpoint)
        return None if advertised is None else advertised.number

    def refresh(self) -> CatalogChanges:
        """Add new endpoints, remove missing ones, and read all schemas."""
        try:
            self._sources.refresh()
        except MsgqError as error:  # a named endpoint that this user may not read, perhaps only for now
            _logger.info("%s", error)
        before = dict(self._advertised)
        self.inodes = {endpoint: source.inode for endpoint, source in self._sources.by_name.items()}
        for endpoint in before.keys() - self.inodes.keys():
            del self._advertised[endpoint]
        for endpoint, source in self._sources.by_name.items():
            schema = source.schema
            if endpoint not in before or schema != before[endpoint].schema:
                self._advertised[endpoint] = _AdvertisedEndpoint(next(self._numbers), schema)
        removed = [old.number for endpoint, old in before.items() if self._advertised.get(endpoint) != old]
        for number in removed:
            del self.formats[number]
        added = {
            number: MessageFormat(endpoint, schema)
            for endpoint, (number, schema) in self._advertised.items()
            if number not in self.formats
        }
        self.formats |= added
        return CatalogChanges({number: added[number].channel for number in added}, removed)
