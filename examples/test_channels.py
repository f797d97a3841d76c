"""The examples of channels print the expected results, and leave no files."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import msgq
from tests.support import DEADLINE, ROOT, SHM


def run(program: str, prefix: str) -> dict[str, str]:
    """Run a program of several processes, and return their lines by the first word."""
    command = [sys.executable, "-W", "error", "-m", f"examples.{program}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert list(SHM.glob(f"msgq*_{prefix}/*")) == []
    output: dict[str, str] = {}
    for line in done.stdout.splitlines():
        who, text = re.split(r":? ", line, maxsplit=1)
        output[who] = f"{output[who]}\n{text}" if who in output else text
    return output


def numbers(text: str, pattern: str) -> list[int]:
    found = re.search(pattern, text)
    assert found, text
    return [int(number) for number in found.groups()]


def test_subscriber_with_kept_views_does_not_delay_others(prefix: str) -> None:
    output = run("lidar", prefix)
    assert output["lidar_driver"] == "201 sent, 0 refused, 0 evicted"
    for consumer in ("mapper", "hoarder"):
        assert sum(numbers(output[consumer], r"(\d+) received, (\d+) lost")) == 201
    assert "holds 8 views, its limit (max_views)" in output["hoarder"]
    assert output["hoarder"].endswith("8 kept, unchanged: True")


def test_subscribers_of_two_publishers_see_same_order(prefix: str) -> None:
    output = run("thermometers", prefix)
    assert output["hall"] == output["study"]
    assert output["hall"].startswith("{'kitchen': 300, 'cellar': 300, 'attic': 300}, 0 lost")


def test_broadcast_participant_receives_messages_of_others(prefix: str) -> None:
    people = ("Ann", "Ben", "Cleo")
    output = run("chat", prefix)
    for name in people:
        texts = [f"{other}: {text}" for other in people if other != name for text in ("bye", "hello")]
        assert output[name] == f"heard {', '.join(texts)}"


def test_mailbox_keeps_requests_before_start_of_owner(prefix: str) -> None:
    assert run("calculator", prefix) == {"Ann": "1 + 2 + 3 = 6", "Ben": "10 + 20 = 30"}


def test_different_schema_of_channel_raises_error(prefix: str) -> None:
    output = run("agreement", prefix)
    assert output["planner"] == "claimed True, and received [(0.0, 0.0)]"
    matches, error = output["newer_planner"].splitlines()
    assert matches == "the schema matches: False"
    assert error == "'pose': schema mismatch: expected 'pose', found 'pose' (differs in data, layout)"


def test_killed_publisher_can_be_replaced(prefix: str) -> None:
    assert run("takeover", prefix) == {"subscriber": "received from both publishers; 0 messages unaccounted for"}


def test_example_refuses_existing_channel(prefix: str) -> None:
    msgq.Channel("numbers")
    with pytest.raises(AssertionError, match="channel exists; to open it, omit create=True"):
        run("takeover", prefix)
    assert (SHM / f"msgqchan_{prefix}" / "numbers").exists()
