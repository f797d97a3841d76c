"""`msgq doctor`: each check on this machine, and on machines that lack something."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import msgq
from msgq.cli.app import app
from msgq.impl.ring.core import unlink_topic
from msgq.monitor import doctor, machine
from msgq.monitor.machine import DoctorCheck
from tests.support import SHM, Child, hear, say

PUBLISHER = "import msgq, os; s = msgq.pub_sock('weather'); os.kill(os.getpid(), 9)"


def diagnose() -> tuple[int, dict[str, dict[str, Any]]]:
    result = CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)
    checks = [json.loads(line) for line in result.output.splitlines()]
    return result.exit_code, {check["check"]: check for check in checks}


def test_doctor_on_the_test_machine_finds_no_error(prefix: str) -> None:
    _, checks = diagnose()
    for name in ("kernel", "permissions", "clock", "round trip", "segments", "topics"):
        assert checks[name]["status"] == "ok", checks[name]


def test_doctor_exits_with_1_if_a_check_finds_an_error(prefix: str) -> None:
    code, checks = diagnose()
    assert code == any(check["status"] == "error" for check in checks.values())


def test_doctor_creates_no_permanent_topic(prefix: str) -> None:
    diagnose()
    assert list(SHM.glob(f"msgq*_{prefix}/*")) == []


def test_doctor_reports_dead_publisher_as_error(prefix: str) -> None:
    died = subprocess.run([sys.executable, "-c", PUBLISHER], timeout=60)
    assert died.returncode == -9
    code, checks = diagnose()
    assert code == 1
    assert checks["topics"]["status"] == "error"
    assert "weather: publisher" in checks["topics"]["text"]


def test_doctor_reports_a_truncated_segment_as_an_error(prefix: str) -> None:
    (SHM / f"msgq_{prefix}").mkdir(mode=0o700)
    (SHM / f"msgq_{prefix}" / "weather").write_bytes(bytes(100))
    code, checks = diagnose()
    assert code == 1
    assert checks["segments"]["status"] == "error"
    assert "weather" in checks["segments"]["text"]


def test_doctor_reports_symbolic_link_in_place_of_topic(prefix: str, tmp_path: Path) -> None:
    (SHM / f"msgq_{prefix}").mkdir(mode=0o700)
    (SHM / f"msgq_{prefix}" / "weather").symlink_to(tmp_path)
    _, checks = diagnose()
    assert checks["segments"]["status"] == "warning"
    assert "weather" in checks["segments"]["text"]


def test_doctor_prints_one_line_per_check(prefix: str) -> None:
    result = CliRunner().invoke(app, ["doctor"], catch_exceptions=False)
    assert len(result.output.splitlines()) == len(machine.MACHINE_CHECKS) + 9
    assert "ok      kernel" in result.output


@pytest.mark.parametrize(
    ("total_mib", "free_mib", "status"), [(64, 1, "error"), (64, 60, "warning"), (8192, 4096, "ok"), (8192, 3, "error")]
)
def test_doctor_warns_of_little_space_and_reports_full_file_system(
    monkeypatch: pytest.MonkeyPatch, total_mib: int, free_mib: int, status: str
) -> None:
    total, free = total_mib << 20, free_mib << 20
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(total, total - free, free))
    check = machine.check_shm_space()
    assert check.status == status
    assert f"{free_mib} MiB of {total_mib} MiB" in check.text


def test_doctor_reports_missing_directory_as_error(tmp_path: Path) -> None:
    assert machine.check_shm_space(tmp_path / "nowhere").status == "error"
    assert machine.check_shm_permissions(tmp_path / "nowhere").status == "error"


def test_doctor_permission_check_leaves_no_file(tmp_path: Path) -> None:
    assert machine.check_shm_permissions(tmp_path).status == "ok"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "check", [machine.check_futex_waitv, machine.check_membarrier], ids=["futex_waitv", "membarrier"]
)
def test_doctor_warns_of_missing_system_call(monkeypatch: pytest.MonkeyPatch, check: Any) -> None:
    monkeypatch.setattr(machine, "_FUTEX_WAITV_NUMBER", 100_000)
    monkeypatch.setattr(machine, "_MEMBARRIER_NUMBERS", dict.fromkeys(machine._MEMBARRIER_NUMBERS, 100_000))
    found = check()
    assert found.status == "warning"
    assert "not implemented" in found.text


def test_doctor_reports_failed_round_trip_as_error(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setenv("MSGQ_MODE", "nonsense")
    found = doctor.check_round_trip()
    assert found.status == "error"
    assert "nonsense" in found.text


def test_doctor_reports_failed_removal_of_its_topic_as_error(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    removed = unlink_topic

    def refuse(endpoint: str, in_prefix: str) -> None:
        removed(endpoint, in_prefix)
        raise msgq.errors.SegmentError("cannot remove: Read-only file system", endpoint)

    monkeypatch.setattr(doctor, "unlink_topic", refuse)
    found = doctor.check_round_trip()
    assert (found.status, "Read-only file system" in found.text) == ("error", True)


def test_doctor_exits_with_1_if_one_check_fails(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setattr(doctor, "MACHINE_CHECKS", (lambda: DoctorCheck("moon", "error", "it is made of cheese"),))
    code, checks = diagnose()
    assert code == 1
    assert checks["moon"]["text"] == "it is made of cheese"


ROWS, DEAD = 128, 120  # rows of subscribers in a topic's table


def subscribe_until_killed(endpoint: str) -> None:
    """Child: subscribe often, until killed."""
    sockets = [msgq.sub_sock(endpoint, timeout=0) for _ in range(DEAD)]
    say(str(len(sockets)))
    hear()


def channel_members(name: str) -> None:
    """Child: subscribe to a channel often, and publish, until killed."""
    channel = msgq.Channel(name)
    members = [channel.subscriber() for _ in range(40)]
    publishers = [channel.publisher(slots=2) for _ in range(20)]
    say(str(len(members) + len(publishers)))
    hear()


def run_and_kill(function: Callable[[str], None], name: str) -> int:
    with Child(function, name) as child:
        child.hear()
        child.kill()
        return child.pid


def test_doctor_summarizes_many_dead_subscribers_in_one_warning(prefix: str) -> None:
    with msgq.pub_sock("weather") as publisher:
        pid = run_and_kill(subscribe_until_killed, "weather")
        participants = diagnose()[1]["topics"]
        assert participants["status"] == "warning"
        assert participants["text"].startswith(f"weather: {DEAD} subscribers: python {pid} (dead), ")
        assert (
            f" and {DEAD - 3} more (harmless: new subscribers reuse the slots of dead subscribers"
            in participants["text"]
        )
        assert len(participants["text"]) < 300
        publisher.send(b"on the same ring")
        others = [msgq.sub_sock("weather", timeout=0) for _ in range(ROWS - DEAD + 7)]
        assert f"weather: {DEAD - 7} subscribers: " in diagnose()[1]["topics"]["text"]
        for other in others:
            other.close()
    _, checks = run_doctor_fix(prefix)
    assert "removed weather" in checks["repair"]["text"]
    assert checks["topics"]["status"] == "ok"


def test_doctor_shortens_list_of_dead_channel_participants(prefix: str) -> None:
    with msgq.Channel("scans"):
        run_and_kill(channel_members, "scans")
        _, checks = diagnose()
        assert checks["channels"]["status"] == "warning"
        for text in (
            "channel/scans: 20 publishers: ",
            "channel/scans: 40 subscribers: ",
            " and 17 more",
            " and 37 more",
        ):
            assert text in checks["channels"]["text"]
        assert len(checks["channels"]["text"]) < 2000


def test_doctor_accepts_dead_publisher_that_was_replaced(prefix: str) -> None:
    assert subprocess.run([sys.executable, "-c", PUBLISHER], timeout=60).returncode == -9
    assert diagnose()[1]["topics"]["status"] == "error"
    with msgq.pub_sock("weather"):
        assert diagnose()[1]["topics"]["status"] != "error"


def test_doctor_appends_warnings_to_line_with_error(prefix: str) -> None:
    with msgq.pub_sock("abc"):
        run_and_kill(subscribe_until_killed, "abc")
        assert subprocess.run([sys.executable, "-c", PUBLISHER], timeout=60).returncode == -9
        participants = diagnose()[1]["topics"]
    assert participants["status"] == "error"
    first, second = participants["text"].split("; warning: ")
    assert first.startswith("weather: publisher")
    assert second.startswith(f"abc: {DEAD} subscribers: ")


def test_doctor_lists_ten_issues_and_counts_remaining_issues(prefix: str) -> None:
    for number in range(25):
        with msgq.pub_sock(f"weather{number:02}"):
            pass
        (SHM / f"msgq_{prefix}" / f"weather{number:02}").unlink()
    _, checks = diagnose()
    assert checks["files"]["status"] == "error"
    assert checks["files"]["text"].count("has a side segment, but no ring") == 10
    assert checks["files"]["text"].endswith("and 15 more")


def run_doctor_fix(prefix: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = CliRunner().invoke(app, ["doctor", "--fix", "--json", "--prefix", prefix], catch_exceptions=False)
    checks = [json.loads(line) for line in result.output.splitlines()]
    return result.exit_code, {check["check"]: check for check in checks}


def test_doctor_fix_removes_topic_with_only_dead_participants(prefix: str) -> None:
    assert subprocess.run([sys.executable, "-c", PUBLISHER], timeout=60).returncode == -9
    _, checks = run_doctor_fix(prefix)
    assert "removed weather" in checks["repair"]["text"]
    assert checks["topics"]["status"] == "ok"
    assert list(SHM.glob(f"msgq*_{prefix}/*")) == []


def test_doctor_fix_keeps_a_topic_with_a_living_subscriber(prefix: str) -> None:
    with msgq.sub_sock("weather", timeout=0) as subscriber:
        assert subprocess.run([sys.executable, "-c", PUBLISHER], timeout=60).returncode == -9
        _, checks = run_doctor_fix(prefix)
        assert checks["repair"]["text"] == "nothing to repair"
        assert "weather: publisher" in checks["topics"]["text"]
        with msgq.pub_sock("weather") as publisher:
            publisher.send(b"on the same ring")
            assert subscriber.receive() == b"on the same ring"


def test_doctor_fix_removes_a_side_segment_without_a_ring(prefix: str) -> None:
    with msgq.pub_sock("weather"):
        pass
    (SHM / f"msgq_{prefix}" / "weather").unlink()
    code, checks = diagnose()
    assert (code, checks["files"]["status"]) == (1, "error")
    assert "weather has a side segment, but no ring" in checks["files"]["text"]
    _, checks = run_doctor_fix(prefix)
    assert "removed weather" in checks["repair"]["text"]
    assert checks["files"]["status"] == "ok"
    assert list(SHM.glob(f"msgq*_{prefix}/*")) == []


def test_doctor_warns_of_segment_writable_by_other_users(prefix: str) -> None:
    with msgq.pub_sock("weather"):
        (SHM / f"msgq_{prefix}" / "weather").chmod(0o666)
        _, checks = diagnose()
    assert checks["files"]["status"] == "warning"
    assert "mode 666" in checks["files"]["text"]
