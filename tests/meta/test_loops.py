"""Each loop over words that other processes can change has a bound, and a row that states it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.meta.sources import section
from tests.support import ROOT

KINDS = ("topic", "channel", "record", "queue", "frames", "gate")
PAGES = ("common-protocol.md", *(f"{kind}-protocol.md" for kind in KINDS))
HEADERS = sorted([*ROOT.glob("msgq/impl/*/*.h"), *ROOT.glob("visionipc/impl/*.h")])
_FUNCTION = re.compile(r"^(?:[a-z][^\n;{}#]*?\b)?(mq_\w+)\([^{};]*\)\s*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_LOOP = re.compile(r"\b(?:while|do)\b|\bfor \([^;]*;([^;]*);")
#: A bound that no other process can change, and that needs no row: all rows, slots, elements and the like.
_COUNTED = re.compile(r"\s*\w+ < (?!MQ_\w*(?:TRIES|LOOKS|STUCK))(?:[A-Za-z_][\w.>()-]*(?: / 64)?|\d)\s*")


def functions(text: str) -> Iterator[tuple[str, str]]:
    for found in _FUNCTION.finditer(_COMMENT.sub("", text)):
        yield found[1], found[2]


def find_unbounded_loops(body: str) -> list[str]:
    return [found[0] for found in _LOOP.finditer(body) if found[1] is None or not _is_counted(found[1])]


def _is_counted(condition: str) -> bool:
    return any(_COUNTED.fullmatch(part) for part in condition.split("&&"))


def rows(page: str) -> set[str]:
    cells = re.findall(r"^\| ([^|]*) \|", section(page, "Bounds of loops"), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(mq_\w+)`", cell)}


def test_each_unbounded_loop_is_documented_in_loop_table() -> None:
    looping = {
        name: path for path in HEADERS for name, body in functions(path.read_text()) if find_unbounded_loops(body)
    }
    told = set().union(*map(rows, PAGES))
    untold = {name: str(path.relative_to(ROOT)) for name, path in looping.items() if name not in told}
    assert not untold, "give each a bound, and a row in a section `Bounds of loops`"
    assert told <= {name for path in HEADERS for name, _ in functions(path.read_text())}


def test_each_form_of_unbounded_loop_is_detected() -> None:
    text = "static inline int mq_one(int a) {\n%s\n}\n"
    for loop in ("    for (;;) {", "    while (a) {", "    do {", "    for (int i = 0; i < MQ_ONE_TRIES; i++) {"):
        ((name, body),) = functions(text % loop)
        assert (name, len(find_unbounded_loops(body))) == ("mq_one", 1), loop
    ((_, body),) = functions(text % "    for (int i = 0; i < MQ_RING_ROWS; i++) {\n    } /* while */")
    assert not find_unbounded_loops(body)


def test_each_fuzzer_program_limits_its_number_of_steps() -> None:
    bounds = [path.read_text().count("#define FUZZ_STEPS_MAX ") for path in Path(ROOT / "tools/fuzz").glob("*.[ch]")]
    assert sum(bounds) == 8
