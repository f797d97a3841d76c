"""`msgq list`, `info`, `clean` and `doctor` on work queues, with participants that live or died."""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from msgq import stats
from msgq.channel import Channel
from msgq.cli.app import app
from msgq.common import shm_paths
from msgq.errors import SegmentError
from msgq.kinds.cleanup import EndpointUsers
from msgq.kinds.persistent import PersistentKind
from msgq.workqueue import Job, MessageQueue, cleanup
from tests import command
from tests.support import SHM, Child, Task, hear, say, wait_until


def lines(*words: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.run(*words, "--json", code=code).output.splitlines()]


def run_clean(*words: object, code: int = 0) -> dict[str, str]:
    return {one["endpoint"]: one["action"] for one in lines("clean", *words, code=code)}


def files(prefix: str) -> list[str]:
    return sorted(path.name for path in (SHM / f"msgqjobs_{prefix}").glob("*"))


def run_doctor(*words: str) -> tuple[str, str]:
    result = command.run("doctor", "--json", *words, code=None)
    (found,) = (one for one in map(json.loads, result.output.splitlines()) if one["check"] == "queues")
    return found["status"], found["text"]


def take(queue: MessageQueue, lease: float | None = None) -> Job:
    job = queue.take(0, lease=lease)
    assert job is not None
    return job


def take_part(name: str, how: str) -> None:
    """Child: do something in a queue, and stay until killed."""
    queue = MessageQueue(name)
    job = queue.take(0) if how == "take" else None
    if how == "watch":
        queue.fileno()
    say(job is not None)
    hear()


def kill_participant(name: str, how: str = "open") -> int:
    with Child(take_part, name, how) as child:
        child.hear()
        child.kill()
        return child.pid


