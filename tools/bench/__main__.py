"""The command line of the benchmark."""

import argparse
import sys
from pathlib import Path

from tools.bench import report
from tools.bench.adapters import ON_REQUEST, PEERS
from tools.bench.cases import CASES, KEYS
from tools.bench.run import run
from tools.bench.workspace import workspace


def main() -> int:
    """Measure, print the table, and write the files that were asked for."""
    options = _options()
    cases = [case for case in CASES if not options.only or case.key in options.only]
    with workspace() as space:
        record = run(space, cases, options.peers, repeats=options.repeats, quick=options.quick, say=_say)
    table = report.markdown(record)
    print(table)
    if options.markdown:
        options.markdown.write_text(table, encoding="utf-8")
    if options.json:
        options.json.write_text(report.as_json(record), encoding="utf-8")
    return 1 if record.failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description="Measure msgq beside its peers.")
    parser.add_argument("--quick", action="store_true", help="a short look at everything; the figures are rough")
    parser.add_argument("--repeats", type=_positive, default=5, metavar="N", help="measure everything N times (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    parser.add_argument("--only", type=_Words(KEYS), default=[], metavar="CASE", help=f"some cases of {','.join(KEYS)}")
    choice = (*PEERS, *ON_REQUEST)
    text = f"some of {','.join(choice)}; all but the last without this"
    parser.add_argument("--peers", type=_Words(choice), default=PEERS, metavar="A,B", help=text)
    return parser.parse_args()


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


class _Words:
    """Reads a list of words with commas between them, each one of those that are known."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self.known = known

    def __call__(self, text: str) -> list[str]:
        words = [word for word in text.split(",") if word]
        for word in words:
            if word not in self.known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(self.known)}")
        return words


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
