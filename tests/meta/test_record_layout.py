"""The bytes of docs/internals/record-protocol.md: cells, and what the library writes into vectors and boards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

import msgq
from msgq.impl.base import clock
from msgq.records import Board, Seqlock, SeqlockVector
from tests.meta.layouts import (
    CONSTANTS,
    cell_strides,
    locked_bytes,
    own_identity,
    process_name,
    read,
    read_rows,
    size_of,
    text,
    words,
)
from tests.meta.sources import section
from tools.fuzz.build import compile_program

ELEMENTS = size_of("mq_record_header")  # offset of the elements in a vector's file
KEY_BYTES = size_of("mq_record_key")

# ---- cells ----

PROGRAM = """
#include <stdio.h>
#include "records/cell.h"

int main(void) {
    for (uint64_t item = 1; item <= 5000; item += item < 200 ? 1 : 97)
        for (uint64_t copies = 2; copies <= 4; copies += 2) {
            mq_record_config shape = {.length = 3, .item_bytes = item, .copies = copies};
            static _Alignas(64) mq_record_header record;
            mq_record_file_parts parts;
            uint64_t bytes = mq_record_compute_file_parts(&parts, &record, &shape);
            mq_u64 *second = mq_cell_version_word(&parts, 1);
            printf("%llu %llu %llu %llu %llu", (unsigned long long)item, (unsigned long long)copies,
                   (unsigned long long)parts.copy_stride, (unsigned long long)parts.stride, (unsigned long long)bytes);
            for (uint64_t times = 0; times < 5; times++)
                printf(" %ld", (long)((uint8_t *)mq_cell_value_copy_at(&parts, second, times) - (uint8_t *)&record));
            printf("\\n");
        }
    return 0;
}
"""


def compiled_cells(folder: Path) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return, of items and copies, what a file of three elements has: strides, bytes, and copies of the second one."""
    (folder / "cells.c").write_text(PROGRAM)
    program = compile_program(folder / "cells.c", folder / "cells")
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [tuple(int(word) for word in line.split()) for line in printed]
    return {(row[0], row[1]): row[2:] for row in rows}


def documented_cells() -> dict[tuple[int, int], tuple[int, int]]:
    """Return the strides of the page's table, by items and copies."""
    table = section("record-protocol.md", "Cells")
    rows = re.findall(r"^\| (\d+) \| (2|4) \| (\d+) \| (\d+) \|", table, re.MULTILINE)
    return {(int(item), int(copies)): (int(copy_stride), int(stride)) for item, copies, copy_stride, stride in rows}


def test_record_elements_have_documented_layout(tmp_path: Path) -> None:
    """And elements of all small sizes have the layout by which other tests compute it."""
    cells, documented = compiled_cells(tmp_path), documented_cells()
    assert len(cells) > 400
    assert len(documented.keys() & cells.keys()) > 7
    for (item, copies), strides in documented.items():
        assert cell_strides(item, copies) == strides[::-1]
    for (item, copies), (copy_stride, stride, total, *copy_places) in cells.items():
        assert cell_strides(item, copies) == (stride, copy_stride)
        assert total == ELEMENTS + 3 * stride
        second = ELEMENTS + stride
        assert copy_places == [second + 8 + times % copies * copy_stride for times in range(5)]


