"""Options of the source "msgq", parsed from Spark's texts."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgq.common.choices import list_names
from msgq.common.selection import EndpointPattern, SelectedEndpoints, parse_pattern
from msgq.common.storage.url_path import RecordingPath
from msgq.decoding.schemas import Schemas
from msgq.errors import InvalidValueError, RecordingError
from msgq.recording import LogReader, Problem
from msgq.recording.mcap_io.recording_files import list_recordings
from msgq.recording.reader.log_times import parse_time_text
from msgq.recording.reader.log_view import CLOCK_CHOICES, HOST_CLOCK

_PARTITION_BYTES = 256 << 20
_PARTITION_BYTES_MIN = 8 << 20  # a task costs as much as reading so many bytes
_CHUNK_BYTES = 1 << 20  # room of a task, without which the rest would need another task
SOURCE_OPTION_NAMES = (
    "path",
    "paths",
    "endpoints",
    "exclude",
    "start",
    "end",
    "clock",
    "decode",
    "schemas",
    "importPaths",
    "readErrors",
    "partitionBytes",
    "cores",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "checkpointLocation",
    "live",
    "backend",
    "prefix",
    "bufferBytes",
)
_RECORDING_OPTIONS = (
    "path",
    "paths",
    "start",
    "end",
    "clock",
    "schemas",
    "importPaths",
    "readErrors",
    "cores",
    "failOnDataLoss",
    "checkpointLocation",
)
_BUS_OPTIONS = ("backend", "prefix", "bufferBytes")
_DEFAULT_BUFFER_BYTES = 256 << 20
_OPTION_NAME_BY_LOWER_CASE = {name.lower(): name for name in SOURCE_OPTION_NAMES}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a query.

    Attributes:
        paths: files, directories with all subdirectories, and patterns for both, as paths or URLs.
        storage_options: credentials and settings for URLs; None: from the environment. Not part of the repr.
        endpoints: names and expressions, as in `LogReader`; None: all endpoints.
        excluded_endpoints: names and expressions, as in `LogReader`; None: no exclusions.
        start_time: read only messages with start_time <= log_time, in ns since the epoch; None: no limit.
        end_time: read only messages with log_time < end_time, in ns since the epoch; None: no limit.
        clock_choice: clock of all times, "host" or "wall", as in `LogReader`.
        decoded_endpoint: endpoint whose payloads are decoded; None: no decoding.
        schemas: schemas for endpoints without a schema in the recordings; None: none.
        wants_read_errors: True: return the unreadable parts instead of messages.
        partition_bytes: bytes of a partition, before compression; None: chosen by total size and cores.
        core_count: number of cores for planning; None: the cores of this machine.
        max_bytes_per_trigger: maximum bytes of a stream's batch, before compression; None: no limit.
        fail_on_data_loss: True: the query fails if a planned file is missing.
        checkpoint_location: checkpoint of the stream's query, a path or a URI, which gets files with the positions of
            recordings; None: offsets list the positions of all recordings.
        is_live: True: read the bus instead of recordings, without paths.
        backend: backend of the bus; None: that of the session's process.
        prefix: prefix of the bus; None: that of the session's process.
        buffer_bytes: maximum bytes of messages from the bus that wait for a batch.
    """

    paths: tuple[str, ...]
    endpoints: tuple[EndpointPattern, ...] | None = None
    excluded_endpoints: tuple[EndpointPattern, ...] | None = None
    start_time: int | None = None
    end_time: int | None = None
    clock_choice: str = HOST_CLOCK
    decoded_endpoint: str | None = None
    schemas: Schemas | None = None
    wants_read_errors: bool = False
    partition_bytes: int | None = None
    core_count: int | None = None
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    checkpoint_location: str | None = None
    is_live: bool = False
    backend: str | None = None
    prefix: str | None = None
    buffer_bytes: int = _DEFAULT_BUFFER_BYTES
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)

    @classmethod
    def parse_options(cls, user_options: Mapping[str, str]) -> SourceOptions:
        """Return the parsed options of a user. Names ignore case.

        Raises:
            InvalidValueError: an option does not exist, or its value is invalid.
        """
        if unknown := [name for name in user_options if name.lower() not in _OPTION_NAME_BY_LOWER_CASE]:
            raise InvalidValueError(
                f"option {unknown[0]!r} does not exist; options of the source msgq: {', '.join(SOURCE_OPTION_NAMES)}"
            )
        options = {_OPTION_NAME_BY_LOWER_CASE[name.lower()]: text for name, text in user_options.items()}
        live = _parse_flag_option("live", options.get("live", "false"))
        if unfit := [name for name in (_RECORDING_OPTIONS if live else _BUS_OPTIONS) if name in options]:
            about = "recordings; remove it to read the live bus" if live else "the live bus; add option('live', 'true')"
            raise InvalidValueError(f"option {unfit[0]!r} applies only to {about}")
        paths = tuple(json.loads(options["paths"])) if "paths" in options else ()
        if "path" in options:
            paths = (options["path"], *paths)
        if not paths and not live:
            raise InvalidValueError("the source msgq needs a path; use load('recordings') or option('path', ...)")
        return cls(
            tuple(map(_remove_file_scheme, paths)),
            _parse_endpoint_patterns("endpoints", options.get("endpoints"))
            if options.get("decode") is None
            else (options["decode"],),
            _parse_endpoint_patterns("exclude", options.get("exclude")),
            _parse_time_option("start", options.get("start")),
            _parse_time_option("end", options.get("end")),
            _parse_clock_option(options.get("clock", HOST_CLOCK)),
            options.get("decode"),
            _parse_schema_option(options),
            _parse_flag_option("readErrors", options.get("readErrors", "false")),
            _parse_bytes_option("partitionBytes", options.get("partitionBytes")),
            _parse_count_option("cores", options.get("cores")),
            _parse_bytes_option("maxBytesPerTrigger", options.get("maxBytesPerTrigger")),
            _parse_flag_option("failOnDataLoss", options.get("failOnDataLoss", "true")),
            _remove_file_scheme(options["checkpointLocation"]) if "checkpointLocation" in options else None,
            live,
            options.get("backend"),
            options.get("prefix"),
            _parse_bytes_option("bufferBytes", options.get("bufferBytes")) or _DEFAULT_BUFFER_BYTES,
        )

    def list_files(self, problems: list[Problem]) -> list[RecordingPath]:
        """Return the files, sorted. Paths without files become problems.

        Raises:
            RecordingError: a path does not exist.
        """
        return list_recordings(self.paths, problems, self.storage_options)

    def open_log(self, path: RecordingPath, span: tuple[int, int] | None = None) -> LogReader:
        """Return a reader of one file. Raises RecordingError if the file is not a recording."""
        return LogReader(
            path,
            endpoints=SelectedEndpoints(self.endpoints, self.excluded_endpoints or ()),
            start=self.start_time,
            end=self.end_time,
            span=span,
            clock=self.clock_choice,
            schemas=self.schemas,
        )

    def open_logs(self, paths: Iterable[RecordingPath], problems: list[Problem]) -> list[LogReader]:
        """Return a reader of each file. Unreadable files become problems."""
        logs = []
        for path in paths:
            try:
                logs.append(self.open_log(path))
            except RecordingError as error:
                problems.append(Problem(str(path), 0, str(error), error.errno))
        return logs

    def choose_partition_bytes(self, total: int) -> int:
        """Return the bytes of a partition for a query of `total` bytes."""
        if self.partition_bytes is not None:
            return self.partition_bytes
        cores = self.core_count or len(os.sched_getaffinity(0))
        rounds = -(-total // (_PARTITION_BYTES * cores)) or 1  # whole ones: no core is idle in the last
        return max(total // (rounds * cores) + _CHUNK_BYTES, _PARTITION_BYTES_MIN)


def _remove_file_scheme(path: str) -> str:
    return path.removeprefix("file:") if path.startswith("file:/") else path


def _parse_schema_option(options: Mapping[str, str]) -> Schemas | None:
    if "schemas" not in options:
        return None
    folders = _parse_text_list("importPaths", options["importPaths"]) if "importPaths" in options else ()
    return Schemas.of_texts(_parse_text_list("schemas", options["schemas"]), folders)


def _parse_endpoint_patterns(option: str, text: str | None) -> tuple[EndpointPattern, ...] | None:
    """Parse names and patterns, separated by commas or as a JSON list."""
    if text is None:
        return None
    names = list_names(_parse_text_list(option, text), option, may_be_empty=option == "exclude")
    return tuple(map(parse_pattern, names))


def _parse_text_list(name: str, text: str) -> list[str]:
    """Parse texts, separated by commas or as a JSON list."""
    texts = [item.strip() for item in text.split(",")]
    if text.startswith("["):  # a list, or a pattern that begins so
        with contextlib.suppress(ValueError):
            texts = json.loads(text)
    if not all(isinstance(item, str) for item in texts):
        raise InvalidValueError(f"option {name!r} is {text!r}; use texts separated by commas, or a JSON list of texts")
    return texts


def _parse_time_option(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    hint = "use nanoseconds since 1970, or a time such as 2026-01-31T12:00:00"
    if re.fullmatch(r"-?\d{1,40}", text.strip()):
        if re.fullmatch(r"(19|20)\d{6}", text.strip()):
            raise InvalidValueError(f"option {name!r} is {text!r}, a date or nanoseconds; {hint}")
        return int(text)
    try:
        return parse_time_text(text)
    except ValueError:
        raise InvalidValueError(f"option {name!r} is {text!r}; {hint}") from None


def _parse_clock_option(text: str) -> str:
    if text not in CLOCK_CHOICES:
        raise InvalidValueError(f"option 'clock' is {text!r}; use {' or '.join(CLOCK_CHOICES)}")
    return text


def _parse_flag_option(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidValueError(f"option {name!r} is {text!r}; use true or false")
    return text.lower() == "true"


def _parse_count_option(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or not int(text):
        raise InvalidValueError(f"option {name!r} is {text!r}; use an integer, 1 or more")
    return int(text)


def _parse_bytes_option(name: str, text: str | None) -> int | None:
    """Parse a number of bytes: 1000, 64k, 256m, 1g."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*([kmg]?)b?\s*", text.lower())
    if not match or not int(match[1]):
        raise InvalidValueError(f"option {name!r} is {text!r}; use a number of bytes, such as 1048576 or 256m")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]
