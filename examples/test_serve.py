"""The examples of `msgq serve` for systemd and containers."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from msgq.cli.serve import command

FOLDER = Path(__file__).parent / "serve"
UNIT = FOLDER / "msgq-serve.service"
ANALYZE = shutil.which("systemd-analyze")
INSTRUCTIONS = {"FROM", "RUN", "COPY", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}


def check_command_line(words: list[str]) -> None:
    """Fail unless the words are a call of `msgq serve` with existing options."""
    assert (Path(words[0]).name, words[1]) == ("msgq", "serve")
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_unit_starts_server_with_known_options() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(UNIT.read_text())
    assert unit.sections() == ["Unit", "Service", "Install"]
    words = unit["Service"]["ExecStart"].split()
    check_command_line(words)
    assert words[words.index("--token-file") + 1] == "${CREDENTIALS_DIRECTORY}/token"
    assert unit["Service"]["LoadCredential"].startswith("token:")


@pytest.mark.skipif(ANALYZE is None, reason="no systemd on this machine")
def test_unit_is_valid_for_systemd(tmp_path: Path) -> None:
    assert ANALYZE is not None
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/robot/env/bin/msgq", sys.executable))
    done = subprocess.run([ANALYZE, "verify", unit], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    unit.write_text(unit.read_text().replace("NoNewPrivileges", "NoNewPriviledges"))
    done = subprocess.run([ANALYZE, "verify", unit], capture_output=True, text=True, check=False)
    assert "NoNewPriviledges" in done.stderr


def test_container_file_starts_server_with_known_options() -> None:
    lines = [line for line in (FOLDER / "Containerfile").read_text().splitlines() if line and not line.startswith("#")]
    steps = [(name, text) for name, _, text in (line.partition(" ") for line in lines)]
    assert {name for name, _ in steps} <= INSTRUCTIONS
    bases = [index for index, (name, _) in enumerate(steps) if name == "FROM"]
    assert bases[0] == 0
    stages = re.findall(r"^FROM .* AS (\w+)$", "\n".join(lines), re.MULTILINE)
    assert re.findall(r"^COPY --from=(\w+) ", "\n".join(lines), re.MULTILINE) == stages
    final = dict(steps[bases[-1] :])
    assert final["USER"] != "root"
    check_command_line([*json.loads(final["ENTRYPOINT"]), *json.loads(final["CMD"])])
