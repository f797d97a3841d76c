"""`msgq bag diff`: whether two logs say the same."""

from pathlib import Path
from typing import Any

import click

from msgq.cli import bag_options, comparisons, options


@click.command(epilog=comparisons.EXIT_CODES)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@comparisons.tolerances
@bag_options.selection
@options.as_json
def command(a: Path, b: Path, tolerances: Any, times: float | None, as_json: bool, **chosen: Any) -> None:
    """Compare logs A and B: by endpoint and order, and say where they first differ.

    Values are compared where a schema says how to decode them, else bytes. Times do not matter unless asked for.
    """
    from msgq.recording import compare

    first, second = (bag_options.open_log([path], **chosen) for path in (a, b))
    found = compare(first, second, tolerances, time_tolerance=times)
    for log in (first, second):
        bag_options.tell_problems(log)
    comparisons.tell(found, as_json)
