"""`msgq lake fleet`: combines the gold tables of many lakes."""

from dataclasses import asdict

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.lake import arguments
from msgq.common.texts import format_count_noun


@click.command(epilog=options.EXIT_CODES)
@click.argument("fleet", metavar="FLEET")
@click.argument("lakes", nargs=-1, required=True)
@click.option("--remove-missing", is_flag=True, help="Remove the rows of all lakes that no longer exist.")
@arguments.master_option
@options.json_option
def command(fleet: str, lakes: tuple[str, ...], remove_missing: bool, master: str | None, as_json: bool) -> None:
    """Combine the gold tables of many lakes into fleet tables.

    FLEET is the directory of the fleet tables. LAKES are directories, or patterns such as 'lakes/date=*/host=*'. The
    command copies only lakes whose gold has changed since the previous call. It skips lakes that it cannot read, and
    then ends with exit code 1.
    """
    from msgq.lake.fleet.fleet_lakes import find_fleet_lakes
    from msgq.spark.lake import build_fleet

    paths = find_fleet_lakes(fleet, lakes)  # reports wrong paths before Spark starts, which takes seconds
    spark = arguments.start_spark(master)
    with arguments.show_task_progress(spark, "fleet"):
        done = build_fleet(spark, fleet, paths, remove_missing)
    if as_json:
        echo_json(asdict(done))
    else:
        copied = format_count_noun(done.copied, "lake")
        echo(f"{fleet}: {copied} copied, {done.unchanged} unchanged, {done.removed} removed")
    for problem in done.problems:
        echo(f"skipped: {problem.lake}: {problem.reason}", err=True)
    if done.problems:
        skipped = format_count_noun(len(done.problems), "lake")
        raise click.ClickException(f"{skipped} skipped; repair the lakes named above, and run the command again")
