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
    """The options do not fit the endpoint. The text has the reason."""


class PublishRefusedError(Exception):
    """Publishing on the endpoint is impossible. The text has the reason."""


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Options of the command, without the messages.

    Attributes:
        endpoint: name with the name prefix of its kind.
        name: bare name.
        as_json: True: messages are JSON. An endpoint without a schema gets the encoding "json".
        force: True: take a topic over from a living publisher.
        priority: priority of a queue's messages; None: not given.
        index: element of a vector; None: not given.
        key: key of a board; None: not given.
        timeout: seconds to wait for subscribers or for room; None: forever.
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
    """An endpoint to publish on. The constructor only reads the endpoint, the ``with`` block opens it.

    Attributes:
        schema: schema of the messages, if known.
        published_count: number of messages that this object published.
    """

    def __init__(self, options: PublishOptions, schema: Schema | None) -> None:
        self._options, self.schema = options, schema
        self._name = options.name
        self._new_schema = JSON_SCHEMA if options.as_json and schema is None else None
        self.published_count = self._bytes = 0

    @abstractmethod
    def _open_endpoint(self) -> None:
        """Open the endpoint for writing."""

    @abstractmethod
    def _send_message(self, data: bytes) -> None:
        """Publish one message."""

    @abstractmethod
    def _close_endpoint(self) -> None:
        """Close the endpoint."""

    def read_previous_value(self) -> bytes | None:
        """Return the value that the next message replaces; None: no value, or not records."""
        return None

    def send(self, data: bytes) -> None:
        """Publish one message.

        Raises:
            QueueFullError, WaitTimeoutError: no room until the timeout.
        """
        self._send_message(data)
        self.published_count += 1
        self._bytes += len(data)

    def wait_for_readers(self, readers: int) -> None:
        """Wait until `readers` subscribers exist. Raises WaitTimeoutError at the timeout."""
        raise PublishUsageError(
            f"--wait-for-subscribers cannot be used with {self._options.endpoint}, which has no subscribers"
        )

    def summarize_messages(self) -> dict[str, Any]:
        """Return a summary of the published messages."""
        return {"endpoint": self._options.endpoint, "messages": self.published_count, "bytes": self._bytes}

    def __enter__(self) -> Self:
        self._open_endpoint()
        return self

    def __exit__(self, *_: object) -> None:
        self._close_endpoint()


@dataclass(frozen=True, slots=True)
class KindPublish:
    """Functions that publish messages from the command line.

    Attributes:
        open_target: takes the options; returns the endpoint. Raises `PublishUsageError`, `PublishRefusedError`.
        allowed_options: valid options of this kind, from "force", "priority", "index" and "key".
    """

    open_target: Callable[[PublishOptions], PublishTarget]
    allowed_options: frozenset[str] = frozenset()
