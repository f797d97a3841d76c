"""A text of Cap'n Proto and what it imports, as files of one folder whose imports lead there.

pycapnp refuses a file that is imported by two names, two copies of a file, and imports above the first file's folder.
openpilot's schemas have all three.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from msgq.errors import InvalidValueError

#: A comment, an import with its keyword and file, or another string, which may lack its end: each byte is read once.
_IMPORT_PATTERN = re.compile(rb'#[^\n]*|\b(import|embed)\s*"((?:[^"\\]|\\.)*)"|"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
_FILE_ID_PATTERN = re.compile(rb"^[ \t]*@0x([0-9a-fA-F]+)[ \t]*;", re.MULTILINE)
_FILES_MAX = 10_000


class Sources:
    """The files of one schema.

    Attributes
    ----------
    texts : of each name in the folder, the content.
    """

    def __init__(self, path: Path, import_paths: Sequence[Path]) -> None:
        """Read a file and all its imports.

        Parameters
        ----------
        path : of the file.
        import_paths : where absolute imports are looked for, before the file's folder and that of pycapnp.

        Raises
        ------
        OSError : a file cannot be read.
        InvalidValueError : an import is not found.
        """
        spec = find_spec("capnp")
        library = [Path(spec.origin).parents[1]] if spec is not None and spec.origin else []
        self._folders = [*import_paths, path.parent, *library]
        self._names: dict[Path, str] = {}
        self._by_id: dict[tuple[str, bytes], str] = {}
        self._waiting: list[tuple[Path, str, bytes]] = []
        self.texts: dict[str, bytes] = {}
        self._make_file_name(path, is_text=True)
        while self._waiting:
            file, name, content = self._waiting.pop()
            self.texts[name] = _IMPORT_PATTERN.sub(lambda match, file=file: self._resolve_import(match, file), content)  # type: ignore[misc]

    def write(self, folder: Path) -> None:
        """Write the files."""
        for name, content in self.texts.items():
            (folder / name).write_bytes(content)

    def _resolve_import(self, match: re.Match[bytes], within: Path) -> bytes:
        """Return an import with the file's name in the folder; return other matches unchanged."""
        if match[1] is None:
            return match[0]
        imported = match[2].decode(errors="surrogateescape")
        file = next((candidate for candidate in self._list_candidates(imported, within) if candidate.is_file()), None)
        if file is None:
            where = "; give the folder that has it with -I (import_paths)" if imported.startswith("/") else ""
            raise InvalidValueError(f"{within} is no schema: it imports {imported!r}, which is not found{where}")
        return b'%s "/%s"' % (
            match[1],
            self._make_file_name(file, match[1] == b"import").encode(errors="surrogateescape"),
        )

    def _list_candidates(self, imported: str, within: Path) -> Iterator[Path]:
        if imported.startswith("/"):
            yield from (folder / imported[1:] for folder in self._folders)
        else:  # for a link, first in the folder of the link
            yield from (folder / imported for folder in (within.parent, within.resolve().parent))

    def _make_file_name(self, file: Path, is_text: bool) -> str:
        """Return the name of a file in the folder. Copies, which have the same name and id, are one file."""
        real = file.resolve()
        if real in self._names:
            return self._names[real]
        if len(self._names) == _FILES_MAX:
            raise InvalidValueError(f"{file} is one file too many: a schema may have {_FILES_MAX} files")
        content = file.read_bytes()
        said = _FILE_ID_PATTERN.search(content) if is_text else None
        key = (file.name, said[1].lower() if said else str(real).encode(errors="surrogateescape"))
        name = self._by_id.get(key)
        if name is None:
            name, number = file.name, len(self._names)
            while name in self.texts:
                name, number = f"{number}-{file.name}", number + 1
            self._by_id[key] = name
            self.texts[name] = content
            if is_text:
                self._waiting.append((file, name, content))
        self._names[real] = name
        return name
