"""The compiled structs and constants have the bytes and values of the protocol pages (layouts.py)."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

from msgq import posix_ipc
from msgq.common import queue_events
from msgq.impl.records import options as record_options
from msgq.impl.workqueue import options as queue_options
from msgq.records import cleanup as records_cleanup
from tests.meta.layouts import CONSTANTS, PROTOCOL_PAGES, STRUCTS, read_structs, size_of
from tests.meta.sources import ROOT
from tools.fuzz.build import compile_program

#: Headers with all structs and constants of the pages.
HEADERS = (
    "ring/layout.h",
    "gate/layout.h",
    "channel/layout.h",
    "workqueue/events.h",
    "workqueue/join.h",
    "records/cell.h",
)
LAYOUTS = (
    *("base/layout.h", "ring/layout.h", "gate/layout.h", "channel/pool.h", "channel/layout.h", "workqueue/layout.h"),
    "records/layout.h",
)
#: Structs of these headers that are in no file.
IN_MEMORY = {"mq_pool_map", "mq_channel_config", "mq_queue_file_parts", "mq_queue_part_offsets"}
IN_MEMORY |= {"mq_record_config", "mq_record_file_parts"}
SCHEMA_MARKS = 8 + 64 + 64 + 1 + 1 + 6  # before the data of a schema: version, identity, layout, their lengths


def test_compiled_layout_equals_protocol_pages(tmp_path: Path) -> None:
    values = dict(CONSTANTS)
    for name, (total, fields) in STRUCTS.items():
        if total is not None:
            values[f"sizeof({name})"] = total
        for field, (offset, size) in fields.items():
            values[f"offsetof({name}, {field})"] = offset
            if size is not None:
                values[f"sizeof((({name} *)0)->{field})"] = size
    lines = [f'    printf("{value} %llu\\n", (unsigned long long)({value}));' for value in values]
    includes = [f'#include "{header}"' for header in HEADERS]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(["#include <stdio.h>", *includes, "int main(void) {", *lines, "    return 0;\n}\n"]))
    program = compile_program(source, tmp_path / "layout")
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed == [f"{name} {value}" for name, value in values.items()]


@pytest.mark.parametrize("page", PROTOCOL_PAGES)
def test_tables_of_structs_have_no_gaps(page: str) -> None:
    """A field that is new in a header then needs a row of its own."""
    for name, (total, fields) in read_structs(page).items():
        end: int | None = 0
        for field, (offset, size) in fields.items():
            assert offset == end, f"{field} of {name}"
            end = None if size is None else offset + size
        assert end == total, name


def test_each_struct_of_layout_headers_is_on_protocol_page() -> None:
    texts = [(ROOT / "msgq" / "impl" / header).read_text() for header in LAYOUTS]
    found = {name for text in texts for name in re.findall(r"^typedef struct \{\n.*?^\} (\w+);", text, re.S | re.M)}
    assert found - IN_MEMORY == STRUCTS.keys() - {"mq_queue_event"}  # struct of events.h


def test_python_limits_of_queues_equal_protocol_page() -> None:
    assert CONSTANTS["MQ_QUEUE_MESSAGES_MAX"] == queue_options.MESSAGES_MAX
    assert CONSTANTS["MQ_QUEUE_MESSAGE_SIZE_MAX"] == queue_options.MESSAGE_SIZE_MAX
    assert size_of("mq_queue", "schema_data") - SCHEMA_MARKS == queue_options.SCHEMA_DATA_MAX
    assert queue_options.PRIORITY_MAX == posix_ipc.QUEUE_PRIORITY_MAX == CONSTANTS["MQ_QUEUE_PRIORITY_MAX"]


def test_python_limits_of_records_equal_protocol_page() -> None:
    assert CONSTANTS["MQ_RECORD_ELEMENTS_MAX"] == record_options.ELEMENTS_MAX
    assert CONSTANTS["MQ_RECORD_ITEM_BYTES_MAX"] == record_options.ITEM_BYTES_MAX
    assert CONSTANTS["MQ_RECORD_FILE_BYTES_MAX"] == record_options.FILE_BYTES_MAX
    assert CONSTANTS["MQ_RECORD_ROWS"] == records_cleanup.WRITERS_MAX
    assert CONSTANTS["MQ_RECORD_KEY_BYTES"] - 1 == record_options.KEY_BYTES_MAX
    assert size_of("mq_record_header", "schema_data") - SCHEMA_MARKS == record_options.SCHEMA_DATA_BYTES_MAX


def test_python_head_of_queue_events_equals_protocol_page() -> None:
    numpy = pytest.importorskip("numpy")
    dtype = numpy.dtype(list(queue_events.EVENT_FIELDS))
    size, fields = STRUCTS["mq_queue_event"]
    assert {name: (offset, kind.itemsize) for name, (kind, offset) in dtype.fields.items()} == fields
    assert dtype.itemsize == queue_events.EVENT_HEAD_BYTES == size
    head = bytes(range(0x80, 0x80 + size))  # the signs are equal, too
    assert struct.unpack(queue_events.EVENT_HEAD_FORMAT, head) == numpy.frombuffer(head, dtype)[0].item()
    for event in queue_events.Event:
        assert CONSTANTS[f"MQ_QUEUE_EVENT_{event.name}"] == event.value
