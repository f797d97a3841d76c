"""README.md and the guides do what they say: Python blocks run in order, and print the text block that follows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.meta.sources import PAGES, ROOT
from tests.support import SHM

IN_ORDER = "docs/tutorial.md"  # test_tutorial.py runs its commands
DOCUMENTS = {name: (ROOT / name).read_text() for name in PAGES}
# CI runs them in its own steps, they change the machine, or they need a cross compiler.
NOT_RUN = ("make", "pip", "git", "apt-get", "python3 -m venv", "tools/aarch64", "python -m tools.aarch64")
MARK = "\0next block\0"
TO_BE_WRITTEN = ("msgq/impl/NAME", "msgq/cli/VERB.py", "tests/unit/test_cli_VERB.py")  # placeholders in CONTRIBUTING.md


@dataclass(frozen=True)
class Block:
    document: str
    language: str
    text: str
    line: int
    title: str | None = None  # name of the file that the reader saves

    @property
    def id(self) -> str:
        return f"{self.document}, line {self.line}"


def blocks(document: str) -> list[Block]:
    text = DOCUMENTS[document]
    found = re.finditer(r'^```(\w*)(?: title="([\w.]+)")?\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    return [Block(document, match[1], match[3], text.count("\n", 0, match.start()) + 2, match[2]) for match in found]


SHELL = [
    block
    for document in DOCUMENTS
    for block in blocks(document)
    if block.language in ("sh", "console") and block.title is None and document != IN_ORDER
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that looks like the project's, in which blocks may create files."""
    folder = tmp_path / "project"
    folder.mkdir()
    for path in ROOT.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture
def environment(prefix: str, tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    return {**os.environ, "OPENPILOT_PREFIX": prefix, "PATH": path, "TMPDIR": str(tmp_path)}


SLOW = {"docs/guides/lake.md": (pytest.mark.nightly, pytest.mark.watchdog(900))}  # Spark starts


def is_run(block: Block) -> bool:
    """Return whether a block is Python and not a file."""
    return block.language == "python" and block.title is None


PYTHON = [name for name in DOCUMENTS if any(map(is_run, blocks(name)))]


@pytest.mark.parametrize("document", [pytest.param(name, marks=SLOW.get(name, ())) for name in PYTHON])
def test_python_blocks_print_documented_output(environment: dict[str, str], document: Any) -> None:
    check_python_blocks(environment, document)


def test_channel_guide_runs_on_fake_backend(environment: dict[str, str]) -> None:
    check_python_blocks({**environment, "MSGQ_BACKEND": "fake"}, "docs/guides/channels.md", without="hub_bytes")


def test_queue_guide_runs_on_fake_backend(environment: dict[str, str]) -> None:
    check_python_blocks({**environment, "MSGQ_BACKEND": "fake"}, "docs/guides/queues.md", without="posix_ipc")


def test_record_guide_runs_on_fake_backend(environment: dict[str, str]) -> None:
    check_python_blocks({**environment, "MSGQ_BACKEND": "fake"}, "docs/guides/records.md")


def check_python_blocks(environment: dict[str, str], document: str, without: str = MARK) -> None:
    """Run the blocks of a page, but for those that have the word `without`."""
    found = blocks(document)
    python = [(i, block) for i, block in enumerate(found) if is_run(block) and without not in block.text]
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


@pytest.fixture
def page(block: Block, token: str) -> Iterator[list[Block]]:
    """Return the blocks of the block's page, with unique prefixes. Afterwards, remove the empty folders of these."""
    found = blocks(block.document)
    names = {name for each in found for name in re.findall(r"--prefix (\w+)", each.text)}
    prefixes = re.compile(rf'(--prefix |")({"|".join(names) or "(?!)"})\b')
    yield [replace(each, text=prefixes.sub(rf"\1\2{token}", each.text)) for each in found]
    for path in SHM.glob(f"msgq*_*{token}"):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.id)
def test_shell_blocks_print_documented_output(
    block: Block, page: list[Block], environment: dict[str, str], folder: Path
) -> None:
    block = next(each for each in page if each.line == block.line)
    files = {each.title: each for each in page if each.title}
    for title, file in files.items():
        (folder / title).write_text(file.text)
    programs = tuple(f"{'sh' if file.language == 'sh' else 'python'} {title}" for title, file in files.items())
    printed = []
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
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block.id}: {command}\n{done.stdout}{done.stderr}"
        printed += [done.stdout] if command.startswith(programs) and " msgq " not in command else []
    follows = next((each for each in page if each.line > block.line), None)
    if printed and follows and follows.language == "text":  # programs of the page print what it says
        assert "".join(printed) == follows.text, block.id


@pytest.mark.parametrize("document", DOCUMENTS)
def test_document_links_have_targets(document: Any) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", DOCUMENTS[document]):
        assert ((ROOT / document).parent / target).exists(), target


def test_contributing_page_names_existing_code() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    targets = re.findall(r"make (\S+?)`|\$ make (\S+)", text)
    assert targets
    for target in map("".join, targets):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
    paths = re.findall(r"[`\s(]((?:msgq|tests|docs)/[\w./-]*)", text)
    assert [path for path in paths if not (ROOT / path).exists() and path not in TO_BE_WRITTEN] == []
    for path, name in re.findall(r"`(\w+)` (?:of|in) `([\w./]+)`", text):
        assert re.search(rf"^{path}\b", (ROOT / name).read_text(), re.MULTILINE), (path, name)
