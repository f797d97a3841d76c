"""Two users of one machine: what they share when both want it, and what happens when one of them does not."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.common import file_permissions, shm_paths
from msgq.errors import InvalidValueError, SegmentError
from tests.support import SHM, Child
from tests.unit import sharing_children
from visionipc.server import with_spare

ALICE, BOB, GROUP = 65001, 65002, 65100

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become two other users")


class User(Child):
    """A process of a user."""

    def __init__(self, user: int, groups: list[int], environment: dict[str, str]) -> None:
        super().__init__(sharing_children.obey, user, groups, environment)
        assert self.hear() == user

    def do(self, action: str, *arguments: Any) -> Any:
        """Return what an action returns."""
        self.begin(action, *arguments)
        return self.end()

    def begin(self, action: str, *arguments: Any) -> None:
        self.say([action, *arguments])

    def end(self) -> Any:
        answer = self.hear()
        assert "value" in answer, answer
        return answer["value"]

    def refused(self, action: str, *arguments: Any, error: str = "SegmentAccessError") -> str:
        """Return the text of the error that an action ends with."""
        self.begin(action, *arguments)
        answer = self.hear()
        assert answer.get("error", [""])[0] == error, answer
        return str(answer["error"][1])


SHARING = {"MSGQ_MODE": "660", "MSGQ_GROUP": str(GROUP)}
Join = Callable[..., User]


@pytest.fixture
def join() -> Iterator[Join]:
    """Start a process of a user; by default one that shares with the group, and trusts nobody."""
    users: list[User] = []

    def start(user: int, groups: tuple[int, ...] = (GROUP,), share: bool = True, **environment: str) -> User:
        users.append(User(user, list(groups), {**(SHARING if share else {}), **environment}))
        return users[-1]

    yield start
    for user in users:
        user.__exit__()


@pytest.fixture(params=["", "prefix"], ids=["plain", "prefix"])
def place(request: pytest.FixtureRequest, token: str) -> Iterator[str]:
    """A prefix of this test alone, or none; all that carries the test's word is removed afterwards."""
    yield f"p{token}" if request.param else ""
    for path in [path for path in SHM.iterdir() if token in path.name]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def trust_setting(*users: int) -> str:
    return ",".join(map(str, users))


@pytest.mark.parametrize("first", ["publisher", "subscriber"])
@pytest.mark.parametrize("publisher_user", [ALICE, BOB])
def test_two_users_who_trust_each_other_exchange_messages(
    place: str, token: str, join: Join, publisher_user: int, first: str
) -> None:
    """Whoever comes first, and makes the files. Both have umask 077."""
    other = BOB if publisher_user == ALICE else ALICE
    publisher = join(publisher_user, MSGQ_TRUST=trust_setting(other), OPENPILOT_PREFIX=place)
    subscriber = join(other, MSGQ_TRUST=trust_setting(publisher_user), OPENPILOT_PREFIX=place)
    if first == "publisher":
        publisher.do("publish", token, "to nobody")
    subscriber.do("subscribe", token)
    publisher.do("publish", token, "hello")
    assert subscriber.do("receive", token) == "hello"
    for path in (shm_paths.ring_path(token, place), shm_paths.side_segment_path(token, place)):
        found = os.stat(path)
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, GROUP)
        assert found.st_uid == (publisher_user if first == "publisher" else other)
    for path in shm_paths.topic_directories(place) if place else ():
        found = os.stat(path)
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o1770, GROUP)
    assert subscriber.do("listed") == [token] or not place


def test_user_without_trust_gets_error_with_owner_and_remedy(place: str, token: str, join: Join) -> None:
    alice, bob = join(ALICE, OPENPILOT_PREFIX=place), join(BOB, OPENPILOT_PREFIX=place)
    alice.do("publish", token, "hello")
    for action in (["subscribe", token], ["subscribe", token, None, True], ["publish", token, "mine"]):
        text = bob.refused(*action)
        assert f"belongs to user {ALICE}" in text
        assert f"MSGQ_TRUST={ALICE}" in text
    assert token not in bob.do("listed")


def test_user_without_access_gets_error_with_reason(place: str, token: str, join: Join) -> None:
    alice = join(ALICE, share=False, OPENPILOT_PREFIX=place)
    bob = join(BOB, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(ALICE))
    alice.do("publish", token, "hello")
    for action in (["subscribe", token], ["subscribe", token, None, True]):
        text = bob.refused(*action)
        assert "Permission denied" in text
        assert f"belongs to user {ALICE}" in text
        assert "mode 700" in text if place else "mode 600" in text
        assert "MSGQ_MODE=660" in text
        assert "symbolic" not in text


