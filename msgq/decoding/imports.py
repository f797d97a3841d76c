"""Definitions that a ROS or IDL file imports from other files. A schema has all of them in one text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgq.decoding.rosmsg import candidates, list_dependencies, split_definitions

_SEPARATOR = "=" * 80
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_ENCODED = {
    "encoding": "utf-8",
    "errors": "surrogateescape",
}  # a definition is bytes; the decoder reports one that is not text


def with_messages(path: Path, name: str, folders: Sequence[Path]) -> bytes:
    """Return a ROS definition, followed by the messages that it needs, as far as they are found.

    Parameters
    ----------
    path : of the .msg file, which may have some of them already.
    name : of its message: "pkg/msg/Scan".
    folders : in which "pkg/msg/Point.msg" or "pkg/Point.msg" may be. Those around the file come after these.

    Raises
    ------
    OSError : the file cannot be read.
    """
    text = _text(path)
    try:
        texts = split_definitions(name, text)
    except ValueError:  # the decoder reports it
        return path.read_bytes()
    waiting = [*texts]
    while waiting:
        within = waiting.pop()
        for kind in list_dependencies(texts[within]):
            names = candidates(within, kind)
            if any(type_name in texts for type_name in names):
                continue
            files = ((type_name, file) for type_name in names for file in _message_files(type_name, path, folders))
            full, content = next(files, ("", None))
            if content is not None:
                texts[full] = _text(content)
                waiting.append(full)
                text = f"{text.rstrip()}\n{_SEPARATOR}\nMSG: {full}\n{texts[full]}"
    return text.encode(**_ENCODED)


def _message_files(name: str, path: Path, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of a message. name : "pkg/Point"."""
    package, _, message = name.partition("/")
    parts = (Path(package, "msg", f"{message}.msg"), Path(package, f"{message}.msg"))
    yield from _existing(folder / part for folder in _around(path, folders) for part in parts)
    if package in path.parts:
        yield from _existing([path.with_name(f"{message}.msg")])


def with_includes(path: Path, folders: Sequence[Path]) -> bytes:
    """Return an IDL text, followed by the files that it includes, as far as they are found; each once.

    Parameters
    ----------
    path : of the .idl file.
    folders : in which included files may be. Those around the file come after these.

    Raises
    ------
    OSError : the file cannot be read.
    """
    text = _text(path)
    known, waiting = {path.resolve()}, [(path, text)]
    while waiting:
        within, content = waiting.pop()
        for include in _INCLUDE.findall(content):
            file = next(_existing(folder / include for folder in (within.parent, *_around(path, folders))), None)
            if file is not None and file.resolve() not in known:
                known.add(file.resolve())
                waiting.append((file, _text(file)))
                text = f"{text.rstrip()}\n{_SEPARATOR}\nIDL: {include.removesuffix('.idl')}\n{waiting[-1][1]}"
    return text.encode(**_ENCODED)


def _around(path: Path, folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return the folders, and the folders around the package of a file, as in "share/pkg/msg/Scan.msg"."""
    return (*folders, *path.absolute().parents[:3])


def _existing(files: Iterable[Path]) -> Iterator[Path]:
    return (file for file in files if file.is_file())


def _text(path: Path) -> str:
    return path.read_bytes().decode(**_ENCODED)
