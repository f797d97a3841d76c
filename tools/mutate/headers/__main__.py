"""`python -m tools.mutate.headers`: apply the listed mutants of C headers, and report those that a test misses."""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatch

from tests.support import ROOT
from tools.mutate.copies import NotRunError
from tools.mutate.headers.mutant import all_mutants
from tools.mutate.headers.run import mutate, report
from tools.mutate.run import KILLED


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate.headers", description=__doc__)
    parser.add_argument("--files", default="*", metavar="GLOB", help="headers; default: all")
    parser.add_argument("--seconds", type=float, default=3600.0, help="time limit; default: %(default)g")
    options = parser.parse_args()
    mutants = [mutant for mutant in all_mutants() if fnmatch(mutant.path, options.files)]
    try:
        verdicts = mutate(ROOT, mutants, options.seconds)
    except NotRunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report(verdicts))
    return int(any(verdict != KILLED for verdict in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())
