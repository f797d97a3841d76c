"""Comments of Python and Cython files can stand alone: none begins in the middle of a sentence.

A comment such as "of which tuples are made at once" makes sense only together with the name before it.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each_case
from tests.meta.sources import ROOT

FOLDERS = ("msgq", "visionipc", "tools", "examples", "tests")
#: First words of comments that continue a sentence of the code.
CONTINUATION = r"(?:for )?(?:of|what|how|as|where|which|until|who|whose|that)\b"
CONTINUATION_REGEX = re.compile(CONTINUATION, re.IGNORECASE)
#: Lines with a possible fault. Only a few files have any, so the others need no tokens.
SUSPECT_REGEX = re.compile(rf"#[#:\- ]*{CONTINUATION}", re.IGNORECASE)
#: A line of Cython with a comment: strings without "#" or quotes inside, then the comment.
COMMENTED_LINE = re.compile(r"""(?:[^"'#]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*(#.*)""")


def iterate_comments(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines and the texts of comments. Lines of one comment are joined."""
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        found = [(*token.start, token.string) for token in tokens if token.type == tokenize.COMMENT]
    else:
        lines = enumerate(source.splitlines(), 1)
        matches = [(number, COMMENTED_LINE.match(line)) for number, line in lines]
        found = [(number, match.start(1), match[1]) for number, match in matches if match]
    last: tuple[int, int] | None = None
    for line, column, text in found:
        if (line - 1, column) != last:
            yield line, text.lstrip("#:- ")
        last = line, column


def find_continuations(path: Path) -> list[str]:
    """Return the comments of a file that begin in the middle of a sentence."""
    source = path.read_text()
    if not SUSPECT_REGEX.search(source):
        return []
    return [f"line {line}: {text}" for line, text in iterate_comments(path, source) if CONTINUATION_REGEX.match(text)]


@each_case("folder", FOLDERS)
def test_comments_of_folder_begin_with_noun_or_verb(folder: str) -> None:
    paths = [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".pyx", ".pxd", ".pxi")]
    found = {str(path.relative_to(ROOT)): find_continuations(path) for path in paths}
    assert {path: comments for path, comments in found.items() if comments} == {}


def test_comments_in_middle_of_sentence_are_found(tmp_path: Path) -> None:
    lines = [
        "ROWS = 4096  # of which tuples are made",
        "#: Until it ends.",
        "x = '# of'  # rows",
        "# one line,",
        "# which ends",
    ]
    for suffix in (".py", ".pxi"):
        path = tmp_path / f"comments{suffix}"
        path.write_text("\n".join(lines))
        assert find_continuations(path) == ["line 1: of which tuples are made", "line 2: Until it ends."]
