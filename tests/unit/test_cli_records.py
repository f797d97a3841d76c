"""`msgq list`, `info`, `clean` and `doctor` on vectors and boards, with writers that live or died."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from msgq import Board, SeqlockVector, stats
from msgq.cli.app import app
from msgq.common import shm_paths
from msgq.kinds.cleanup import EndpointUsers
from msgq.kinds.persistent import PersistentKind
from msgq.records.cleanup import PERSISTENT_RECORDS
from tests import command
from tests.support import SHM, Child, Task
from tests.unit.test_record_stats import change_word, declare, held_by, run_and_kill, write_one


def lines(*words: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.run(*words, "--json", code=code).output.splitlines()]


def run_clean(*words: object, code: int = 0) -> dict[str, str]:
    return {one["endpoint"]: one["action"] for one in lines("clean", *words, code=code)}


def files(prefix: str) -> list[str]:
    return sorted(path.name for path in (SHM / f"msgqrec_{prefix}").glob("*"))


def run_doctor(*words: str) -> tuple[str, str]:
    result = command.run("doctor", "--json", *words, code=None)
    (found,) = (one for one in map(json.loads, result.output.splitlines()) if one["check"] == "records")
    return found["status"], found["text"]


def create_vector(name: str) -> None:
    """A vector with a value, that nobody has open."""
    with SeqlockVector(name, "<f8", 3) as vector:
        vector[0] = 1


# ---- looking ----


def test_list_shows_records_and_endpoints_of_other_kinds(prefix: str) -> None:
    with SeqlockVector("v", "<f8", 1000) as vector, Board("b", 4, 100) as board, board.declare("k") as entry:
        vector[[1, 2]] = 3
        entry.write(b"abc")
        text = command.run("list", "--duration", "0").output
        (row,) = (line for line in text.splitlines() if "records/v" in line)
        _, kind, writer, reader, written, *_, note = re.split(" {2,}", row)
        assert (kind, reader, written, note) == ("records", "-", "2", "vector of 1,000")
        assert writer.endswith(str(os.getpid()))
        assert "board, 1 of 4 keys" in text
        found = {one["endpoint"]: one for one in lines("list", "--duration", "0")}
        assert list(found) == ["records/b", "records/v"]
        one = found["records/v"]
        assert (one["kind"], one["form"], one["written"], one["elements_written"], one["dtype"], one["rate"]) == (
            "records",
            "vector",
            2,
            2,
            '"<f8"',
            None,
        )
        assert (one["mode"], one["writers"][0]["participant"]["pid"]) == ("600", os.getpid())
        assert found["records/b"]["keys"][0]["key"] == "k"
        assert [one["endpoint"] for one in lines("list", "records/v*", "--duration", "0")] == ["records/v"]
        assert command.run("list", "v", "records/other", "--duration", "0", code=1).stdout == ""


def test_list_measures_the_rate_of_writes(prefix: str) -> None:
    with SeqlockVector("v", "<f8", 10) as vector:
        path = Path(vector.path)

        def work() -> None:
            while path.exists():
                vector[:] = 1
                time.sleep(0.001)  # the rate is measured

        task = Task(work)
        before = vector.counts()[0]
        (found,) = lines("info", "records/v", "--duration", "0.2")
        after = vector.counts()[0]
        vector.unlink()
        task.result()
    assert 0 < found["rate"] <= 10 * int(after - before) / 0.2
    assert (found["owner"], found["mode"]) == (os.geteuid(), "600")


def test_info_shows_configuration_and_writers_of_vector(prefix: str) -> None:
    with SeqlockVector("v", "<f8", 2000, exclusive=True) as vector:
        vector[5] = 1
        held_by(vector.path, 0, 7)
        held_by(vector.path, 90, 8)
        text = command.run("info", "records/v", "--duration", "0.01").output
    for expected in (
        f"/dev/shm/msgqrec_{prefix}/v, ",
        "vector       2,000 elements of 8 B; 2 copies of each; one handle writes\n",
        "written      1 time, 1 element; last ",
        " s ago, number 5\n",
        "rate         0 elements/s",
        "locked       2 elements, 1 by dead writers",
        'schema       Record, struct, definition of 5 bytes, "<f8"\n',
        "readers      unlisted; none waits for a change",
        "writers      1\n",
        f" {os.getpid()}: 1 written; 1 being written\n",
    ):
        assert expected in text, text


def test_info_shows_keys_and_writers_of_board(prefix: str) -> None:
    with Board("b", 300, 100) as board:
        entry, wheels = board.declare("pose"), board.declare("wheels")
        board.declare("left").close()
        for _ in range(2):
            entry.write(b"abc")
        text = command.run("info", "records/b", "--duration", "0.01").output
        for expected in (
            "board        300 keys, each with a value of up to 100 B; 2 copies of each\n",
            "written      2 times, 1 element; last ",
            "schema       none\n",
            f" {os.getpid()}: 2 written; 2 keys\n",
            "keys         3\n",
            f"{os.getpid()}, 3 B, written 2 times, ",
            f"{os.getpid()}, never written\n",
            "    left: no owner, never written\n",
        ):
            assert expected in text, text
        wheels.close()
        for number in range(257):
            board.declare(f"k{number}").close()
        assert "    and 4 more\n" in command.run("info", "records/b", "--duration", "0.01").output


def test_info_shows_unwritten_records(prefix: str) -> None:
    SeqlockVector("v", "<f8", 3).close()
    text = command.run("info", "records/v", "--duration", "0.01").output
    assert "written      never\n" in text
    assert "writers      0\n" in text
    for word in ("held", "keys", "one handle"):
        assert word not in text


def test_commands_on_missing_records_fail(prefix: str) -> None:
    for verb in ("info", "clean"):
        assert "no endpoint matches records/v; run `msgq list`" in command.run(verb, "records/v", code=1).output
    create_vector("v")
    for verb in ("info", "clean"):
        assert "no endpoint matches v; did you mean records/v?" in command.run(verb, "v", code=1).output


def test_prefix_option_selects_records_of_prefix(prefix: str) -> None:
    create_vector("v")
    assert [one["endpoint"] for one in lines("list", "--prefix", prefix, "--duration", "0")] == ["records/v"]
    assert lines("list", "--prefix", f"{prefix}other", "--duration", "0") == []


def test_completion_offers_names_of_records(prefix: str) -> None:
    create_vector("v")
    completion = ShellComplete(app, {}, "msgq", "_MSGQ_COMPLETE")
    for verb in ("list", "info", "clean", "top", "stat", "echo", "hz"):
        assert [item.value for item in completion.get_completions([verb], "rec")] == ["records/v"]


# ---- removing ----


def test_clean_keeps_records_not_given_by_name(prefix: str) -> None:
    create_vector("full")
    Board("empty", 3, 8).close()
    everything = {"records/empty": "kept", "records/full": "kept"}
    for words in ([], ["--force"], ["--dry-run"], ["--prefix", prefix]):
        assert run_clean(*words) == everything, words
    reasons = {one["endpoint"]: one["reason"] for one in lines("clean")}
    assert reasons["records/empty"] == "to remove a vector or board, name it"
    assert reasons["records/full"] == "to remove a vector or board, name it; it has 1 value"
    assert "no endpoint matches *; " in command.run("clean", "*", "--force", code=1).output
    assert files(prefix) == ["empty", "full"]
    every = {(one["endpoint"], one["prefix"]): one["action"] for one in lines("clean", "--all-prefixes", "--dry-run")}
    assert every["records/full", prefix] == "kept"


def test_clean_removes_records_given_by_name(prefix: str) -> None:
    for name in ("full", "dead", "stays"):
        create_vector(name)
    run_and_kill(write_one, "dead")
    assert run_clean("records/full", "--dry-run") == {"records/full": "would remove"}
    assert files(prefix) == ["dead", "full", "stays"]
    with SeqlockVector("full") as reader:
        (found,) = lines("clean", "records/full")
        assert found["action"] == "removed"
        assert found["reason"] == "no process writes it; readers cannot be detected; it has 1 value"
        assert found["bytes"] == 32768 + 3 * 64
        assert reader[0] == 1, "who reads keeps what is mapped"
    assert run_clean("records/d*") == {"records/dead": "removed"}
    assert files(prefix) == ["stays"]


def test_clean_keeps_records_with_a_living_writer(prefix: str) -> None:
    create_vector("v")
    with SeqlockVector("v") as vector, Child(write_one, "v") as child:
        child.hear()
        vector[0] = 1
        for words in ([], ["--force"]):
            (found,) = lines("clean", "records/v", *words, code=1)
            assert found["action"] == "kept"
            assert str(child.pid) in found["reason"]
            assert str(os.getpid()) in found["reason"]
        assert lines("clean")[0]["reason"].startswith("in use by ")
        assert stats.record("v").elements_written == 2
    assert run_clean("records/v") == {"records/v": "removed"}


def test_clean_force_removes_records_with_users_of_unknown_liveness(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_vector("v")
    users = EndpointUsers((), ("python 17",))
    monkeypatch.setattr(PersistentKind, "list_users", lambda kind, one: users)
    (found,) = lines("clean", "records/v", code=1)
    assert found["reason"] == "in use by processes of unknown liveness: python 17; it has 1 value; --force removes it"
    assert run_clean("records/v", "--force") == {"records/v": "removed"}


def test_clean_removes_an_empty_directory_of_records(prefix: str) -> None:
    create_vector("v")
    SeqlockVector.unlink_name("v")
    folder, _ = shm_paths.locate_records_files(prefix)
    command.run("clean", "--dry-run")
    assert os.path.isdir(folder)
    command.run("clean")
    assert not os.path.lexists(folder)


def test_two_simultaneous_clean_commands_remove_records(prefix: str) -> None:
    names = [f"v{number}" for number in range(30)]
    for name in names:
        create_vector(name)
    tasks = [Task(lambda: list(PERSISTENT_RECORDS.remove_unused(names, prefix))) for _ in range(3)]
    removed = [one.endpoint for task in tasks for one in task.result() if one.removed]
    assert sorted(removed) == sorted(f"records/{name}" for name in names)
    assert files(prefix) == []


def test_clean_keeps_and_reports_damaged_records(prefix: str) -> None:
    create_vector("good")
    (SHM / f"msgqrec_{prefix}" / "bad").write_bytes(bytes(100))
    assert run_clean() == {"records/good": "kept"}
    assert "no endpoint matches records/bad" in command.run("clean", "records/bad", code=1).output
    assert "too few for a vector or board" in command.run("doctor", "--json", code=1).output
    assert files(prefix) == ["bad", "good"]


# ---- the doctor ----


def test_doctor_shows_memory_of_records(prefix: str) -> None:
    assert run_doctor() == ("ok", "0 records, 0 B of /dev/shm; no leftovers of dead processes")
    with SeqlockVector("v", "<f8", 3) as vector, Board("b", 3, 8):
        vector[0] = 1
        used = (stats.record("v").bytes + stats.record("b").bytes) / 1e3
        assert run_doctor() == (
            "ok",
            f"2 records, {used:.1f} kB of /dev/shm; no leftovers of dead processes",
        )


def test_doctor_fix_reports_dead_writers_without_repair(prefix: str) -> None:
    create_vector("idle")
    idle = run_and_kill(write_one, "idle")
    with SeqlockVector("v", "<f8", 3) as vector, Board("b", 5, 100) as board:
        writer, owner = run_and_kill(write_one, "v"), run_and_kill(declare, "b", "x", "y")
        held_by(vector.path, 0, 2)
        held_by(vector.path, 100, 1)
        for words in ([], ["--fix"]):
            status, text = run_doctor(*words)
            assert status == "warning"
            assert f"records/idle: python {idle} (dead) left its row (reclaimed by the next writer)" in text
            assert f"records/v: python {writer} (dead) left 1 locked element, 1 element of closed writers" in text
            assert f"records/b: python {owner} (dead) left 2 keys without an owner (" in text
        vector[2] = 1
        vector[1] = 1
        assert stats.record("v").locked == 0
        with board.declare("x"), board.declare("y"):
            assert "keys" not in run_doctor()[1]


def test_doctor_reports_records_at_writer_limit(prefix: str) -> None:
    others = [SeqlockVector("v", "<f8", 1) for _ in range(128)]
    for one in others[1:]:
        one[0] = 1
    assert run_doctor()[0] == "ok"
    others[0][0] = 1
    assert run_doctor() == ("error", "records/v has 128 writing handles, its limit")
    for one in others:
        one.close()


def test_info_of_a_board_with_an_invalid_key_table_succeeds(prefix: str) -> None:
    """A name without an end, or of bytes that are no text, is shown no less."""
    with Board("b", 3, 8) as board, board.declare("k"):
        change_word(board.path, 32768 + 16, lambda _: 0xFF1B5B3131)
        assert "\\x1b[11" not in command.run("info", "records/b", "--duration", "0.01").output
        (found,) = lines("info", "records/b", "--duration", "0.01")
        assert found["keys"][0]["key"] == "11[\x1b\ufffd"
