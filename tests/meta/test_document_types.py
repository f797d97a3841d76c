"""The Python blocks of README.md and the guides pass `mypy --strict`, as in a program of a user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.sources import PAGES, ROOT

pytestmark = pytest.mark.ci
#: Checks that blocks of the guides need not pass, for brevity: annotations of small functions, and checks for None.
#: Blocks also compare results of a `Poller` of several kinds, which would need `Poller[Any]`.
BRIEF = (
    "--allow-untyped-defs",
    "--allow-untyped-calls",
    "--allow-incomplete-defs",
    "--disable-error-code=union-attr",
    "--disable-error-code=comparison-overlap",
)
VERSIONS = ("3.11", "3.14")  # the stubs of NumPy take other buffers since 3.12


def python_lines(text: str) -> str:
    """Return the Python blocks of a page, each line at its number in the page."""
    kept, inside = [], False
    for line in text.splitlines():
        fence = line.startswith("```")
        inside = line == "```python" if fence else inside
        kept.append(line if inside and not fence else "")
    return "\n".join(kept).rstrip() + "\n"


def mypy_messages(folder: Path, pages: list[Path], version: str, *options: str) -> list[str]:
    """Return mypy's messages about the blocks of pages."""
    files = []
    for page in pages:
        if (text := python_lines(page.read_text())).strip():
            name = f"{page.parent.name}_{page.stem}_page.py"  # several folders have a page of one name
            files.append(folder / name.lower().replace("-", "_"))
            files[-1].write_text(text)
    cache = ROOT / "build" / "cache" / f"mypy-pages-{version}"
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-version",
        version,
        "--cache-dir",
        str(cache),
        *options,
    ]
    redefining = ("--allow-redefinition-new", "--local-partial-types")  # a page uses short names again
    done = subprocess.run([*command, *redefining, *files], cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if ": error:" in line]


@pytest.mark.parametrize("version", VERSIONS)
def test_readme_passes_mypy_strict(tmp_path: Path, version: str) -> None:
    assert mypy_messages(tmp_path, [ROOT / "README.md"], version) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_guides_pass_mypy_strict_without_annotation_rules(tmp_path: Path, version: str) -> None:
    assert mypy_messages(tmp_path, [ROOT / page for page in PAGES if page != "README.md"], version, *BRIEF) == []


def test_type_error_in_code_block_is_reported_with_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nimport msgq\n\nmsgq.pub_sock(1)\n```\n\n```text\nnot Python\n```\n")
    (line,) = mypy_messages(tmp_path, [page], VERSIONS[0])
    assert "page_page.py:6: error: No overload variant" in line
