"""Headers in which something is missing: tests of the tests compile with them, and must find out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.fuzz import build


def mutate_header(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, header: str, old: str, new: str) -> None:
    """Compile with a header in which `old` is `new`; `where` names a folder of `tools.fuzz.build`."""
    copy = folder / "mutate_header"
    shutil.copytree(getattr(build, where), copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    text = (copy / header).read_text()
    assert old in text
    (copy / header).write_text(text.replace(old, new))
    monkeypatch.setattr(build, where, copy)
