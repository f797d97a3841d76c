"""Writes a C program that calls each public function with NULL for each of its pointers, from the public headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HANDLES = ("publisher", "subscriber", "channel_publisher", "channel_subscriber", "queue", "vector", "board")
# Parameters that may be NULL, in each function or in one function.
OPTIONAL = {"options", "info", "attached", "updated", "received", "lost", "max_messages", "max_message_size"}
OPTIONAL |= {"msgq_vector_read items", "msgq_vector_read counts", "msgq_vector_read times", "msgq_vector_changes items"}
SIZES = {"data": "size", "buffer": "buffer_bytes", "indices": "max_changes", "items": "count"}
VALUES = {
    "size": "1",
    "buffer_bytes": "8",
    "max_changes": "8",
    "count": "1",
    "key": '"key"',
    "job": "&job",
    "indices": "indices",
}
NUMBERS = ("int", "double", "size_t", "int64_t", "uint64_t", "uint32_t")

BEGINNING = """/* Written by c_null_calls.py. */
#include <msgq.h>
#include <stdio.h>
#include <string.h>

#define CHECK(call, expected) \\
    do { \\
        puts(#call); /* the last line of a program that crashes */ \\
        if (!(call expected)) \\
            return printf("expected %s, but: %s\\n", #expected, msgq_error_text()); \\
    } while (0)

static uint64_t indices[8];
static char bytes[4096];
static msgq_job job;
"""
MAIN = """
int main(void) {
    msgq_vector_options options = {.dtype = "<f8", .item_bytes = 8, .length = 4};
    int failed = msgq_vector_open(&vector, "vector", &options) || msgq_board_open(&board, "board", NULL);
    failed |= msgq_publisher_open(&publisher, "publisher", NULL);
    failed |= msgq_subscriber_open(&subscriber, "subscriber", NULL);
    failed |= msgq_channel_publisher_open(&channel_publisher, "channel_publisher", NULL);
    failed |= msgq_channel_subscriber_open(&channel_subscriber, "channel_subscriber", NULL);
    failed |= msgq_queue_open(&queue, "queue", NULL);
    if (failed || msgq_board_declare(board, "key") != 0)
        return 1;
"""


class Function(NamedTuple):
    """A public function with the types and names of its parameters."""

    result: str
    name: str
    parameters: list[tuple[str, str]]


def public_functions(text: str) -> list[Function]:
    """Return the functions that a header declares."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = re.findall(r"^((?:const )?\w+ \*?)(msgq_\w+)\(([^)]*)\);", text, re.MULTILINE)
    functions = []
    for result, name, listed in found:
        words = [] if listed == "void" else [re.sub(r"\s+", " ", each).strip() for each in listed.split(",")]
        parameters = [re.fullmatch(r"(.*[ *])(\w+)", each) for each in words]
        functions.append(Function(result.strip(), name, [(p[1].strip(), p[2]) for p in parameters if p]))
    assert {each.name for each in functions} == set(re.findall(r"\b(msgq_\w+)\(", text)), "all functions are found"
    return functions


def valid_value(kind: str, name: str, endpoint: str) -> str:
    """Return an argument that the function accepts."""
    handle = kind.removeprefix("const ").removeprefix("msgq_").rstrip(" *")
    if kind.endswith("**"):
        return f"&spare_{handle}"
    if handle in HANDLES:
        return handle
    if name in VALUES:
        return VALUES[name]
    if kind in NUMBERS:
        return "0"
    if "options" in kind:
        return "NULL"
    return f'"{endpoint}"' if kind == "const char *" else "(void *)bytes"


def null_calls(function: Function) -> Iterator[str]:
    """Return the statements that call the function with NULL for each pointer."""
    endpoint = function.name.removeprefix("msgq_").removesuffix("_open")
    valid = {name: valid_value(kind, name, endpoint) for kind, name in function.parameters}
    expected = {"uint64_t": "== 0", "void": ""}.get(function.result, "== -EINVAL")
    for kind, name in function.parameters:
        if not kind.endswith("*"):
            continue
        size = SIZES.get(name)
        changes: list[tuple[dict[str, str], str]] = [({name: "NULL"}, expected)]
        if name in OPTIONAL or f"{function.name} {name}" in OPTIONAL:
            changes = [({name: "NULL"}, "!= -EINVAL")]
        elif size in valid:
            changes.append(({name: "NULL", size: "0"}, "!= -EINVAL"))
        for change, result in changes:
            call = f"{function.name}({', '.join((valid | change).values())})"
            yield f"CHECK({call}, {result});" if result else f"{call};"
            if function.name.endswith("_open") and result == "!= -EINVAL":
                yield f"msgq_{endpoint}_close(spare_{endpoint});"


def write_null_calls(headers: Path, to: Path) -> None:
    """Write the program."""
    functions = [each for path in sorted(headers.glob("*.h")) for each in public_functions(path.read_text())]
    handles = "".join(f"static msgq_{each} *{each}, *spare_{each};\n" for each in HANDLES)
    calls = "".join(f"    {statement}\n" for function in functions for statement in null_calls(function))
    closes = "".join(f"    msgq_{each}_close({each});\n" for each in HANDLES)
    to.write_text(f"{BEGINNING}{handles}{MAIN}{calls}{closes}    return 0;\n}}\n")
