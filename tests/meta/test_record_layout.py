"""The bytes of vectors and boards, fixed like those of topics (test_layout.py), and docs/internals/record-protocol.md.

A failure means that other versions of this library would misread the file: raise MQ_RECORD_MAJOR.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.impl.base import clock
from msgq.impl.records import options
from msgq.records import Board, Seqlock, SeqlockVector
from tests.meta.sources import INTERNALS
from tests.meta.test_channel_layout import process_words
from tests.meta.test_layout import (
    Golden,
    check_compiled,
    check_complete,
    documented_constants,
    documented_offsets,
    words,
)
from tools.fuzz.build import compile_program

HEADERS = ("records/layout.h",)
OWN = frozenset({"mq_record_config", "mq_record_file_parts"})  # structs of this header that are in no file
GOLDEN: Golden = {
    "mq_record_header": {
        "magic": (0, 8),
        "version": (8, 8),
        "header_bytes": (16, 8),
        "total_bytes": (24, 8),
        "created_ns": (32, 8),
        "creator_pid": (40, 8),
        "length": (48, 8),
        "item_bytes": (56, 8),
        "copies": (64, 8),
        "stride": (72, 8),
        "copy_stride": (80, 8),
        "flags": (88, 8),
        "creator": (96, 64),
        "pad0": (160, 32),
        "eventcount": (192, 4),
        "pad1": (196, 60),
        "owner": (256, 8),
        "pad2": (264, 56),
        "room": (320, 3776),
        "rows": (4096, 16384),
        "schema": (20480, 304),
        "schema_data": (20784, 11984),
        "": (0, 32768),
    },
    "mq_record_row": {"at": (0, 72), "written": (72, 8), "pad": (80, 48), "": (0, 128)},
    "mq_record_key": {"owner": (0, 8), "named": (8, 8), "name": (16, 112), "": (0, 128)},
}
CONSTANTS = {
    "MQ_RECORD_MAGIC": 0x3130434552515347,
    "MQ_RECORD_MAJOR": 1,
    "MQ_RECORD_MINOR": 0,
    "MQ_RECORD_CREATOR_BYTES": 64,
    "MQ_RECORD_ROWS": 128,
    "MQ_RECORD_ROW_BYTE": 0,
    "MQ_RECORD_KEY_BYTES": 112,
    "MQ_RECORD_EXCLUSIVE": 1,
    "MQ_RECORD_BOARD": 2,
    "MQ_RECORD_CACHE_LINE_BYTES": 64,
    "MQ_RECORD_ITEM_BYTES_MAX": 1 << 30,
    "MQ_RECORD_ELEMENTS_MAX": (1 << 31) - 1,
    "MQ_RECORD_FILE_BYTES_MAX": 1 << 40,
    "MQ_CELL_COUNT_SHIFT": 24,
    "MQ_CELL_ROW_SHIFT": 16,
    "MQ_CELL_AHEAD_NS": 1_000_000_000,
}
# Item, copies: bytes from copy to copy, and from element to element.
CELLS = {
    (1, 2): (16, 64),
    (8, 2): (16, 64),
    (16, 2): (24, 64),
    (17, 2): (64, 128),
    (24, 2): (64, 128),
    (48, 2): (64, 128),
    (49, 2): (64, 192),
    (56, 2): (64, 192),
    (200, 2): (208, 448),
    (4096, 2): (4104, 8256),
    (8, 4): (64, 256),
    (48, 4): (64, 256),
    (56, 4): (64, 320),
    (200, 4): (208, 896),
    (4096, 4): (4104, 16448),
}
# Sections of docs/internals/record-protocol.md, and the struct that each has a table of.
SECTIONS = {"The header": "mq_record_header", "A row": "mq_record_row", "A key": "mq_record_key"}
ELEMENTS = 32768  # where they begin, in a vector
KEY_BYTES = 128


def test_compiled_record_layout_equals_pinned_offsets(tmp_path: Path) -> None:
    check_compiled(tmp_path, ("records/cell.h",), GOLDEN, CONSTANTS)


def test_pinned_record_layout_contains_each_header_field() -> None:
    """A field that is new in a header must be added above."""
    check_complete(HEADERS, GOLDEN, OWN)


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


def test_record_elements_have_pinned_layout(tmp_path: Path) -> None:
    """And as the arguments of a vector are checked with, of all small sizes."""
    cells = compiled_cells(tmp_path)
    assert len(cells) > 400
    for (item, copies), (copy_stride, stride, total, *copy_places) in cells.items():
        assert options.compute_cell_strides(item, copies) == (stride, copy_stride)
        assert CELLS.get((item, copies), (copy_stride, stride)) == (copy_stride, stride)
        assert total == ELEMENTS + 3 * stride
        second = ELEMENTS + stride
        assert copy_places == [second + 8 + times % copies * copy_stride for times in range(5)]
    assert sum(key in CELLS for key in cells) == len(CELLS) - 2


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


# ---- the documentation ----

PAGE = INTERNALS / "record-protocol.md"


@pytest.mark.parametrize("section", SECTIONS)
def test_documented_record_offsets_equal_pinned_offsets(section: Any) -> None:
    assert documented_offsets("record-protocol.md", section) == {
        k: v for k, v in GOLDEN[SECTIONS[section]].items() if k
    }


def test_documented_record_constants_equal_pinned_constants() -> None:
    assert documented_constants("record-protocol.md") == CONSTANTS


def test_documented_record_element_sizes_equal_compiled_sizes() -> None:
    cells = PAGE.read_text().partition("\n## Cells\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (2|4) \| (\d+) \| (\d+) \|", cells, re.MULTILINE)
    told = {(int(item), int(copies)): (int(copy_stride), int(stride)) for item, copies, copy_stride, stride in rows}
    assert len(told) > 5
    for (item, copies), (copy_stride, stride) in told.items():
        assert options.compute_cell_strides(item, copies) == (stride, copy_stride)


def test_record_limits_of_python_equal_limits_of_c_headers() -> None:
    assert CONSTANTS["MQ_RECORD_ELEMENTS_MAX"] == options.ELEMENTS_MAX
    assert CONSTANTS["MQ_RECORD_ITEM_BYTES_MAX"] == options.ITEM_BYTES_MAX
    assert CONSTANTS["MQ_RECORD_FILE_BYTES_MAX"] == options.FILE_BYTES_MAX
    assert CONSTANTS["MQ_RECORD_ROWS"] == options.WRITERS_MAX
    assert CONSTANTS["MQ_RECORD_KEY_BYTES"] == options.KEY_BYTES_MAX + 1
    assert GOLDEN["mq_record_header"][""][1] == options.HEADER_BYTES
    assert GOLDEN["mq_record_key"][""][1] == options.KEY_ENTRY_BYTES
    marks = 8 + 64 + 64 + 1 + 1 + 6  # version, identity, layout, their lengths
    assert GOLDEN["mq_record_header"]["schema_data"][1] == options.SCHEMA_DATA_BYTES_MAX + marks


# ---- what the library writes ----


def process_name() -> str:
    return Path("/proc/self/comm").read_text().strip()


def check_header(file: bytes, shape: tuple[int, ...], total: int, before: int) -> None:
    """`shape`: length, item bytes, copies, stride, copy stride, flags."""
    assert file[:8] == b"GSQREC01"
    assert words(file, 8, 3) == (1 << 32, ELEMENTS, total)
    assert len(file) == total
    (created,) = words(file, 32)
    assert before <= created <= clock.offset_ns() + time.monotonic_ns()
    assert words(file, 40) == (os.getpid(),)
    assert words(file, 48, 6) == shape
    assert file[96:160].rstrip(b"\0").decode() == process_name()
    assert not any(file[160:256]), "nobody sleeps"
    assert not any(file[264:4096])


def times_between(before: int, *found: int) -> None:
    assert all(before <= time_ns <= clock.offset_ns() + time.monotonic_ns() for time_ns in found)


def test_vector_file_has_golden_bytes(prefix: str) -> None:
    before = clock.offset_ns() + time.monotonic_ns()
    path = Path(f"/dev/shm/msgqrec_{prefix}/golden")
    dtype = np.dtype([("x", "<f8"), ("n", "<i4")])
    with SeqlockVector("golden", dtype, 3) as vector:
        assert not any(path.read_bytes()[4096:20480]), "who has written nothing has no row"
        vector[0] = (1.5, 7)
        vector[2] = (2.5, 8)
        vector[2] = (3.5, -1)
        file = path.read_bytes()
    check_header(file, (3, 12, 2, 64, 24, 0), ELEMENTS + 3 * 64, before)
    assert words(file, 256) == (0,), "nobody owns all"
    uid, *process = words(file, 4096, 5)
    assert uid
    assert tuple(process) == process_words()
    assert words(file, 4096 + 56, 3) == (uid, 1, 3), "locked_uid, generation, written"
    assert not any(file[4096 + 80 : 20480]), "other rows"
    assert words(file, 20480)[0] % 2 == 0, "turn"
    assert file[20480 + 64 : 20480 + 71] == b"Record\0"
    assert file[20480 + 256 : 20480 + 263] == b"struct\0"
    first = file[ELEMENTS : ELEMENTS + 64]
    assert words(first, 0) == (1 << 24,), "written once, and nobody writes"
    assert first[8:32] == bytes(24), "copy 0"
    times_between(before, *words(first, 32))
    assert first[40:52] == np.array((1.5, 7), dtype).tobytes(), "copy 1"
    assert not any(first[52:])
    assert not any(file[ELEMENTS + 64 : ELEMENTS + 128]), "never written"
    last = file[ELEMENTS + 128 :]
    assert words(last, 0) == (2 << 24,)
    times_between(before, *words(last, 8), *words(last, 32))
    assert words(last, 32) < words(last, 8)
    assert last[16:28] == np.array((3.5, -1), dtype).tobytes()
    assert last[40:52] == np.array((2.5, 8), dtype).tobytes()


def test_vector_file_with_four_copies_has_golden_bytes(prefix: str) -> None:
    path = Path(f"/dev/shm/msgqrec_{prefix}/golden")
    with Seqlock("golden", "<u8", copies=4) as element:
        for value in range(1, 7):
            element.write(value)
        file = path.read_bytes()
    assert words(file, 48, 6) == (1, 8, 4, 256, 64, 0)
    assert words(file, ELEMENTS) == (6 << 24,)
    assert [words(file, ELEMENTS + 8 + 64 * copy + 8)[0] for copy in range(4)] == [4, 5, 6, 3]


def test_exclusive_vector_file_has_golden_bytes(prefix: str) -> None:
    path = Path(f"/dev/shm/msgqrec_{prefix}/golden")
    with SeqlockVector("golden", "<u8", 2, exclusive=True) as vector:
        vector[1] = 5
        file = path.read_bytes()
        assert words(file, 88) == (1,), "flags"
        assert words(file, 256) == (1 << 16 | 1,), "owner: row 0, generation 1"
        assert words(file, ELEMENTS + 64) == (1 << 24,)
    file = path.read_bytes()
    assert words(file, 256) == (0,), "it is given back"
    assert words(file, 4096) == (0,), "and so is the row"
    assert words(file, 4096 + 64, 2) == (1, 1), "generation and written stay"
    with SeqlockVector("golden", "<u8", 2) as vector:
        vector.claim()
        assert words(path.read_bytes(), 256) == (1 << 16 | 2,), "the next generation"


def test_board_file_has_golden_bytes(prefix: str) -> None:
    before = clock.offset_ns() + time.monotonic_ns()
    path = Path(f"/dev/shm/msgqrec_{prefix}/golden")
    with Board("golden", keys=3, value_bytes=10, schema=msgq.Schema("a.B", "json", b"{}")) as board:
        board.declare("first").close()
        entry = board.declare("second")
        entry.write(b"some")
        entry.write(b"0123456789")
        file = path.read_bytes()
    elements = ELEMENTS + 3 * KEY_BYTES
    check_header(file, (3, 18, 2, 128, 64, 2), elements + 3 * 128, before)
    assert file[20480 + 64 : 20480 + 68] == b"a.B\0"
    assert words(file, ELEMENTS, 2) == (0, 1), "nobody's; named"
    assert file[ELEMENTS + 16 : ELEMENTS + KEY_BYTES] == b"first".ljust(112, b"\0")
    assert words(file, ELEMENTS + KEY_BYTES, 2) == (1 << 16 | 1, 1)
    assert file[ELEMENTS + KEY_BYTES + 16 : ELEMENTS + 2 * KEY_BYTES] == b"second".ljust(112, b"\0")
    assert not any(file[ELEMENTS + 2 * KEY_BYTES : elements + 128]), "no third key, no value of the first"
    second = file[elements + 128 : elements + 256]
    assert words(second, 0) == (2 << 24,)
    times_between(before, *words(second, 8), *words(second, 72))
    assert words(second, 16) == (10,), "its length"
    assert second[24:34] == b"0123456789"
    assert words(second, 80) == (4,)
    assert second[88:92] == b"some"
    file = path.read_bytes()
    assert words(file, ELEMENTS + KEY_BYTES, 2) == (0, 1), "given back when the board is closed"


def test_vector_file_with_waiting_reader_has_golden_bytes(prefix: str) -> None:
    path = Path(f"/dev/shm/msgqrec_{prefix}/golden")
    with SeqlockVector("golden", "<u8", 2) as vector:
        assert not vector.wait(0.01)
        assert words(path.read_bytes(), 192) == (1,), "eventcount: somebody may sleep"
        vector[0] = 1
        assert words(path.read_bytes(), 192) == (4,), "one wake, and nobody sleeps"
