"""The linter of C gets the headers that no other one includes, and so reads each header."""

from __future__ import annotations

from tests.meta.sources import PACKAGES
from tools.top_headers import find_included, find_top_headers


def test_top_headers_include_all_headers() -> None:
    headers = [path for package in PACKAGES for path in package.rglob("*.h")]
    todo = {path.resolve() for path in find_top_headers(headers)}
    assert len(todo) < len(headers) / 2
    reached = set()
    while todo:
        header = todo.pop()
        reached.add(header)
        todo |= find_included(header) - reached
    assert reached == {path.resolve() for path in headers}