def test_user_outside_group_is_refused(token: str, place: str, join: Join) -> None:
    alice = join(ALICE, OPENPILOT_PREFIX=place)
    stranger = join(BOB, groups=(), share=False, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(ALICE))
    alice.do("publish", token, "hello")
    assert "Permission denied" in stranger.refused("subscribe", token)


def test_trust_argument_applies_to_one_socket(place: str, token: str, join: Join) -> None:
    alice, bob = join(ALICE, OPENPILOT_PREFIX=place), join(BOB, OPENPILOT_PREFIX=place)
    alice.do("publish", token, "hello")
    bob.do("subscribe", token, f"0, {ALICE}")
    alice.do("publish", token, "to bob")
    assert bob.do("receive", token) == "to bob"
    assert f"MSGQ_TRUST={ALICE}" in bob.refused("subscribe", token)
    bob.do("environ", {"MSGQ_TRUST": str(ALICE)})
    assert f"MSGQ_TRUST={ALICE}" in bob.refused("subscribe", token, "")
    text = bob.refused("publish", token, "x", "nobody-has-this-name", error="InvalidValueError")
    assert "'nobody-has-this-name', but this machine has no such user" in text
    assert "int" in bob.refused("publish", token, "x", ALICE, error="TypeError")


def test_user_with_read_access_can_only_observe(token: str, place: str, join: Join) -> None:
    alice = join(ALICE, OPENPILOT_PREFIX=place, MSGQ_MODE="640")
    bob = join(BOB, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(ALICE))
    alice.do("publish", token, "hello")
    assert "mode 640" in bob.refused("subscribe", token)
    bob.do("subscribe", token, None, True)
    alice.do("publish", token, "to all")
    assert bob.do("receive", token) == "to all"


def test_list_command_shows_endpoints_of_trusted_users(token: str, place: str, join: Join) -> None:
    alice = join(ALICE, OPENPILOT_PREFIX=place)
    bob = join(BOB, OPENPILOT_PREFIX=place)
    alice.do("publish", token, "hello")
    assert token not in bob.do("cli", "list", "--json", "--duration", "0")[1]
    bob.do("environ", {"MSGQ_TRUST": str(ALICE)})
    assert f'"{token}"' in bob.do("cli", "list", "--json", "--duration", "0")[1]
    assert f"user {ALICE}, mode 660" in bob.do("cli", "info", token, "--duration", "0.01")[1]
    assert bob.do("cli", "stat", token, "--once", "--json", "--interval", "0.01")[0] == 0
    code, output = bob.do("cli", "clean", "--json", token)
    assert (code, '"kept"' in output, "in use by" in output) == (1, True, True)


def test_clean_keeps_files_of_other_owners(token: str, place: str, join: Join) -> None:
    alice = join(ALICE, OPENPILOT_PREFIX=place)
    bob = join(BOB, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(ALICE))
    alice.do("die_publishing", token)
    code, output = bob.do("cli", "clean", token)
    assert (code, f"belongs to user {ALICE}" in output) == (1, True)
    assert alice.do("cli", "clean", token)[0] == 0
    assert not os.path.exists(shm_paths.ring_path(token, place))


class TestPrefixDirectories:
    @pytest.fixture
    def shared(self, token: str) -> Iterator[str]:
        yield f"p{token}"
        for path in shm_paths.topic_directories(f"p{token}"):
            shutil.rmtree(path, ignore_errors=True)

    def test_prefix_directory_prevents_removal_of_other_users_files(self, shared: str, join: Join) -> None:
        alice, bob = join(ALICE, OPENPILOT_PREFIX=shared), join(BOB, OPENPILOT_PREFIX=shared)
        alice.do("publish", "topic", "hello")
        for path in (shm_paths.ring_path("topic", shared), shm_paths.side_segment_path("topic", shared)):
            assert "not permitted" in bob.refused("unlink", path, error="PermissionError")

    def test_prefix_directory_of_untrusted_user_is_refused(self, shared: str, join: Join) -> None:
        alice, bob = join(ALICE, OPENPILOT_PREFIX=shared), join(BOB, OPENPILOT_PREFIX=shared)
        alice.do("publish", "topic", "hello")
        for action in (["publish", "another", "x"], ["subscribe", "another"], ["subscribe", "topic", None, True]):
            text = bob.refused(*action)
            assert f"msgq_{shared}" in text
            assert f"MSGQ_TRUST={ALICE}" in text

    @pytest.mark.parametrize("mode", [0o770, 0o707])
    def test_prefix_directory_with_unsafe_mode_is_refused(self, shared: str, join: Join, mode: int) -> None:
        alice = join(ALICE, OPENPILOT_PREFIX=shared)
        bob = join(BOB, OPENPILOT_PREFIX=shared, MSGQ_TRUST=str(ALICE))
        alice.do("publish", "topic", "hello")
        os.chmod(shm_paths.topic_directories(shared)[0], mode)
        assert f"mode {mode:o}" in bob.refused("subscribe", "topic", error="SegmentAccessError")
        alice.do("publish", "topic", "who made it goes on")

    def test_link_of_trusted_user_is_not_followed(self, shared: str, join: Join, tmp_path: Path) -> None:
        bob = join(BOB, OPENPILOT_PREFIX=shared, MSGQ_TRUST=str(ALICE))
        for path in shm_paths.topic_directories(shared):
            os.symlink(tmp_path, path)
            os.chown(path, ALICE, GROUP, follow_symlinks=False)
        try:
            assert "needs a directory here" in bob.refused("publish", "topic", "x", error="SegmentError")
            assert "needs a directory here" in bob.refused("subscribe", "topic", None, True, error="SegmentError")
            assert not list(tmp_path.iterdir())
        finally:
            for path in shm_paths.topic_directories(shared):
                os.unlink(path)


