"""The tables of counters tell the bits that the headers give them, and leave none out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.meta.sources import section
from tests.meta.test_loops import PAGES
from tests.support import ROOT
from tools.fuzz import build

HEADERS = (
    "channel/layout.h",
    "gate/layout.h",
    "leases.h",
    "records/cell.h",
    "ring/position.h",
    "workqueue/events.h",
    "workqueue/slot_state.h",
)
#: The bits of counters that share a word with something else, in C, by what the tables say of them.
PARTS = {
    ": the lap": "bits(mq_ring_cycle(UINT64_MAX))",
    "base_tag: the era": "32",
    "schema_shadow: the count": "32",
    ": wakes": "bits((uint32_t)~MQ_EVENTCOUNT_FLAGS)",
    ": sets": "bits((uint32_t)~MQ_FAKE_EVENT_SLEEPERS)",
    "entries: the position": "64 - MQ_INDEX_RING_SHIFT",
    "the write count": "bits(MQ_CELL_WRITE_COUNT_MAX)",
    "the generation of a row": (
        "bits(mq_cell_owner_generation(UINT64_MAX)) == bits(mq_slot_state_get_generation(UINT64_MAX)) ? 16 : 0"
    ),
    "the order": "bits(MQ_SLOT_ORDER_MASK)",
    "TAKEN word: the take": "bits(mq_slot_state_get_take_number(UINT64_MAX))",
    "lease: the take": "bits(mq_job_lease_encode(mq_slot_state_encode_taken(0, 0, UINT32_MAX), 0))",
    "lease: the tick": "bits(mq_job_lease_encode(0, UINT32_MAX))",
    "number of a message in events": "8 * (int)sizeof(((mq_queue_event *)0)->number)",
}
#: Fields of the layouts with these names count.
COUNTING = re.compile(
    r"sent|received|lost|resets|refused|retracted|acknowledged|returned|deliveries|written|dropped|begun|cursor|sequence"
    r"|era|turn|seq|schema_seq|tail|take|generation|seen_generation|ready|arrived|eventcount|released|count|events_lost|held"
)
LAYOUTS = [*ROOT.glob("msgq/impl/*/layout.h"), ROOT / "msgq/impl/channel/pool.h", ROOT / "visionipc/impl/leases.h"]
NO_COUNTERS = {"mq_event_gate.held", "mq_channel_header.ring_canary"}  # flags
OWN = {
    "mq_frame_buffer_mru",
    "mq_pool_map",
    "mq_channel_config",
    "mq_queue_file_parts",
    "mq_record_file_parts",
}  # in no file


def rows() -> list[tuple[list[str], str, int]]:
    """Return the fields of each row (``struct.field``), all that its first cell says, and its bits."""
    found = []
    for page in PAGES:
        for cell, bits in re.findall(r"^\| ([^|]+) \| (\d+) \|", section(page, "Counters"), re.MULTILINE):
            struct, fields = "", []
            for name in re.findall(r"`(\w+(?:\.\w+)?)`", cell):
                struct = name.partition(".")[0] if "." in name else struct
                fields.append(name if "." in name else f"{struct}.{name}")
            found.append((fields, cell.replace("`", ""), int(bits)))
    return found


def counter_bits_expression(fields: list[str], cell: str) -> str:
    for part, expressed in PARTS.items():
        if part in cell:
            return expressed
    first, *others = (f"width((({name.replace('.', ' *)0)->')})" for name in fields)
    return " && ".join(["1", *(f"{first} == {other}" for other in others)]) + f" ? {first} : 0"


def test_documented_counter_bits_equal_header_bits(tmp_path: Path) -> None:
    told = rows()
    assert len(told) > 30
    program = tmp_path / "bits.c"
    lines = [f'printf("%d\\n", (int)({counter_bits_expression(fields, cell)}));' for fields, cell, _ in told]
    includes = "".join(f'#include "{header}"\n' for header in HEADERS)
    program.write_text(
        f"#include <stdio.h>\n#include <errno.h>\n{includes}"
        "static int bits(uint64_t word) { return __builtin_popcountll(word); }\n"
        "#define width(word) _Generic((word), mq_u32: 32, mq_u32 *: 32, mq_u64: 64, mq_u64 *: 64)\n"
        f"int main(void) {{\n{chr(10).join(lines)}\n}}\n"
    )
    printed = subprocess.run([build.cached_program(program)], capture_output=True, text=True, check=True).stdout.split()
    assert {cell: int(bits) for (_, cell, _), bits in zip(told, printed, strict=True)} == {
        cell: bits for _, cell, bits in told
    }


def test_each_counter_field_is_documented_in_counter_table() -> None:
    told = {field for fields, _, _ in rows() for field in fields}
    untold = set()
    for path in LAYOUTS:
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        for body, struct in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, re.DOTALL):
            for field in re.findall(r"\bmq_u(?:32|64)\s+(\w+)", body):
                if struct not in OWN and COUNTING.fullmatch(field) and f"{struct}.{field}" not in told | NO_COUNTERS:
                    untold.add(f"{struct}.{field}")
    assert not untold
