"""Programs in JavaScript, with packages of npm."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT

_FOLDER = ROOT / "build" / "npm"
_INSTALLING = 300  # seconds


def packages(*names: str) -> Path:
    """Return a folder in which a program finds packages, which are installed there the first time.

    The test is skipped where there is no node or npm, or no registry can be reached.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} is here, which makes files with {', '.join(names)}")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes run tests
        manifest = _FOLDER / "package.json"
        if not manifest.exists():
            manifest.write_text('{"private": true}')
        if missing := [name for name in names if not (_FOLDER / "node_modules" / name).exists()]:
            command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *missing]
            done = subprocess.run(command, cwd=_FOLDER, capture_output=True, text=True, timeout=_INSTALLING)
            if done.returncode:
                pytest.skip(f"npm cannot install {', '.join(missing)}: {done.stderr[-500:]}")
    return _FOLDER


def run(program: Path, told: object, *names: str) -> str:
    """Run a module of JavaScript with these packages, and return its output.

    `told` is what it gets on its standard input, as JSON.
    """
    command = ["node", "--input-type=module", "--eval", program.read_text()]  # the program imports from the folder
    done = subprocess.run(
        command, cwd=packages(*names), input=json.dumps(told), capture_output=True, text=True, timeout=_INSTALLING
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
