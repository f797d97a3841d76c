"""`msgq list`, `info`, `clean` and `doctor` on channels, with participants that live or died."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from msgq.channel import Channel, Node, cleanup
from msgq.cli.app import app
from msgq.common import shm_paths
from msgq.impl.base.process import process_name
from msgq.kinds.cleanup import EndpointUsers, explain_removal
from msgq.kinds.removal import EndpointRemover
from tests import command
from tests.support import SHM, Child, Task, hear, say, wait_until


def lines(*words: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.run(*words, "--json", code=code).output.splitlines()]


def run_clean(*words: object, code: int = 0) -> dict[str, str]:
    return {one["endpoint"]: one["action"] for one in lines("clean", *words, code=code)}


def files(prefix: str) -> list[str]:
    return sorted(path.name for kind in ("msgqchan_", "msgqpool_") for path in (SHM / f"{kind}{prefix}").glob("*"))


def run_doctor() -> tuple[str, str]:
    result = command.run("doctor", "--json", code=None)
    (found,) = (one for one in map(json.loads, result.output.splitlines()) if one["check"] == "channels")
    return found["status"], found["text"]


def take_part(name: str, role: str) -> None:
    """Child: take part in a channel until killed."""
    channel = Channel(name, node="child")
    side = channel.publisher() if role == "publisher" else channel.subscriber(history=8)
    if role == "publisher":
        side.send_many([b"x"] * 3)  # type: ignore[union-attr]
    if role == "viewer":
        say([len(view) for view in iter(lambda: side.receive_view(0), None)])  # type: ignore[union-attr]
    say("up")
    hear()


def kill_participant(name: str, role: str) -> int:
    with Child(take_part, name, role) as child:
        while child.hear() != "up":
            pass
        child.kill()
        return child.pid


# ---- looking ----


def test_list_shows_channels_and_topics(prefix: str) -> None:
    with Node("driver") as node, Child(take_part, "scans", "subscriber") as child:
        publisher = node.advertise("scans")
        node.join_broadcast("news")
        assert child.hear() == "up"
        publisher.send(b"abc")
        text = command.run("list", "--duration", "0").output
        assert [word in text for word in ("channel/scans", "driver", str(child.pid))] == [True] * 3
        (broadcast,) = (line.split() for line in text.splitlines() if line.startswith("channel/news:broadcast "))
        assert (broadcast[1], broadcast[-1]) == ("channel", "broadcast")
        found = {one["endpoint"]: one for one in lines("list", "--duration", "0")}
        assert list(found) == ["channel/news:broadcast", "channel/scans"]
        scans = found["channel/scans"]
        assert (scans["kind"], scans["use"], scans["messages"], scans["bytes"]) == ("channel", "pubsub", 1, 3)
        assert [one["participant"]["pid"] for one in scans["subscribers"]] == [child.pid]
        assert (scans["rate"], scans["tolerance_s"]) == (None, None)
        assert [one["endpoint"] for one in lines("list", "channel/sc*", "--duration", "0")] == ["channel/scans"]
        assert command.run("list", "scans", "--duration", "0", code=1).stdout == ""


def test_info_shows_how_long_subscriber_can_pause_without_loss(prefix: str) -> None:
    over = Path(f"/dev/shm/msgqchan_{prefix}/scans")
    with Channel("scans", capacity=64, node="driver") as channel, channel.publisher() as publisher:

        def send() -> None:
            while over.exists():
                publisher.send(b"x" * 10)
                time.sleep(0.001)  # the rate is measured

        task = Task(send)
        (found,) = lines("info", "channel/scans", "--duration", "0.2")
        text = command.run("info", "channel/scans", "--duration", "0.2").output
        channel.unlink()
        task.result()
    assert found["rate"] > 0
    assert found["tolerance_s"] == pytest.approx(64 / found["rate"])
    assert found["byte_rate"] == pytest.approx(10 * found["rate"], rel=0.2)
    assert (found["capacity"], found["owner"], found["mode"]) == (64, os.geteuid(), "600")
    assert "64 messages; at this rate a subscriber may pause for" in text
    assert f"driver python {os.getpid()}" in text or f"driver pytest {os.getpid()}" in text


def test_info_shows_participants_and_pools_of_channel(prefix: str) -> None:
    with Node("a") as node:
        publisher = node.advertise("scans", slots=4, slot_bytes=64)
        subscriber = node.subscribe("scans")
        with publisher.loan(10):
            publisher.send(b"x" * 100)
            view = subscriber.receive_view(0)
            assert view is not None
            publisher.send_many([b"x"] * 8)
            Path(shm_paths.pool_path("scans", prefix, 7)).write_bytes(b"")
            text = command.run("info", "channel/scans", "--duration", "0.01").output
        view.release()
    for word in (
        "replaced by a larger pool, with loans left",
        "1 slot, 1 of old messages",
        "orphan",
        "1 view held",
        "9 messages",
    ):
        assert word in text, text


def test_commands_on_missing_channel_fail(prefix: str) -> None:
    assert "no endpoint matches channel/scans; run `msgq list`" in command.run("info", "channel/scans", code=1).output
    assert "no endpoint matches channel/scans; run `msgq list`" in command.run("clean", "channel/scans", code=1).output
    assert "no endpoint matches channel/scans; run `msgq list`" in command.run("list", "channel/scans", code=1).output


def test_info_of_channel_without_messages_succeeds(prefix: str) -> None:
    with Channel("scans", subscribers=1) as channel, channel.subscriber():
        text = command.run("info", "channel/scans", "--duration", "0.01").output
    assert "pubsub, publishers: any number, subscribers: at most 1\n" in text
    assert "not set yet" in text
    assert "subscribers  1\n" in text


def test_info_with_channel_name_without_prefix_suggests_full_name(prefix: str) -> None:
    Channel("scans").close()
    assert "no endpoint matches scans; did you mean channel/scans?" in command.run("info", "scans", code=1).output


def test_completion_offers_names_of_channels(prefix: str) -> None:
    Channel("scans").close()
    completion = ShellComplete(app, {}, "msgq", "_MSGQ_COMPLETE")
    for verb in ("list", "info", "clean", "top", "stat", "echo", "hz"):
        assert [item.value for item in completion.get_completions([verb], "chan")] == ["channel/scans"]


# ---- removing ----


def test_clean_removes_unused_channel_and_its_pools(prefix: str) -> None:
    kill_participant("dead", "publisher")
    kill_participant("dead", "subscriber")
    Channel("unused").close()
    with Channel("used") as channel, channel.publisher():
        everything = {"channel/dead": "would remove", "channel/unused": "would remove", "channel/used": "kept"}
        assert run_clean("--dry-run") == everything
        assert len(files(prefix)) == 5
        (dead,) = (one for one in lines("clean", "--dry-run") if one["endpoint"] == "channel/dead")
        assert dead["bytes"] > 151552
        assert run_clean("--force") == {"channel/dead": "removed", "channel/unused": "removed", "channel/used": "kept"}
        assert [name.partition(":")[0] for name in files(prefix)] == ["used", "used"]
    assert run_clean() == {"channel/used": "removed"}
    assert not [path for path in shm_paths.channel_directories(prefix) if os.path.exists(path)]


@pytest.mark.parametrize("role", ["publisher", "subscriber", "viewer", "opener", "unlisted"])
def test_clean_keeps_an_open_channel(prefix: str, role: str) -> None:
    channel = Channel("used")
    side: Any = None
    if role == "publisher":
        side = channel.publisher()
    elif role in ("subscriber", "viewer"):
        with channel.publisher() as publisher:
            side = channel.subscriber()
            publisher.send(b"x")
            side = side.receive_view(0) if role == "viewer" else side
    elif role == "unlisted":
        subscribers = [channel.subscriber() for _ in range(65)]
        side = subscribers.pop()
        for subscriber in subscribers:
            subscriber.close()
    if role != "opener":
        channel.close()
    assert run_clean("--force") == {"channel/used": "kept"}
    assert run_clean("channel/used", "--force", code=1) == {"channel/used": "kept"}
    if role == "viewer":
        side.release()
    elif side is not None:
        side.close()
    channel.close()
    assert run_clean("channel/used") == {"channel/used": "removed"}
    assert files(prefix) == []


def test_clean_removes_only_the_named_channel(prefix: str) -> None:
    for name in ("one", "other"):
        Channel(name).close()
    assert run_clean("channel/o*r") == {"channel/other": "removed"}
    assert files(prefix) == ["one"]


def count_descriptors_and_mappings(path: Path) -> int:
    """Return how many descriptors and mappings of a file this process has."""
    count = Path("/proc/self/maps").read_text().count(str(path))
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread has closed it
            count += os.readlink(link) == str(path)
    return count


def test_channel_opened_during_clean_is_created_again(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Task] = []
    Channel("scans").close()
    path = SHM / f"msgqchan_{prefix}" / "scans"

    def slow(stats: Any) -> EndpointUsers:
        before = count_descriptors_and_mappings(path)
        opened.append(Task(Channel, "scans"))
        wait_until(
            lambda: count_descriptors_and_mappings(path) > before,
            "the thread has opened the file, and waits for its lock",
        )
        return EndpointUsers((), ())

    with monkeypatch.context() as patch:
        patch.setattr(EndpointRemover, "list_users", lambda remover, stats: slow(stats))
        (removal,) = cleanup.CHANNELS.remove_unused(["scans"], prefix)
    assert (removal.removed, removal.reason) == (True, explain_removal((), ()))
    with opened[0].result() as channel, channel.publisher() as publisher, channel.subscriber() as subscriber:
        publisher.send(b"x")
        assert (subscriber.receive(0), Channel("scans").messages) == (b"x", 1)


def test_clean_removes_pools_without_a_channel(prefix: str) -> None:
    with Channel("scans") as channel, channel.publisher() as publisher, channel.subscriber() as subscriber:
        shutil.rmtree(SHM / f"msgqchan_{prefix}")
        assert "is a pool of a removed channel; to remove the pool, run `msgq clean`" in run_doctor()[1]
        assert run_clean("--dry-run") == {"channel/scans": "would remove"}
        assert run_clean() == {"channel/scans": "removed"}
        assert not [path for path in shm_paths.channel_directories(prefix) if os.path.exists(path)]
        publisher.send(b"x")
        assert subscriber.receive(0) is None, "its pool was not mapped so far"
        assert subscriber.lost == 1


def test_clean_removes_empty_pools_of_dead_publishers(prefix: str) -> None:
    kill_participant("scans", "publisher")
    Path(shm_paths.pool_path("scans", prefix, 0xABC)).write_bytes(b"")
    with Channel("scans") as channel, channel.subscriber():
        assert run_clean() == {"channel/scans": "removed"}, "the orphan"
        assert len(files(prefix)) == 2, "its messages are there"
        with channel.publisher() as publisher:
            kill_participant("scans", "publisher")
            publisher.send_many([b"x"] * 64)
            before = len(files(prefix))
            (kept, first, second) = lines("clean")
            assert (kept["action"], first["action"], second["action"]) == ("kept", "removed", "removed")
            assert "pool without messages, whose publisher (process" in first["reason"]
            assert len(files(prefix)) == before - 2
            assert publisher.send(b"x") > 0


def test_two_simultaneous_clean_commands_remove_channels(prefix: str) -> None:
    for number in range(30):
        kill_participant(f"c{number}", "publisher") if number % 10 == 0 else Channel(f"c{number}").close()
    tasks = [Task(lambda: list(cleanup.CHANNELS.remove_unused([f"c{i}" for i in range(30)], prefix))) for _ in range(3)]
    removed = [one.endpoint for task in tasks for one in task.result() if one.removed]
    assert sorted(removed) == sorted(f"channel/c{number}" for number in range(30))
    assert files(prefix) == []


def test_clean_keeps_and_reports_a_damaged_channel(prefix: str) -> None:
    Channel("good").close()
    (SHM / f"msgqchan_{prefix}" / "bad").write_bytes(bytes(100))
    assert run_clean() == {"channel/good": "removed"}
    result = command.run("doctor", "--json", code=1)
    assert "too few for a channel" in result.output


# ---- the doctor ----


def test_doctor_fix_repairs_channels_of_dead_processes(prefix: str) -> None:
    assert run_doctor() == ("ok", "0 channels, 0 B of /dev/shm; no leftovers of dead processes")
    pid = kill_participant("scans", "publisher")
    status, text = run_doctor()
    assert status == "warning"
    assert f"channel/scans: publisher python {pid} (dead)" in text
    result = command.run("doctor", "--fix", "--json", code=None)
    assert "removed channel/scans: only dead processes used it" in result.output
    assert files(prefix) == []


def test_doctor_reports_channel_at_publisher_limit(prefix: str) -> None:
    with Node("a") as node:
        node.advertise("scans", publishers=1)
        assert run_doctor() == ("error", "channel/scans has 1 publisher, its limit")
        node.create_mailbox("box")
        assert "mbx" not in run_doctor()[1], "a mailbox has one owner"


def test_doctor_reports_views_held_for_long_time(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Channel("scans", capacity=2) as channel, channel.publisher() as publisher:
        subscriber = channel.subscriber()
        publisher.send(b"x")
        view = subscriber.receive_view(0)
        assert view is not None
        assert run_doctor()[0] == "ok"
        publisher.send_many([b"x"] * 2)
        assert run_doctor()[0] == "ok", "not for long"
        monkeypatch.setattr(cleanup, "LONG_HELD_VIEW_S", 0.0)
        status, text = run_doctor()
        assert status == "warning"
        assert f"{os.getpid()} has held 1 view of old messages" in text
        view.release()
        assert run_doctor()[0] == "ok"
        subscriber.close()


def test_participants_without_node_name_show_the_process_once(prefix: str) -> None:
    with Channel("scans") as channel, channel.publisher(), channel.subscriber():
        shown = command.run("list", "channel/scans").output
    process = f"{process_name()} {os.getpid()}"
    assert re.split(" {2,}", shown.splitlines()[1])[2:4] == [process, process]
