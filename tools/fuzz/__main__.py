"""`python -m tools.fuzz --seconds N --seed S`: fuzz all levels, one after another; exit code 1 for a finding."""

import argparse
import secrets
import sys

from .parent import LEVELS, WAIT_FOREVER, fuzz


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all levels together")
    parser.add_argument("--seed", type=int, help="the same seed gives the same cases; random by default")
    parser.add_argument("--level", choices=LEVELS, help="only this one")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (in C) or round (in Python)")
    parser.add_argument("--count", type=int, default=WAIT_FOREVER, help="how many of them at most")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    levels = [options.level] if options.level else list(LEVELS)
    failed = False
    for level in levels:
        outcome = fuzz(level, seed, options.seconds / len(levels), options.first, options.count)
        print(f"{level}, seed {seed}: {outcome.text}")
        if not outcome.ok:
            failed = True
            print(f"replay with: {outcome.replay}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
