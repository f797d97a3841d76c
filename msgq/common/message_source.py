"""What a message of a recording, or of a simulation, came from, beside its endpoint's name."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class MessageSource(NamedTuple):
    """The same for all messages of an MCAP channel, whose metadata say it.

    Attributes
    ----------
    kind : of the endpoint: "topic", "frames", "channel", "records" or "queue".
    publisher : who published, by the name of its node, where an endpoint has several; else "".
    key : of a board; else "".
    options : what it needs to be made anew, as a JSON object; "": nothing is known.
    """

    kind: str = "topic"
    publisher: str = ""
    key: str = ""
    options: str = ""

    def metadata(self) -> dict[str, str]:
        """Return what a channel's metadata say of it; nothing of a plain topic."""
        said = {name: value for name, value in self._asdict().items() if value}
        if self.kind == TOPIC_SOURCE.kind:
            del said["kind"]
        return said

    def parse_options(self) -> dict[str, Any]:
        """Return the options; none where they are no JSON object, for anybody may have written them."""
        try:
            options = json.loads(self.options or "{}")
        except (ValueError, RecursionError):
            return {}
        return options if isinstance(options, dict) else {}


TOPIC_SOURCE = MessageSource()


def parse_metadata(metadata: dict[str, str]) -> MessageSource:
    """Return what a channel's metadata say."""
    return MessageSource(**{name: metadata[name] for name in MessageSource._fields if metadata.get(name)})
