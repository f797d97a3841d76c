"""The model of the protocols: `python -m tools.model`.

Without arguments: every scenario with its protocol as it is, then every mutation until it is found. Exit status 0: no
schedule of a protocol violates a property, and every mutation is found.

    python -m tools.model --list
    python -m tools.model --scenario overlap --schedules 100000 --seed 7
    python -m tools.model --mutation grant-release                       # prints the trace
    python -m tools.model --scenario overlap --seed 7 --schedules 1      # prints the trace if the schedule fails
"""

import argparse
import sys
import time
from typing import Any

from .oracle import PROPERTIES
from .protocol import Mutation
from .protocols import BY_SCENARIO, MUTATIONS, PROTOCOLS
from .runner import Finding, run_schedule, search


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
    for protocol in PROTOCOLS:
        print(f"protocol {protocol.name}")
        for name, scenario in protocol.scenarios.items():
            print(f"scenario {name:<26} {(scenario.__doc__ or '').splitlines()[0]}")
        for mutation in protocol.mutations.values():
            print(f"mutation {mutation.name:<26} {mutation.omission} ({mutation.scenario})")
    for name, text in PROPERTIES.items():
        print(f"property {name:<26} {text}")
    return 0


def try_protocol(scenario: str, schedules: int, seed: int) -> bool:
    """Is it clean? Otherwise the trace is printed."""
    started = time.perf_counter()
    if finding := search(scenario, schedules, seed):
        print_trace(finding)
        return False
    rate = schedules / (time.perf_counter() - started)
    print(f"{scenario:<22} {schedules} schedules from seed {seed}: no violation ({rate:.0f}/s)", flush=True)
    return True


def try_mutation(mutation: Mutation, options: argparse.Namespace) -> bool:
    """Is it found? One that was asked for by name is shown with its trace."""
    scenario = options.scenario or mutation.scenario
    finding = search(scenario, options.schedules, options.seed, mutation.rules)
    if finding and options.mutation:
        print_trace(finding, mutation.rules)
    count, broken = (finding.seed - options.seed + 1, finding.broken) if finding else ("NOT FOUND", "")
    print(f"{mutation.name:<26} {scenario:<22} {count:>9}  {broken:<8}  {mutation.omission}", flush=True)
    return finding is not None


def print_trace(finding: Finding, rules: Any = None) -> None:
    """Replay it, step by step. `rules`: None for the protocol as it is."""
    replay = run_schedule(finding.scenario, finding.seed, rules, traced=True)
    if replay is None or replay.text != finding.text:
        raise RuntimeError(f"seed {finding.seed} of {finding.scenario} does not replay")
    print("\n".join(replay.trace))
    print(f"\n{finding.scenario}, seed {finding.seed}: {finding.text}")
    print(f"It should hold that {PROPERTIES[finding.broken]}.\n")


if __name__ == "__main__":
    sys.exit(main())