def test_hard_link_of_topic_file_is_refused(token: str, join: Join, place: str) -> None:
    """Whoever may write to a file may link it; so a member of the group could put one topic in the place of another."""
    alice = join(ALICE, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(BOB))
    bob = join(BOB, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(ALICE))
    alice.do("publish", token, "radio")
    bob.do("link", shm_paths.ring_path(token, place), shm_paths.ring_path(f"{token}x", place))
    for action in (["publish", f"{token}x", "brake"], ["subscribe", f"{token}x"]):
        assert "hard links" in alice.refused(*action, error="SegmentError")
    os.unlink(shm_paths.ring_path(f"{token}x", place))
    alice.do("publish", token, "goes on")


@pytest.mark.parametrize("content", ["", "x" * 100, "\x7f" * 4096], ids=["empty", "short", "page"])
def test_corrupt_file_of_trusted_user_is_refused(token: str, join: Join, place: str, content: str) -> None:
    alice = join(ALICE, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(BOB))
    bob = join(BOB, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(ALICE))
    bob.do("publish", token, "a topic")
    bob.do("leave")
    bob.do("write", shm_paths.side_segment_path(token, place), content)
    alice.refused("publish", token, "hello", error="CorruptSegmentError")


def test_topic_group_without_membership_is_refused(token: str, join: Join) -> None:
    alice = join(ALICE, groups=())
    assert f"group {GROUP} (MSGQ_GROUP)" in alice.refused("publish", token, "hello")
    alice.do("environ", {"MSGQ_GROUP": "nobody-has-this-name"})
    assert "MSGQ_GROUP has 'nobody-has-this-name'" in alice.refused(
        "publish", token, "hello", error="InvalidValueError"
    )
    assert not os.path.exists(shm_paths.ring_path(token, ""))


def test_event_gate_works_between_two_users(token: str, join: Join, place: str) -> None:
    alice = join(ALICE, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(BOB))
    bob = join(BOB, OPENPILOT_PREFIX=place, MSGQ_TRUST=str(ALICE), CEREAL_FAKE="1")
    assert alice.do("make_gate", token) == [True, 0o660, 0o660]
    bob.do("subscribe", token)
    alice.do("publish", token, "let through")
    bob.begin("receive", token)
    assert alice.do("step", token)
    assert bob.end() == "let through"


def test_event_gate_of_untrusted_user_is_refused(token: str, join: Join, place: str) -> None:
    alice = join(ALICE, OPENPILOT_PREFIX=place)
    bob = join(BOB, OPENPILOT_PREFIX=place, CEREAL_FAKE="1")
    alice.do("make_gate", token)
    bob.do("subscribe", token)
    assert f"MSGQ_TRUST={ALICE}" in bob.refused("receive", token)


needs_tmp = pytest.mark.skipif(
    os.stat("/tmp").st_mode & 0o1777 != 0o1777, reason="needs a /tmp in which every user may make files"
)


