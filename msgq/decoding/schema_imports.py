"""Imported definitions of ROS and IDL files. A schema has all definitions in one text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgq.decoding.rosmsg import list_candidate_messages, list_field_types, split_message_definitions

_DEFINITION_SEPARATOR = "=" * 80
_INCLUDE_PATTERN = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_TEXT_CODEC_OPTIONS = {
    "encoding": "utf-8",
    "errors": "surrogateescape",
}  # a definition is bytes; the decoder reports one that is not text


def append_imported_messages(path: Path, name: str, folders: Sequence[Path]) -> bytes:
    """Return a ROS definition, followed by the needed messages that are found.

    Args:
        path: path of the .msg file, which may already contain some needed messages.
        name: name of its message: "pkg/msg/Scan".
        folders: folders with files such as "pkg/msg/Point.msg" or "pkg/Point.msg". The folders around the file follow.

    Raises:
        OSError: the file cannot be read.
    """
    text = _read_definition_text(path)
    try:
        texts = split_message_definitions(name, text)
    except ValueError:  # the decoder reports it
        return path.read_bytes()
    waiting = [*texts]
    while waiting:
        within = waiting.pop()
        for kind in list_field_types(texts[within]):
            names = list_candidate_messages(within, kind)
            if any(type_name in texts for type_name in names):
                continue
            files = ((type_name, file) for type_name in names for file in _find_message_files(type_name, path, folders))
            full, content = next(files, ("", None))
            if content is not None:
                texts[full] = _read_definition_text(content)
                waiting.append(full)
                text = f"{text.rstrip()}\n{_DEFINITION_SEPARATOR}\nMSG: {full}\n{texts[full]}"
    return text.encode(**_TEXT_CODEC_OPTIONS)


def _find_message_files(name: str, path: Path, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the possible files of a message. `name`: "pkg/Point"."""
    package, _, message = name.partition("/")
    parts = (Path(package, "msg", f"{message}.msg"), Path(package, f"{message}.msg"))
    yield from _filter_existing_files(folder / part for folder in _list_nearby_folders(path, folders) for part in parts)
    if package in path.parts:
        yield from _filter_existing_files([path.with_name(f"{message}.msg")])


def append_included_files(path: Path, folders: Sequence[Path]) -> bytes:
    """Return an IDL text, followed by the included files that are found, each once.

    Args:
        path: path of the .idl file.
        folders: folders with included files. The folders around the file follow.

    Raises:
        OSError: the file cannot be read.
    """
    text = _read_definition_text(path)
    known_paths, waiting = {path.resolve()}, [(path, text)]
    while waiting:
        within, content = waiting.pop()
        for include in _INCLUDE_PATTERN.findall(content):
            file = next(
                _filter_existing_files(
                    folder / include for folder in (within.parent, *_list_nearby_folders(path, folders))
                ),
                None,
            )
            if file is not None and file.resolve() not in known_paths:
                known_paths.add(file.resolve())
                waiting.append((file, _read_definition_text(file)))
                text = (
                    f"{text.rstrip()}\n{_DEFINITION_SEPARATOR}\nIDL: {include.removesuffix('.idl')}\n{waiting[-1][1]}"
                )
    return text.encode(**_TEXT_CODEC_OPTIONS)


def _list_nearby_folders(path: Path, folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return the given folders, and the folders around the package of a file such as "share/pkg/msg/Scan.msg"."""
    return (*folders, *path.absolute().parents[:3])


def _filter_existing_files(files: Iterable[Path]) -> Iterator[Path]:
    return (file for file in files if file.is_file())


def _read_definition_text(path: Path) -> str:
    return path.read_bytes().decode(**_TEXT_CODEC_OPTIONS)
