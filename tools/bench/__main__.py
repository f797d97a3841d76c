"""The command line of the benchmark."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.bench import machine, report
from tools.bench.adapters import FLOOR, OTHER, OURS, SYSTEMS
from tools.bench.machine import PROJECT
from tools.bench.result import Result
from tools.bench.run import run
from tools.bench.tables import TABLES, find_table, list_words, select_cases
from tools.bench.workspace import workspace


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, keep the result in a file, and print the tables."""
    options = _parse_options(arguments)
    cases = select_cases(options.only)
    if options.list:
        print(*(f"{case.key}: {case.title}" for case in cases), sep="\n")
        return 0
    tables = {name: [case for case in cases if find_table(case.key) == name] for name in TABLES}
    result = Result(
        {name: rows for name, rows in tables.items() if rows},
        options.repeats,
        options.quick,
        [*options.peers, *([OTHER] if options.against else [])],
        scale=options.scale,
        against=str(options.against.resolve()) if options.against else "",
    )
    path = options.json or PROJECT / time.strftime("build/bench/%Y-%m-%d-%H%M%S.json")
    if options.resume:
        _resume(result, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _say(f"the result: {path}")
    with workspace() as space:
        try:
            run(space, result, say=_say, keep=lambda: result.write(path))
        except KeyboardInterrupt:
            _say(f"interrupted; to continue, repeat the options with --json {path} --resume")
            raise
    print(report.format_tables(result))
    return 1 if result.failed else 0


def _resume(result: Result, path: Path) -> None:
    """Copy the samples of an interrupted run with the same options into the result."""
    earlier = Result.read(path)
    for name in ("repeats", "quick", "peers", "scale", "against"):
        if getattr(earlier, name) != getattr(result, name):
            raise SystemExit(f"{path} was measured with {name}={getattr(earlier, name)}; repeat its options to resume")
    if earlier.machine["commit"] != machine.read_commit():
        raise SystemExit(f"{path} was measured at commit {earlier.machine['commit']}; measure again without --resume")
    keys = {case.key for case in result.cases}
    if keys != {case.key for case in earlier.cases}:
        raise SystemExit(f"{path} has other rows; repeat its --only to resume")
    earlier.tables = result.tables
    vars(result).update(vars(earlier))


def _parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description="Measure msgq and comparable libraries.")
    parser.add_argument(
        "--only", type=_words, default=[], metavar="ROW,TABLE", help="measure only these rows or tables"
    )
    parser.add_argument("--peers", type=_words, default=[], metavar="A,B", help="measure only these peers")
    parser.add_argument("--against", type=Path, metavar="DIR", help="measure msgq of another built checkout, too")
    parser.add_argument("--repeats", type=_positive, default=6, metavar="N", help="measure everything N times (6)")
    parser.add_argument("--quick", action="store_true", help="measure briefly; the figures are rough")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="X times the messages of recordings (1)")
    result_help = "write the result to FILE, after each row (build/bench/TIME.json)"
    parser.add_argument("--json", type=Path, metavar="FILE", help=result_help)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run from the file of --json")
    parser.add_argument("--list", action="store_true", help="list the selected rows, and measure nothing")
    options = parser.parse_args(arguments)
    peers = [system for system in SYSTEMS if system not in (OURS, OTHER, FLOOR)]
    words_by_option = {"--only": list_words(), "--peers": peers}
    for option, words in (("--only", options.only), ("--peers", options.peers)):
        for word in words:
            if word not in words_by_option[option]:
                parser.error(f"argument {option}: {word!r} is none of {', '.join(words_by_option[option])}")
    if options.against and not (options.against / "msgq").is_dir():
        parser.error(f"argument --against: {options.against} has no folder msgq; name the folder of a built checkout")
    if options.resume and not (options.json and options.json.exists()):
        parser.error("argument --resume: --json must name the file of the interrupted run")
    return options


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
