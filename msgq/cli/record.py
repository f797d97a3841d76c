"""`msgq record`: records endpoints into MCAP files."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live

from msgq.cli.common import options
from msgq.cli.common.console import get_console
from msgq.cli.common.limits import RunLimit
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.selections import print_selection
from msgq.cli.common.signals import call_on_interrupt
from msgq.common import settings
from msgq.common.formatting import format_bytes, format_count
from msgq.common.selection import SelectedEndpoints, parse_patterns
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.errors import RecordingError, StateError
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.recording.mcap_io.segment_writer import COMPRESSION_NAMES
from msgq.recording.recorder.frame_receiver import FrameStream, list_streams
from msgq.recording.recorder.recorder import Recorder
from msgq.recording.recorder.rolling_writer import RecordingLimits
from msgq.recording.recorder.stats import RecorderStats

if TYPE_CHECKING:
    from msgq.impl.ring import SubSocket

_STATUS_PERIOD_S = 0.1


@click.command(epilog=options.EXIT_CODES_ENDLESS)
@click.argument("endpoints", nargs=-1, metavar="[NAME|PATTERN]...", shell_complete=options.complete_endpoint)
@click.option("-a", "--all", "everything", is_flag=True, help="Record all endpoints, and endpoints that appear later.")
@click.option(
    "-e",
    "--regex",
    multiple=True,
    metavar="REGEX",
    callback=options.compile_regexes,
    help="Record endpoints whose names contain a match for REGEX. Repeatable.",
)
@options.exclude_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Directory for the segments, or one file NAME.mcap.  [default: directory named by the local time]",
)
@options.duration_option
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Stop after at least COUNT messages.  [default: no limit]",
)
@click.option(
    "--frames",
    multiple=True,
    metavar="SERVER[:TYPE][@RATE]",
    help="Record frames of all streams, or of stream TYPE, of a visionipc server, at most RATE frames/s. Repeatable.",
)
@click.option(
    "--frame-format",
    type=click.Choice(["raw", "jpeg"]),
    default="jpeg",
    show_default=True,
    help="Format of the recorded frames.",
)
@click.option(
    "--compression",
    type=click.Choice(COMPRESSION_NAMES),
    default="zstd",
    show_default=True,
    help="Compression of chunks.",
)
@click.option("--level", type=int, metavar="LEVEL", help="Compression level.  [default: 1 for zstd, 0 for lz4]")
@click.option(
    "--chunk-bytes",
    type=options.BYTE_COUNT,
    default="1MiB",
    show_default=True,
    metavar="BYTES",
    help="Largest size of a chunk.",
)
@click.option(
    "--chunk-seconds",
    type=options.NumberRange(0.001, 60),
    default=0.25,
    show_default=True,
    metavar="SECONDS",
    help="Longest duration of a chunk, in seconds. A killed recorder loses the open chunk and the chunks in the cache.",
)
@click.option(
    "--cache-bytes",
    type=options.BYTE_COUNT,
    default="8MiB",
    show_default=True,
    metavar="BYTES",
    help="Largest size of the data in the write cache. If the cache is half full, chunks are written uncompressed.",
)
@click.option(
    "--split-bytes",
    type=options.BYTE_COUNT,
    default="256MiB",
    show_default=True,
    metavar="BYTES",
    help="Largest size of a segment.",
)
@click.option(
    "--split-seconds",
    type=options.NumberRange(min=0.1),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Longest duration of a segment, in seconds.",
)
@click.option(
    "--split-messages",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Largest number of messages in a segment.  [default: no limit]",
)
@click.option(
    "--max-total-bytes",
    type=options.BYTE_COUNT,
    metavar="BYTES",
    help="Largest size of the recording. Above this size, the oldest segments are removed. A segment ends at a quarter "
    "of this size.  [default: no limit]",
)
@click.option(
    "--min-free-bytes",
    type=options.BYTE_COUNT,
    default="64MiB",
    show_default=True,
    metavar="BYTES",
    help="Smallest free space to leave on the disk.",
)
@click.option(
    "--snapshot-seconds",
    type=options.NumberRange(min=0.1),
    metavar="SECONDS",
    help="Keep the messages of the last SECONDS in memory. A trigger (SIGUSR1 or --trigger) writes the kept messages.",
)
@click.option(
    "--snapshot-bytes",
    type=options.BYTE_COUNT,
    metavar="BYTES",
    help="Keep the last BYTES of messages in memory. A trigger writes the kept messages.",
)
@click.option("--start-paused", is_flag=True, help="Before recording, wait for a trigger (SIGUSR1 or --trigger).")
@click.option(
    "--trigger",
    metavar="ENDPOINT",
    help="Topic whose messages are triggers. A trigger ends the pause, or writes the messages in memory.",
)
@options.json_option
@options.prefix_option
def command(
    endpoints: Sequence[str],
    everything: bool,
    regex: Sequence[re.Pattern[str]],
    exclude: Sequence[re.Pattern[str]],
    frames: Sequence[str],
    frame_format: str,
    output: Path | None,
    split_bytes: int,
    split_seconds: float,
    split_messages: int | None,
    max_total_bytes: int | None,
    min_free_bytes: int,
    trigger: str | None,
    duration: float | None,
    count: int | None,
    as_json: bool,
    prefix: str | None,
    **recorder_options: Any,
) -> None:
    """Record endpoints into MCAP files.

    The command records topics (NAME), channel/NAME, records/NAME and queue/NAME. The recorder leaves no trace in
    these endpoints. New endpoints are recorded as soon as they appear. With --duration or --count, the command
    fails if a name, PATTERN or REGEX matches no endpoint during the recording. The exit code is then 1, and the
    recording is kept.

    On a terminal, the progress is shown live. A summary is printed at the end. With --json, the command prints one
    object per second, and one object at the end.

    \b
    Example: record all endpoints except the debugging ones for ten minutes
      msgq record --all --exclude debug --duration 600 -o drive
    """
    _check_selection(everything, bool(endpoints or regex), bool(frames))
    keeps = recorder_options["snapshot_seconds"] is not None or recorder_options["snapshot_bytes"] is not None
    _check_trigger(trigger, recorder_options["start_paused"] or keeps)
    pictures = [_parse_frame_stream(text, frame_format) for text in frames]
    patterns = None if everything else (*parse_patterns(endpoints), *regex)
    directory = output or make_timestamped_directory(Path())
    over: list[bool] = []  # no Event: a signal handler that sets one hangs when it interrupts the wait for it
    with (
        call_on_interrupt(lambda: over.append(True)),  # before the first file: a signal must not cut it off
        _connect_trigger(trigger, prefix) as subscriber,  # before the first file: the endpoint may be unusable
    ):
        recorder = Recorder(
            directory,
            SelectedEndpoints(patterns, exclude),
            prefix=prefix,
            limits=RecordingLimits(split_bytes, split_seconds, split_messages, max_total_bytes, min_free_bytes),
            frames=pictures,
            **recorder_options,
        )
        if output is None:
            echo(f"recording into {directory}", err=True)
        missing_sources = _MissingSources(EndpointSelection(endpoints, prefix, expressions=regex), recorder)
        missing_sources.print_sources(SelectedEndpoints(exclude))
        with handle_recording_triggers(recorder, subscriber, lambda: over.append(True)):
            _show_recorder(recorder, missing_sources, directory, over, RunLimit(count, duration), as_json, keeps)
            try:
                recorder.stop()
            finally:  # after a failure, too: the summary has the losses
                _print_recording_summary(recorder, directory, as_json, keeps)
    if not over:
        missing_sources.require_all()


def _check_selection(everything: bool, has_names: bool, has_frames: bool) -> None:
    if everything and has_names:
        raise click.UsageError("--all selects every endpoint; give names or --all, not both")
    if not (everything or has_names or has_frames):
        raise click.UsageError("nothing to record; give endpoints, --regex, --frames or --all")


def _check_trigger(trigger: str | None, has_effect: bool) -> None:
    if trigger is not None and not has_effect:
        text = (
            "--trigger needs --start-paused, --snapshot-seconds or --snapshot-bytes; "
            "without them recording starts at once"
        )
        raise click.UsageError(text)


def _print_recording_summary(recorder: Recorder, path: Path, as_json: bool, keeps: bool) -> None:
    stats = recorder.stats()
    if as_json:
        echo_json({"path": str(path), **asdict(stats), "final": True})
    else:
        get_console().print(f"{path}: {format_status(stats, keeps)}")


class _MissingSources:
    """Names, patterns and frame streams to record that have not been found yet."""

    def __init__(self, names: EndpointSelection, recorder: Recorder) -> None:
        self._names, self._recorder = names, recorder
        self.refresh()

    def refresh(self) -> None:
        """Register the endpoints that exist now."""
        if self._names.unmatched:
            self._names.find_existing()

    def print_sources(self, excluded: SelectedEndpoints) -> None:
        """Print the endpoints that patterns select, and the names of endpoints and frame streams that do not exist."""
        print_selection(self._names, lambda name: name not in excluded)
        for text in self._describe_missing_frames():
            echo(f"msgq: {text} not found yet; waiting", err=True)

    def require_all(self) -> None:
        """Raise an error for sources that never appeared.

        Raises:
            click.ClickException: a source never appeared.
        """
        self.refresh()
        self._names.require_matched()
        if missing := self._describe_missing_frames():
            raise click.ClickException(f"{missing[0]} not found; run `msgq frames list`")

    def _describe_missing_frames(self) -> list[str]:
        """Return texts for missing servers, and for missing streams with the existing streams of the server.

        The recorder connects only after the first call, so this call asks the servers.
        """
        texts = []
        with settings.overrides(self._names.prefix):
            for picture in self._recorder.missing_frames:
                available = list_streams(picture.server)
                if not available:
                    texts.append(f"frame server {picture.server!r}")
                elif picture.stream is not None and picture.stream not in available:
                    served = ", ".join(map(str, sorted(available)))
                    texts.append(f"stream {picture.stream} of frame server {picture.server!r} (streams: {served})")
        return texts


def make_timestamped_directory(parent: Path) -> Path:
    """Create a directory with the local time as its name, so that recordings sort by time, and return its path.

    Raises:
        RecordingError: the directory cannot be created.
    """
    name = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    path, number = parent / name, 1
    while True:
        try:
            path.mkdir()
            return path
        except FileExistsError:  # another one began in the same second
            number += 1
            path = parent / f"{name}_{number}"
        except OSError as error:
            text = f"cannot create directory {path}: {error.strerror}; give another with --output"
            raise RecordingError(text, errno=error.errno) from error


def _parse_frame_stream(text: str, form: str) -> FrameStream:
    match = re.fullmatch(r"([^:@]+)(?::(\d+))?(?:@(\d+(?:\.\d+)?))?", text)
    if match is None:
        raise click.UsageError(f"--frames {text!r} is invalid; give SERVER, SERVER:TYPE or SERVER:TYPE@RATE (frames/s)")
    return FrameStream(match[1], int(match[2]) if match[2] else None, float(match[3]) if match[3] else None, form)


def _show_recorder(
    recorder: Recorder,
    missing_sources: _MissingSources,
    path: Path,
    over: list[bool],
    limit: RunLimit,
    as_json: bool,
    keeps: bool,
) -> None:
    """Show the recorder's progress until its end."""
    screen = get_console()
    live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal and not as_json else None
    shown = time.monotonic()
    before = recorder.stats()
    with live or nullcontext():
        while recorder.running and not over:
            time.sleep(_STATUS_PERIOD_S)
            now = time.monotonic()
            stats = recorder.stats()
            if limit.is_reached(stats.messages):
                return
            if now - shown < 1:
                continue
            missing_sources.refresh()
            rate = (stats.messages - before.messages) / (now - shown)
            byte_rate = (stats.written_bytes - before.written_bytes) / (now - shown)
            shown, before = now, stats
            if as_json:
                rates = {"rate": round(rate, 3), "byte_rate": round(byte_rate, 3)}
                echo_json({"path": str(path), **asdict(stats), **rates, "final": False})
            elif live is not None:
                pause = "paused, " if recorder.paused else ""
                live.update(
                    f"{pause}{format_count(rate)}/s, {format_bytes(byte_rate)}/s, {format_status(stats, keeps)}",
                    refresh=True,
                )


