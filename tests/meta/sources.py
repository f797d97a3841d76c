"""What the tests of this folder know about the sources: Python and Cython imports, C functions and comments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INTERNALS = ROOT / "docs" / "internals"
#: README and all pages of docs/, as paths from the root.
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
PACKAGES = [ROOT / "msgq", ROOT / "visionipc"]

_IMPORT = re.compile(r"^(\s*)(?:from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^#\n]+)|c?import\s+([\w., ]+))", re.MULTILINE)
_STRING = re.compile(r'"""(?s:.*?)"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(
    r"^static (?:inline )?(?:__attribute__\(\(\w+\)\) )?[^;={(]*?\b(\w+)\(([^;{]*)\) \{", re.MULTILINE
)


def section(page: str, title: str) -> str:
    """Return the text of a section of a page of docs/internals, with its subsections."""
    return (INTERNALS / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@dataclass(frozen=True)
class Import:
    """One imported module. `lazy`: inside a function, or for type checkers only."""

    module: str
    lazy: bool


@cache
def modules() -> dict[str, list[Path]]:
    """Return the files of each module of the packages by its name: .py, or .pyx, .pxi and .pxd, without stubs.

    The parts (.pxi) of a folder belong to its module `core`.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(path for package in PACKAGES for path in package.rglob("*")):
        if path.suffix in (".py", ".pyx", ".pxi", ".pxd"):
            source = path.with_name("core") if path.suffix == ".pxi" else path.with_suffix("")
            name = ".".join(source.relative_to(ROOT).parts).removesuffix(".__init__")
            found.setdefault(name, []).append(path)
    return found


def code(path: Path) -> str:
    """Return a Python or Cython file without its strings and comments."""
    return re.sub(r"#.*", "", _STRING.sub('""', path.read_text()))


def imports(path: Path) -> set[Import]:
    """Return what a Python or Cython file imports, of packages their modules: ``from msgq import naming``."""
    known = modules()
    found = set()
    for indent, parent, names, plain in _IMPORT.findall(code(path)):
        lazy = bool(indent)
        if plain:
            found |= {Import(name.split(" as ")[0].strip(), lazy) for name in plain.split(",")}
            continue
        for name in re.findall(r"(\w+)(?: as \w+)?", names):
            inner = f"{parent}.{name}"
            found.add(Import(inner if inner in known else parent, lazy))
    return found


def headers() -> list[Path]:
    """Return the headers of the packages."""
    return sorted(path for package in PACKAGES for path in package.rglob("*.h"))


def header_name(header: Path) -> str:
    """Return a header's name as others include it: its folder and its own name, or only that."""
    parts = header.relative_to(ROOT).parts[-2:]
    return parts[1] if parts[0] == "impl" else "/".join(parts)


def comments_by_line(header: Path) -> dict[int, str]:
    """Return the text of each comment of a header, without its stars, by the comment's first line."""
    text = header.read_text()
    return {
        text.count("\n", 0, found.start()) + 1: re.sub(r"^\s*\*? ?", "", found[0][2:-2], flags=re.MULTILINE)
        for found in _COMMENT.finditer(text)
    }


def without_comments(text: str) -> str:
    """Return C code without comments."""
    return _COMMENT.sub("", text)


@dataclass(frozen=True)
class Function:
    """A function of a header: its text begins with the comment above it."""

    header: str
    name: str
    text: str

    @property
    def comments(self) -> list[str]:
        """Return its comments, each on one line."""
        return [comment for _, _, comment in self.placed_comments()]

    def placed_comments(self) -> list[tuple[int, int, str]]:
        """Return where in the text each comment begins and ends, and the comment on one line."""
        found = _COMMENT.finditer(self.text)
        return [(each.start(), each.end(), " ".join(each[0].split()).replace("* ", "")) for each in found]

    @property
    def code(self) -> str:
        """Return its text without comments."""
        return without_comments(self.text)


@cache
def functions() -> list[Function]:
    """Return every function of the core's headers."""
    found = []
    for header in headers():
        text = header.read_text()
        starts = list(_FUNCTION.finditer(text))
        for i, start in enumerate(starts):
            above = text[starts[i - 1].end() if i else 0 : start.start()]
            comment = re.search(r"/\*(?:(?!\*/).)*\*/\n\Z", above, re.DOTALL)
            begin = start.start() - (len(comment[0]) if comment else 0)
            ends_on_its_line = text[start.end() :].split("\n", 1)[0].rstrip().endswith("}")
            end = text.index("}", start.end()) if ends_on_its_line else text.index("\n}", start.end())
            found.append(Function(header.name, start[1], text[begin : end + 2]))
    return found


def head_comment(header: Path) -> str:
    """Return the comment that a header starts with."""
    found = _COMMENT.match(header.read_text())
    return " ".join(found[0].split()) if found else ""
