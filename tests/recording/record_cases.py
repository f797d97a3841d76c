"""A file for each kind of MCAP record, with that record as it should be, longer, shorter, and with lengths that lie.

All of them have two chunks with a message of endpoint "a" each, which must be found whatever the record is like.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mcap import records

from tests.recording.logs import MCAP_MAGIC, build_chunk_record, build_recording_head, channel, encode_parts, message

FIRST = build_chunk_record(channel(1, "a"), message(1, 0, 5, b"first"))
LAST = build_chunk_record(channel(1, "a"), message(1, 1, 9, b"last"))
FOUND = [("a", b"first"), ("a", b"last")]
DATA_END = encode_parts(records.DataEnd(0))


class Case(NamedTuple):
    """A file, the messages that are found in it, and what problems say; "": there are none, None: whatever."""

    content: bytes
    messages: list[tuple[str, bytes]]
    problem: str | None

    def write(self, path: Path) -> Path:
        path.write_bytes(self.content)
        return path


def build_message_index(number: int, log_time: int) -> bytes:
    return encode_parts(records.MessageIndex(number, [(log_time, 0)]))


def append_unknown_bytes(record: bytes) -> bytes:
    """Return it with bytes behind those that are known, as a later MCAP may have them."""
    return record[:1] + struct.pack("<Q", len(record) - 9 + 5) + record[9:] + b"extra"


def cut_record(record: bytes) -> bytes:
    """Return it with too few bytes, and a length that says so."""
    size = (len(record) - 9) // 2
    return record[:1] + struct.pack("<Q", size) + record[9 : 9 + size]


def falsify_length(record: bytes, added: int) -> bytes:
    """Return it with a length that is not its own."""
    return record[:1] + struct.pack("<Q", len(record) - 9 + added) + record[9:]


def build_file(*data: bytes, start: bytes | None = None) -> bytes:
    """Return a file without a summary: these records between the two chunks."""
    begin = build_recording_head() if start is None else start
    end = encode_parts(records.Footer(0, 0, 0)) + MCAP_MAGIC
    return (
        begin + FIRST + build_message_index(1, 5) + b"".join(data) + LAST + build_message_index(1, 9) + DATA_END + end
    )


def file_with_summary(*records_after: bytes, change: Any = None, footer: Any = None) -> bytes:
    """Return a file with a summary of it and these records.

    `change`: of the record of each chunk's index. `footer`: makes one of the summary's offset and its CRC.
    """
    begin, data = build_recording_head(), b""
    summary = encode_parts(channel(1, "a"))
    for part, log_time in ((FIRST, 5), (LAST, 9)):
        place = len(begin + data)
        entry = records.ChunkIndex(
            chunk_length=len(part),
            chunk_start_offset=place,
            compression="zstd",
            compressed_size=len(part) - 53,
            message_end_time=log_time,
            message_start_time=log_time,
            uncompressed_size=1000,
            message_index_length=len(build_message_index(1, log_time)),
            message_index_offsets={1: place + len(part)},
        )
        data += part + build_message_index(1, log_time)
        summary += change(encode_parts(entry)) if change else encode_parts(entry)
    data, summary = data + DATA_END, summary + b"".join(records_after)
    start = len(begin + data)
    crc = zlib.crc32(summary + struct.pack("<BQQQ", 2, 20, start, 0))
    end = footer(start, crc) if footer else encode_parts(records.Footer(start, 0, crc))
    return begin + data + summary + end + MCAP_MAGIC


ATTACHMENT = records.Attachment(create_time=1, data=b"of any kind", log_time=6, media_type="text/plain", name="note")
METADATA = records.Metadata("note", {"by": "test"})
SCHEMA = records.Schema(id=5, name="Number", encoding="jsonschema", data=b"{}")
STATISTICS = records.Statistics(
    attachment_count=0,
    channel_count=1,
    channel_message_counts={1: 2},
    chunk_count=2,
    message_count=2,
    message_end_time=9,
    message_start_time=5,
    metadata_count=0,
    schema_count=0,
)
LIES = records.Statistics(
    attachment_count=7,
    channel_count=9,
    channel_message_counts={1: 0, 7: 10**9},
    chunk_count=0,
    message_count=10**12,
    message_end_time=3,
    message_start_time=2**64 - 1,
    metadata_count=1,
    schema_count=1,
)
#: Records between chunks that say nothing about messages; and whether one with too few bytes is noticed.
BESIDE = {
    "schema": (SCHEMA, "is invalid: "),
    "channel": (channel(5, "five"), "is invalid: "),
    "message index": (records.MessageIndex(1, [(5, 0)] * 9), ""),
    "attachment": (ATTACHMENT, ""),
    "metadata": (METADATA, "is invalid: "),
}
IN_SUMMARY = {
    "schema": (SCHEMA, "is invalid: "),
    "channel": (channel(5, "five"), "is invalid: "),
    "attachment index": (records.AttachmentIndex(9, 107, 1, 6, 11, "note", "text/plain"), ""),
    "metadata index": (records.MetadataIndex(offset=107, length=50, name="note"), ""),
    "statistics": (STATISTICS, ""),
    "summary offset": (records.SummaryOffset(group_opcode=8, group_start=107, group_length=50), ""),
}
PART = build_chunk_record(channel(2, "b"), message(2, 0, 7, b"middle"))
WITH_PART = [FOUND[0], ("b", b"middle"), FOUND[1]]
SINGLE = encode_parts(message(1, 7, 7, b"middle"))
WITH_SINGLE = [FOUND[0], ("a", b"middle"), FOUND[1]]
HEADER = encode_parts(records.Header("other", "test"))


def _cases() -> Iterator[tuple[str, Case]]:
    for name, (record, says) in BESIDE.items():
        data = encode_parts(record)
        yield f"{name}", Case(build_file(data), FOUND, "")
        yield f"{name}, longer", Case(build_file(append_unknown_bytes(data)), FOUND, "")
        yield f"{name}, shorter", Case(build_file(cut_record(data)), FOUND, says)
        yield f"{name}, length slightly too large", Case(build_file(falsify_length(data, 3)), FOUND, "wrong length")
        yield (
            f"{name}, length too large by one chunk",
            Case(build_file(falsify_length(data, len(LAST) - 4)), FOUND, "wrong length"),
        )
        yield f"{name}, length too small", Case(build_file(falsify_length(data, -7)), FOUND, None)
        yield f"{name}, length beyond the end", Case(build_file(falsify_length(data, 2**40)), FOUND, "does not fit")
        yield f"{name}, unknown opcode", Case(build_file(b"\x33" + data[1:]), FOUND, "")
        yield f"{name}, opcode of data end", Case(build_file(b"\x0f" + data[1:]), FOUND, "but more data follow")
        yield f"{name}, opcode of footer", Case(build_file(b"\x02" + data[1:]), FOUND, "but more data follow")
        yield f"{name}, private opcode", Case(build_file(b"\x80" + data[1:]), FOUND, "")
    for name, (record, says) in IN_SUMMARY.items():
        data = encode_parts(record)
        yield f"summary: {name}", Case(file_with_summary(data), FOUND, "")
        yield f"summary: {name}, longer", Case(file_with_summary(append_unknown_bytes(data)), FOUND, "")
        yield f"summary: {name}, shorter", Case(file_with_summary(cut_record(data)), FOUND, says)
        yield (
            f"summary: {name}, length too large",
            Case(file_with_summary(falsify_length(data, 3)), FOUND, "no summary"),
        )
        yield f"summary: {name}, length too small", Case(file_with_summary(falsify_length(data, -3)), FOUND, None)
    yield "summary: false statistics", Case(file_with_summary(encode_parts(LIES)), FOUND, "")
    yield "summary: chunk in summary", Case(file_with_summary(PART), [*FOUND, ("b", b"middle")], "no summary")
    yield from _containers()
    yield from _ends()


def _containers() -> Iterator[tuple[str, Case]]:
    yield "message", Case(build_file(SINGLE), WITH_SINGLE, "")
    yield (
        "message, longer",
        Case(build_file(append_unknown_bytes(SINGLE)), [FOUND[0], ("a", b"middleextra"), FOUND[1]], ""),
    )
    yield "message, shorter", Case(build_file(cut_record(SINGLE)), FOUND, "too short")
    yield "message, length beyond the end", Case(build_file(falsify_length(SINGLE, 2**40)), FOUND, "does not fit")
    yield "message, length too large", Case(build_file(falsify_length(SINGLE, 3)), FOUND, "wrong length")
    yield "chunk", Case(build_file(PART), WITH_PART, "")
    yield "chunk, longer", Case(build_file(append_unknown_bytes(PART)), WITH_PART, "")
    yield "chunk, shorter", Case(build_file(cut_record(PART)), FOUND, "does not fit")
    yield "chunk, head only", Case(build_file(PART[:1] + struct.pack("<Q", 32) + PART[9:41]), FOUND, "does not fit")
    yield "chunk, length slightly too large", Case(build_file(falsify_length(PART, 3)), FOUND, "wrong length")
    yield (
        "chunk, length too large by one chunk",
        Case(build_file(falsify_length(PART, len(LAST))), FOUND, "wrong length"),
    )
    yield "chunk, length beyond the end", Case(build_file(falsify_length(PART, 2**40)), FOUND, "does not fit")
    yield "empty chunk", Case(build_file(build_chunk_record()), FOUND, "")
    for name in ("zstd", "lz4", ""):
        part = build_chunk_record(channel(2, "b"), message(2, 0, 7, b"middle"), compression=name)
        yield f"chunk of {name or 'no compression'}", Case(build_file(part), WITH_PART, "")
        yield (
            f"chunk of {name or 'no compression'}, longer",
            Case(build_file(append_unknown_bytes(part)), WITH_PART, ""),
        )
        yield (
            f"chunk of {name or 'no compression'}, after damage",
            Case(build_file(falsify_length(build_message_index(1, 5), 2**40), part), WITH_PART, "does not fit"),
        )
        yield (
            f"chunk of {name or 'no compression'}, no CRC",
            Case(
                build_file(build_chunk_record(channel(2, "b"), message(2, 0, 7, b"middle"), compression=name, crc=0)),
                WITH_PART,
                "",
            ),
        )
    for name, data in (("zstd", b"\x28\xb5\x2f\xfd\x04\x00\x01\x00\x00"), ("lz4", b"\x04\x22\x4d\x18\x64\x40\xa7")):
        part = encode_parts(records.Chunk(name, data + b"garbage", 7, 7, 0, 100))
        yield f"chunk of {name}, corrupt within", Case(build_file(part), FOUND, f"{name} cannot decompress")
    nested = build_chunk_record(PART, channel(2, "b"), message(2, 0, 7, b"middle"))
    yield "nested chunk", Case(build_file(nested), WITH_PART, None)


def _ends() -> Iterator[tuple[str, Case]]:
    metadata = build_recording_head()[len(MCAP_MAGIC) :][
        9 + struct.unpack_from("<Q", build_recording_head(), len(MCAP_MAGIC) + 1)[0] :
    ]
    for name, data in (("valid", HEADER), ("longer", append_unknown_bytes(HEADER))):
        yield f"header, {name}", Case(build_file(start=MCAP_MAGIC + data), FOUND, "")
    yield "header shorter", Case(build_file(start=MCAP_MAGIC + cut_record(HEADER)), FOUND, "is invalid: ")
    yield "header missing", Case(build_file(start=MCAP_MAGIC + metadata), FOUND, "")
    yield (
        "header, length too large",
        Case(build_file(start=MCAP_MAGIC + falsify_length(HEADER, 3)), FOUND, "wrong length"),
    )
    yield (
        "header, length beyond the end",
        Case(build_file(start=MCAP_MAGIC + falsify_length(HEADER, 2**40)), FOUND, "does not fit"),
    )
    yield "data end longer", Case(build_file().replace(DATA_END, append_unknown_bytes(DATA_END)), FOUND, "")
    yield "data end shorter", Case(build_file().replace(DATA_END, cut_record(DATA_END)), FOUND, "")
    yield "data end missing", Case(build_file().replace(DATA_END, b""), FOUND, "")
    yield "data end in the middle", Case(build_file(DATA_END), FOUND, "but more data follow")
    yield "chunk index", Case(file_with_summary(), FOUND, "")
    yield "chunk index longer", Case(file_with_summary(change=append_unknown_bytes), FOUND, "")
    yield "chunk index shorter", Case(file_with_summary(change=cut_record), FOUND, "is invalid: ")
    yield "chunk index missing", Case(file_with_summary(change=lambda _: b""), FOUND, "")
    shifted = Case(file_with_summary(change=_shift), FOUND, "")
    yield "chunk index with wrong offset", shifted._replace(problem=None)
    yield (
        "footer without offset",
        Case(file_with_summary(footer=lambda *_: encode_parts(records.Footer(0, 0, 0))), FOUND, ""),
    )
    wrong = {
        "into a chunk": 120,
        "to a chunk": len(build_recording_head()),
        "beyond the end": 2**40,
        "to the magic": 0 + len(MCAP_MAGIC),
    }
    for where, offset in wrong.items():
        made = file_with_summary(footer=lambda *_, to=offset: encode_parts(records.Footer(to, 0, 0)))
        yield f"footer with offset {where}", Case(made, FOUND, "the whole file is scanned instead")
    wrong_crc = file_with_summary(footer=lambda start, crc: encode_parts(records.Footer(start, 0, crc ^ 1)))
    yield "footer with wrong CRC", Case(wrong_crc, FOUND, "CRC of the summary is wrong")
    no_crc = file_with_summary(footer=lambda start, _: encode_parts(records.Footer(start, 0, 0)))
    yield "footer without CRC", Case(no_crc, FOUND, "")
    yield (
        "footer longer",
        Case(
            file_with_summary(footer=lambda s, c: append_unknown_bytes(encode_parts(records.Footer(s, 0, c)))),
            FOUND,
            "",
        ),
    )
    yield (
        "footer shorter",
        Case(file_with_summary(footer=lambda s, c: cut_record(encode_parts(records.Footer(s, 0, c)))), FOUND, ""),
    )
    yield "magic at end missing", Case(file_with_summary()[: -len(MCAP_MAGIC)], FOUND, "")
    yield "bytes after end", Case(file_with_summary() + b"more", FOUND, "4 bytes follow")
    yield "two files in one", Case(file_with_summary() + build_file(PART), [*FOUND, *WITH_PART], "another file")


def _shift(entry: bytes) -> bytes:
    place = struct.unpack_from("<Q", entry, 9 + 16)[0]
    return entry[:25] + struct.pack("<Q", place + 11) + entry[33:]


CASES = dict(_cases())
