"""The model of the protocols: `python -m tools.model`.

Without arguments: every scenario with its protocol as it is, then every mutation until it is found. Exit status 0: no
schedule of a protocol violates a property, and every mutation is found.

    python -m tools.model --list
    python -m tools.model --scenario overlap --schedules 100000 --seed 7
    python -m tools.model --mutation grant-release                       # prints the trace
    python -m tools.model --scenario overlap --seed 7 --schedules 1      # prints the trace, if that one fails
"""

import argparse
import sys
import time
from typing import Any

from .protocol import Mutation
from .protocols import BY_SCENARIO, MUTATIONS, PROTOCOLS
from .runner import Found, run_schedule, search
from .truth import PROPERTIES


def main() -> int:
    """Return the exit status."""
    options = parse()
    if options.list:
        return print_lists()
    good = True
    if not options.mutation:
        for name in [options.scenario] if options.scenario else BY_SCENARIO:
            good &= try_protocol(name, options.schedules, options.seed)
    if options.mutation or not options.scenario:
        print(f"\n{'mutation':<26} {'scenario':<22} {'schedules':>9}  {'violated':<8}  what is missing or different")
        for name in [options.mutation] if options.mutation else MUTATIONS:
            good &= try_mutation(MUTATIONS[name], options)
    return 0 if good else 1


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.model", description="random schedules of the protocols")
    parser.add_argument("--schedules", type=int, default=4000, help="at most so many of each scenario (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; each next one has the next")
    parser.add_argument("--scenario", choices=sorted(BY_SCENARIO), metavar="NAME", help="only this one")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), metavar="NAME", help="only this one, with a trace")
    parser.add_argument("--list", action="store_true", help="print scenarios, mutations and properties")
    return parser.parse_args()


def print_lists() -> int:
    """Print all names."""
    for modelled in PROTOCOLS:
        print(f"protocol {modelled.name}")
        for name, scenario in modelled.scenarios.items():
            print(f"scenario {name:<26} {(scenario.__doc__ or '').splitlines()[0]}")
        for mutation in modelled.mutations.values():
            print(f"mutation {mutation.name:<26} {mutation.what} ({mutation.scenario})")
    for name, text in PROPERTIES.items():
        print(f"property {name:<26} {text}")
    return 0


def try_protocol(scenario: str, schedules: int, seed: int) -> bool:
    """Is it clean? Otherwise the trace is printed."""
    started = time.perf_counter()
    if found := search(scenario, schedules, seed):
        print_trace(found)
        return False
    rate = schedules / (time.perf_counter() - started)
    print(f"{scenario:<22} {schedules} schedules from seed {seed}: no violation ({rate:.0f}/s)", flush=True)
    return True


def try_mutation(mutation: Mutation, options: argparse.Namespace) -> bool:
    """Is it found? One that was asked for by name is shown with its trace."""
    scenario = options.scenario or mutation.scenario
    found = search(scenario, options.schedules, options.seed, mutation.rules)
    if found and options.mutation:
        print_trace(found, mutation.rules)
    count, what = (found.seed - options.seed + 1, found.what) if found else ("NOT FOUND", "")
    print(f"{mutation.name:<26} {scenario:<22} {count:>9}  {what:<8}  {mutation.what}", flush=True)
    return found is not None


def print_trace(found: Found, rules: Any = None) -> None:
    """Replay it, step by step. `rules`: None for the protocol as it is."""
    replay = run_schedule(found.scenario, found.seed, rules, traced=True)
    if replay is None or replay.text != found.text:
        raise RuntimeError(f"seed {found.seed} of {found.scenario} does not replay")
    print("\n".join(replay.trace))
    print(f"\n{found.scenario}, seed {found.seed}: {found.text}\nIt should hold that {PROPERTIES[found.what]}.\n")


if __name__ == "__main__":
    sys.exit(main())
