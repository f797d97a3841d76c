"""SubMaster's rules, each at its borders, by the test's clock; only the last test has sockets.

What needs more of them, and PubMaster, is in tests/contract.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from msgq import PubMaster, SubMaster
from msgq.errors import CorruptSegmentError, EndpointClosedError, InvalidValueError, IpcError, UnknownTopicError
from tests.cases import each_case
from tests.unit.ringfile import HEADER, RingFile


def open_submaster(topics: Any, **options: Any) -> SubMaster:
    return SubMaster(topics, connect=False, **options)


def update_at_times(sm: SubMaster, times: Iterable[float], topic: str = "a") -> SubMaster:
    for now in times:
        sm.update_msgs(now, [(topic, b"x")])
    return sm


def times_at_rate(rate: float, start: float, stop: float) -> list[float]:
    """Return times from `start` up to and including `stop`."""
    return [start + i / rate for i in range(round((stop - start) * rate) + 1)]


# Attributes that an update sets.


def test_submaster_has_empty_state_before_first_update() -> None:
    sm = open_submaster({"a": 10.0, "b": None})
    assert sm.frame == 0
    assert sm.updated == sm.seen == sm.alive == sm.valid == {"a": False, "b": False}
    assert sm.freq_ok == {"a": False, "b": True}
    assert sm.recv_time == {"a": 0.0, "b": 0.0}
    assert sm.recv_frame == sm.lost == sm.decode_errors == {"a": 0, "b": 0}
    assert sm.data == {"a": None, "b": None}
    assert sm.messages == {"a": [], "b": []}


def test_update_sets_state_of_its_topics() -> None:
    sm = open_submaster({"a": 10.0, "b": 10.0})
    sm.update_msgs(5.0, [("a", b"1")])
    assert sm["a"] == sm.data["a"] == b"1"
    assert (sm.updated, sm.seen, sm.alive, sm.valid) == ({"a": True, "b": False},) * 4
    assert sm.recv_time == {"a": 5.0, "b": 0.0}
    assert (sm.frame, sm.recv_frame) == (1, {"a": 1, "b": 0})
    assert sm.messages == {"a": [b"1"], "b": []}


def test_updated_flag_is_true_only_for_latest_update() -> None:
    sm = open_submaster({"a": 10.0, "b": 10.0})
    sm.update_msgs(5.0, [("a", b"1")])
    sm.update_msgs(5.1, [("b", b"2")])
    assert (sm.updated, sm.messages) == ({"a": False, "b": True}, {"a": [], "b": [b"2"]})
    sm.update_msgs(5.2, [])
    assert (sm.updated, sm.messages) == ({"a": False, "b": False}, {"a": [], "b": []})
    assert (sm["a"], sm["b"], sm.seen["a"], sm.valid["b"]) == (b"1", b"2", True, True)
    assert (sm.frame, sm.recv_frame) == (3, {"a": 1, "b": 2})


def test_update_keeps_earlier_message_list_unchanged() -> None:
    sm = open_submaster({"a": 10.0})
    sm.update_msgs(5.0, [("a", b"1")])
    kept = sm.messages["a"]
    sm.update_msgs(5.1, [("a", b"2")])
    assert kept == [b"1"]


def test_update_of_topic_without_keep_all_decodes_only_last_message() -> None:
    decoded: list[bytes] = []
    sm = open_submaster({"a": 10.0}, decoders={"a": decoded.append})
    sm.update_msgs(5.0, [("a", b"1"), ("a", b"2"), ("a", b"3")])
    assert decoded == [b"3"]


def test_keep_all_option_gives_all_messages_in_order() -> None:
    sm = open_submaster({"a": 10.0, "b": 10.0}, keep_all=["a"], decoders={"a": int})
    sm.update_msgs(5.0, [("a", b"1"), ("b", b"x"), ("a", b"2"), ("b", b"y")])
    assert (sm.messages, sm.data) == ({"a": [1, 2], "b": [b"y"]}, {"a": 2, "b": b"y"})


def test_submasters_with_equal_messages_have_equal_state() -> None:
    script = [(i / 10, [("a", b"%d" % i)] * (i % 3)) for i in range(40)]
    one, two = (open_submaster({"a": 10.0}, keep_all=["a"], decoders={"a": int}) for _ in range(2))
    for now, messages in script:
        one.update_msgs(now, messages)
        two.update_msgs(now, iter(messages))
        assert (one.data, one.alive, one.freq_ok) == (two.data, two.alive, two.freq_ok)


# Alive: younger than 10 periods.


@pytest.mark.parametrize(
    ("rate", "age", "alive"),
    [
        (10.0, 0.0, True),
        (10.0, 0.9375, True),
        (10.0, 1.0, False),
        (10.0, 1.0625, False),
        (0.5, 19.9375, True),
        (0.5, 20.0, False),
        (2.5, 3.9375, True),
        (2.5, 4.0, False),
    ],
)
def test_topic_is_alive_for_ten_periods_after_message(rate: float, age: float, alive: bool) -> None:
    sm = update_at_times(open_submaster({"a": rate}), [64.0])
    assert sm.alive["a"]
    sm.update_msgs(64.0 + age, [])
    assert sm.alive["a"] is alive


@pytest.mark.parametrize("frequency", [0.5, 4.0, 100.0])
def test_topic_is_dead_after_ten_periods_at_any_update_rate(frequency: float) -> None:
    sm = update_at_times(open_submaster({"a": 8.0}, frequency=frequency), [64.0])
    for age, alive in ((1.1875, True), (1.25, False)):
        sm.update_msgs(64.0 + age, [])
        assert sm.alive["a"] is alive


def test_topic_is_alive_again_after_message() -> None:
    sm = update_at_times(open_submaster({"a": 10.0}), [0.0])
    sm.update_msgs(60.0, [])
    assert not sm.alive["a"]
    assert update_at_times(sm, [61.0]).alive["a"]


def test_topic_without_message_is_not_alive_at_time_zero() -> None:
    sm = open_submaster({"a": 10.0})
    sm.update_msgs(0.0, [])
    assert not sm.alive["a"]
    assert not sm.freq_ok["a"]


@pytest.mark.parametrize("rate", [None, 0, 0.0])
def test_topic_without_rate_is_alive_after_first_message(rate: float | None) -> None:
    sm = open_submaster({"a": rate})
    sm.update_msgs(0.0, [])
    assert (sm.alive["a"], sm.freq_ok["a"]) == (False, True)
    update_at_times(sm, [1.0])
    sm.update_msgs(1e9, [])
    assert (sm.alive["a"], sm.freq_ok["a"]) == (True, True)


def test_topics_without_expected_rate_pass_all_checks() -> None:
    assert update_at_times(open_submaster(["a"]), [1.0]).all_checks()


# The frequency: 0.8 to 1.2 times what is expected. Numbers that binary fractions hold exactly make borders exact.


def test_freq_ok_requires_two_messages() -> None:
    sm = update_at_times(open_submaster({"a": 10.0}), [0.0])
    assert not sm.freq_ok["a"]
    assert update_at_times(sm, [0.1]).freq_ok["a"]


@each_case(
    "rate, actual, right",
    [
        (10.0, 7.9, False),
        (10.0, 8.0, True),
        (10.0, 10.0, True),
        (10.0, 11.9, True),
        (10.0, 12.1, False),
        (10 / 3, 4.0, True),
        (10 / 3, 4.1, False),
        (0.625, 0.5, True),
        (0.625, 0.49, False),
        (0.01, 0.01, True),
        (0.01, 0.013, False),
    ],
)
@each_case("count", [2, 5, 300])
def test_freq_ok_is_true_from_80_to_120_percent_of_rate(rate: float, actual: float, right: bool, count: int) -> None:
    assert update_at_times(open_submaster({"a": rate}), (i / actual for i in range(count))).freq_ok["a"] is right


def test_freq_ok_accepts_one_disturbed_second_in_ten_seconds() -> None:
    sm = update_at_times(open_submaster({"a": 16.0}), times_at_rate(16, 0, 10))
    assert update_at_times(sm, [10.5, 10.75, 11.0, 11.25, 11.5]).freq_ok["a"]  # 160 intervals in 11.2 s


def test_freq_ok_is_true_if_newest_tenth_is_on_time() -> None:
    sm = update_at_times(open_submaster({"a": 16.0}), times_at_rate(4, 0, 40))
    assert not sm.freq_ok["a"]
    update_at_times(sm, times_at_rate(16, 40 + 1 / 16, 40.75))
    assert not sm.freq_ok["a"]  # 12 of the newest 16 intervals are right: 16 / (12/16 + 4/4) = 9.1 Hz
    update_at_times(sm, [40.8125, 40.875, 40.9375])
    assert sm.freq_ok["a"]  # 16 / (15/16 + 1/4) = 13.5 Hz


def test_freq_ok_is_true_if_ten_second_average_is_correct() -> None:
    """Three fast seconds, then seven slow ones: a tenth is wrong (16 or 7 Hz), 100 in a row are right."""
    sm, now = open_submaster({"a": 10.0}), 0.0
    for i in range(400):
        update_at_times(sm, [now])
        assert sm.freq_ok["a"] or i < 100
        now += 0.0625 if i % 100 < 50 else 0.1375


@pytest.mark.parametrize("rate", [1.0, 0.5, 0.1, 0.01])
def test_freq_ok_of_slow_topic_depends_only_on_newest_interval(rate: float) -> None:
    sm = update_at_times(open_submaster({"a": rate}), [0.0, 3 / rate])
    assert not sm.freq_ok["a"]
    assert update_at_times(sm, [4 / rate]).freq_ok["a"]


def test_freq_ok_fails_when_next_message_would_be_late() -> None:
    sm = update_at_times(open_submaster({"a": 10.0}), [0.0, 0.125])  # one interval, at the lower border of 8 Hz
    sm.update_msgs(0.25, [])  # another one now would make two intervals in 0.25 s: 8 Hz
    assert sm.freq_ok["a"]
    sm.update_msgs(0.2501, [])
    assert not sm.freq_ok["a"]
    assert sm.alive["a"]
    assert not update_at_times(sm, [0.2502]).freq_ok["a"]


def test_freq_ok_after_steady_period_tolerates_longer_pause() -> None:
    sm = update_at_times(open_submaster({"a": 8.0}), times_at_rate(8, 0, 20))  # the window of 80 intervals begins at 10
    for now, right in ((22.65, True), (22.66, False)):  # 10 + 81 / 6.4 = 22.65625
        sm.update_msgs(now, [])
        assert sm.freq_ok["a"] is right


def test_states_of_silent_topics_end_during_messages_of_others() -> None:
    sm = open_submaster({"busy": 8.0, "fast": 8.0, "slow": 1.0})
    for now in (0.0, 0.125):
        sm.update_msgs(now, [("fast", b"x")])
    for now in (0.125, 1.125):
        sm.update_msgs(now, [("slow", b"x")])
    for now in times_at_rate(8, 1.125, 20):
        sm.update_msgs(now, [("busy", b"x")])
        assert (sm.alive["fast"], sm.freq_ok["fast"]) == (now < 0.125 + 10 / 8, now <= 2 / 6.4)
        assert (sm.alive["slow"], sm.freq_ok["slow"]) == (now < 1.125 + 10, now <= 0.125 + 2 / 0.8)
        assert sm.alive["busy"]


def test_states_are_right_after_an_update_that_an_interrupt_ended() -> None:
    def interrupt(_: bytes) -> None:
        raise KeyboardInterrupt

    sm = open_submaster({"radar": 1.0, "camera": 1.0}, decoders={"camera": interrupt})
    sm.update_msgs(0.0, [("radar", b"x")])
    sm.update_msgs(100.0, [])
    assert not sm.alive["radar"]
    with pytest.raises(KeyboardInterrupt):
        sm.update_msgs(101.0, [("radar", b"x"), ("camera", b"x")])
    sm.update_msgs(102.0, [])
    assert sm.alive["radar"]


def test_freq_ok_is_false_for_two_messages_at_same_time() -> None:
    sm = open_submaster({"a": 10.0}, keep_all=["a"])
    sm.update_msgs(1.0, [("a", b"1"), ("a", b"2")])
    assert not sm.freq_ok["a"]


# Both rates.


def accepted_rates(options: dict[str, Any]) -> tuple[int, int]:
    """Return the lowest and the highest rate that is right, in steps of 1 Hz."""
    just_above = 1e-6  # Hz, so that rounding decides no border: the lower one is in, the upper one is out
    right = [
        rate
        for rate in range(1, 151)
        if update_at_times(open_submaster(**options), (i / (rate + just_above) for i in range(40))).freq_ok["a"]
    ]
    assert right == list(range(right[0], right[-1] + 1))
    return right[0], right[-1]


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"topics": {"a": 100}}, (80, 119)),  # waits for it
        ({"topics": {"a": 100}, "frequency": 20}, (16, 23)),  # sampled; sees the lower rate
        ({"topics": {"a": 100}, "frequency": 50}, (40, 59)),  # twice: no beats
        ({"topics": {"a": 100}, "frequency": 60}, (24, 71)),  # less than twice: half of it may be missed
        ({"topics": {"a": 50}, "frequency": 100}, (40, 59)),
        ({"topics": {"a": 50}, "frequency": 90}, (20, 59)),
        ({"topics": {"a": 20}, "frequency": 20}, (8, 23)),
        ({"topics": {"a": 20}, "frequency": 20, "poll": "a"}, (16, 23)),  # waits for it all the same
        ({"topics": {"a": 100}, "frequency": 20, "keep_all": ["a"]}, (80, 119)),  # takes every message
        ({"topics": {"a": 100, "b": 20}, "poll": "b"}, (16, 119)),  # at least 20 Hz
        ({"topics": {"a": 100, "b": 20, "c": 40}, "poll": ["b", "c"]}, (32, 119)),
        ({"topics": {"a": 10, "b": 20}, "poll": ["b"]}, (8, 11)),
        ({"topics": {"a": 20, "b": 20}, "poll": ["b"]}, (8, 23)),
        ({"topics": {"a": 20, "b": None}, "poll": ["b"]}, (16, 23)),  # no rate to go by: its own
        ({"topics": {"a": 20}, "poll": []}, (16, 23)),
        ({"topics": {"a": 20}, "frequency": 0}, (16, 23)),
    ],
)
def test_expected_rate_depends_on_topic_rate_and_loop_rate(options: dict[str, Any], limits: tuple[int, int]) -> None:
    assert accepted_rates(options) == limits


# Decoding and validity.


def test_submaster_accepts_any_callable_as_decoder() -> None:
    sm = open_submaster(["a", "b", "c"], decoders={"a": json.loads, "b": memoryview, "c": None})
    sm.update_msgs(0.0, [("a", b'{"x": 1}'), ("b", b"y"), ("c", b"z")])
    assert (sm["a"], sm["b"][0], sm["c"]) == ({"x": 1}, ord("y"), b"z")


def test_message_that_cannot_be_decoded_makes_topic_invalid() -> None:
    sm = open_submaster({"a": 10.0, "b": 10.0}, decoders={"a": int})
    sm.update_msgs(1.0, [("a", b"7")])
    sm.update_msgs(1.5, [("a", b"seven"), ("b", b"x")])
    assert sm.updated == {"a": False, "b": True}
    assert (sm["a"], sm.messages["a"], sm.recv_time["a"], sm.recv_frame["a"]) == (7, [], 1.0, 1)
    assert (sm.valid["a"], sm.decode_errors) == (False, {"a": 1, "b": 0})
    sm.update_msgs(1.75, [])
    assert not sm.valid["a"]
    sm.update_msgs(2.0, [("a", b"seven")])
    assert (sm.alive["a"], sm.decode_errors["a"]) == (False, 2)
    sm.update_msgs(2.5, [("a", b"8")])
    assert (sm["a"], sm.valid["a"], sm.alive["a"], sm.decode_errors["a"]) == (8, True, True, 2)


def test_only_first_decode_failure_of_topic_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    sm = open_submaster(["a"], decoders={"a": int})
    with caplog.at_level(logging.WARNING, "msgq"):
        update_at_times(sm, [1.0, 2.0])
    (record,) = caplog.records
    assert "'a'" in record.getMessage()
    assert "invalid literal" in record.getMessage()
    assert record.exc_info


def test_message_that_cannot_be_decoded_is_skipped() -> None:
    sm = open_submaster(["a"], keep_all=["a"], decoders={"a": int})
    sm.update_msgs(0.0, [("a", b"1"), ("a", b"?"), ("a", b"3")])
    assert (sm.messages["a"], sm.valid["a"], sm.decode_errors["a"]) == ([1, 3], True, 1)
    sm.update_msgs(0.0, [("a", b"4"), ("a", b"?")])
    assert (sm["a"], sm.updated["a"], sm.valid["a"], sm.decode_errors["a"]) == (4, True, False, 2)


def test_validator_receives_decoded_data() -> None:
    sm = open_submaster(["a"], decoders={"a": int}, validators={"a": lambda number: number % 2})
    for text, valid in ((b"1", True), (b"2", False), (b"3", True)):
        sm.update_msgs(0.0, [("a", text)])
        assert (sm["a"], sm.updated["a"]) == (int(text), True)
        assert sm.valid["a"] is valid
    assert sm.decode_errors["a"] == 0


def test_validator_exception_counts_as_decode_error() -> None:
    sm = open_submaster(["a"], validators={"a": lambda data: data["missing"]})
    update_at_times(sm, [1.0])
    assert (sm.updated["a"], sm.valid["a"], sm.decode_errors["a"]) == (False, False, 1)


def test_decoder_base_exception_is_raised() -> None:
    def interrupted(_: bytes) -> None:
        raise KeyboardInterrupt

    sm = open_submaster(["a", "b"], decoders={"b": interrupted})
    with pytest.raises(KeyboardInterrupt):
        sm.update_msgs(0.0, [("a", b"x"), ("b", b"x")])
    assert sm.updated["a"]
    sm.update_msgs(0.0, [])
    assert not sm.updated["a"]


# All of them.


def test_all_checks_cover_all_topics_or_given_topics() -> None:
    sm = open_submaster({"a": 10.0, "b": 10.0}, validators={"b": bool})
    update_at_times(sm, [0.0, 0.1])
    assert not sm.all_alive()
    assert not sm.all_freq_ok()
    assert not sm.all_valid()
    assert not sm.all_checks()
    for ask in (sm.all_alive, sm.all_freq_ok, sm.all_valid, sm.all_checks):
        assert ask(["a"])
        assert ask("a")
        assert ask(iter(["a"]))
        assert not ask(["a", "b"])
        assert ask([])


def test_ignored_topic_is_never_checked() -> None:
    sm = update_at_times(open_submaster({"a": 10.0, "b": 10.0}, ignore_alive=["b"]), [0.0, 0.1])
    assert sm.all_alive()
    assert sm.all_alive(["b"])
    assert sm.all_freq_ok()  # an ignored service needs no rate
    assert not sm.all_valid()
    sm = update_at_times(open_submaster({"a": 10.0, "b": 10.0}, ignore_avg_freq=["b"]), [0.0, 0.1])
    assert (sm.all_alive(), sm.all_freq_ok(), sm.all_valid()) == (False, True, False)
    sm = update_at_times(open_submaster({"a": 10.0, "b": 10.0}, ignore_valid="b"), [0.0, 0.1])
    assert (sm.all_alive(), sm.all_freq_ok(), sm.all_valid()) == (False, False, True)


def test_all_checks_requires_alive_rate_and_valid() -> None:
    options = {"ignore_alive": "b", "ignore_valid": ["b"]}
    assert update_at_times(open_submaster({"a": 10.0, "b": 10.0}, **options), [0.0, 0.1]).all_checks()


# Misuse.


def test_submaster_with_unknown_topic_raises_with_its_name() -> None:
    sm = open_submaster(["a", "b"])
    for ask in (
        lambda: sm["typo"],
        lambda: sm.alive["typo"],
        lambda: sm.lost["typo"],
        lambda: sm.all_checks(["a", "typo"]),
        lambda: sm.all_valid("typo"),
        lambda: sm.update_msgs(0.0, [("a", b""), ("typo", b"")]),
    ):
        with pytest.raises(UnknownTopicError, match=r"^'typo': .*'a', 'b'$") as caught:
            ask()
        assert isinstance(caught.value, IpcError)
        assert isinstance(caught.value, KeyError)
        assert caught.value.endpoint == "typo"
    assert sm.frame == 0
    assert not sm.updated["a"]


@pytest.mark.parametrize(
    "options",
    [
        {"poll": "typo"},
        {"poll": ["a", "typo"]},
        {"ignore_alive": ["typo"]},
        {"ignore_avg_freq": ["typo"]},
        {"ignore_valid": ["typo"]},
        {"decoders": {"typo": int}},
        {"validators": {"typo": bool}},
        {"keep_all": ["typo"]},
        {"segment_sizes": {"typo": 1024}},
    ],
)
def test_submaster_options_with_unknown_topics_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownTopicError, match="'typo'"):
        open_submaster(["a"], **options)


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf"), 1.1e6])
def test_submaster_refuses_impossible_rates(rate: float) -> None:
    with pytest.raises(InvalidValueError, match="'a': rate is") as caught:
        open_submaster({"a": rate})
    assert caught.value.endpoint == "a"
    with pytest.raises(InvalidValueError, match="messages/s"):
        open_submaster(["a"], frequency=rate)


def test_submaster_takes_single_name_as_one_topic() -> None:
    sm = open_submaster("carState", ignore_alive="carState", ignore_valid="carState")
    assert list(sm) == ["carState"]
    assert sm.all_checks("carState")


@pytest.mark.parametrize("now", [4.9, float("nan")])
def test_submaster_refuses_decreasing_update_time(now: float) -> None:
    sm = update_at_times(open_submaster({"a": 10.0}), [5.0])
    with pytest.raises(InvalidValueError, match=r"now=.*5\.0"):
        sm.update_msgs(now, [])
    assert sm.frame == 1
    sm.update_msgs(5.0, [])


def test_update_of_submaster_without_sockets_raises() -> None:
    with open_submaster(["a"]) as sm, pytest.raises(EndpointClosedError, match="update_msgs"):
        sm.update()
    sm.close()
    assert update_at_times(sm, [0.0])["a"] == b"x"


def test_wait_for_readers_of_pubmaster_shares_one_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    now, given = [100.0], []

    class Socket:
        def wait_for_readers(self, timeout: float | None, n: int | None) -> None:
            given.append(timeout)
            now[0] += 0.75

    monkeypatch.setattr("msgq.topic.masters.pubmaster.api.pub_sock", lambda *_, **__: Socket())
    pm = PubMaster(["a", "b", "c"])
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    pm.wait_for_readers(timeout=1.0)
    pm.wait_for_readers(timeout=None)
    assert given == [1.0, 0.25, 0.0, None, None, None]


def test_update_with_corrupt_topic_still_updates_other_topics(prefix: str) -> None:
    pm, sm = PubMaster(["a", "b"]), SubMaster(["a", "b"])
    with pm, sm, RingFile(f"{prefix}/b") as ring:
        for topic in ("a", "b"):
            pm.send(topic, b"1")
        ring[HEADER] = 2**40
        with pytest.raises(CorruptSegmentError, match="b"):
            sm.update(0)
        assert (sm["a"], sm.updated) == (b"1", {"a": True, "b": False})
        pm.send("b", b"2")
        sm.update(0)
        assert (sm["b"], sm.updated) == (b"2", {"a": False, "b": True})


@pytest.mark.parametrize(
    "make",
    [
        lambda: SubMaster({"good": 1, "odd": "fast"}),
        lambda: SubMaster(["good", "odd"], segment_sizes={"odd": "large"}),  # type: ignore[dict-item]  # it is the test
        lambda: SubMaster(["good", "odd"], decoders={"odd": "json"}),  # type: ignore[dict-item]  # it is the test
        lambda: SubMaster(["good", "odd"], validators={"odd": True}),  # type: ignore[dict-item]  # it is the test
        lambda: PubMaster(["good", "odd"], segment_sizes={"odd": "large"}),  # type: ignore[dict-item]  # it is the test
        lambda: PubMaster(["good", "odd"], encoders={"odd": "json"}),  # type: ignore[dict-item]  # it is the test
    ],
)
def test_option_of_wrong_type_raises_with_its_topic(make: Callable[[], Any], prefix: str) -> None:
    with pytest.raises(TypeError, match=r"^'odd': "):
        make()


@pytest.mark.parametrize("encoder", [None, len, lambda data: bytes(data, 5)])  # type: ignore[call-overload]  # it fails
def test_send_of_unsendable_data_raises_with_its_topic(encoder: Any, prefix: str) -> None:
    with PubMaster(["good", "odd"], encoders={"odd": encoder}) as pm:
        with pytest.raises(TypeError, match=r"^'odd': ") as caught:
            pm.send("odd", "text")
        assert isinstance(caught.value.__cause__, TypeError)
