"""Each part of `make nightly` has a time limit and a row in CONTRIBUTING.md, and the parts run all tests."""

from __future__ import annotations

import re
import subprocess

from tests.support import ROOT
from tests.tiers import MARKS


def list_commands() -> dict[str, str]:
    """Return the command of each part."""
    done = subprocess.run(
        ["make", "--dry-run", "nightly", "LIMIT=7m"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return dict(re.findall(r"TIMEFORMAT='nightly-([a-z0-9.]+): .*; time (.*)", done.stdout))


def test_parts_of_nightly_have_limit_and_documentation() -> None:
    commands = list_commands()
    assert len(commands) > 10
    assert [part for part, command in commands.items() if not re.match(r"timeout .* 7m .", command)] == []
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| part | runs |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    documented = set(re.findall(r"`([a-z0-9.]+)`", "".join(cells)))
    assert documented == set(commands) - {"python3.12", "python3.13", "python3.14"}  # python3.11 to python3.15


def test_nightly_lists_the_result_of_each_version_of_python() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "nightly-versions"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = done.stdout.split("--results ")[1].split()
    assert {f"python{version}" for version in listed} == {part for part in list_commands() if part.startswith("python")}


def test_parts_of_nightly_run_all_tests() -> None:
    parts = [command for command in list_commands().values() if "coverage run" in command]
    folders = sorted(set(re.findall(r"tests/\w+", " ".join(parts))))
    for folder in (*folders, "elsewhere"):
        for marks in [set(), *({mark} for mark in MARKS if mark != "style")]:
            if folder != "elsewhere" and not marks:
                continue  # all tests of these folders are marked
            assert sum(runs(command, folder, marks) for command in parts) == 1, (folder, marks)


def runs(command: str, folder: str, marks: set[str]) -> bool:
    """Return whether a command runs the tests of a folder with these marks."""
    ignored = set(re.findall(r"--ignore (\S+)", command))
    named = set(re.findall(r"tests/\w+", command)) - ignored
    expression = re.search(r'-m "?([a-z ]+?)"?(?: --|$)', command.partition("-m pytest")[2])
    chosen = eval(expression[1], {mark: mark in marks for mark in MARKS}) if expression else True
    return folder not in ignored and (not named or folder in named) and chosen
