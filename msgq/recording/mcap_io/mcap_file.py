"""One MCAP file of any program, complete or truncated: its blocks of messages, schemas, channels and metadata."""

from __future__ import annotations

import errno
import struct
from array import array
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cached_property, partial

from mcap import records
from mcap.opcode import Opcode

from msgq.errors import RecordingError
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.block_mapper import BlockMapper
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX, ChannelRegistry, RecordedChannel
from msgq.recording.mcap_io.core import (
    CHANNEL_CODE_UNWANTED,
    CHANNEL_ID_COUNT,
    SCAN_OTHER_RECORD,
    SCAN_TRUNCATED_RECORD,
    SCAN_ZERO_OPCODE,
    TIME_MAX,
    ScanColumns,
)
from msgq.recording.mcap_io.data_block import DataBlock, ExtraRecord
from msgq.recording.mcap_io.file_source import FileSource
from msgq.recording.mcap_io.message_compression import decompress_payloads, starts_with_compressed_payload
from msgq.recording.mcap_io.origins import MessageOrigins
from msgq.recording.mcap_io.problem import Problem, raise_storage_error
from msgq.recording.mcap_io.record_scanner import (
    CHUNK_BYTES_MAX,
    ChunkTooLargeError,
    RecordScanner,
    decompress_chunk,
)
from msgq.recording.mcap_io.record_structs import CHUNK_HEAD_STRUCT, MCAP_MAGIC, RECORD_HEAD_STRUCT
from msgq.recording.mcap_io.rosbag2 import make_not_mcap_error
from msgq.recording.mcap_io.wall_time import WallTimeConverter

#: Schemas, channels and strange messages in a row: no chunk describes more, as ids are 16 bits.
NON_MESSAGES_MAX = 2 << 16
_BLOCK_BYTES = 1 << 20
_DATA_END_BYTES = RECORD_HEAD_STRUCT.size + 4


