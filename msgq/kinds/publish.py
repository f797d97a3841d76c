"""Publishing from the command line (`msgq pub`). Interface of the file publish.py of each kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from msgq.common.schema import Schema

JSON_SCHEMA = Schema("json", "json")
PUB_NODE_NAME = "msgq pub"  # name of the publisher


class PublishUsageError(Exception):
    """The options do not fit the endpoint; the text says why."""


class PublishRefusedError(Exception):
    """Nothing can be published there; the text says why."""


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What the user said beside the messages.

    Attributes
    ----------
    endpoint : with its name prefix.
    name : without it.
    as_json : messages are JSON, and an endpoint without a schema says so from now on.
    force : a topic is taken over from a publisher that lives.
    priority : of messages of a queue; None: not given.
    index, key : of a vector's element, of a board's value; None: not given.
    timeout : seconds to wait, for subscribers or for room; None: for ever.
    """

    endpoint: str
    name: str
    as_json: bool
    force: bool
    priority: int | None
    index: int | None
    key: str | None
    timeout: float | None


class PublishTarget(ABC):
    """An endpoint that messages can be published on: made by a look at it, opened by a ``with`` block.

    Attributes
    ----------
    schema : of its messages, as far as it is known.
    """

    def __init__(self, wanted: PublishOptions, schema: Schema | None) -> None:
        self._options, self.schema = wanted, schema
        self._name = wanted.name
        self._new_schema = JSON_SCHEMA if wanted.as_json and schema is None else None
        self._messages = self._bytes = 0

    @abstractmethod
    def _open_endpoint(self) -> None:
        """Take part."""

    @abstractmethod
    def _send_message(self, data: bytes) -> None:
        """Publish one message."""

    @abstractmethod
    def _close_endpoint(self) -> None:
        """Leave."""

    def read_previous_value(self) -> bytes | None:
        """Return the value that the next message replaces; None without one, and for all kinds except records."""
        return None

    def send(self, data: bytes) -> None:
        """Publish one message.

        Raises
        ------
        QueueFullError, WaitTimeoutError : there was no room in time.
        """
        self._send_message(data)
        self._messages += 1
        self._bytes += len(data)

    def wait_for_readers(self, readers: int) -> None:
        """Wait until so many subscribers are there. WaitTimeoutError: they did not come in time."""
        raise PublishUsageError(
            f"--wait-for-subscribers cannot be used with {self._options.endpoint}, which has no subscribers"
        )

    def summarize_messages(self) -> dict[str, Any]:
        """Return what was published."""
        return {"endpoint": self._options.endpoint, "messages": self._messages, "bytes": self._bytes}

    def __enter__(self) -> Self:
        self._open_endpoint()
        return self

    def __exit__(self, *_: object) -> None:
        self._close_endpoint()


@dataclass(frozen=True, slots=True)
class KindPublish:
    """How messages are published from the command line.

    Attributes
    ----------
    open_target : takes the options; returns the endpoint. Raises `PublishUsageError`, `PublishRefusedError`.
    allowed_options : which of the options "force", "priority", "index" and "key" endpoints of this kind have.
    """

    open_target: Callable[[PublishOptions], PublishTarget]
    allowed_options: frozenset[str] = frozenset()
