"""The kinds of what has a name on this machine, in one table: how each is called among endpoints, and where it lies.

Whatever looks after endpoints (lists, recorder, player, Spark) goes through this table, so that none is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from msgq.common import naming


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of endpoint.

    Attributes
    ----------
    name : "topic", "channel", "records" or "queue".
    mark : what an endpoint's name begins with; "" of topics, whose names have no "/".
    files : takes a prefix; returns the directory that holds what is of this kind, and what its file names start with.
    checked : takes a name without its mark, and returns it; raises `EndpointNameError` for one that cannot be.
    """

    name: str
    mark: str
    files: Callable[[str], tuple[str, str]]
    checked: Callable[[str], str]

    def plain(self, endpoint: str) -> str:
        """Return the name of an endpoint of this kind without its mark."""
        return endpoint.removeprefix(self.mark)


TOPIC = Kind("topic", "", naming.topic_files, naming.endpoint_name)
CHANNEL = Kind("channel", naming.CHANNEL_MARK, naming.channel_files, naming.channel_name)
RECORDS = Kind("records", naming.RECORDS_MARK, naming.records_files, naming.records_name)
QUEUE = Kind("queue", naming.QUEUE_MARK, naming.queue_files, naming.queue_name)
KINDS = (TOPIC, CHANNEL, RECORDS, QUEUE)

#: What is announced on topics and has no files of this table: streams of frames (visionipc), and pictures of them in
#: recordings.
FRAMES = "frames"
_FRAMES_TOPIC = re.compile(r"visionipc_.+_\d+", re.DOTALL)  # stock's: server, stream
#: The names of pictures in recordings.
RECORDED_PICTURES = re.compile(r"visionipc_.+_\d+/(image|compressed)", re.DOTALL)


def kind_of(endpoint: str) -> Kind:
    """Return the kind of an endpoint, which its mark tells."""
    return next((kind for kind in KINDS if kind.mark and endpoint.startswith(kind.mark)), TOPIC)


def kind_name(endpoint: str) -> str:
    """Return what an endpoint's kind is called where people and programs look: as its `Kind`, or `FRAMES`."""
    return FRAMES if _FRAMES_TOPIC.fullmatch(endpoint) else kind_of(endpoint).name


def recorded_kind(endpoint: str) -> str:
    """Return what an endpoint's kind is called in a recording that does not say it: pictures are `FRAMES`, and what
    announces frames is a topic as others.
    """
    return FRAMES if RECORDED_PICTURES.fullmatch(endpoint) else kind_of(endpoint).name


def checked(endpoint: str) -> str:
    """Return the name of an endpoint of any kind, with its mark.

    Raises
    ------
    EndpointNameError : it cannot be one.
    """
    kind = kind_of(endpoint)
    return kind.mark + kind.checked(kind.plain(endpoint))
