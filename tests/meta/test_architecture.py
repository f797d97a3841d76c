"""docs/internals/architecture.md begins with the picture, names each folder, and names no file that is not there."""

from __future__ import annotations

import re

from tests.meta.sources import INTERNALS, PACKAGES, ROOT
from tests.meta.test_imports import LAYERS

PAGE = (INTERNALS / "architecture.md").read_text()
PICTURE = PAGE.split("```")[1]


def test_architecture_page_begins_with_picture_and_has_at_most_100_lines() -> None:
    assert PAGE.startswith("# Architecture\n\n```\n")
    assert PAGE.count("\n") <= 100


def test_architecture_picture_names_each_package_of_import_layers() -> None:
    boxes = {box.removeprefix("msgq.") for layer in LAYERS for box in layer}
    without_code_of_their_own = {"__main__", "errors"}  # the command; errors are named beside common
    words = set(re.findall(r"\w+", PICTURE))
    assert boxes - words - without_code_of_their_own == set()


def test_architecture_page_names_each_folder() -> None:
    folders = {path.parent.name for package in PACKAGES for path in package.rglob("*.py")}
    named = set(re.findall(r"(\w+)/", PAGE))
    folders_of_verbs = {"bag", "check", "echo", "frames", "pub", "schema"}
    assert folders - named - folders_of_verbs == set()


def test_architecture_page_names_existing_files() -> None:
    names = set(re.findall(r"\w+\.(?:pyx|pxd|pyi|py|h)\b", PAGE))
    assert names
    files = {path.name for folder in (*PACKAGES, ROOT / "tests") for path in folder.rglob("*.*")}
    assert names - files == set()


def test_root_holds_no_recording() -> None:
    """A recording that a program left in the root is easily committed."""
    assert [*ROOT.glob("*.mcap")] == []
