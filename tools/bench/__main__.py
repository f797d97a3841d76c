"""The command line of the benchmark."""

import argparse
import sys
from pathlib import Path

from tools.bench import report
from tools.bench.run import run
from tools.bench.suites import SUITES
from tools.bench.workspace import workspace


def main() -> int:
    """Measure, print the table, and write the files that were asked for."""
    options = _options()
    suite = SUITES[options.suite]
    cases = [case for case in suite.cases if not options.only or case.key in options.only]
    peers = options.peers or suite.peers
    with workspace() as space:
        record = run(space, suite, cases, peers, repeats=options.repeats, quick=options.quick, say=_say)
    table = report.markdown(record)
    print(table)
    if options.markdown:
        options.markdown.write_text(table, encoding="utf-8")
    if options.json:
        options.json.write_text(report.as_json(record), encoding="utf-8")
    return 1 if record.failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description="Measure msgq beside its peers.")
    table_help = (
        "which table: sockets, with every peer, channels, with those that have many publishers, queues, records, or"
    )
    table_help += " kinds, ours beside each other"
    parser.add_argument("suite", nargs="?", choices=SUITES, default="sockets", help=table_help)
    parser.add_argument("--quick", action="store_true", help="a short look at everything; the figures are rough")
    parser.add_argument("--repeats", type=_positive, default=5, metavar="N", help="measure everything N times (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    parser.add_argument("--only", type=_words, default=[], metavar="CASE,CASE", help="some cases")
    parser.add_argument("--peers", type=_words, default=[], metavar="A,B", help="some peers, or one that is on request")
    options = parser.parse_args()
    suite = SUITES[options.suite]
    known = {"--only": [case.key for case in suite.cases], "--peers": [*suite.peers, *suite.on_request]}
    for option, words in (("--only", options.only), ("--peers", options.peers)):
        for word in words:
            if word not in known[option]:
                parser.error(f"argument {option}: {word!r} is none of {', '.join(known[option])}")
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
