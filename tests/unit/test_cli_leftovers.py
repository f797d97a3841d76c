"""`msgq clean` and `msgq doctor` find what the killed leave of gates and ZMQ claims, and leave the living alone."""

from __future__ import annotations

import fcntl
import json
from typing import Any

import pytest
from click.testing import CliRunner

import msgq
from msgq.cli.app import app
from msgq.common import shm_paths
from msgq.topic.leftovers import remove_dead_claims
from tests.contract import zmq_children
from tests.support import SHM, Child
from tests.unit import gate_children


def run(*args: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*args, "--json"], catch_exceptions=False)
    return [json.loads(line) for line in result.output.splitlines()]


def leftovers_check() -> str:
    (check,) = (check for check in run("doctor") if check["check"] == "leftovers")
    return f"{check['status']}: {check['text']}"


def test_clean_removes_event_gate_of_killed_controller(prefix: str) -> None:
    with msgq.fake_event_handle("lives", "", enable=True) as alive:
        assert alive.recv_called_event.fd >= 0
        with Child(gate_children.controller, "left", "recv_ready_event", env={"CEREAL_FAKE_PREFIX": "a:%b"}) as child:
            assert child.hear() == "made"
            assert run("clean") == []
            child.kill()
        assert f"left: gate of a dead controller (process {child.pid})" in leftovers_check()
        assert [one["action"] for one in run("clean", "--dry-run")] == ["would remove"]
        (removed,) = run("clean")
        assert (removed["endpoint"], removed["action"]) == ("left", "removed")
        assert leftovers_check().startswith("ok")
        assert alive.enabled
        assert msgq.fake_event_handle("lives", "", override=False).enabled
    assert not list(SHM.glob(f"msgqgate_{prefix}:*"))


def test_clean_removes_address_claim_of_killed_zmq_publisher(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "tcp")
    with Child(zmq_children.plain_claim, "left") as child:
        assert child.hear() == "published"
        assert list(remove_dead_claims(prefix, remove=False)) == []
        child.kill()
    looks = remove_dead_claims(prefix, remove=False)
    claim = next(looks)
    with open(claim.path) as file:  # a publisher that starts now may have it, however long the caller thinks it over
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert list(looks) == []
    assert f"left: claim of a dead ZMQ publisher (process {child.pid})" in leftovers_check()
    (removed,) = run("clean")
    assert (removed["endpoint"], removed["action"]) == ("left", "removed")
    assert claim.path not in shm_paths.list_zmq_claim_paths()  # the list may have claims of other tests' publishers
    assert leftovers_check().startswith("ok")
