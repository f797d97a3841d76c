"""Schemas that a user names, for endpoints that say nothing of what their messages mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from msgq.common.schema import Schema, schema_of
from msgq.common.selection import EndpointPattern, SelectedEndpoints, parse_pattern
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
        """Choose schemas.

        Parameters
        ----------
        chosen : schemas by names of endpoints or expressions (see `SelectedEndpoints`). The first match counts.
        """
        self._chosen = [(SelectedEndpoints([choice]), schema) for choice, schema in chosen.items()]

    @classmethod
    def of_texts(cls, texts: Iterable[str], import_paths: Iterable[str | PathLike[str]] = ()) -> Schemas:
        """Return what a person wrote.

        Parameters
        ----------
        texts : each as "[ENDPOINT=]ENCODING:FILE:NAME": "capnproto:log.capnp:Event" is for all endpoints,
            "scan*=cdr:LaserScan.msg:sensor_msgs/msg/LaserScan" for those whose names match. The file has the definition
            of the message that is called so, and what that needs: for "capnproto" a text (.capnp, which takes pycapnp)
            or the binary form; for "cdr" IDL (.idl) or the texts of ROS 2; for "ros1" the texts of ROS 1; for
            "flatbuffer" and "protobuf" the binary form; for "struct" a dtype. "json", "msgpack" and "cbor" need none:
            "state=json".
        import_paths : folders in which files that a definition imports are looked for: absolute imports of Cap'n Proto,
            includes of IDL, and messages of ROS, as "std_msgs/msg/Header.msg" for a field "std_msgs/Header". The folder
            of the file comes after these. The schema has all that was imported.

        Raises
        ------
        InvalidValueError : a text is none of these, its file cannot be read or does not define the message, or an
            import path is not a folder.
        MissingLibraryError : a schema of Cap'n Proto needs pycapnp.
        """
        schemas: dict[EndpointPattern, Schema] = {}
        folders = [Path(path) for path in import_paths]
        for folder in folders:
            if not folder.is_dir():
                raise InvalidValueError(
                    f"import path {str(folder)!r} is not a folder; name the folder of the imported files"
                )
        for text in texts:
            endpoint, equals, named = text.rpartition("=")
            schemas.setdefault(
                parse_pattern(endpoint) if equals else _EVERY_ENDPOINT_PATTERN, _parse_schema_argument(named, folders)
            )
        return cls(schemas)

    def of(self, endpoint: str, schema: Schema | None) -> Schema | None:
        """Return the schema of an endpoint that says this of itself."""
        if schema is not None and schema.encoding and (schema.data or schema.encoding in SELF_DESCRIBING_ENCODINGS):
            return schema
        return next((choice for selection, choice in self._chosen if endpoint in selection), schema)


def _parse_schema_argument(text: str, folders: Sequence[Path]) -> Schema:
    encoding, _, location = text.partition(":")
    file, _, name = location.partition(":")
    if encoding not in DECODABLE_ENCODINGS:
        known = ", ".join(sorted(DECODABLE_ENCODINGS))
        raise InvalidValueError(
            f"schema {text!r} has the unknown encoding {encoding!r}; use {_SCHEMA_ARGUMENT_FORM} with one of {known}"
        )
    if encoding in SELF_DESCRIBING_ENCODINGS:
        return Schema(encoding, encoding)
    if not file or not name:
        raise InvalidValueError(f"schema {text!r} lacks the file or the message name; use {_SCHEMA_ARGUMENT_FORM}")
    path = Path(file)
    try:
        data = _load_definition(path, encoding, name, folders)
    except OSError as error:
        raise InvalidValueError(f"schema file {file!r} cannot be read: {error.strerror}") from None
    if encoding == "flatbuffer" and data[4:8] != b"BFBS":
        raise InvalidValueError(
            f"schema file {file!r} is not a binary FlatBuffers schema; "
            "create a .bfbs file with `flatc --binary --schema`"
        )
    if encoding == "protobuf" and path.suffix == ".proto":
        how = "`protoc --include_imports --descriptor_set_out=FILE`"
        raise InvalidValueError(
            f"schema file {file!r} is text; msgq needs the binary schema with all imports: create it with {how}"
        )
    schema = schema_of(name, encoding, data, "ros2idl" if _is_idl_file(path, encoding) else "")
    if reason := find_schema_error(schema):
        raise InvalidValueError(f"schema file {file!r} does not define {name!r}: {reason}")
    return schema


def _load_definition(path: Path, encoding: str, name: str, folders: Sequence[Path]) -> bytes:
    """Return a definition with all that it imports."""
    if encoding == "capnproto":
        return compile_capnp_file(path, folders)
    if _is_idl_file(path, encoding):
        return append_included_files(path, folders)
    if encoding in ("cdr", "ros1"):
        return append_imported_messages(path, name, folders)
    return path.read_bytes()


def _is_idl_file(path: Path, encoding: str) -> bool:
    return encoding == "cdr" and path.suffix == ".idl"
