"""Cython code that constructs a C struct names all of its members.

What: the members of each constructed struct in its .pxd file and in its header.
Why: a Cython constructor assigns the members that the .pxd declares, and leaves other members undefined.
A failure would mean: a value from an earlier call is in a member, for example an invalid pointer.
"""

from __future__ import annotations

import re

from tests.meta.sources import PACKAGES, code, headers, without_comments

_DECLARATION = re.compile(r"^    ctypedef struct (\w+):\n((?:        .*\n)+)", re.MULTILINE)
_DEFINITION = re.compile(r"^typedef struct(?: \w+)? \{\n((?:[^}].*\n|\n)*)\} (\w+);", re.MULTILINE)


def names_of_members(declarations: list[str]) -> list[str]:
    """Return the names that C or Cython declarations such as `void (*f)(int)` and `int *a, b[2]` declare."""
    found = []
    for declaration in declarations:
        if pointer := re.search(r"\(\*(\w+)\)", declaration):
            found.append(pointer[1])
        elif declaration.strip():
            found += [re.findall(r"\w+", re.sub(r"\[.*?\]", "", part))[-1] for part in declaration.split(",")]
    return found


def constructed_structs() -> dict[str, list[str]]:
    """Return the members in the .pxd files of the structs that Cython code constructs."""
    files = [path for package in PACKAGES for path in package.rglob("*") if path.suffix in (".pxd", ".pyx", ".pxi")]
    texts = [code(path) for path in files]
    calls = {name for text in texts for name in re.findall(r"\b(mq_\w+)\(", text)}
    declared = {name: body for text in texts for name, body in _DECLARATION.findall(text)}
    return {name: names_of_members(body.splitlines()) for name, body in declared.items() if name in calls}


def test_constructed_structs_have_all_members_of_their_headers() -> None:
    constructed = constructed_structs()
    texts = [without_comments(header.read_text()) for header in headers()]
    defined = {name: body for text in texts for body, name in _DEFINITION.findall(text)}
    assert "mq_poll_ops" in constructed
    assert {name: names_of_members(defined[name].split(";")) for name in constructed} == constructed
