"""README.md and the guide do what they say: their Python blocks print what the text block that follows says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.meta.sources import ROOT

README = (ROOT / "README.md").read_text()
MARK = "\0next block\0"


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in found]


@pytest.fixture
def environment(prefix: str) -> dict[str, str]:
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    return {**os.environ, "OPENPILOT_PREFIX": prefix, "PATH": path}


@pytest.mark.parametrize("page", ["README.md", "docs/fake-events.md"])
def test_python_blocks_print_what_the_page_says(environment, page):
    found = blocks((ROOT / page).read_text())
    python = [(i, block) for i, block in enumerate(found) if block.language == "python"]
    assert python
    program = f"print({MARK!r})\n".join(block.text for _, block in python)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{MARK}\n")
    for (i, block), output in zip(python, printed, strict=True):
        follows = found[i + 1] if i + 1 < len(found) else None
        if follows and follows.language == "text":
            assert output == follows.text, f"{page}, line {block.line}"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake (\w+)`?", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README):
        assert (ROOT / target).exists(), target
