"""`msgq play --deterministic`: plays a log into programs in virtual time, and compares their outputs."""

import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from msgq.cli.common import comparisons
from msgq.common.selection import SelectedEndpoints
from msgq.common.storage.url_path import RecordingPath
from msgq.recording import LogReader, compare
from msgq.recording.player.remapping import NameMapping
from msgq.recording.player.replay import Replay, write_sent_messages
from msgq.simulation import SentMessage


def play_deterministic(
    log: LogReader,
    programs: Sequence[str],
    time_source: str,
    remap: NameMapping,
    seed: int,
    reference: Sequence[RecordingPath],
    compare_endpoints: Sequence[re.Pattern[str]],
    output: Path | None,
    tolerances: Any,
    time_tolerance: float | None,
    as_json: bool,
    idle_timeout: float,
    max_runtime: float,
) -> None:
    """Run the programs, and compare their outputs with a reference, or with a second run."""
    functions = [_import_function(program) for program in programs]

    replay = Replay(log, time_source, remap)

    def run_replay() -> list[SentMessage]:
        return replay.run_programs(
            *functions, seed=seed, faults=None, idle_timeout=idle_timeout, max_runtime=max_runtime
        )

    def select(messages: list[SentMessage]) -> list[SentMessage]:
        return [message for message in messages if message.endpoint in selection]

    sent = run_replay()
    if output is not None:
        write_sent_messages(sent, output)
    endpoints = {message.endpoint for message in sent}
    # A reference may contain the played endpoints, too.
    selection = SelectedEndpoints(compare_endpoints or None, replay.endpoints if reference else ())
    if reference:
        reference_log = LogReader(*reference, endpoints=selection)
        comparison = compare(select(sent), reference_log, tolerances, time_tolerance=time_tolerance)
        endpoints |= {channel.endpoint for channel in reference_log.channels}
    else:
        comparison = compare(select(sent), select(run_replay()), tolerances, time_tolerance=time_tolerance or 0)
    _require_matches(compare_endpoints, endpoints)
    comparisons.show_comparison(comparison, as_json, messages=len(sent))


def _require_matches(compare_endpoints: Sequence[re.Pattern[str]], compared: Collection[str]) -> None:
    """Raise an error if an expression matches no compared endpoint."""
    if missing := [expression.pattern for expression in compare_endpoints if not any(map(expression.search, compared))]:
        text = (
            f"no endpoint of the programs matches {', '.join(missing)}; give "
            "--compare-endpoints a match for a sent endpoint"
        )
        raise click.ClickException(text)


def _import_function(program: str) -> Callable[[], Any]:
    """Import MODULE:FUNCTION. The current directory is searched, too."""
    module, _, name = program.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if not module or not name:
        raise click.UsageError(f"--deterministic {program!r} is incomplete; give MODULE:FUNCTION")
    try:
        function = getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"--deterministic {program!r}: module {error.name!r} not found") from None
    if not callable(function):
        raise click.UsageError(f"--deterministic {program!r}: function {name!r} not found in the module")
    return function  # type: ignore[no-any-return]
