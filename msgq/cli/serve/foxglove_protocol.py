"""Messages of the Foxglove websocket protocol: https://github.com/foxglove/ws-protocol/blob/main/docs/spec.md.

The subprotocol `foxglove.sdk.v1` has the same messages as `foxglove.websocket.v1`. Of the optional capabilities, the
server has only the connection graph, because clients only read.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgq.errors import InvalidValueError

SUBPROTOCOLS = ("foxglove.sdk.v1", "foxglove.websocket.v1")
STATUS_INFO, STATUS_WARNING, STATUS_ERROR = range(3)
#: Encodings of schemas that are bytes. The protocol carries these schemas in base64.
_BINARY_SCHEMA_ENCODINGS = frozenset(("protobuf", "flatbuffer"))
_MESSAGE_DATA_STRUCT = struct.Struct("<BIQ")  # opcode, number of the subscription, time in ns
_MESSAGE_DATA_OPCODE = 1
_ID_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class FoxgloveChannel:
    """Description of a channel for clients, without its number.

    Attributes:
        topic: name that clients show.
        encoding: encoding of messages, as in MCAP.
        schema_encoding: encoding of the schema, as in MCAP.
        schema_name: name of the schema; "": none.
        schema: content of the schema; b"": none.
    """

    topic: str
    encoding: str
    schema_name: str = ""
    schema: bytes = b""
    schema_encoding: str = ""

    def to_json_fields(self, number: int) -> dict[str, Any]:
        """Return the object that advertises the channel with this number."""
        is_binary = self.schema_encoding in _BINARY_SCHEMA_ENCODINGS
        return {
            "id": number,
            "topic": self.topic,
            "encoding": self.encoding,
            "schemaName": self.schema_name,
            "schemaEncoding": self.schema_encoding,
            "schema": base64.b64encode(self.schema).decode() if is_binary else self.schema.decode(errors="replace"),
        }


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """Request of a client for the messages of channels: pairs of the client's number and the channel's number."""

    subscriptions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class UnsubscribeRequest:
    """Request of a client to end subscriptions, by the client's numbers."""

    subscription_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """Request of a client to begin or end updates of the connection graph."""

    is_wanted: bool


ClientRequest = SubscribeRequest | UnsubscribeRequest | GraphRequest


def build_server_info(name: str, session_id: str) -> str:
    """Return the first message to a client."""
    return json.dumps({"op": "serverInfo", "name": name, "capabilities": ["connectionGraph"], "sessionId": session_id})


def build_advertise(channels: Mapping[int, FoxgloveChannel]) -> str:
    """Return the message that announces channels. `channels`: channels by number."""
    advertised = [channel.to_json_fields(number) for number, channel in channels.items()]
    return json.dumps({"op": "advertise", "channels": advertised})


def build_unadvertise(channel_ids: Iterable[int]) -> str:
    """Return the message that withdraws channels."""
    return json.dumps({"op": "unadvertise", "channelIds": list(channel_ids)})


def build_status(level: int, text: str) -> str:
    """Return a message for the user of the client."""
    return json.dumps({"op": "status", "level": level, "message": text})


def build_graph_update(
    publishers: Mapping[str, Iterable[str]], subscribers: Mapping[str, Iterable[str]], removed: Iterable[str]
) -> str:
    """Return the changed part of the connection graph: names of participants by topic, and removed topics."""
    fields = {
        "op": "connectionGraphUpdate",
        "publishedTopics": [{"name": topic, "publisherIds": list(ids)} for topic, ids in publishers.items()],
        "subscribedTopics": [{"name": topic, "subscriberIds": list(ids)} for topic, ids in subscribers.items()],
        "advertisedServices": [],
        "removedTopics": list(removed),
        "removedServices": [],
    }
    return json.dumps(fields)


def encode_message_data(subscription_id: int, time_ns: int, payload: bytes) -> bytes:
    """Return a message of a subscribed channel. `time_ns`: ns since the epoch."""
    return _MESSAGE_DATA_STRUCT.pack(_MESSAGE_DATA_OPCODE, subscription_id, time_ns) + payload


def parse_request(text: str) -> ClientRequest:
    """Return the request in a text message of a client.

    Raises:
        InvalidValueError: the message is invalid, or requests a capability that the server does not have.
    """
    try:
        fields = json.loads(text)
        operation = fields["op"]
        if operation == "subscribe":
            pairs = [(_read_id(entry["id"]), _read_id(entry["channelId"])) for entry in fields["subscriptions"]]
            return SubscribeRequest(tuple(pairs))
        if operation == "unsubscribe":
            return UnsubscribeRequest(tuple(map(_read_id, fields["subscriptionIds"])))
        if operation in ("subscribeConnectionGraph", "unsubscribeConnectionGraph"):
            return GraphRequest(operation == "subscribeConnectionGraph")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidValueError(f"message is not a valid request: {error or type(error).__name__}") from None
    raise InvalidValueError(f"operation {operation!r} is not supported; this server is read-only")


def _read_id(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _ID_MAX:
        raise ValueError(f"{value!r} is not a number from 0 to {_ID_MAX}")
    return value