def format_status(stats: RecorderStats, keeps: bool = False) -> str:
    """Return the recorder's statistics in one line. `keeps`: messages stay in memory for snapshots."""
    parts = [
        f"{format_count_noun(stats.messages, 'message')}{' seen' if keeps else ''} "
        f"of {format_count_noun(stats.endpoints, 'endpoint')}",
        f"{format_bytes(stats.written_bytes)} in {format_count_noun(stats.segments, 'segment')}",
        "lost: unknown (a stock publisher)" if stats.lost is None else f"lost {format_count(stats.lost)}",
        f"{format_bytes(stats.free_bytes)} free on the disk",
    ]
    if keeps and not stats.segments:
        parts.insert(2, "nothing is written before a trigger")
    if stats.at_risk_bytes:
        parts.insert(2, f"{format_bytes(stats.at_risk_bytes)} at risk")
    if stats.uncompressed_chunks:
        parts.insert(2, f"{format_count_noun(stats.uncompressed_chunks, 'chunk')} uncompressed (compression too slow)")
    if stats.removed_segments:
        parts.insert(2, f"{format_count_noun(stats.removed_segments, 'old segment')} removed")
    if stats.corrupt:
        parts.append(f"invalid data in a ring, {format_count_noun(stats.corrupt, 'time')}")
    if stats.refused:
        parts.append(
            join_first_texts(f"{endpoint} not recorded: {reason}" for endpoint, reason in stats.refused.items())
        )
    return ", ".join(parts)


