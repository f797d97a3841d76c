"""Copies a Cap'n Proto text file and its imports into one folder, and changes the imports accordingly.

pycapnp refuses a file that is imported by two names, two copies of a file, and imports from parent folders of the first
file. openpilot's schemas have all three.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from msgq.errors import InvalidValueError

#: A comment, an import with its keyword and file, or another string, which may lack its end: each byte is read once.
_IMPORT_PATTERN = re.compile(rb'#[^\n]*|\b(import|embed)\s*"((?:[^"\\]|\\.)*)"|"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
_FILE_ID_PATTERN = re.compile(rb"^[ \t]*@0x([0-9a-fA-F]+)[ \t]*;", re.MULTILINE)
_SCHEMA_FILES_MAX = 10_000


class CapnpSourceFiles:
    """Files of one schema.

    Attributes:
        content_by_name: content of each file in the folder.
    """

    def __init__(self, path: Path, import_paths: Sequence[Path]) -> None:
        """Read a file and all its imports.

        Args:
            path: path of the file.
            import_paths: folders for absolute imports, searched before the folders of the file and of pycapnp.

        Raises:
            OSError: a file cannot be read.
            InvalidValueError: an import is not found.
        """
        spec = find_spec("capnp")
        library = [Path(spec.origin).parents[1]] if spec is not None and spec.origin else []
        self._folders = [*import_paths, path.parent, *library]
        self._names: dict[Path, str] = {}
        self._by_id: dict[tuple[str, bytes], str] = {}
        self._waiting: list[tuple[Path, str, bytes]] = []
        self.content_by_name: dict[str, bytes] = {}
        self._add_source_file(path, is_text=True)
        while self._waiting:
            file, name, content = self._waiting.pop()
            rewrite_import = partial(self._rewrite_import, within=file)
            self.content_by_name[name] = _IMPORT_PATTERN.sub(rewrite_import, content)

    def write_to_folder(self, folder: Path) -> None:
        """Write the files into a folder."""
        for name, content in self.content_by_name.items():
            (folder / name).write_bytes(content)

    def _rewrite_import(self, match: re.Match[bytes], within: Path) -> bytes:
        """Return an import with the file's name in the folder. Other matches stay unchanged."""
        if match[1] is None:
            return match[0]
        imported = match[2].decode(errors="surrogateescape")
        file = next(
            (candidate for candidate in self._list_import_candidates(imported, within) if candidate.is_file()), None
        )
        if file is None:
            where = "; name its folder with -I (import_paths)" if imported.startswith("/") else ""
            raise InvalidValueError(f"schema file '{within}' is invalid: import {imported!r} not found{where}")
        return b'%s "/%s"' % (
            match[1],
            self._add_source_file(file, match[1] == b"import").encode(errors="surrogateescape"),
        )

    def _list_import_candidates(self, imported: str, within: Path) -> Iterator[Path]:
        if imported.startswith("/"):
            yield from (folder / imported[1:] for folder in self._folders)
        else:  # a link: its own folder comes first
            yield from (folder / imported for folder in (within.parent, within.resolve().parent))

    def _add_source_file(self, file: Path, is_text: bool) -> str:
        """Return the name of a file in the folder. Copies of a file have the same name and id, and are stored once."""
        real = file.resolve()
        if real in self._names:
            return self._names[real]
        if len(self._names) == _SCHEMA_FILES_MAX:
            raise InvalidValueError(f"schema file '{file}' exceeds the limit of {_SCHEMA_FILES_MAX} files per schema")
        content = file.read_bytes()
        file_id = _FILE_ID_PATTERN.search(content) if is_text else None
        key = (file.name, file_id[1].lower() if file_id else str(real).encode(errors="surrogateescape"))
        name = self._by_id.get(key)
        if name is None:
            name, number = file.name, len(self._names)
            while name in self.content_by_name:
                name, number = f"{number}-{file.name}", number + 1
            self._by_id[key] = name
            self.content_by_name[name] = content
            if is_text:
                self._waiting.append((file, name, content))
        self._names[real] = name
        return name