def write_nonsense(name: str) -> None:
    with open(stats.queue(name).path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[57344 + 64 : 57344 + 72] = (7).to_bytes(8, "little")


# ---- looking ----


def test_list_shows_queues_topics_and_channels(prefix: str) -> None:
    Channel("jobs").close()
    with MessageQueue("jobs", max_messages=10) as queue, Child(take_part, "jobs", "take") as child:
        child.hear()
        queue.send(b"abc", 4)
        text = command.run("list", "--duration", "0").output
        assert "1 of 10 waiting" in text
        assert str(os.getpid()) in text
        found = {one["endpoint"]: one for one in lines("list", "--duration", "0", "--all")}
        assert list(found) == ["channel/jobs", "queue/jobs"]
        jobs = found["queue/jobs"]
        assert (jobs["kind"], jobs["depth"], jobs["sent"], jobs["priorities"]) == ("queue", 1, 1, [[4, 1]])
        assert [one["participant"]["pid"] for one in jobs["handles"]] == [os.getpid(), child.pid]
        assert (jobs["rate"], jobs["received_rate"], jobs["mode"]) == (None, None, "600")
        assert [one["endpoint"] for one in lines("list", "queue/j*", "--duration", "0")] == ["queue/jobs"]
        assert command.run("list", "jobs", "queue/other", "--duration", "0", code=1).stdout == ""


def test_info_shows_senders_and_receivers_of_queue(prefix: str) -> None:
    with MessageQueue("jobs") as queue:
        queue.send_many([b"x"] * 2)
    with MessageQueue("jobs") as queue, Child(take_part, "jobs", "take") as child:
        queue.send(b"x")
        assert child.hear()
        (row,) = (line for line in command.run("list", "--duration", "0").output.splitlines() if "queue/jobs" in line)
        _, kind, sender, receiver, *_, note = re.split(" {2,}", row)
        assert (kind, note) == ("queue", "2 of 128 waiting")
        assert sender.endswith(str(os.getpid()))
        assert receiver.endswith(str(child.pid))


def test_list_shows_message_rates_of_queues(prefix: str) -> None:
    over = Path(f"/dev/shm/msgqjobs_{prefix}/jobs")
    with MessageQueue("jobs") as queue:

        def work() -> None:
            while over.exists():
                queue.send(b"x")
                queue.send(b"x")
                queue.receive(0)
                queue.receive(0)
                time.sleep(0.001)  # the rate is measured

        task = Task(work)
        (found,) = lines("info", "queue/jobs", "--duration", "0.2")
        queue.unlink()
        task.result()
    assert found["rate"] > 0
    # each of the two samples counts at most two messages that were sent and not received
    assert found["received_rate"] == pytest.approx(found["rate"], abs=4 / 0.2)
    assert (found["owner"], found["mode"]) == (os.geteuid(), "600")


def test_info_shows_configuration_and_counts_of_queue(prefix: str) -> None:
    with MessageQueue("jobs", max_messages=20, max_message_size=1000) as queue:
        write_nonsense("jobs")
        for priority in range(10):
            queue.send(b"x", priority)
        take(queue).nack()
        queue.notify(lambda queue: None)
        with take(queue, lease=60):
            text = command.run("info", "queue/jobs", "--duration", "0.01").output
    for expected in (
        f"/dev/shm/msgqjobs_{prefix}/jobs, ",
        "room         20 messages of up to 1.0 kB",
        "waiting      9 messages, oldest for ",
        "by priority: 1 with 8, 1 with 7, 1 with 6, 1 with 5, 1 with 4, 1 with 3, 1 with 2, 1 with 1, 1 with lower",
        "taken        1 message, 1 with a lease, 0 expired",
        "slots        9 free, 0 being written, 0 lost slots",
        "corrupt      1 slot,",
        "redelivered  1 of these messages; one was taken 2 times",
        "counts       10 sent, 2 received, 0 acknowledged, 1 returned, 0 refused",
        "handles      1\n",
        f" {os.getpid()}: 10 sent, 2 received, 0 acknowledged, 1 returned, 0 refused; 1 taken; notified",
    ):
        assert expected in text, text


def test_info_of_an_empty_queue_succeeds(prefix: str) -> None:
    MessageQueue("jobs").close()
    text = command.run("info", "queue/jobs", "--duration", "0.01").output
    assert "waiting      0 messages\n" in text
    assert "handles      0\n" in text
    assert "nonsense" not in text


def test_commands_on_missing_queue_fail(prefix: str) -> None:
    for verb in ("info", "clean", "list"):
        assert "no endpoint matches queue/jobs; run `msgq list`" in command.run(verb, "queue/jobs", code=1).output


def test_command_with_queue_name_without_prefix_suggests_full_name(prefix: str) -> None:
    MessageQueue("jobs").close()
    for verb in ("info", "clean"):
        assert "no endpoint matches jobs; did you mean queue/jobs?" in command.run(verb, "jobs", code=1).output
    Channel("jobs").close()
    assert "did you mean channel/jobs, queue/jobs?" in command.run("info", "jobs", code=1).output


def test_prefix_option_selects_queues_of_prefix(prefix: str) -> None:
    MessageQueue("jobs").close()
    assert [one["endpoint"] for one in lines("list", "--prefix", prefix, "--duration", "0")] == ["queue/jobs"]
    assert lines("list", "--prefix", f"{prefix}other", "--duration", "0") == []


def test_completion_offers_names_of_queues(prefix: str) -> None:
    MessageQueue("jobs").close()
    completion = ShellComplete(app, {}, "msgq", "_MSGQ_COMPLETE")
    for verb in ("list", "info", "clean", "top", "stat", "echo", "hz"):
        assert [item.value for item in completion.get_completions([verb], "que")] == ["queue/jobs"]


# ---- removing ----


def test_clean_keeps_queues_not_given_by_name(prefix: str) -> None:
    MessageQueue("empty").close()
    kill_participant("dead")
    with MessageQueue("full") as queue:
        queue.send(b"x")
    everything = {"queue/dead": "kept", "queue/empty": "kept", "queue/full": "kept"}
    for words in ([], ["--force"], ["--dry-run"], ["--prefix", prefix]):
        assert run_clean(*words) == everything, words
    reasons = {one["endpoint"]: one["reason"] for one in lines("clean")}
    assert reasons["queue/empty"] == "to remove a queue, name it"
    assert reasons["queue/full"] == "to remove a queue, name it; it has 1 message"
    assert "no endpoint matches *; run `msgq list`" in command.run("clean", "*", "--force", code=1).output
    assert files(prefix) == ["dead", "empty", "full"]
    every = {(one["endpoint"], one["prefix"]): one["action"] for one in lines("clean", "--all-prefixes", "--dry-run")}
    assert every["queue/full", prefix] == "kept"


def test_clean_removes_queue_given_by_name_and_its_messages(prefix: str) -> None:
    with MessageQueue("full") as queue:
        queue.send_many([b"x"] * 3)
    kill_participant("dead", "open")
    MessageQueue("stays").close()
    assert run_clean("queue/full", "--dry-run") == {"queue/full": "would remove"}
    assert files(prefix) == ["dead", "full", "stays"]
    (found,) = lines("clean", "queue/full")
    assert (found["action"], found["reason"]) == ("removed", "no process uses it; it has 3 messages")
    assert found["bytes"] > 128 * 8192
    assert run_clean("queue/d*") == {"queue/dead": "removed"}
    assert files(prefix) == ["stays"]


def test_clean_of_queue_removes_its_events_channel(prefix: str) -> None:
    with MessageQueue("jobs", events="payload") as queue:
        queue.send(b"message")
        assert "  events       payload, 0 lost" in command.run("info", "queue/jobs", "--duration", "0.01").output
        assert list(SHM.glob(f"msgqchan_{prefix}/jobs:events"))
    assert run_clean("queue/jobs", "--dry-run") == {"queue/jobs": "would remove"}
    assert list(SHM.glob(f"msgqchan_{prefix}/*"))
    assert run_clean("queue/jobs") == {"queue/jobs": "removed"}
    assert not list(SHM.glob(f"msgqchan_{prefix}/*"))
    assert not list(SHM.glob(f"msgqpool_{prefix}/*"))


def test_clean_keeps_events_channel_of_existing_queue(prefix: str) -> None:
    """A pattern, too, means the channel of events only when it has no queue; its name means it always."""
    Channel("scans").close()
    with MessageQueue("jobs", events=True) as queue:
        queue.send(b"message")
    kill_participant("jobs", "take")
    channel_path = SHM / f"msgqchan_{prefix}/jobs:events"
    assert run_clean("channel/*") == {"channel/scans": "removed"}
    assert run_clean() == {"queue/jobs": "kept"}
    command.run("doctor", "--fix", code=None)
    assert channel_path.exists()
    assert run_clean("channel/jobs:events") == {"channel/jobs:events": "removed"}
    assert not channel_path.exists()


def test_clean_removes_events_channel_without_queue(prefix: str) -> None:
    with MessageQueue("jobs", events=True) as queue:
        queue.send(b"message")
    os.unlink(stats.queue("jobs").path)
    assert run_clean("--dry-run", "channel/*") == {"channel/jobs:events": "would remove"}
    assert run_clean() == {"channel/jobs:events": "removed"}
    assert not (SHM / f"msgqchan_{prefix}/jobs:events").exists()


def test_clean_keeps_an_open_queue(prefix: str) -> None:
    with MessageQueue("jobs"), Child(take_part, "jobs", "open") as child:
        child.hear()
        (found,) = lines("clean", "queue/jobs", "--force", code=1)
        assert found["action"] == "kept"
        assert str(child.pid) in found["reason"]
        assert str(os.getpid()) in found["reason"]
    assert run_clean("queue/jobs") == {"queue/jobs": "removed"}


def test_clean_force_removes_queue_with_users_of_unknown_liveness(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MessageQueue("jobs").close()
    users = EndpointUsers((), ("python 17",))
    monkeypatch.setattr(PersistentKind, "list_users", lambda kind, one: users)
    (found,) = lines("clean", "queue/jobs", code=1)
    assert found["reason"] == "in use by processes of unknown liveness: python 17; --force removes it"
    assert run_clean("queue/jobs", "--force") == {"queue/jobs": "removed"}


def test_clean_removes_an_empty_directory_of_queues(prefix: str) -> None:
    MessageQueue("jobs").unlink()
    folder, _ = shm_paths.locate_queue_files(prefix)
    command.run("clean", "--dry-run")
    assert os.path.isdir(folder)
    command.run("clean")
    assert not os.path.lexists(folder)
    with MessageQueue("jobs"):
        command.run("clean")
        assert files(prefix) == ["jobs"]


def test_two_simultaneous_clean_commands_remove_queues(prefix: str) -> None:
    names = [f"q{number}" for number in range(30)]
    for name in names:
        MessageQueue(name, max_messages=1, max_message_size=1).close()
    tasks = [Task(lambda: list(cleanup.QUEUES.remove_unused(names, prefix))) for _ in range(3)]
    removed = [one.endpoint for task in tasks for one in task.result() if one.removed]
    assert sorted(removed) == sorted(f"queue/{name}" for name in names)
    assert files(prefix) == []


def test_clean_keeps_and_reports_a_damaged_queue(prefix: str) -> None:
    MessageQueue("good").close()
    (SHM / f"msgqjobs_{prefix}" / "bad").write_bytes(bytes(100))
    assert run_clean() == {"queue/good": "kept"}
    assert "no endpoint matches queue/bad" in command.run("clean", "queue/bad", code=1).output
    (kept,) = cleanup.QUEUES.remove_unused(["bad"], prefix)
    assert (kept.endpoint, kept.path, kept.removed) == ("queue/bad", str(SHM / f"msgqjobs_{prefix}" / "bad"), False)
    for words in ([], ["--fix"]):
        assert "too few for a queue" in command.run("doctor", "--json", *words, code=1).output
    assert files(prefix) == ["bad", "good"]


# ---- the doctor ----


def test_doctor_shows_memory_of_queues(prefix: str) -> None:
    assert run_doctor() == ("ok", "0 queues, 0 B of /dev/shm; no leftovers of dead processes")
    with MessageQueue("a", max_messages=128), MessageQueue("b", max_messages=128):
        used = 2 * stats.queue("a").bytes / 1e6
        assert run_doctor() == ("ok", f"2 queues, {used:.1f} MB of /dev/shm; no leftovers of dead processes")


def test_doctor_fix_returns_messages_of_dead_queue_consumers(prefix: str) -> None:
    with MessageQueue("jobs") as queue:
        queue.send_many([b"x"] * 3)
    taker, watcher = kill_participant("jobs", "take"), kill_participant("other", "watch")
    status, text = run_doctor()
    assert status == "warning"
    assert f"queue/jobs: python {taker} (dead) left 1 message (repaired when a process opens it" in text
    assert f"queue/other: python {watcher} (dead) left its wait (watching)" in text
    result = command.run("doctor", "--fix", "--json", code=None)
    assert f"repaired queue/jobs: python {taker} (dead) left 1 message" in result.output
    assert f"repaired queue/other: python {watcher} (dead) left its wait" in result.output
    assert run_doctor()[0] == "ok"
    found = stats.queue("jobs")
    assert (found.depth, found.in_flight, found.redelivered) == (3, 0, 1)
    assert "nothing to repair" in command.run("doctor", "--fix", "--json", code=None).output


def test_doctor_reports_expired_leases(prefix: str) -> None:
    with MessageQueue("jobs") as queue:
        queue.send(b"x")
        with Child(take_part, "jobs", "open") as child:
            child.hear()
            job = take(queue, lease=0.01)
            wait_until(lambda: stats.queue("jobs").expired_leases)
            assert "queue/jobs: 1 message with an expired lease" in run_doctor()[1]
            command.run("doctor", "--fix", code=None)
            assert stats.queue("jobs").depth == 1
            del job


def test_doctor_reports_invalid_slot_states_as_errors(prefix: str) -> None:
    MessageQueue("jobs", max_messages=128).close()
    write_nonsense("jobs")
    status, text = run_doctor("--fix")
    assert status == "error"
    assert text.startswith("queue/jobs has 1 unusable slot: another program wrote into the file")
    assert stats.queue("jobs").corrupt_slots == 1, "nobody knows what it was"


def test_doctor_reports_queue_at_handle_limit(prefix: str) -> None:
    with MessageQueue("jobs", max_messages=1, max_message_size=1):
        others = [MessageQueue("jobs") for _ in range(126)]
        assert run_doctor()[0] == "ok"
        others.append(MessageQueue("jobs"))
        assert run_doctor() == ("error", "queue/jobs has 128 open handles, its limit")
        for one in others:
            one.close()


def test_doctor_fix_reports_queues_it_cannot_repair(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageQueue("jobs") as queue:
        queue.send(b"x")
    kill_participant("jobs", "take")

    def refuse(*_: object, **__: object) -> None:
        raise SegmentError("it is another user's", "jobs", "", errno.EACCES)

    monkeypatch.setattr(cleanup, "load_backend_class", lambda *_: refuse)
    assert "it is another user's" in command.run("doctor", "--fix", "--json", code=1).output
