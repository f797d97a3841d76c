"""Prints the C headers of the given ones that no other one includes: `python tools/top_headers.py HEADER...`.

Together they include all others. A checker that gets only these headers reads the others less often.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [ROOT / folder for folder in ("msgq/impl", "msgq/include", "msgq/recording", "visionipc/impl")]
INCLUDE = re.compile(r'^\s*#\s*include "(.*)"', re.MULTILINE)


def find_included(header: Path) -> set[Path]:
    """Return the paths of the headers that a header itself includes."""
    found = set()
    for name in INCLUDE.findall(header.read_text()):
        folders = [header.parent, *FOLDERS]
        found.add(next(folder / name for folder in folders if (folder / name).exists()))
    return {path.resolve() for path in found}


def find_top_headers(headers: list[Path]) -> list[Path]:
    """Return the headers that no other one includes."""
    included = set().union(*map(find_included, headers))
    return [header for header in headers if header.resolve() not in included]


if __name__ == "__main__":
    print(*find_top_headers([Path(name) for name in sys.argv[1:]]))