@needs_tmp
class TestFrames:
    @pytest.fixture
    def name(self, token: str) -> Iterator[str]:
        yield token
        for path in (shm_paths.ring_path, shm_paths.side_segment_path):
            Path(path(f"visionipc_{token}_0", "")).unlink(missing_ok=True)
        Path(f"/tmp/visionipc_{token}").unlink(missing_ok=True)
        for user in (ALICE, BOB):  # a server that is killed leaves its lock's file, for the next one of its name
            (SHM / f"msgqframes_{user}" / f"visionipc_{token}").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # there is none, or another test is at it
                (SHM / f"msgqframes_{user}").rmdir()

    def test_frames_are_shared_between_two_users(self, name: str, join: Join) -> None:
        alice, bob = join(ALICE, MSGQ_TRUST=str(BOB)), join(BOB, MSGQ_TRUST=str(ALICE))
        assert alice.do("serve_frames", name) == [0o660, GROUP]
        assert bob.do("connect_frames", name)
        assert alice.do("send_frame", name, 77)
        assert bob.do("see_frame", name) == 77
        assert bob.do("reopen_for_writing", name) == ["refused"] * with_spare(2)

    def test_frame_server_of_untrusted_user_is_refused(self, name: str, join: Join) -> None:
        alice, bob = join(ALICE, MSGQ_TRUST=str(BOB)), join(BOB)
        bob.do("publish", f"visionipc_{name}_0", "made the topic, so that the socket is all that is alice's")
        bob.do("leave")
        alice.do("serve_frames", name)
        text = bob.refused("connect_frames", name)
        assert f"belongs to user {ALICE}" in text
        assert f"MSGQ_TRUST={ALICE}" in text

    def test_frame_server_without_sharing_is_unreachable(self, name: str, join: Join) -> None:
        alice, bob = join(ALICE, share=False, MSGQ_TRUST=str(BOB)), join(BOB, MSGQ_TRUST=str(ALICE))
        bob.do("publish", f"visionipc_{name}_0", "x")
        bob.do("leave")
        assert alice.do("serve_frames", name)[0] == 0o600
        assert "Permission denied" in bob.refused("connect_frames", name, error="IpcError")


class TestNames:
    def test_trust_setting_accepts_user_names_and_ids(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_TRUST", "root, 12345")
        assert file_permissions.trusted_users() == {0, 12345}
        monkeypatch.setenv("MSGQ_TRUST", "")
        assert file_permissions.trusted_users() == frozenset()

    @pytest.mark.parametrize("value", ["nobody-has-this-name", "1,,2", "-1", "4294967295", "1 2", "\xb2"])
    def test_invalid_trust_setting_is_refused_at_each_connect(
        self, endpoint: str, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        monkeypatch.setenv("MSGQ_TRUST", value)
        with pytest.raises(InvalidValueError, match="MSGQ_TRUST") as caught:
            msgq.pub_sock(endpoint)
        assert caught.value.endpoint == endpoint
        assert not Path(shm_paths.ring_path(endpoint, "")).exists()

    def test_file_of_trusted_user_is_accepted(self, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
        msgq.pub_sock(endpoint).close()
        os.chown(shm_paths.ring_path(endpoint, ""), 12345, -1)
        with pytest.raises(SegmentError, match="MSGQ_TRUST=12345"):
            msgq.pub_sock(endpoint)
        monkeypatch.setenv("MSGQ_TRUST", "12345")
        msgq.pub_sock(endpoint).close()


@pytest.mark.parametrize("first", [ALICE, BOB])
def test_work_queue_works_between_two_users(token: str, join: Join, place: str, first: int) -> None:
    """Whoever makes it: both send and take, and what one of them leaves behind in death comes back to the other."""
    second = BOB if first == ALICE else ALICE
    maker = join(first, MSGQ_TRUST=trust_setting(second), OPENPILOT_PREFIX=place)
    other = join(second, MSGQ_TRUST=trust_setting(first), OPENPILOT_PREFIX=place)
    maker.do("put", token, "first")
    other.do("take_and_die", token)
    assert maker.do("take", token) == "first"
    other.do("put", token, "second")
    maker.do("take_and_die", token)
    assert other.do("take", token) == "second"
    found = os.stat(shm_paths.queue_path(token, place))
    assert (stat.S_IMODE(found.st_mode), found.st_gid, found.st_uid) == (0o660, GROUP, first)


def test_work_queue_of_two_users_requires_trust_and_permission(token: str, join: Join, place: str) -> None:
    alice, bob = join(ALICE, OPENPILOT_PREFIX=place), join(BOB, OPENPILOT_PREFIX=place)
    alice.do("put", token, "mine")
    assert f"MSGQ_TRUST={ALICE}" in bob.refused("put", token, "yours")
    private = join(ALICE, share=False, OPENPILOT_PREFIX=place and f"{place}b")
    private.do("put", f"{token}b", "mine")
    curious = join(BOB, MSGQ_TRUST=str(ALICE), OPENPILOT_PREFIX=place and f"{place}b")
    assert "Permission denied" in curious.refused("take", f"{token}b")
