"""Names, paths and environment variables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.common import naming, settings, shm_paths
from msgq.errors import BackendNotAvailableError, EndpointNameError, InvalidValueError, SegmentError
from msgq.impl import backend
from tests.support import SHM


@pytest.mark.parametrize("name", ["a", "carState", "with.dots", "..twodots", "spaces too", "ünïcödé", "-", "x" * 246])
def test_valid_endpoint_name_is_returned_unchanged(name: str) -> None:
    assert naming.validate_endpoint_name(name) == name
    assert naming.validate_endpoint_name(name.encode()) == name


BAD_NAMES = ["", ".", "..", "a/b", "/", "../up", "a\0b", "\0", "x" * 247, "ü" * 124, b"", b"\xff\xfe", b"a/b", "\ud800"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_invalid_endpoint_name_is_refused_and_creates_no_file(name: str | bytes) -> None:
    before = set(os.listdir(SHM))
    with pytest.raises(EndpointNameError) as caught:
        naming.validate_endpoint_name(name)
    assert isinstance(caught.value, ValueError)
    for connect in (msgq.PubSocket().connect, msgq.SubSocket().connect):
        with pytest.raises(EndpointNameError):
            connect(msgq.context, name)
    with pytest.raises(EndpointNameError):
        msgq.stats.topic(name)
    short = name[:40].decode(errors="replace") if isinstance(name, bytes) else name[:40]
    assert not {entry for entry in set(os.listdir(SHM)) - before if short and entry.endswith(short)}


@pytest.mark.parametrize("name", ["x" * 247, "x" * 100_000])
def test_error_for_long_endpoint_name_has_size_and_limit(name: str) -> None:
    with pytest.raises(EndpointNameError, match=f"{len(name)} bytes.*246") as caught:
        naming.validate_endpoint_name(name)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", [None, 5, ["a"], Path("a")])
def test_endpoint_name_of_wrong_type_raises_type_error(name: Any) -> None:
    with pytest.raises(TypeError, match=type(name).__name__):
        naming.validate_endpoint_name(name)


def test_longest_endpoint_name_is_usable(token: str) -> None:
    name = token + "x" * (naming.NAME_BYTES_MAX - len(token))
    with msgq.pub_sock(name, 4096) as pub, msgq.sub_sock(name) as sub:
        pub.send(b"x")
        assert sub.receive(True) == b"x"
    (SHM / f"msgq_{name}").unlink()
    (SHM / f"msgqside_{name}").unlink()


def test_topic_paths_equal_stock_paths() -> None:
    assert shm_paths.ring_path("topic", "") == "/dev/shm/msgq_topic"
    assert shm_paths.ring_path("topic", "p") == "/dev/shm/msgq_p/topic"
    assert shm_paths.side_segment_path("topic", "") == "/dev/shm/msgqside_topic"
    assert shm_paths.side_segment_path("topic", "p") == "/dev/shm/msgqside_p/topic"


def test_queue_is_stored_in_one_file() -> None:
    assert shm_paths.queue_path("jobs", "") == "/dev/shm/msgqjobs_jobs"
    assert shm_paths.queue_path("jobs", "p") == "/dev/shm/msgqjobs_p/jobs"
    assert shm_paths.locate_queue_files("") == ("/dev/shm", "msgqjobs_")
    assert shm_paths.locate_queue_files("p") == ("/dev/shm/msgqjobs_p", "")


@pytest.mark.parametrize("name", ["jobs", "/jobs", b"jobs", b"/jobs"])
def test_leading_slash_of_queue_name_is_removed(name: str | bytes) -> None:
    assert naming.validate_queue_name(name) == "jobs"


def test_longest_queue_name_fits_file_name() -> None:
    name = naming.validate_queue_name("/" + "x" * 246)
    assert len(os.path.basename(shm_paths.queue_path(name, ""))) == 255
    with pytest.raises(EndpointNameError, match=r"queue.*247 bytes"):
        naming.validate_queue_name("x" * 247)


@pytest.mark.parametrize("name", ["//jobs", "/", "", "/.", "/..", "jobs/"])
def test_queue_name_with_other_slashes_is_refused(name: str) -> None:
    with pytest.raises(EndpointNameError, match="queue"):
        naming.validate_queue_name(name)


def test_records_are_stored_in_one_file() -> None:
    assert shm_paths.records_path("quotes", "") == "/dev/shm/msgqrec_quotes"
    assert shm_paths.records_path("quotes", "p") == "/dev/shm/msgqrec_p/quotes"
    assert shm_paths.locate_records_files("") == ("/dev/shm", "msgqrec_")
    assert shm_paths.locate_records_files("p") == ("/dev/shm/msgqrec_p", "")


@pytest.mark.parametrize("name", ["", "/quotes", "a/b", "..", "a\0b", "x" * 247])
def test_invalid_records_name_is_refused(name: str) -> None:
    with pytest.raises(EndpointNameError, match="records"):
        naming.validate_records_name(name)
    assert naming.validate_records_name(b"quotes") == "quotes"
    assert len(os.path.basename(shm_paths.records_path(naming.validate_records_name("x" * 246), ""))) <= 255


class TestPrefix:
    def test_prefix_is_read_from_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENPILOT_PREFIX", "p")
        assert settings.get_prefix() == "p"
        monkeypatch.setenv("OPENPILOT_PREFIX", "")
        assert settings.get_prefix() == ""
        monkeypatch.delenv("OPENPILOT_PREFIX")
        assert settings.get_prefix() == ""

    @pytest.mark.parametrize("value", ["..", ".", "a/b", "../x", "x" * 247])
    def test_invalid_prefix_is_refused(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("OPENPILOT_PREFIX", value)
        with pytest.raises(EndpointNameError, match="OPENPILOT_PREFIX"):
            msgq.pub_sock("topic")

    def test_prefix_directories_allow_owner_only(self, prefix: str) -> None:
        old = os.umask(0)
        try:
            msgq.pub_sock("topic", 4096).close()
        finally:
            os.umask(old)
        for kind in ("msgq_", "msgqside_"):
            found = (SHM / f"{kind}{prefix}").stat()
            assert oct(found.st_mode) == oct(0o40700)
            assert (SHM / f"{kind}{prefix}" / "topic").is_file()

    def test_topics_of_two_prefixes_are_separate(self, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with msgq.sub_sock("topic") as sub:
            monkeypatch.setenv("OPENPILOT_PREFIX", f"{prefix}2")
            with msgq.pub_sock("topic", 8192) as pub:
                pub.send(b"x")
                assert sub.receive(True) is None
            for kind in ("msgq_", "msgqside_"):
                (SHM / f"{kind}{prefix}2" / "topic").unlink()
                (SHM / f"{kind}{prefix}2").rmdir()

    def test_prefix_with_queues_only_is_listed(self, prefix: str) -> None:
        msgq.MessageQueue("jobs")
        assert prefix in shm_paths.list_prefixes()

    def test_prefix_with_records_only_is_listed(self, prefix: str) -> None:
        directory = SHM / f"msgqrec_{prefix}"
        directory.mkdir()
        try:
            assert prefix in shm_paths.list_prefixes()
        finally:
            directory.rmdir()

    @pytest.mark.parametrize("kind", ["msgq_", "msgqside_"])
    def test_error_names_file_that_blocks_prefix_directory(self, prefix: str, kind: str) -> None:
        path = SHM / f"{kind}{prefix}"
        path.write_bytes(b"")
        try:
            with pytest.raises(SegmentError, match="directory") as caught:
                msgq.pub_sock("topic")
            assert caught.value.path == str(path)
        finally:
            path.unlink()

    def test_prefix_directory_link_is_not_followed(self, prefix: str, tmp_path: Path) -> None:
        path = SHM / f"msgq_{prefix}"
        path.symlink_to(tmp_path)
        try:
            with pytest.raises(SegmentError, match=prefix):
                msgq.pub_sock("topic")
            assert not list(tmp_path.iterdir())
        finally:
            path.unlink()

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
    def test_prefix_directory_of_other_user_is_refused(self, prefix: str) -> None:
        path = SHM / f"msgq_{prefix}"
        path.mkdir()
        os.chown(path, 12345, -1)
        with pytest.raises(SegmentError, match="12345"):
            msgq.pub_sock("topic")


class TestMode:
    def test_default_file_mode_is_0600(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MSGQ_MODE", raising=False)
        assert settings.resolve_file_mode(None, "e") == 0o600

    @pytest.mark.parametrize(("value", "mode"), [("660", 0o660), ("0644", 0o644), ("0o666", 0o666), ("", 0o600)])
    def test_mode_variable_is_read_as_octal_number(
        self, monkeypatch: pytest.MonkeyPatch, value: str, mode: int
    ) -> None:
        monkeypatch.setenv("MSGQ_MODE", value)
        assert settings.resolve_file_mode(None, "e") == mode

    def test_mode_argument_overrides_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_MODE", "666")
        assert settings.resolve_file_mode(0o640, "e") == 0o640

    @pytest.mark.parametrize("value", ["rw", "9", "777", "400", "-660", "1660", "66 0"])
    def test_invalid_mode_variable_is_refused(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("MSGQ_MODE", value)
        with pytest.raises(InvalidValueError) as caught:
            settings.resolve_file_mode(None, "e")
        assert caught.value.endpoint == "e"

    @pytest.mark.parametrize("asked", [0o777, 0o060, 0, 0o10600, -1])
    def test_impossible_mode_argument_is_refused(self, asked: int) -> None:
        with pytest.raises(InvalidValueError):
            settings.resolve_file_mode(asked, "e")


class TestSpin:
    @pytest.mark.parametrize(("asked", "result"), [(None, 0), (0, 0), (5, 5), (1_000_000, 1_000_000)])
    def test_spin_setting_is_converted_to_microseconds(
        self, monkeypatch: pytest.MonkeyPatch, asked: int | None, result: int
    ) -> None:
        monkeypatch.delenv("MSGQ_SPIN_US", raising=False)
        assert settings.resolve_spin_us(asked, "e") == result

    def test_spin_setting_is_read_from_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_SPIN_US", "20")
        assert settings.resolve_spin_us(None, "e") == 20
        assert settings.resolve_spin_us(3, "e") == 3

    def test_spin_argument_and_environment_override_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MSGQ_SPIN_US", raising=False)
        assert settings.resolve_spin_us(None, "e", 10) == 10
        assert settings.resolve_spin_us(0, "e", 10) == 0
        monkeypatch.setenv("MSGQ_SPIN_US", "0")
        assert settings.resolve_spin_us(None, "e", 10) == 0

    @pytest.mark.parametrize("value", ["-1", "1000001", "fast", "1.5"])
    def test_invalid_spin_setting_is_refused(self, monkeypatch: pytest.MonkeyPatch, endpoint: str, value: str) -> None:
        monkeypatch.setenv("MSGQ_SPIN_US", value)
        with pytest.raises(InvalidValueError, match="MSGQ_SPIN_US"):
            msgq.sub_sock(endpoint)


class TestBackendName:
    @pytest.mark.parametrize("value", [None, "", "msgq"])
    def test_default_backend_is_msgq(self, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
        if value is None:
            monkeypatch.delenv("MSGQ_BACKEND", raising=False)
        else:
            monkeypatch.setenv("MSGQ_BACKEND", value)
        assert backend.load_backend().PubSocket is msgq.PubSocket

    def test_error_names_unknown_backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_BACKEND", "pigeons")
        with pytest.raises(BackendNotAvailableError, match="pigeons"):
            backend.load_backend()


def test_preallocation_variable_set_to_any_value_allocates_memory(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("MSGQ_PREALLOC", "")
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        status = os.stat(shm_paths.ring_path(endpoint, ""))
        assert status.st_blocks * 512 >= status.st_size
        pub.send(b"x")
        assert sub.receive(True) == b"x"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("/robot/arm", "give 'robot.arm'"),
        ("a/b", "give 'a.b'"),
        ("../up", "give 'up'"),
        ("a\0b", "give 'ab'"),
        ("/", ""),
        ("..", ""),
        ("channel/scan", "open 'scan' with msgq.Channel"),
        ("queue/jobs", "open 'jobs' with msgq.MessageQueue"),
        ("records/poses", "open 'poses' with msgq.SeqlockVector or Board"),
        ("tcp://host:1", "MSGQ_ZMQ_MAP"),
    ],
)
def test_error_of_name_with_slashes_suggests_valid_name(name: str, advice: str) -> None:
    with pytest.raises(
        EndpointNameError, match=r"is not a valid file name \(no '/' or NUL, not '.' or '..'\)(; )?"
    ) as caught:
        naming.validate_endpoint_name(name)
    assert str(caught.value).partition("'..')")[2].removeprefix("; ").endswith(advice)
    if advice.startswith("give"):
        naming.validate_endpoint_name(advice.split("'")[1])
    assert str(caught.value).endswith("'..')") == (not advice)
