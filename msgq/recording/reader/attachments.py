"""Contents of a log besides messages: headers, metadata and attachments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from mcap.opcode import Opcode

from msgq.common.storage.url_path import RecordingPath
from msgq.errors import RecordingError
from msgq.recording.mcap_io.attachments import (
    ATTACHMENT_CRC_BYTES,
    find_attachment_crc_offset,
    read_attachment_index,
    read_metadata_record,
)
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.core import TIME_MAX, crc32
from msgq.recording.mcap_io.data_block import ExtraRecord
from msgq.recording.mcap_io.file_source import FileSource
from msgq.recording.mcap_io.problem import Problem, raise_storage_error
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT
from msgq.recording.reader.log_view import LogView


class Header(NamedTuple):
    """Header of a file.

    Attributes:
        profile: expected messages: "msgq", "ros1", "ros2", or "" for any.
        library: program that wrote the file.
    """

    profile: str
    library: str


class Metadata(NamedTuple):
    """Named texts about a file.

    Attributes:
        name: name of the metadata record.
        values: texts by name.
    """

    name: str
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file within a file.

    Attributes:
        name: name of the attachment.
        media_type: media type, for example "text/plain".
        log_time: recording time, in ns since the epoch; 0: unknown.
        create_time: creation time, in ns since the epoch; 0: unknown.
        size: bytes of the content.
        path: absolute path of the file, or its URL.
        offset: byte offset of the record.
        length: bytes of the record.
        data_offset: byte offset of the content.
    """

    name: str
    media_type: str
    log_time: int
    create_time: int
    size: int
    path: RecordingPath
    offset: int
    length: int
    data_offset: int

    def read(self) -> bytes:
        """Return the content.

        Raises:
            RecordingError: the content cannot be read, or its checksum is wrong.
        """
        begin = self.offset + RECORD_HEAD_STRUCT.size
        remaining_bytes = self.data_offset + self.size + ATTACHMENT_CRC_BYTES - begin
        with FileSource(self.path).open_bytes() as source:
            content = source.pread(remaining_bytes, begin)
        stated_crc = int.from_bytes(content[-ATTACHMENT_CRC_BYTES:], "little")
        if len(content) < remaining_bytes or (
            stated_crc and stated_crc != crc32(memoryview(content)[:-ATTACHMENT_CRC_BYTES])
        ):
            raise RecordingError(f"attachment {self.name!r} at byte {self.offset} of '{self.path}' is damaged")
        return content[-ATTACHMENT_CRC_BYTES - self.size : -ATTACHMENT_CRC_BYTES]


def iter_attachments(view: LogView) -> Iterator[Attachment]:
    """Yield the attachments of the selected time range, in the order of the files. Invalid records become problems."""
    for path, extra, index in _read_extra_records(view, Opcode.ATTACHMENT, read_attachment_index):
        if view.start_time <= min(index.log_time, TIME_MAX - 1) < view.end_time:
            times = index.log_time, index.create_time
            places = extra.offset, extra.record_bytes, find_attachment_crc_offset(index) - index.data_size
            yield Attachment(index.name, index.media_type, *times, index.data_size, path, *places)


def iter_metadata(view: LogView) -> Iterator[Metadata]:
    """Yield all metadata in the order of the files. Invalid records become problems."""
    for _, _, record in _read_extra_records(view, Opcode.METADATA, read_metadata_record):
        yield Metadata(record.name, record.metadata)


def _read_extra_records(
    view: LogView, opcode: int, read: Callable[[ByteReader, int, int], Any]
) -> Iterator[tuple[RecordingPath, ExtraRecord, Any]]:
    for file in view.files:
        for extra in file.extra_records:
            if extra.opcode != opcode:
                continue
            try:
                with file.file_source.open_bytes() as source:
                    record = read(source, extra.offset, extra.record_bytes)
            except (ValueError, RecordingError) as error:
                raise_storage_error(error)
                view.report_problem(Problem(str(file.path), extra.offset, f"the record was skipped: {error}"))
            else:
                yield file.file_source.absolute_path, extra, record
