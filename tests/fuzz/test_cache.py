"""The cache returns a compiled program only for the text and flags that it was compiled from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.fuzz import build


class Sources:
    """A program that returns a number of its header."""

    def __init__(self, folder: Path) -> None:
        self._header, self._source = folder / "number.h", folder / "number.c"
        self._source.write_text('#include "number.h"\nint main(void) { return NUMBER; }\n')

    def cached_program(self, number: int, *flags: str) -> Path:
        self._header.write_text(f"#define NUMBER {number}\n")
        return build.cached_program(self._source, *flags)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    return Sources(tmp_path)


def test_program_with_changed_header_is_recompiled(sources: Sources) -> None:
    programs = [sources.cached_program(number) for number in (1, 2)]
    assert [subprocess.run([program], check=False).returncode for program in programs] == [1, 2]


def test_program_with_same_text_and_flags_is_not_recompiled(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sources.cached_program(1)
    monkeypatch.delattr(build, "compile_program")
    assert sources.cached_program(1) == first
    with pytest.raises(NameError, match="compile_program"):
        sources.cached_program(1, "-O1")


def test_program_with_compile_error_is_not_kept(sources: Sources) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="sanitize=nonsense"):
            sources.cached_program(1, "-fsanitize=nonsense")


def test_program_unused_for_one_day_is_removed(sources: Sources) -> None:
    old = sources.cached_program(1)
    os.utime(old, (0, 0))
    assert sources.cached_program(2).exists()
    assert not old.exists()


def test_has_sanitizer_of_unknown_name_is_false(sources: Sources) -> None:
    assert not build.has_sanitizer("nonsense")


def test_has_sanitizer_with_broken_compiler_raises(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(RuntimeError, match="empty"):
        build.has_sanitizer("unknown")
