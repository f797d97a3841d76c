"""The command of the demo whose recording Spark reads."""

from __future__ import annotations

import sys
from pathlib import Path


def make_demo_command(duration: int, recording: Path) -> list[str]:
    """Return the command of the full demo, for `duration` seconds, which prints its summary as JSON."""
    options = ("--full", "--json", "--duration", str(duration), "--output", str(recording))
    return [sys.executable, "-m", "msgq", "demo", *options]
