"""The files of MCAP's conformance suite: each valid combination of what a writer may do, for six sets of records.

They are derived from what the features mean. A feature is there where the records have something for it; message and
chunk indexes need chunks, and summary offsets something in the summary.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from mcap.reader import make_reader

from tests.recording import npm

Record = dict[str, Any]

_CHUNKS = frozenset({"mx", "chx"})
_SUMMARY = frozenset({"st", "rsh", "rch", "mdx", "ax", "chx"})
_OF_KIND = {
    "Message": {"ch", "mx", "chx"},
    "Schema": {"rsh"},
    "Channel": {"rch"},
    "Attachment": {"ax"},
    "Metadata": {"mdx"},
}
_OF_ALL = {"st", "sum", "pad"}


def _data(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _schema(number: int) -> Record:
    return {"type": "Schema", "id": number, "name": f"Example{number}", "encoding": "c", "data": _data(b"\x04\x05\x06")}


def _channel(number: int, schema: int) -> Record:
    fields = {"messageEncoding": "a", "metadata": [["foo", "bar"]]}
    return {"type": "Channel", "id": number, "topic": f"example{number}", "schemaId": schema, **fields}


def _message(channel: int, sequence: int, time: int) -> Record:
    times = {"logTime": str(time), "publishTime": str(time - 1)}
    return {
        "type": "Message",
        "channelId": channel,
        "sequence": sequence,
        **times,
        "data": _data(bytes([sequence]) * 3),
    }


_ATTACHMENT = {
    **{"type": "Attachment", "name": "myFile", "mediaType": "application/octet-stream"},
    **{"logTime": "2", "createTime": "1", "data": _data(b"\x01\x02\x03")},
}
_TIMES = (2**62, 7, 3, 5, 5, 1, 9, 9, 8, 6)

DATA: dict[str, list[Record]] = {
    "NoData": [],
    "OneMessage": [_schema(1), _channel(1, 1), _message(1, 10, 2)],
    "OneAttachment": [_ATTACHMENT],
    "OneMetadata": [{"type": "Metadata", "name": "myMetadata", "metadata": [["foo", "bar"]]}],
    "OneSchemalessMessage": [_channel(1, 0), _message(1, 10, 2)],
    "TenMessages": [
        *(_schema(1), _schema(2), _channel(1, 1), _channel(2, 2), _channel(300, 1)),
        *(_message((1, 2, 300)[i % 3], i, time) for i, time in enumerate(_TIMES)),
    ],
}


class Variant(NamedTuple):
    """A file: the name of its records, and the features that it has."""

    data: str
    features: frozenset[str]

    @property
    def name(self) -> str:
        return "-".join([self.data, *sorted(self.features)])

    @property
    def records(self) -> list[Record]:
        return DATA[self.data]

    def of(self, kind: str) -> list[Record]:
        """Return the records of one kind."""
        return [record for record in self.records if record["type"] == kind]

    def messages(self) -> list[tuple[Any, ...]]:
        """Return the messages in the order of log_time: topic, data, times, sequence, schema (name, encoding, data)."""
        schemas = {s["id"]: (s["name"], s["encoding"], base64.b64decode(s["data"])) for s in self.of("Schema")}
        channels = {c["id"]: (c["topic"], schemas.get(c["schemaId"])) for c in self.of("Channel")}
        messages = []
        for m in self.of("Message"):
            topic, schema = channels[m["channelId"]]
            times = (int(m["logTime"]), int(m["publishTime"]))
            messages.append((topic, base64.b64decode(m["data"]), *times, m["sequence"], schema))
        return sorted(messages, key=lambda message: message[2])


def write_files(folder: Path) -> Path:
    """Write all files, by the project's own builders in JavaScript; see `npm` for when the test is skipped."""
    wanted = [
        {"path": str(folder / f"{variant.name}.mcap"), "features": sorted(variant.features), "records": variant.records}
        for variant in variants()
    ]
    npm.run(Path(__file__).with_name("conformance.mjs"), wanted, "@mcap/core")
    return folder


def read_with_python_library(path: Path) -> list[tuple[Any, ...]]:
    """Return the messages that the library `mcap` finds: topic, data, times, sequence and channel."""
    messages = []
    with path.open("rb") as file:
        for schema, channel, m in make_reader(file, validate_crcs=True).iter_messages():
            described = schema and (schema.name, schema.encoding, schema.data)
            channel_fields = (channel.message_encoding, tuple(channel.metadata.items()), described)
            messages.append((channel.topic, m.data, m.log_time, m.publish_time, m.sequence, channel_fields))
    return messages


def read_with_javascript_library(paths: Iterable[Path]) -> list[list[tuple[Any, ...]]]:
    """Return for each file the messages that `@mcap/core` finds, with the same fields, in the order of log_time."""
    program = Path(__file__).with_name("conformance_reader.mjs")
    files = []
    for rows in json.loads(npm.run(program, [str(path) for path in paths], "@mcap/core")):
        messages = []
        for topic, data, log_time, publish_time, sequence, encoding, metadata, schema in rows:
            described = schema and (*schema[:2], base64.b64decode(schema[2]))
            channel_fields = (encoding, tuple(map(tuple, metadata)), described)
            times = (int(log_time), int(publish_time))
            messages.append((topic, base64.b64decode(data), *times, sequence, channel_fields))
        files.append(sorted(messages, key=lambda message: message[2]))
    return files


def _is_valid(features: frozenset[str]) -> bool:
    return ("ch" in features or not features & _CHUNKS) and ("sum" not in features or bool(features & _SUMMARY))


def variants() -> Iterator[Variant]:
    for name, records in DATA.items():
        kinds = {record["type"] for record in records}
        possible = sorted(_OF_ALL.union(*(_OF_KIND[kind] for kind in kinds)))
        chosen = (frozenset(some) for count in range(len(possible) + 1) for some in combinations(possible, count))
        yield from (Variant(name, features) for features in chosen if _is_valid(features))