@contextmanager
def _connect_trigger(topic: str | None, prefix: str | None) -> Iterator[SubSocket | None]:
    """Within the block, subscribe to the topic of triggers; None: no topic."""
    from msgq.impl.ring import Context, SubSocket

    if topic is None:
        yield None
        return
    with SubSocket() as subscriber:
        with settings.overrides(prefix):
            subscriber.connect(Context(), topic)
        subscriber.setTimeout(_STATUS_PERIOD_S * 1000)
        yield subscriber


@contextmanager
def handle_recording_triggers(
    recorder: Recorder, subscriber: SubSocket | None, stop: Callable[[], object]
) -> Iterator[None]:
    """Within the block, SIGUSR1 and messages of a subscriber end a pause, or write a snapshot.

    An error of a trigger calls `stop`, and is raised at the end of the block.
    """
    fire = threading.Event()  # a handler must not take the recorder's locks
    before = signal.signal(signal.SIGUSR1, lambda *_: fire.set())
    over = threading.Event()
    errors: list[Exception] = []

    def run_or_stop(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            errors.append(error)
            stop()

    works: list[Callable[[], None]] = [lambda: _apply_triggers(recorder, fire, over)]
    if subscriber is not None:
        works.append(lambda: _wait_for_trigger(subscriber, fire, over))
    threads = [threading.Thread(target=run_or_stop, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        fire.set()
        for thread in threads:
            thread.join()
        signal.signal(signal.SIGUSR1, before)
    if errors:
        raise errors[0]


def _apply_triggers(recorder: Recorder, fire: threading.Event, over: threading.Event) -> None:
    while fire.wait() and not over.is_set():
        fire.clear()
        if recorder.paused:
            recorder.resume()
        else:
            with suppress(StateError):  # it is not paused, and keeps nothing in memory: there is nothing to do
                recorder.snapshot()


def _wait_for_trigger(subscriber: SubSocket, fire: threading.Event, over: threading.Event) -> None:
    while not over.is_set():
        if subscriber.receive() is not None:
            fire.set()
