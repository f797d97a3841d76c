"""docs/architecture.md names each folder, and no file that is not there."""

from __future__ import annotations

import re

from tests.meta.sources import PACKAGES, ROOT

TREE = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]


def test_each_folder_is_in_the_tree() -> None:
    folders = {path.parent.name for package in PACKAGES for path in package.rglob("*.py")}
    named = set(re.findall(r"(\w+)/", TREE))
    # Of cli/, where a folder is a verb.
    inside_one = {"bag", "check", "doctor", "echo", "frames", "pub", "stages", "common"}
    assert folders - named - inside_one == set()


def test_each_file_of_the_tree_is_there() -> None:
    names = set(re.findall(r"\w+\.(?:pyx|pxi|py|h)\b", TREE))
    assert names
    there = {path.name for package in PACKAGES for path in package.rglob("*.*")} | {
        path.name for path in ROOT.iterdir()
    }
    assert names - there == set()
