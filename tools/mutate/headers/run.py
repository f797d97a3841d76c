"""Runs the listed tests on the mutants of headers, in copies of the tree."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support import DEADLINE
from tools.mutate.copies import Copy, NotRunError, copies_of, on_copies
from tools.mutate.headers.mutant import Mutant
from tools.mutate.run import KILLED, NO_TIME, NOT_RUN, SURVIVED

# Tests that compile or read the headers themselves. All others use the extension modules.
_DIRECT = ("tests/headers/", "tests/sanitizers/", "tests/crash/", "tests/fuzz/", "tests/meta/")
_SECONDS_A_TEST = 2 * DEADLINE


def mutate(root: Path, mutants: Sequence[Mutant], seconds: float) -> dict[Mutant, str]:
    """Return the verdict on each mutant.

    Raises:
        NotRunError: there is no mutant, or a listed test does not pass without a mutant.
    """
    until_s = time.monotonic() + seconds
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    if not tests:
        raise NotRunError("no mutants")
    with copies_of(root, os.cpu_count() or 1) as copies:
        results = copies[0].run(tests, seconds)
        if not results.is_success(tests):
            raise NotRunError(f"without a mutant, not all of the listed tests pass:\n{results.output[-3000:]}")
        return on_copies(copies, lambda copy, mutant: _judge(copy, mutant, until_s), mutants)


def _judge(copy: Copy, mutant: Mutant, until_s: float) -> str:
    if time.monotonic() > until_s:
        return NO_TIME
    seconds = min(_SECONDS_A_TEST * len(mutant.tests), until_s - time.monotonic())
    with contextlib.ExitStack() as stack:
        stack.enter_context(copy.changed(mutant.path, mutant.apply((copy.tree / mutant.path).read_bytes())))
        if not all(test.startswith(_DIRECT) for test in mutant.tests):
            try:
                stack.enter_context(copy.rebuilt(mutant.path))
            except subprocess.CalledProcessError as error:
                print(f"{mutant} does not compile:\n{error.stderr.decode()[-1000:]}")
                return NOT_RUN
        results = copy.run(mutant.tests, seconds)
    if results.failed == set(mutant.tests):
        return KILLED
    if results.code is None:
        return NO_TIME
    if results.passed:
        print(f"{mutant}: not noticed by {', '.join(sorted(results.passed))}", flush=True)
        return SURVIVED
    return NOT_RUN


def report(verdicts: dict[Mutant, str]) -> str:
    """Return the counts, and the mutants that were not killed."""
    counts = Counter(verdicts.values())
    names = (KILLED, SURVIVED, NO_TIME, NOT_RUN)
    lines = [f"{len(verdicts)} mutants of headers: " + ", ".join(f"{counts[name]} {name}" for name in names)]
    lines += [f"{verdict}: {mutant}" for mutant, verdict in verdicts.items() if verdict not in (KILLED, NO_TIME)]
    return "\n".join(lines)
