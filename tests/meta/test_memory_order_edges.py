"""Orders come in pairs that name each other, and each relaxed access says why it may be."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.cases import each_case
from tests.meta.sources import INTERNALS, Function, functions, head_comment, headers, without_comments

# Words of a side about its own order, or about the order that the other side makes for it.
RELEASING = re.compile(r"release|sequentially consistent|is stored, then")
ACQUIRING = re.compile(r"acquire|membarrier|sequentially consistent")
SIDE = re.compile(r"EDGE ([\w-]+):((?:(?!EDGE [\w-]+:).)*)")


# The order of an access to shared memory. A comment stands before its access, or after it on the same line.
ACCESS = re.compile(r"mq_(?:load|store|fence|compare_exchange|fetch|membarrier|order|pin|cell|eventcount)\w*\(")
STRONG = r"mq_(?:fence_seq_cst|compare_exchange_|fetch_|membarrier|load_seq_cst_)"
HAS_ORDER = {
    "release": re.compile(rf"{STRONG}|mq_(?:store_release_|fence_release)"),
    "acquire": re.compile(rf"{STRONG}|mq_(?:load_acquire_|fence_acquire)"),
    "sequentially consistent": re.compile(rf"{STRONG}|mq_store_\w+\( mq_fence_seq_cst"),
}
ORDER = re.compile(r"EDGE ([\w-]+): (release|acquire|sequentially consistent)\b")


def find_edge_comments() -> dict[str, list[tuple[Function, str]]]:
    """Return, for each edge, where it is mentioned as "EDGE name: ..." and what is said there."""
    found: dict[str, list[tuple[Function, str]]] = defaultdict(list)
    for function in functions():
        for comment in function.comments:
            for name, text in SIDE.findall(comment):
                found[name].append((function, text))
    return dict(found)


EDGES = find_edge_comments()


def test_memory_order_edges_are_found_in_header_comments() -> None:
    rings = {"commit", "grant", "checkpoint", "send-done", "sleep", "takeover", "schema", "claim", "frame", "lease"}
    queues = {"free", "fill-count", "message", "sent", "sleeper-bit", "lease-end", "empty-notify", "taken-time"}
    queues.add("word-owner")
    records = {"cell", "value", "key"}
    assert set(EDGES) >= rings | {"order-init", "order", "slot", "pin", "unpin", "pool"} | queues | records


@each_case("edge", EDGES)
def test_memory_order_edges_have_release_and_acquire(edge: str) -> None:
    releasing = {function.name for function, text in EDGES[edge] if RELEASING.search(text)}
    acquiring = {function.name for function, text in EDGES[edge] if ACQUIRING.search(text)}
    assert releasing, f"no side of EDGE {edge} releases"
    assert acquiring, f"no side of EDGE {edge} acquires"
    assert len(releasing | acquiring) > 1, f"EDGE {edge} is within {releasing}"


@each_case("edge", EDGES)
def test_memory_order_edge_comments_name_partner_functions(edge: str) -> None:
    wrong = []
    for function, text in EDGES[edge]:
        partners = re.findall(r"\bmq_\w+", text.partition("Partner")[2])
        others = {other.name for other, _ in EDGES[edge]} - {function.name}
        if not partners:
            wrong.append(f"{function.header}: {function.name} names none")
        wrong += [f"{function.header}: {function.name} names {name}, a stranger" for name in set(partners) - others]
    assert not wrong


@each_case("edge", EDGES)
def test_memory_order_edges_are_documented_on_protocol_pages(edge: str) -> None:
    pages = list(INTERNALS.glob("*protocol.md"))
    assert any(f"EDGE {edge}" in page.read_text() for page in pages)
    assert re.search(rf"\b{edge}\b", (INTERNALS / "aarch64.md").read_text())


@each_case("header", [path for path in headers() if path.name != "atomics.h"])
def test_relaxed_memory_accesses_have_comments_with_reasons(header: Path) -> None:
    """In the same function, in the comment above it, or for a whole file in its first comment."""
    if "relaxed" in head_comment(header):
        return
    relaxed = re.compile(r"mq_(?:load|store)_relaxed_u\d\d\(")
    wrong = [
        function.name
        for function in functions()
        if function.header == header.name
        and relaxed.search(function.code)
        and "relaxed" not in " ".join(function.comments)
    ]
    assert not wrong


def test_header_parser_finds_each_function() -> None:
    """The checks above are only as good as the reader of the headers."""
    texts = [path.read_text() for path in headers()]
    defined = sum(len(re.findall(r"^static [^;{=]*\([^;{]*\) \{", text, re.MULTILINE)) for text in texts)
    assert len(functions()) == defined > 80
    assert all(function.code.count("{") == function.code.count("}") for function in functions())


def test_memory_accesses_have_orders_stated_in_their_comments() -> None:
    wrong = []
    for function in functions():
        for start, end, comment in function.placed_comments():
            line = function.text[:start].rpartition("\n")[2]
            accesses = " ".join(ACCESS.findall(line + without_comments(function.text[end:])))
            wrong += [
                f"{function.header}: {function.name}: EDGE {name} {order}, and then {accesses.partition(' ')[0]}"
                for name, order in ORDER.findall(comment)
                if not HAS_ORDER[order].match(accesses)
            ]
    assert not wrong
