"""Copies of logs as MCAP files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from mcap.opcode import Opcode

from msgq.common.handler_errors import raise_handler_error
from msgq.errors import InvalidValueError, RecordingError
from msgq.recording.log_reader import LogReader
from msgq.recording.mcap_io import metadata_keys, recording_files
from msgq.recording.mcap_io.attachments import read_attachment_index, read_metadata_record
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX, MetadataBudget
from msgq.recording.mcap_io.channel_tally import ChannelTally
from msgq.recording.mcap_io.core import TIME_MAX, ChunkWriter
from msgq.recording.mcap_io.data_block import ExtraRecord
from msgq.recording.mcap_io.log_writer import create_atomically
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.mcap_io.segment_writer import ChunkCompressor, SegmentWriter
from msgq.recording.merge.channel_mapping import ChannelMapping
from msgq.recording.merge.merge import CopyableChunk, LogMerger
from msgq.recording.reader.log_view import HOST_CLOCK, LogView
from msgq.recording.reader.totals import EndpointTotals

_CHUNK_BYTES = 1 << 20


def write_merged_log(logs: Sequence[LogReader], output: Path, compression: str | None = None) -> int:
    """Write one MCAP file with the messages of all logs in the order of log_time, and return their number.

    Channels, schemas and metadata are copied unchanged, also with fields that MCAP does not define yet. Attachments
    within the logs' time range are copied. Records that MCAP does not define are copied, and those of rewritten chunks
    are stored outside of chunks.

    A chunk is copied without decompression if all of its messages are wanted, no other chunk overlaps its time range,
    and its file has no schema or channel with such fields, which the new file stores outside of chunks only. The
    summary of its file must also have all channels, because the chunk may declare some without messages. Schemas and
    channels are written before the first such chunk. Damage within it stays, and its index is trusted. Different logs
    and runs keep different epochs.

    Args:
        logs: logs to copy, with the host's clock.
        output: path of the new file, which must not exist.
        compression: "zstd", "lz4" or "none"; None: "zstd" for rewritten chunks.

    Raises:
        RecordingError: the file exists, or cannot be written. Unreadable data is skipped and listed in the logs'
            `problems`.
    """
    return _write_logs_to_segment(
        logs, output, compression, [(log.log_view.start_time, log.log_view.end_time) for log in logs]
    )


def write_time_slices(
    log: LogReader, directory: Path, every_ns: int, compression: str | None = None
) -> Iterator[tuple[Path, int]]:
    """Write segments of equal duration into a new directory. Yield the path and the number of messages of each segment.

    Each segment has all metadata, and all records outside of chunks that MCAP does not define. A segment has the
    attachments of its time range. The first segment also has all earlier attachments, and the last one all later
    attachments. See also `write_merged_log`.

    Raises:
        RecordingError: the directory exists.
    """
    try:
        directory.mkdir()
    except OSError as error:
        raise_handler_error(error)
        raise RecordingError(
            f"directory '{directory}' cannot be created: {error.strerror}", errno=error.errno
        ) from error
    begin, index, attached = log.start_time or 0, 0, log.log_view.start_time
    while True:
        end = begin + every_ns
        first = log.between(end).start_time
        following = None if first is None else end + (first - end) // every_ns * every_ns  # no file for each silence
        until = log.log_view.end_time if following is None else following
        path = recording_files.make_segment_path(directory, index)
        yield path, _write_logs_to_segment([log.between(begin, end)], path, compression, [(attached, until)])
        if following is None:
            return
        begin, index, attached = following, index + 1, following


def _write_logs_to_segment(
    logs: Sequence[LogReader], output: Path, compression: str | None, attached: Sequence[tuple[int, int]]
) -> int:
    """Write one file; see `write_merged_log`. `attached`: time range of the attachments of each log."""
    if any(log.log_view.clock_choice != HOST_CLOCK for log in logs):
        raise InvalidValueError(
            "the log uses the wall clock, but files store times of the host clock; open the log with clock='host'"
        )
    profiles = {file.header.profile for log in logs for file in log.files}
    tails = {file.registry.unknown_fields.get((Opcode.HEADER, 0), b"") for log in logs for file in log.files}
    compressor = ChunkCompressor(compression or "zstd", None)
    with create_atomically(output) as unfinished:
        profile, tail = profiles.pop() if len(profiles) == 1 else "", tails.pop() if len(tails) == 1 else b""
        segment = SegmentWriter(unfinished, compressor, profile=profile, header_tail=tail)
        try:
            _copy_extra_records(segment, [log.log_view for log in logs], attached)
            name = {"none": "", None: None}.get(compression, compression)
            with _copy_unknown_chunk_records(segment, logs):
                continued = [number for number, (start, _) in enumerate(attached) if start > 0]
                _copy_messages(segment, [log.log_view for log in logs], name, continued)
        except BaseException:
            segment.close_without_summary()
            raise
        segment.close()
    return segment.message_count


@contextmanager
def _copy_unknown_chunk_records(segment: SegmentWriter, logs: Sequence[LogReader]) -> Iterator[None]:
    """Copy each record within a chunk that MCAP does not define, and store it outside of chunks.

    The copies are uncompressed. The total size of these copies is limited for each file, because few compressed bytes
    can expand to any size.
    """
    for log in logs:
        for file in log.files:
            file.on_unknown_record = partial(
                _copy_unknown_record, segment=segment, file=file, log=log.log_view, room=MetadataBudget()
            )
    try:
        yield
    finally:
        for log in logs:
            for file in log.files:
                file.on_unknown_record = None


def _copy_unknown_record(
    record: bytes, segment: SegmentWriter, file: McapFile, log: LogView, room: MetadataBudget
) -> None:
    if room.reserve_extra_record(len(record)):
        segment.write_unknown_record(record)
        return
    file.on_unknown_record = None
    text = (
        f"records were skipped: at most {METADATA_BYTES_MAX} bytes of chunk records that MCAP does not define are "
        "copied"
    )
    log.report_problem(Problem(str(file.path), 0, text))


def _copy_messages(
    segment: SegmentWriter, logs: Sequence[LogView], compression: str | None, continued: Sequence[int]
) -> None:
    channels = ChannelMapping(continued)
    for number, log in enumerate(logs):
        for file in log.files:
            channels.map_file(number, file)
    chunk_writer = ChunkWriter(segment, channels.encoded_channels, _CHUNK_BYTES)
    for piece in LogMerger(logs, channels, compression):
        if not isinstance(piece, CopyableChunk):
            chunk_writer.append_rows(piece.message_rows, piece.payload_contents)
            continue
        chunk_writer.flush_chunk()
        # The chunk may rely on declarations in earlier chunks, which may have been rewritten without them.
        segment.write_channels(channels.encoded_channels.values(), channels.iter_unused_schemas())
        copy_chunk = partial(segment.copy_chunk, chunk=piece.raw_chunk, channels=channels.encoded_channels)
        _copy_or_report(piece.mcap_file, piece.raw_chunk.chunk_offset, copy_chunk, logs[piece.log_number])
    chunk_writer.flush_chunk()
    segment.write_channels(channels.encoded_channels.values(), channels.iter_unused_schemas())
    segment.adopt_tallies(_collect_tallies(logs, channels))


def _collect_tallies(logs: Sequence[LogView], channels: ChannelMapping) -> dict[int, ChannelTally]:
    """Return the statistics of each new channel from the statistics of the copied files; empty if a file has none."""
    tallies: dict[int, ChannelTally] = {}
    for number, log in enumerate(logs):
        totals, new = EndpointTotals(log), channels.map_codes_to_channel_ids(number)
        if not all(map(totals.add_stored_statistics, log.files)):
            return {}
        for code, tally in totals.iter_tallies():
            if code not in new or new[code] in tallies:
                return {}
            tallies[new[code]] = tally
    return tallies


# Beside the messages


def _copy_extra_records(segment: SegmentWriter, logs: Sequence[LogView], attached: Sequence[tuple[int, int]]) -> None:
    """Copy metadata, attachments, and records that MCAP does not define. Damaged records become problems of the log."""
    runs = {file.metadata.get(metadata_keys.RECORDING_METADATA, {}).get("run") for log in logs for file in log.files}
    for log, times in zip(logs, attached, strict=True):
        for file in log.files:
            for extra in file.extra_records:
                if extra.opcode == Opcode.METADATA:
                    copy = partial(_copy_metadata, segment=segment, extra=extra, is_one_run=len(runs) == 1)
                elif extra.opcode == Opcode.ATTACHMENT:
                    copy = partial(_copy_attachment, segment=segment, extra=extra, times=times)
                else:
                    copy = partial(_copy_unknown_extra_record, segment=segment, extra=extra)
                _copy_or_report(file, extra.offset, copy, log)


def _copy_metadata(source: ByteReader, segment: SegmentWriter, extra: ExtraRecord, is_one_run: bool) -> None:
    record = read_metadata_record(source, extra.offset, extra.record_bytes)
    if record.name in (metadata_keys.RECORDING_METADATA, metadata_keys.CLOCK_METADATA) and not is_one_run:
        segment.write_metadata(metadata_keys.MERGED_METADATA, record.metadata, record.unknown_fields)
    elif record.name != metadata_keys.STATISTICS_METADATA:  # the new file has its own statistics
        segment.copy_metadata_record(source, extra.offset, extra.record_bytes, record.name)


def _copy_attachment(source: ByteReader, segment: SegmentWriter, extra: ExtraRecord, times: tuple[int, int]) -> None:
    index = read_attachment_index(source, extra.offset, extra.record_bytes)
    start, end = times
    if start <= min(index.log_time, TIME_MAX - 1) < end:
        segment.copy_attachment(source, index)


def _copy_unknown_extra_record(source: ByteReader, segment: SegmentWriter, extra: ExtraRecord) -> None:
    segment.copy_unknown_record(source, extra.offset, extra.record_bytes, extra.is_in_summary)


def _copy_or_report(file: McapFile, offset: int, copy: Callable[[ByteReader], None], log: LogView) -> None:
    """Call `copy` with the bytes of the file. An error becomes a problem of the log, at `offset`."""
    with ExitStack() as stack:
        try:
            source = stack.enter_context(file.file_source.open_bytes())
        except RecordingError as error:
            log.report_problem(Problem(str(file.path), offset, f"the record was skipped: {error}", error.errno))
            return
        try:
            copy(source)
        except (ValueError, EOFError) as error:
            raise_handler_error(error)
            log.report_problem(Problem(str(file.path), offset, f"the record was skipped: {error}"))
        except OSError as error:
            raise_handler_error(error)
            log.report_problem(
                Problem(str(file.path), offset, f"the record was skipped: {error.strerror}", error.errno)
            )
