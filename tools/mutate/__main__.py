"""`python -m tools.mutate --most N`: mutate Python modules, and report the mutants that no test notices."""

from __future__ import annotations

import argparse
import secrets
import sys

from tests.support import ROOT
from tools.mutate.copies import NotRunError
from tools.mutate.run import is_complete, mutate, report

PRODUCT = ["msgq/**/*.py", "visionipc/**/*.py"]


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("--files", action="append", metavar="GLOB", help=f"default: {' and '.join(PRODUCT)}")
    parser.add_argument("--most", type=int, metavar="N", help="number of mutants, drawn at random; default: all")
    parser.add_argument("--seed", type=int, help="the same seed draws the same mutants; random by default")
    parser.add_argument("--seconds", type=float, default=3600.0, help="time limit; default: %(default)g")
    parser.add_argument("tests", nargs="*", help="files or folders of tests; default: all but those marked `nightly`")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    try:
        verdicts = mutate(ROOT, options.files or PRODUCT, options.tests, options.most, seed, options.seconds)
    except NotRunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report(verdicts))
    return int(not is_complete(verdicts))


if __name__ == "__main__":
    sys.exit(main())
