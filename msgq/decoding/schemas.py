"""Schemas that a user gives for endpoints without a schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from msgq.common.choices import list_names
from msgq.common.handler_errors import raise_handler_error
from msgq.common.schema import Schema, schema_of
from msgq.common.selection import EndpointPattern, SelectedEndpoints, list_paths, parse_pattern
from msgq.decoding.capnproto.compiler import compile_capnp_file
from msgq.decoding.payload_decoder import DECODABLE_ENCODINGS, SELF_DESCRIBING_ENCODINGS, find_schema_error
from msgq.decoding.schema_imports import append_imported_messages, append_included_files
from msgq.errors import InvalidValueError

_SCHEMA_ARGUMENT_FORM = "[ENDPOINT=]ENCODING:FILE:NAME"
_EVERY_ENDPOINT_PATTERN = re.compile("")


class Schemas:
    """Schemas for endpoints without a schema. Immutable, usable from many threads, and can be pickled.

    The schema of an endpoint has priority, unless it is only an encoding whose messages need a definition.
    """

    def __init__(self, chosen: Mapping[EndpointPattern, Schema]) -> None:
        """Set the schemas.

        Args:
            chosen: schemas by endpoint name or expression (see `SelectedEndpoints`). The first match counts.
        """
        self._chosen = [(SelectedEndpoints([choice]), schema) for choice, schema in chosen.items()]

    @classmethod
    def of_texts(
        cls, texts: str | Iterable[str], import_paths: str | PathLike[str] | Iterable[str | PathLike[str]] = ()
    ) -> Schemas:
        """Return the schemas for texts that a user wrote.

        Args:
            texts: one text or several, each "[ENDPOINT=]ENCODING:FILE:NAME". "capnproto:log.capnp:Event" applies to all
                endpoints, "scan*=cdr:LaserScan.msg:sensor_msgs/msg/LaserScan" to endpoints that match "scan*". FILE
                defines the message NAME and its needed types. Formats of FILE: for "capnproto" a text file (.capnp,
                needs pycapnp) or the binary form; for "cdr" IDL (.idl) or ROS 2 definitions; for "ros1" ROS 1
                definitions; for "flatbuffer" and "protobuf" the binary form; for "struct" a dtype. "json", "msgpack"
                and "cbor" need no definition: "state=json".
            import_paths: folder or folders for imports: absolute imports of Cap'n Proto, includes of IDL, and ROS
                messages, for example "std_msgs/msg/Header.msg" for a field "std_msgs/Header". The folder of FILE is
                searched last. The schema contains all imported definitions.

        Raises:
            InvalidValueError: a text is invalid, its file cannot be read or does not define the message, or an import
                path is not a folder.
            MissingLibraryError: a Cap'n Proto schema needs pycapnp.
        """
        schemas: dict[EndpointPattern, Schema] = {}
        folders = [Path(path) for path in list_paths(import_paths, "import_paths", may_be_empty=True)]
        for folder in folders:
            if not folder.is_dir():
                raise InvalidValueError(
                    f"import path {str(folder)!r} is not a folder; name the folder of the imported files"
                )
        for text in list_names(texts, "texts", may_be_empty=True):
            endpoint, equals, named = text.rpartition("=")
            schemas.setdefault(
                parse_pattern(endpoint) if equals else _EVERY_ENDPOINT_PATTERN, _parse_schema_argument(named, folders)
            )
        return cls(schemas)

    def of(self, endpoint: str, schema: Schema | None) -> Schema | None:
        """Return the schema to use for an endpoint. `schema`: the endpoint's own schema; None: none."""
        if schema is not None and schema.encoding and (schema.data or schema.encoding in SELF_DESCRIBING_ENCODINGS):
            return schema
        return next((choice for selection, choice in self._chosen if endpoint in selection), schema)


def _parse_schema_argument(text: str, folders: Sequence[Path]) -> Schema:
    encoding, _, location = text.partition(":")
    file, _, name = location.partition(":")
    if encoding not in DECODABLE_ENCODINGS:
        names = ", ".join(sorted(DECODABLE_ENCODINGS))
        raise InvalidValueError(
            f"schema {text!r} has the unknown encoding {encoding!r}; use {_SCHEMA_ARGUMENT_FORM} with one of {names}"
        )
    if encoding in SELF_DESCRIBING_ENCODINGS:
        return Schema(encoding, encoding)
    if not file or not name:
        raise InvalidValueError(f"schema {text!r} lacks the file or the message name; use {_SCHEMA_ARGUMENT_FORM}")
    path = Path(file)
    try:
        data = _load_definition(path, encoding, name, folders)
    except OSError as error:
        raise_handler_error(error)
        raise InvalidValueError(f"schema file {file!r} cannot be read: {error.strerror}") from None
    if encoding == "flatbuffer" and data[4:8] != b"BFBS":
        raise InvalidValueError(
            f"schema file {file!r} is not a binary FlatBuffers schema; "
            "create a .bfbs file with `flatc --binary --schema`"
        )
    if encoding == "protobuf" and path.suffix == ".proto":
        command = "`protoc --include_imports --descriptor_set_out=FILE`"
        raise InvalidValueError(
            f"schema file {file!r} is text; msgq needs the binary schema with all imports: create it with {command}"
        )
    schema = schema_of(name, encoding, data, "ros2idl" if _is_idl_file(path, encoding) else "")
    if reason := find_schema_error(schema):
        raise InvalidValueError(f"schema file {file!r} does not define {name!r}: {reason}")
    return schema


def _load_definition(path: Path, encoding: str, name: str, folders: Sequence[Path]) -> bytes:
    """Return a definition with all imported definitions."""
    if encoding == "capnproto":
        return compile_capnp_file(path, folders)
    if _is_idl_file(path, encoding):
        return append_included_files(path, folders)
    if encoding in ("cdr", "ros1"):
        return append_imported_messages(path, name, folders)
    return path.read_bytes()


def _is_idl_file(path: Path, encoding: str) -> bool:
    return encoding == "cdr" and path.suffix == ".idl"
