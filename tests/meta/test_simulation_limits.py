"""The guide of the simulation lists what the fake backend does not promise, as the contract tests do."""

from __future__ import annotations

import re

from tests.contract.conftest import FAKE_LACKS
from tests.meta.sources import ROOT


def test_guide_lists_the_promises_that_the_fake_backend_lacks() -> None:
    limits = (ROOT / "docs/guides/simulation.md").read_text().partition("\n## Limits\n")[2]
    table = re.search(r"^\| not promised .*\n\|[-|]+\n((?:\|.*\n)+)", limits, re.MULTILINE)
    assert table is not None
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]
    assert sorted(row[0] for row in rows) == sorted(FAKE_LACKS.values())
    assert all(row[2] for row in rows), "each has a reason"
