"""`msgq bag diff`: compares two logs."""

from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import comparisons, options
from msgq.common.storage.url_path import RecordingPath


@click.command(epilog=comparisons.COMPARISON_EXIT_CODES)
@click.argument("a", metavar="LOG_A", type=options.RECORDING)
@click.argument("b", metavar="LOG_B", type=options.RECORDING)
@comparisons.add_tolerance_options
@arguments.add_selection_options
@options.add_schema_options
@arguments.chunk_limit_option
@options.json_option
def command(
    a: RecordingPath, b: RecordingPath, tolerances: Any, time_tolerance: float | None, as_json: bool, **chosen: Any
) -> None:
    """Compare two logs, and report the first difference.

    For each endpoint, message N of one log is compared with message N of the other log. If a schema describes the
    messages, the command compares values. Otherwise, the command compares bytes. Times are compared only with
    --time-tolerance.
    """
    from msgq.recording import compare

    first, second = (arguments.open_log([path], **chosen) for path in (a, b))
    with arguments.show_read_progress(first, second):
        comparison = compare(first, second, tolerances, time_tolerance=time_tolerance)
    for log in (first, second):
        arguments.print_log_problems(log)
    with arguments.require_endpoints_after(first, second, **chosen):
        comparisons.show_comparison(comparison, as_json)