class McapFile:
    """Map of a file. Holds no open descriptor. One thread at a time.

    Attributes:
        path: path of the file.
        file_source: source of the file's bytes. All offsets refer to these bytes.
        size_bytes: number of bytes when the file was opened.
        is_complete: True if the file was closed properly and ends with a summary.
        knows_all_channels: True if no chunk declares a channel without messages that was unknown when the file was
            opened. Each chunk of a recording of msgq declares only the channels of its messages.
        registry: schemas, channels and metadata that were read.
        statistics: statistics of the summary; None: no statistics, or only a part of the file is read.
        blocks: blocks of messages in the order of the file.
        extra_records: attachments, metadata, and records that MCAP does not define, in the order of the file.
        on_unknown_record: callable for records within chunks that MCAP does not define; None: ignore them.
        on_bytes_read: callable for the number of bytes of each block that was read, for progress displays; None: no
            call.
        wall_time_converter: converts times to the wall clock; None: times stay as in the file.
    """

    def __init__(
        self,
        source: FileSource,
        assign_code: Callable[[RecordedChannel], int],
        note: Callable[[Problem], None],
        span: tuple[int, int] | None = None,
        most: int = CHUNK_BYTES_MAX,
        use_wall_clock: bool = False,
    ) -> None:
        """Open the file, and find its blocks.

        Args:
            source: the file.
            assign_code: callable that returns the code of a channel (see core.pyi).
            note: callable for each problem.
            span: read only the part between these two byte offsets. Each offset is the start or the end of a record. In
                a recording of msgq, no other part is read.
            most: maximum bytes of a chunk before compression, of a message outside of chunks, and of the summary.
            use_wall_clock: True: convert all times to the wall clock, if the recorder stored it.

        Raises:
            RecordingError: the file cannot be opened, or is not an MCAP file.
        """
        self.path, self.file_source = source.path, source
        self.blocks: list[DataBlock] = []
        self.extra_records: list[ExtraRecord] = []
        self.is_complete = self.knows_all_channels = False
        self.statistics: records.Statistics | None = None
        self.wall_time_converter: WallTimeConverter | None = None
        self.on_bytes_read: Callable[[int], object] | None = None
        self.on_unknown_record: Callable[[bytes], object] | None = None
        self._problem_handler, self._max_chunk_bytes = note, most
        self.registry = ChannelRegistry(assign_code, self._report_problem)
        # The same file, to search its chunks for channels. `blocks` has the chunks that were not searched yet.
        self._whole_file: McapFile | None = None
        self._data_end_offset: int | None = None
        self._known_chunk_start = (0, b"")  # changes of channels, and the beginning of a chunk that declares none
        with source.open_bytes() as reader:
            self.size_bytes = reader.size_bytes
            if self.file_source.damage_reason:
                self._report_problem(
                    self.size_bytes, f"the compressed file is damaged from here: {self.file_source.damage_reason}"
                )
            self._map_file(reader, span, use_wall_clock)
        if use_wall_clock:
            self._convert_block_times()

    @property
    def header(self) -> records.Header:
        """Header of the file."""
        return self.registry.header

    @property
    def metadata(self) -> dict[str, dict[str, str]]:
        """Newest Metadata record of each name that was read."""
        return self.registry.metadata

    @property
    def wall_clock_offsets_ns(self) -> tuple[int, ...]:
        """Wall clock minus the host's clock in ns: one value for each setting of the wall clock, oldest first.

        () means that the file does not store it.
        """
        try:
            return WallTimeConverter(self.registry.clock_records).recorded_offsets_ns
        except ValueError:
            return ()

    # ---- map of the file ----

    def _map_file(self, source: ByteReader, span: tuple[int, int] | None, use_wall_clock: bool) -> None:
        if (begin := source.pread(16, 0))[: len(MCAP_MAGIC)] != MCAP_MAGIC:
            raise make_not_mcap_error(self.path, begin)
        mapper = BlockMapper(source, self.size_bytes, self.registry, self._max_chunk_bytes, self._report_problem)
        mapper.map_file(span, needs_clock_records=use_wall_clock)
        self.blocks, self.extra_records = mapper.blocks, mapper.extra_records
        self.is_complete, self.statistics = mapper.is_complete, mapper.statistics
        self._data_end_offset = mapper.data_end_offset
        channel_count = -1 if self.statistics is None else self.statistics.channel_count
        is_unfinished_recording = self.header.profile == metadata_keys.MSGQ_PROFILE and not self.is_complete
        self.knows_all_channels = is_unfinished_recording or 0 <= channel_count <= len(self.registry.channels)

    def _convert_block_times(self) -> None:
        try:
            self.wall_time_converter = wall = WallTimeConverter(self.registry.clock_records)
        except ValueError as error:
            self._report_problem(0, f"the wall clock is unknown: {error}; times are of the host clock")
            return
        for number, block in enumerate(self.blocks):
            if block.start_time <= block.end_time < TIME_MAX:
                start, end = wall.find_wall_time_range(block.start_time, block.end_time)
                self.blocks[number] = replace(block, start_time=start, end_time=end)

    def select_blocks(
        self, blocks: list[DataBlock], assign_code: Callable[[RecordedChannel], int], note: Callable[[Problem], None]
    ) -> McapFile:
        """Return a map with some of the blocks. The map can be pickled if the functions can be pickled."""
        piece = copy(self)
        piece.on_bytes_read = piece.on_unknown_record = None
        piece.blocks, piece.extra_records, piece.statistics, piece._problem_handler = blocks, [], None, note
        piece._whole_file = None
        piece.registry = self.registry.copy_registry(assign_code, piece._report_problem)
        return piece

    def _report_problem(self, offset: int, reason: str, code: int | None = None) -> None:
        """Report a problem. `code` is the errno if the system could not read the file."""
        self._problem_handler(Problem(str(self.path), offset, reason, code))

    # ---- content ----

    def may_have_messages(self, block: DataBlock, start: int, end: int) -> bool:
        """Return True if the block may have messages of a wanted channel within the time range."""
        # The read of the block reports impossible times.
        if block.end_time < start or end <= block.start_time < TIME_MAX:
            return False
        if block.channel_ids is None:
            return True
        return any(map(self.registry.is_channel_maybe_wanted, block.channel_ids))

    def read_block(self, block: DataBlock) -> bytes | None:
        """Return the block's records, with decompressed payloads.

        If the block is damaged, report a problem and return None.
        """
        content = self._read_block_content(block)
        is_ours = self.header.profile == metadata_keys.MSGQ_PROFILE
        if content is None or is_ours or not starts_with_compressed_payload(content):
            return content
        self._learn_chunk_channels(block, content)
        return decompress_payloads(
            content, self._is_compressed_channel, self._max_chunk_bytes, partial(self._report_problem, block.offset)
        )

    @cached_property
    def has_compressed_payloads(self) -> bool:
        """True if the first chunk has payloads that were compressed one by one. The property reads this chunk."""
        if self.header.profile == metadata_keys.MSGQ_PROFILE or not self.blocks:
            return False
        return starts_with_compressed_payload(self._read_block_content(self.blocks[0]) or b"")

    def _is_compressed_channel(self, number: int) -> bool:
        """Return True if the channel is wanted and its payloads may be compressed one by one."""
        is_known = self.registry.is_channel_known(number) or self._find_channel_in_file(number)
        is_wanted = is_known and self.registry.is_channel_maybe_wanted(number)
        return is_wanted and self.registry.channels[number].channel_record.message_encoding == "cdr"

    def _read_block_content(self, block: DataBlock) -> bytes | None:
        if block.stored_bytes > self._max_chunk_bytes + _BLOCK_BYTES:  # incompressible data becomes a little larger
            self._report_problem(
                block.offset, f"a chunk was skipped: {ChunkTooLargeError(block.stored_bytes, self._max_chunk_bytes)}"
            )
            return None
        try:
            with self.file_source.open_bytes() as source:
                data = source.pread(block.stored_bytes, block.offset)
        except RecordingError as error:
            raise_storage_error(error)
            self._report_problem(block.offset, str(error), error.errno)
            return None
        if self.on_bytes_read is not None:
            self.on_bytes_read(block.stored_bytes)
        if len(data) < block.stored_bytes:
            reason = f"only {len(data)} of {block.stored_bytes} bytes could be read"
            self._report_problem(block.offset, reason, errno.ESTALE)  # blocks lie within the file as it was
            return None
        if not block.is_chunk:
            return data
        first, last = (
            CHUNK_HEAD_STRUCT.unpack_from(data, RECORD_HEAD_STRUCT.size)[:2]
            if len(data) >= RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size
            else (0, 0)
        )
        if self.wall_time_converter is None and (first, last) != (block.start_time, block.end_time):
            time_range = f"{block.start_time} to {block.end_time} instead of {first} to {last}"
            self._report_problem(
                block.offset,
                f"the summary has wrong times of a chunk: {time_range}; a selection by time may miss its messages",
            )
        try:
            return decompress_chunk(data, self._max_chunk_bytes)
        except ValueError as error:
            self.file_source.check_unchanged()
            self._report_problem(block.offset, f"a chunk was skipped: {error}")
            return None

    def scan_block_messages(
        self, block: DataBlock, content: bytes, position: int, columns: ScanColumns, start: int, end: int
    ) -> int:
        """Add the messages of a block to the columns, until the columns are full or the content ends.

        Return the next offset.
        """
        rows = columns.row_count
        reach = (
            (start, end)
            if self.wall_time_converter is None
            else self.wall_time_converter.find_host_time_range(start, end)
        )
        position = self._scan_records(block, content, position, columns, *reach)
        new_rows = slice(rows, columns.row_count)
        columns.origin_time[new_rows] = 0
        if block.origins_range is not None and columns.row_count > rows:
            try:
                with self.file_source.open_bytes() as source:
                    origins = MessageOrigins.read_record(source, block.origins_range, self._max_chunk_bytes)
                columns.origin_time[new_rows] = origins.find_origin_times(columns, new_rows)
            except (RecordingError, ValueError) as error:
                raise_storage_error(error)
                self._report_problem(block.origins_range[0], f"the origins of messages were skipped: {error}")
        if self.wall_time_converter is not None:
            self.wall_time_converter.convert_columns(columns, rows, start, end)
        return position

    def _scan_records(
        self, block: DataBlock, content: bytes, position: int, columns: ScanColumns, start: int, end: int
    ) -> int:
        learning, non_messages = position == 0, 0
        changes, prologue = self._known_chunk_start
        if learning and prologue and changes == self.registry.channel_changes and content.startswith(prologue):
            position = len(prologue)  # our chunks repeat their channels, mostly the same ones
        while True:
            before, strict = position, self.on_unknown_record is not None
            why, position = columns.scan_messages(content, position, self.registry.channel_codes, start, end, strict)
            unknown = why == SCAN_OTHER_RECORD and content[position] > Opcode.DATA_END
            if learning and (why != SCAN_OTHER_RECORD or position > before or unknown):
                self._known_chunk_start, learning = (self.registry.channel_changes, content[:before]), False
            if why == SCAN_TRUNCATED_RECORD:
                self._report_problem(
                    block.offset, f"a record ends after the end of its chunk (at {position} of {len(content)})"
                )
                return len(content)
            if why == SCAN_ZERO_OPCODE or non_messages > NON_MESSAGES_MAX:
                reason = (
                    "zeros instead of a record"
                    if why == SCAN_ZERO_OPCODE
                    else f"{non_messages} records that are not messages"
                )
                self._report_problem(
                    block.offset, f"a chunk was read in part: {reason} (at {position} of {len(content)})"
                )
                return len(content)
            if why != SCAN_OTHER_RECORD:
                return position
            position, non_messages = self._handle_other_record(block, content, position), non_messages + (not unknown)

    def _handle_other_record(self, block: DataBlock, content: bytes, position: int) -> int:
        """Handle a record that a scan cannot handle.

        Return the next offset, or the same offset to scan the record again.
        """
        opcode, length = RECORD_HEAD_STRUCT.unpack_from(content, position)
        following = position + RECORD_HEAD_STRUCT.size + int(length)
        if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            self.registry.learn_record(opcode, content[position + RECORD_HEAD_STRUCT.size : following], block.offset)
        elif opcode == Opcode.MESSAGE:
            number = struct.unpack_from("<H", content, position + RECORD_HEAD_STRUCT.size)[0] if length >= 22 else None
            if number is not None and not self.registry.is_channel_known(number):
                if self._find_channel_in_file(number) or self.registry.drop_missing_schema(number, block.offset):
                    return position
                self._report_problem(block.offset, f"messages were skipped: channel {number} is not described")
                self.registry.set_channel_code(number, CHANNEL_CODE_UNWANTED)  # reported once
            else:
                self._report_problem(block.offset, f"a message is too short, or has an invalid time (at {position})")
        elif opcode > Opcode.DATA_END and self.on_unknown_record is not None:
            self.on_unknown_record(content[position:following])
        return following

    def _find_channel_in_file(self, number: int) -> bool:
        """Search the whole file for a channel, because a chunk need not repeat its channels."""
        if self._whole_file is None:
            try:
                self._whole_file = McapFile(
                    self.file_source.copy_unopened(),
                    self.registry.assign_code,
                    _ignore_problem,
                    most=self._max_chunk_bytes,
                )
            except RecordingError as error:
                raise_storage_error(error)
                return False
            self._whole_file.blocks.reverse()
        whole = self._whole_file
        while whole.blocks and not whole.registry.is_channel_known(number):
            block = whole.blocks.pop()
            content = whole._read_block_content(block) if block.is_chunk else None
            if content is not None:
                whole._learn_chunk_channels(block, content)
        if not whole.registry.is_channel_known(number):
            whole._learn_summary_channels()
        return self.registry.copy_channel(whole.registry, number)

    def _learn_summary_channels(self) -> None:
        """Add the schemas and channels of a damaged summary, because no undamaged chunk has them."""
        if self._data_end_offset is None:
            return
        declarations: list[tuple[int, bytes, int]] = []
        with self.file_source.open_bytes() as source:
            begin = self._data_end_offset + _DATA_END_BYTES
            for record in RecordScanner(source, begin, self.size_bytes, self._max_chunk_bytes):
                length = record.end_offset - record.start_offset - RECORD_HEAD_STRUCT.size
                if record.opcode in (Opcode.SCHEMA, Opcode.CHANNEL) and length <= METADATA_BYTES_MAX:
                    start = record.start_offset + RECORD_HEAD_STRUCT.size
                    declarations.append((record.opcode, source.pread(length, start), record.start_offset))
        for declaration in sorted(declarations, key=lambda one: one[0]):  # schemas precede their channels
            self.registry.learn_record(*declaration)

    def _learn_chunk_channels(self, block: DataBlock, content: bytes) -> None:
        """Add the schemas and channels of a chunk to the registry, and skip its messages."""
        nobody, nothing, position = array("i", [CHANNEL_CODE_UNWANTED]) * CHANNEL_ID_COUNT, ScanColumns(1), 0
        for _ in range(NON_MESSAGES_MAX):
            reason, position = nothing.scan_messages(content, position, nobody, 0, 0)
            if reason != SCAN_OTHER_RECORD:
                return
            opcode, length = RECORD_HEAD_STRUCT.unpack_from(content, position)
            if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
                self.registry.learn_record(
                    opcode,
                    content[position + RECORD_HEAD_STRUCT.size : position + RECORD_HEAD_STRUCT.size + length],
                    block.offset,
                )
            position += RECORD_HEAD_STRUCT.size + int(length)


def _ignore_problem(_: Problem) -> None:
    """Ignore a problem. The reader of the file reports it."""
