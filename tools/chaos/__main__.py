"""`python -m tools.chaos --seconds N [--seed S]`: soak all kinds; exit code 1, with what broke, for a finding."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT, SHM
from tools.chaos.checker import check, table
from tools.chaos.plan import PERSISTENT_FILES, Plan, soak_plan
from tools.chaos.run import Run

SOCKETS = Path("/tmp")  # folder of the sockets of frame servers


@contextlib.contextmanager
def run_folder(prefix: str) -> Iterator[Path]:
    """Put the prefix in force; remove what a failed run leaves under it, and give a folder for complaints."""
    os.environ["OPENPILOT_PREFIX"] = prefix
    try:
        with tempfile.TemporaryDirectory(prefix="msgq-chaos-") as folder:
            yield Path(folder)
    finally:
        for path in leftovers(prefix):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def leftovers(prefix: str) -> list[Path]:
    """Return what the prefix has: folders, sockets of frames and their locks."""
    folders_searched = (SHM, SOCKETS, SHM / f"msgqframes_{os.geteuid()}")
    return [
        path for context in folders_searched if context.exists() for path in context.iterdir() if prefix in path.name
    ]


def check_clean(prefix: str) -> list[str]:
    """Run `msgq clean`, which must leave what goes only when it is named; then name it. Return what else is left."""
    errors = _clean()
    remaining = {path.name for path in _files(prefix)}
    if remaining != {name.partition("/")[2] for name in PERSISTENT_FILES}:
        errors.append(f"msgq clean left {sorted(remaining)}, and {sorted(PERSISTENT_FILES)} stay until they are named")
    errors += _clean(*PERSISTENT_FILES)
    return errors + [f"{path} is left after msgq clean" for path in _files(prefix)]


def _files(prefix: str) -> list[Path]:
    """Return what the prefix has, without folders."""
    return [
        path for leftover in leftovers(prefix) for path in (leftover.iterdir() if leftover.is_dir() else (leftover,))
    ]


def _clean(*names: str) -> list[str]:
    command = [sys.executable, "-m", "msgq", "clean", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return [f"msgq clean ended with {done.returncode}: {done.stderr}"] if done.returncode else []


def soak(plan: Plan, seed: int, cleans: bool = False, **enough: float) -> list[str]:
    """Run once, until it is `enough` (Run.soak), and print the figures; return what broke.

    `cleans`: also check what `msgq clean` removes.
    """
    prefix = f"{os.environ.get('OPENPILOT_PREFIX', 'chaos')}-{secrets.token_hex(6)}"
    with run_folder(prefix) as folder:
        run = Run(seed, folder, plan)
        run.soak(**enough)
        if run.failures:
            return run.failures
        print(table(run))
        return check(run) + (check_clean(prefix) if cleans else [])


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long incarnations come and go")
    parser.add_argument("--seed", type=int, help="of what is done when; the machine's schedule is not in it")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    failures = soak(soak_plan(), seed, cleans=True, seconds=options.seconds)
    for failure in failures:
        print(f"BROKEN: {failure}", file=sys.stderr)
    print(f"seed {seed}: {len(failures)} failures" if failures else f"seed {seed}: no errors")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