def test_record_copies_fit_cache_lines_and_do_not_overlap(tmp_path: Path) -> None:
    """A copy that fits into a line is in one; elements share none; none overlaps the next, or its element's end."""
    for (item, copies), (copy_stride, stride, _, *copy_places) in compiled_cells(tmp_path).items():
        assert stride % 64 == 0
        ends = [place + 8 + item for place in copy_places[:copies]]
        assert ends[-1] <= ELEMENTS + 2 * stride
        assert all(end <= place for end, place in zip(ends, copy_places[1:copies], strict=False))
        if 16 + item <= 64:
            assert all(place // 64 == (end - 1) // 64 for place, end in zip(copy_places, ends, strict=False))
        assert copy_stride % 8 == 0


# ---- bytes that the library writes ----


def read_file(prefix: str) -> bytes:
    return Path(f"/dev/shm/msgqrec_{prefix}/golden").read_bytes()


def check_header(file: bytes, before: int, **shape: int) -> dict[str, Any]:
    """Check the header of a new file, and return its rows, schema and schema data."""
    assert file[:8] == b"GSQREC01"
    header = read("mq_record_header", file)
    assert before <= header.pop("created_ns") <= clock.offset_ns() + time.monotonic_ns()
    rest: dict[str, Any] = {name: header.pop(name) for name in ("rows", "schema", "schema_data") if name in header}
    assert header == {  # nobody owns all, and nobody sleeps
        "magic": CONSTANTS["MQ_RECORD_MAGIC"],
        "version": 1 << 32,
        "header_bytes": ELEMENTS,
        "total_bytes": len(file),
        "creator_pid": os.getpid(),
        "creator": text(process_name(), 64),
        **shape,
    }
    return rest


def read_row(file: bytes) -> tuple[dict[str, Any], int, int]:
    """Return the participant, the generation and the count of writes of the only row."""
    rows = read_rows("mq_record_row", read("mq_record_header", file)["rows"])
    assert rows.keys() == {0}
    at = read("mq_versioned_row", rows[0].pop("at"))
    return read("mq_participant", at.get("participant", bytes(64))), at["generation"], rows[0]["written"]


def times_between(before: int, *found: int) -> None:
    assert all(before <= time_ns <= clock.offset_ns() + time.monotonic_ns() for time_ns in found)


def word(data: bytes, at: int) -> int:
    return words(data[at : at + 8])[0]


def test_vector_file_has_golden_bytes(prefix: str) -> None:
    before = clock.offset_ns() + time.monotonic_ns()
    dtype = np.dtype([("x", "<f8"), ("n", "<i4")])
    with SeqlockVector("golden", dtype, 3) as vector:
        assert "rows" not in read("mq_record_header", read_file(prefix)), "who has written nothing has no row"
        vector[0] = (1.5, 7)
        vector[2] = (2.5, 8)
        vector[2] = (3.5, -1)
        assert locked_bytes(Path(f"/dev/shm/msgqrec_{prefix}/golden")) == [0]
        file = read_file(prefix)
    found = check_header(file, before, length=3, item_bytes=12, copies=2, stride=64, copy_stride=24)
    assert len(file) == ELEMENTS + 3 * 64
    own_identity(read("mq_record_row", found["rows"])["at"])
    assert read_row(file)[1:] == (1, 3), "generation, written"
    schema = read("mq_schema", found["schema"])
    assert schema["seq"] % 2 == 0
    assert (schema["name"], schema["encoding"]) == (text("Record", 192), text("struct", 48))
    assert json.loads(found["schema_data"][144 : schema["bytes"]]) == [["x", "<f8"], ["n", "<i4"]]
    first = file[ELEMENTS : ELEMENTS + 64]
    assert word(first, 0) == 1 << 24, "written once, and nobody writes"
    assert first[8:32] == bytes(24), "copy 0"
    times_between(before, word(first, 32))
    assert first[40:] == np.array((1.5, 7), dtype).tobytes().ljust(24, b"\0"), "copy 1"
    assert not any(file[ELEMENTS + 64 : ELEMENTS + 128]), "never written"
    last = file[ELEMENTS + 128 :]
    assert word(last, 0) == 2 << 24
    times_between(before, word(last, 8), word(last, 32))
    assert word(last, 32) < word(last, 8)
    assert last[16:28] == np.array((3.5, -1), dtype).tobytes()
    assert last[40:52] == np.array((2.5, 8), dtype).tobytes()


def test_vector_file_with_four_copies_has_golden_bytes(prefix: str) -> None:
    with Seqlock("golden", "<u8", copies=4) as element:
        for value in range(1, 7):
            element.write(value)
        file = read_file(prefix)
    header = read("mq_record_header", file)
    assert [header[name] for name in ("length", "item_bytes", "copies", "stride", "copy_stride")] == [1, 8, 4, 256, 64]
    assert json.loads(header["schema_data"][144 : read("mq_schema", header["schema"])["bytes"]]) == "<u8"
    assert word(file, ELEMENTS) == 6 << 24
    assert [word(file, ELEMENTS + 8 + 64 * copy + 8) for copy in range(4)] == [4, 5, 6, 3]


def test_exclusive_vector_file_has_golden_bytes(prefix: str) -> None:
    with SeqlockVector("golden", "<u8", 2, exclusive=True) as vector:
        vector[1] = 5
        file = read_file(prefix)
        header = read("mq_record_header", file)
        assert header["flags"] == CONSTANTS["MQ_RECORD_EXCLUSIVE"]
        assert header["owner"] == 1 << 16 | 1, "row 0, generation 1"
        assert word(file, ELEMENTS + 64) == 1 << 24
    file = read_file(prefix)
    assert "owner" not in read("mq_record_header", file), "it is given back"
    participant, *counts = read_row(file)
    assert "uid" not in participant, "and so is the row"
    assert counts == [1, 1], "generation and written stay"
    with SeqlockVector("golden", "<u8", 2) as vector:
        vector.claim()
        assert read("mq_record_header", read_file(prefix))["owner"] == 1 << 16 | 2, "the next generation"


def test_board_file_has_golden_bytes(prefix: str) -> None:
    before = clock.offset_ns() + time.monotonic_ns()
    with Board("golden", keys=3, value_bytes=10, schema=msgq.Schema("a.B", "json", b"{}")) as board:
        board.declare("first").close()
        entry = board.declare("second")
        entry.write(b"some")
        entry.write(b"0123456789")
        file = read_file(prefix)
    flags = CONSTANTS["MQ_RECORD_BOARD"]
    found = check_header(file, before, length=3, item_bytes=18, copies=2, stride=128, copy_stride=64, flags=flags)
    elements = ELEMENTS + 3 * KEY_BYTES
    assert len(file) == elements + 3 * 128
    assert read("mq_schema", found["schema"])["name"] == text("a.B", 192)
    assert read_rows("mq_record_key", file[ELEMENTS:elements]) == {
        0: {"named": 1, "name": text("first", 112)},
        1: {"owner": 1 << 16 | 1, "named": 1, "name": text("second", 112)},
    }
    assert not any(file[elements : elements + 128]), "no value of the first"
    second = file[elements + 128 : elements + 256]
    assert word(second, 0) == 2 << 24
    times_between(before, word(second, 8), word(second, 72))
    assert (word(second, 16), second[24:34]) == (10, b"0123456789"), "the length, and the value"
    assert (word(second, 80), second[88:92]) == (4, b"some")
    keys = read_rows("mq_record_key", read_file(prefix)[ELEMENTS:elements])
    assert "owner" not in keys[1], "given back when the board is closed"


def test_vector_file_with_waiting_reader_has_golden_bytes(prefix: str) -> None:
    with SeqlockVector("golden", "<u8", 2) as vector:
        assert not vector.wait(0.01)
        assert read("mq_record_header", read_file(prefix))["eventcount"] == 1, "somebody may sleep"
        vector[0] = 1
        assert read("mq_record_header", read_file(prefix))["eventcount"] == 4, "one wake, and nobody sleeps"
