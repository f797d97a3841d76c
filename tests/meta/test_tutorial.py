"""The tutorial works: its programs run, and its commands succeed in their order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.sources import ROOT
from tests.support import wait_until

pytestmark = pytest.mark.ci
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
#: Programs that run until Ctrl-C: the topic of each, and the command before which the reader stops the program.
RUN_UNTIL = {"python thermometer.py": ("temperature", "msgq play"), "python heating.py": ("heater", "msgq clean")}
NEEDS_SPARK = "msgq lake report"


def test_tutorial_commands_succeed(tmp_path: Path, prefix: str) -> None:
    for title, text in re.findall(r'^```python title="([\w.]+)"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / title).write_text(text)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    environment = {**os.environ, "OPENPILOT_PREFIX": prefix, "PATH": path}
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for command in COMMANDS:
            for program, (_, next_command) in RUN_UNTIL.items():
                if command.startswith(next_command):
                    interrupt(running.pop(program))
            if command in RUN_UNTIL:
                running[command] = subprocess.Popen(
                    command.split(), cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
                )
                wait_until(Path("/dev/shm", f"msgq_{prefix}", RUN_UNTIL[command][0]).exists)
            elif not command.startswith(NEEDS_SPARK):
                done = subprocess.run(
                    command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def interrupt(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    process.wait()
