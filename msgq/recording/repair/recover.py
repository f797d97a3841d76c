"""Repair of damaged or truncated files, and new indexes and summaries."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.url_path import make_path
from msgq.errors import InvalidValueError, RecordingError
from msgq.recording.mcap_io import recording_files
from msgq.recording.mcap_io.byte_reader import ByteReader, LocalReader
from msgq.recording.mcap_io.core import TIME_MAX, ScanColumns
from msgq.recording.mcap_io.file_source import FileSource
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.problem import make_printable_path
from msgq.recording.mcap_io.record_scanner import CHUNK_BYTES_MAX
from msgq.recording.repair.atomic_file import make_temporary_name, open_atomic_file
from msgq.recording.repair.doctor import FileExamination, Finding
from msgq.recording.repair.repair_plan import RepairPlan
from msgq.recording.repair.repair_writer import RepairWriter
from msgq.recording.repair.summary_check import DataSectionStats

_FINDINGS_MAX = 100
_PASS_COUNT_MAX = 6  # over a damaged file: count, check, plan and copy, then count and check the copy


@dataclass(frozen=True, slots=True)
class Recovery:
    """Result of a repair.

    Attributes:
        path: path of the file.
        output: path of the repaired file: a new file, or `path`. Also set if no repair was necessary.
        changed: True if a repair was necessary.
        messages: number of messages in `output`.
        chunks: number of chunks in `output`.
        cut_bytes: number of bytes cut off at the end.
        damaged_bytes: number of damaged bytes within the file that readers now skip.
        actions: descriptions of the repairs, one sentence each.
        remaining: findings that cannot be repaired: the first 100.
    """

    path: str
    output: str
    changed: bool
    messages: int
    chunks: int
    cut_bytes: int
    damaged_bytes: int
    actions: tuple[str, ...]
    remaining: tuple[Finding, ...]


def recover(
    path: str | PathLike[str],
    output: str | PathLike[str] | None = None,
    *,
    in_place: bool = False,
    max_chunk_bytes: int = CHUNK_BYTES_MAX,
) -> Recovery:
    """Repair a file, if it has repairable damage.

    The repair writes a new file with all messages that `LogReader` finds in the old one. The new file gets its name
    after its messages are counted. If the repair fails, no new file is left, and the old file is unchanged.

    Args:
        path: path of the file.
        output: path of the repaired file, which must not exist. If `path` is undamaged, the output is a copy. None:
            `NAME.recovered.mcap` in the same directory, and no copy of an undamaged file.
        in_place: True: the new file replaces the old one atomically. Before that, the disk needs space for both files.
        max_chunk_bytes: maximum bytes of a chunk before compression. A larger chunk may be valid. Therefore the call
            raises RecordingError instead of removing it.

    Raises:
        RecordingError: the file is not an MCAP file, a chunk exceeds `max_chunk_bytes`, the new file would have fewer
            messages, the output exists or cannot be written, or (`in_place`) a process is writing the file.
        InvalidValueError: `output` and `in_place` are both given.
    """
    return FileRepair(
        _require_local_path(path),
        None if output is None else Path(output),
        in_place,
        max_chunk_bytes,
        rewrites_indexes=False,
    ).repair()


def reindex(
    path: str | PathLike[str],
    output: str | PathLike[str] | None = None,
    *,
    in_place: bool = False,
    max_chunk_bytes: int = CHUNK_BYTES_MAX,
) -> Recovery:
    """Write all indexes and the summary of a file again, and repair damage.

    In contrast, `recover` does not change undamaged files. The default of `output` is `NAME.reindexed.mcap`.

    Args:
        path: as in `recover`.
        output: as in `recover`.
        in_place: as in `recover`.
        max_chunk_bytes: as in `recover`.
    """
    return FileRepair(
        _require_local_path(path),
        None if output is None else Path(output),
        in_place,
        max_chunk_bytes,
        rewrites_indexes=True,
    ).repair()


def _require_local_path(path: str | PathLike[str]) -> Path:
    local = make_path(path)
    if not isinstance(local, Path):
        raise InvalidValueError(
            f"recording '{path}' is in a store, and a repair needs a local file; copy it to a disk first"
        )
    return local


class FileRepair:
    """Repairs one file. See `recover` and `reindex`."""

    def __init__(
        self,
        path: Path,
        output: Path | None,
        in_place: bool,
        most: int,
        *,
        rewrites_indexes: bool,
        report_progress: Callable[[float], object] | None = None,
    ) -> None:
        """Prepare the repair.

        Args:
            path: as in `recover`.
            output: as in `recover`.
            in_place: as in `recover`.
            most: maximum bytes of a chunk before compression.
            rewrites_indexes: True: write all indexes again, even of an undamaged file.
            report_progress: callable for the finished part of the repair, from 0 to 1, after each chunk; None: no call.
        """
        if output is not None and in_place:
            raise InvalidValueError("output and in_place exclude each other; use one of them")
        self._path, self._max_chunk_bytes, self._in_place = path, most, in_place
        self._rewrites_indexes = rewrites_indexes
        self._report_progress, self._pass_count = report_progress, 0
        self._copies_whole = output is not None
        label = recording_files.REINDEXED_LABEL if rewrites_indexes else recording_files.RECOVERED_LABEL
        self._output_path = (
            path.resolve() if in_place else output or path.with_name(recording_files.make_sibling_name(path, label))
        )

    def repair(self) -> Recovery:
        """Repair the file, and return the result."""
        if not self._in_place and self._output_path.exists():
            raise RecordingError(
                f"output file '{self._output_path}' exists; use another name (--output), or remove the file"
            )
        before = self._count_messages(self._path)  # raises a precise error for a file that is not an MCAP file
        try:
            with self._path.open("rb") as file:
                if self._in_place:
                    _lock_file(file.fileno(), self._path)
                return self._repair_file(LocalReader(file.fileno()), before)
        except OSError as error:
            raise_handler_error(error)
            text = f"output file '{self._output_path}' cannot be written: {error.strerror}; '{self._path}' is unchanged"
            raise RecordingError(text, errno=error.errno) from error

    def _repair_file(self, source: ByteReader, before: int) -> Recovery:
        findings, facts = self._examine_file(self._path, self._path)
        if not self._rewrites_indexes and not any(finding.is_repairable for finding in findings):
            if self._copies_whole:
                self._write_repaired_copy(source, None, before)
            output = self._output_path if self._copies_whole else self._path
            counts = (facts.message_counts.total(), len(facts.index_bytes_by_chunk), 0, 0)
            return Recovery(str(self._path), str(output), False, *counts, (), tuple(findings))
        size, path = source.size_bytes, str(self._path)
        plan = RepairPlan(source, path, size, self._max_chunk_bytes, self._rewrites_indexes, self._begin_pass())
        remaining = self._write_repaired_copy(source, plan, before)
        index = plan.summary_builder
        return Recovery(
            str(self._path),
            str(self._output_path),
            True,
            sum(index.message_counts.values()),
            len(index.chunk_indexes),
            plan.truncated_ranges.total_bytes,
            plan.damaged_ranges.total_bytes,
            tuple(_describe_actions(plan, findings)),
            tuple(remaining),
        )

    def _write_repaired_copy(self, source: ByteReader, plan: RepairPlan | None, before: int) -> list[Finding]:
        """Write and check the new file, and give it its name. Return the findings.

        Without a plan, the file is a copy.
        """
        with open_atomic_file(self._output_path) as new:
            size, report = source.size_bytes, self._begin_pass()
            writer = RepairWriter(source, new.fd, self._max_chunk_bytes, lambda position: report(position / size))
            if plan is None:
                writer.copy_range(0, size)
            else:
                writer.write_file(plan)
            after = self._count_messages(new.readable_path)
            if after < before:
                text = f"repair of '{self._path}' was cancelled: only {after} of {before} messages would remain"
                raise RecordingError(f"{text}. The file is unchanged; please report it to the authors of msgq")
            remaining = [] if plan is None else self._examine_file(new.readable_path, self._output_path)[0]
            if self._in_place:
                new.replace_file(self._output_path, make_temporary_name(self._output_path))
            else:
                new.link_as_path(self._output_path)
        return remaining

    def _count_messages(self, path: Path) -> int:
        """Return the number of messages that `LogReader` finds in a file."""
        columns, count, report = ScanColumns(16384), 0, self._begin_pass()
        file = McapFile(FileSource(path), lambda _: 0, lambda _: None, most=self._max_chunk_bytes)
        if file.file_source.reads_decompressed_copy:
            raise RecordingError(f"recording '{path}' is compressed as a whole; decompress it first: zstd -d {path}")
        for block in file.blocks:
            content = file.read_block(block)
            position = 0
            while content is not None and position < len(content):
                columns.clear_rows()
                position = file.scan_block_messages(block, content, position, columns, 0, TIME_MAX)
                count += columns.row_count
            report((block.offset + block.stored_bytes) / file.size_bytes)
        return count

    def _examine_file(self, path: Path, shown: Path) -> tuple[list[Finding], DataSectionStats]:
        """Return the first 100 findings and all repairable findings of a file, and statistics of its data section."""
        examination = FileExamination(path, self._max_chunk_bytes, self._begin_pass())
        findings: list[Finding] = []
        for finding in examination:
            if len(findings) < _FINDINGS_MAX or (
                finding.is_repairable and not any(other.is_repairable for other in findings)
            ):
                findings.append(replace(finding, path=make_printable_path(shown)))
        return findings, examination.data_stats

    def _begin_pass(self) -> Callable[[float], None]:
        """Return a function that reports the finished part of the next pass over the file."""
        number, self._pass_count = self._pass_count, self._pass_count + 1

        def report(part: float) -> None:
            if self._report_progress is not None:
                self._report_progress((number + part) / _PASS_COUNT_MAX)

        return report


def _lock_file(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordingError(f"recording '{path}' is still being written; stop its recorder first") from None


def _describe_actions(plan: RepairPlan, findings: list[Finding]) -> Iterator[str]:
    """Yield a sentence for each repair."""
    for tally, text in (
        (plan.truncated_ranges, "cut {size} bytes off the end: {tally}"),
        (plan.damaged_ranges, "skipped {count} damaged places, {size} bytes: {tally}"),
        (plan.rewritten_chunks, "rewrote {count} chunks with their valid records: {tally}"),
        (plan.indexed_chunks, "rewrote the message indexes of {count} chunks: {tally}"),
        (plan.stray_indexes, "left out {count} message indexes: {tally}"),
    ):
        if tally.range_count:
            yield text.format(count=tally.range_count, size=tally.total_bytes, tally=tally)
    if not plan.has_header:
        yield "wrote a new header, because the file had none"
    if plan.rescued_declarations:
        yield f"copied {plan.rescued_declarations} schemas and channels from the summary to the data"
    if plan.invented_declarations:
        count = plan.invented_declarations
        yield f"named {count} channels or schemas without a description undescribed_1 and so on"
    about = {"data end", "data crc", "footer", "magic", "groups"}
    for finding in findings:
        if finding.rule in about or finding.rule.startswith(
            ("summary", "statistics", "chunk index", "attachment", "metadata")
        ):
            yield f"rewrote the end of the file: {finding.text}"
            return
    yield "rewrote the end of the file"
