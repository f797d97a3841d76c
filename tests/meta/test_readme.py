"""README.md and the guides do what they say: Python blocks run in order, and print the text block that follows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.meta.sources import ROOT

PAGES = (
    "README.md",
    "docs/fake-events.md",
    "docs/lake.md",
    "docs/masters.md",
    "docs/playing.md",
    "docs/recording.md",
    "docs/simulation.md",
    "docs/visionipc.md",
)
DOCUMENTS = {name: (ROOT / name).read_text() for name in PAGES}
# Run by CI in its own steps, or changing the machine.
NOT_RUN = ("make", "pip", "git", "apt-get", "python -m venv")
MARK = "\0next block\0"


@dataclass(frozen=True)
class Block:
    document: str
    language: str
    text: str
    line: int

    @property
    def id(self) -> str:
        return f"{self.document}, line {self.line}"


def blocks(document: str) -> list[Block]:
    text = DOCUMENTS[document]
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(document, match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in found]


SHELL = [block for document in DOCUMENTS for block in blocks(document) if block.language in ("sh", "console")]


@pytest.fixture
def environment(prefix: str) -> dict[str, str]:
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    return {**os.environ, "OPENPILOT_PREFIX": prefix, "PATH": path}


SLOW = {"docs/lake.md": pytest.mark.watchdog(300)}  # Spark starts; two cores may have ten tenants


@pytest.mark.parametrize("document", [pytest.param(name, marks=SLOW.get(name, ())) for name in DOCUMENTS])
def test_python_blocks_print_what_the_document_says(environment, document):
    found = blocks(document)
    python = [(i, block) for i, block in enumerate(found) if block.language == "python"]
    assert python
    program = f"print({MARK!r})\n".join(block.text for _, block in python)
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{MARK}\n")
    for (i, block), output in zip(python, printed, strict=True):
        follows = found[i + 1] if i + 1 < len(found) else None
        if follows and follows.language == "text":
            assert output == follows.text, block.id


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.id)
def test_shell_blocks_run(block, environment):
    for line in block.text.splitlines():
        command = line.removeprefix("$ ").partition("  #")[0].strip()
        if (block.language == "console" and not line.startswith("$ ")) or not command or command.startswith("#"):
            continue
        if command.startswith(NOT_RUN):
            words = shlex.split(command)
            if words[0] == "make":
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
            continue
        done = subprocess.run(
            command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block.id}: {command}\n{done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", DOCUMENTS[document]):
        assert ((ROOT / document).parent / target).exists(), target


def test_the_readme_leads_to_every_page() -> None:
    listed = DOCUMENTS["README.md"].partition("## Read on")[2]
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"](docs/{page.name})" not in listed] == []
