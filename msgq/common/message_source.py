"""Source of a message in a recording or simulation, in addition to its endpoint."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class MessageSource(NamedTuple):
    """Source that all messages of an MCAP channel share. The channel's metadata stores it.

    Attributes:
        kind: kind of the endpoint: "topic", "frames", "channel", "records" or "queue".
        publisher: name of the publisher's node, if the endpoint may have several publishers; else "".
        key: key of a board; else "".
        options: JSON object with the options to create the endpoint again; "": unknown.
    """

    kind: str = "topic"
    publisher: str = ""
    key: str = ""
    options: str = ""

    def metadata(self) -> dict[str, str]:
        """Return the metadata for a channel. Empty for a plain topic."""
        fields = {name: value for name, value in self._asdict().items() if value}
        if self.kind == TOPIC_SOURCE.kind:
            del fields["kind"]
        return fields

    def parse_options(self) -> dict[str, Any]:
        """Return the options. Empty if they are not a JSON object, because other programs may have written them."""
        try:
            options = json.loads(self.options or "{}")
        except (ValueError, RecursionError):
            return {}
        return options if isinstance(options, dict) else {}


TOPIC_SOURCE = MessageSource()


def parse_metadata(metadata: dict[str, str]) -> MessageSource:
    """Return the source from the metadata of a channel."""
    return MessageSource(**{name: metadata[name] for name in MessageSource._fields if metadata.get(name)})
