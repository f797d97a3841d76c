"""`msgq bag diff`: whether two logs say the same."""

from pathlib import Path
from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import comparisons, options


@click.command(epilog=comparisons.COMPARISON_EXIT_CODES)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@comparisons.add_tolerance_options
@arguments.add_selection_options
@options.add_schema_options
@options.json_option
def command(a: Path, b: Path, tolerances: Any, time_tolerance: float | None, as_json: bool, **chosen: Any) -> None:
    """Compare logs A and B: by endpoint and order, and say where they first differ.

    Values are compared where a schema says how to decode them, else bytes. Times do not matter unless asked for.
    """
    from msgq.recording import compare

    first, second = (arguments.open_log([path], **chosen) for path in (a, b))
    with arguments.show_read_progress(first, second):
        comparison = compare(first, second, tolerances, time_tolerance=time_tolerance)
    for log in (first, second):
        arguments.print_log_problems(log)
    with arguments.require_endpoints_after(first, second, **chosen):
        comparisons.show_comparison(comparison, as_json)
