"""Causes of late stages: four processes in trouble, and synthetic recordings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("plotly")
from msgq.common.thread_samples import (
    PARTICIPANTS_ENDPOINT,
    PARTICIPANTS_SCHEMA,
    SAMPLES_ENDPOINT,
    SAMPLES_SCHEMA,
    ThreadParticipant,
    ThreadSample,
    encode_participant,
    encode_sample,
)
from msgq.common.timing import TIMING_SCHEMA, make_timing_topic
from msgq.lake.report.gold_reader import GoldReader, open_lake_tables
from msgq.lake.report.late_causes import parse_participants
from msgq.lake.report.late_stages import LateStage, find_late_stages
from msgq.lake.report.report_page import write_report
from msgq.recording import LogReader, Writer
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.merge.log_copy import write_merged_log
from tests.report.gold import BEGIN, SECOND
from tests.report.recordings import RUN, ingest_recording
from tests.report.stage_troubles import LATE_MESSAGES, record_troubles
from tests.unit.stage_children import timing_record

MS = SECOND // 1000
TOPIC = make_timing_topic("planner", "quotes")
PLANNER = ThreadParticipant(TOPIC, "publisher", 10, 10, 0, "planner")
FEED = ThreadParticipant("quotes", "publisher", 20, 20, 0, "feed")
HEALTHY_S, LATE_S = 20, 5


class Handled(NamedTuple):
    """Times of a message in ms after the begin of the recording."""

    sent: float
    received: float
    ended: float
    origin: float = 0


class Sampled(NamedTuple):
    """Times of a thread in a sample of 0.1 s, or of a program in 1 s (`waited_ms` is -1); `at` is its begin in s."""

    at: float
    ran_ms: float
    waited_ms: float = 0
    state: str = ""
    pid: int = 10
    thread: str = "python"
    processor: int = 1


def write_stage(
    path: Path,
    handled: list[Handled],
    sampled: list[Sampled],
    participants: dict[ThreadParticipant, str] | None = None,
    host: str = "robot",
) -> Path:
    """Write a recording of one stage with samples."""
    messages: list[tuple[int, str, bytes]] = []
    for sent, received, ended, origin in handled:
        times = [BEGIN + round(time * MS) for time in (sent, received, ended, origin or sent)]
        messages.append((times[2], TOPIC, timing_record(*times)))
    for at, ran_ms, waited_ms, state, pid, thread, processor in sampled:
        begin = BEGIN + round(at * SECOND)
        end = begin + (SECOND // 10 if waited_ms >= 0 else SECOND)
        numbers = end, begin, round(ran_ms * MS), round(waited_ms * MS), pid, pid, processor
        name = {10: "planner", 30: "camera"}[pid]
        messages.append((numbers[0], SAMPLES_ENDPOINT, encode_sample(ThreadSample(*numbers, state, name, thread))))
    for participant, problem in (participants or {}).items():
        for at in range(0, HEALTHY_S + LATE_S, 10):
            time = BEGIN + at * SECOND
            messages.append((time, PARTICIPANTS_ENDPOINT, encode_participant(time, participant, problem)))
    schemas = {TOPIC: TIMING_SCHEMA, SAMPLES_ENDPOINT: SAMPLES_SCHEMA, PARTICIPANTS_ENDPOINT: PARTICIPANTS_SCHEMA}
    with Writer(path) as writer:
        writer.add_metadata(metadata_keys.RECORDING_METADATA, {"run": RUN, "host": host})
        metadata = metadata_keys.build_channel_metadata(1, metadata_keys.RECORDER_SEQUENCE)
        channels = {name: writer.channel(name, schema, metadata=metadata) for name, schema in schemas.items()}
        for number, (time, endpoint, data) in enumerate(sorted(messages)):
            writer.write(channels[endpoint], data, time, time, number)
    return path


def find(recording: Path, lake: Path, *others: Path) -> list[LateStage]:
    for other in others:
        ingest_recording(other, lake)
    return find_late_stages(GoldReader(open_lake_tables(ingest_recording(recording, lake))))


def shift(sampled: list[Sampled], **changes: Any) -> list[Sampled]:
    """Return the samples of another recorder, which samples half a period later."""
    return [one._replace(at=one.at + 0.05, **changes) for one in sampled]


def healthy_messages() -> list[Handled]:
    """Return a message each 20 ms that takes 1 ms, and some that take up to 5 ms."""
    slow = [1 + 4 * (number % 17 == 0) for number in range(HEALTHY_S * 50)]
    return [Handled(20 * number, 20 * number + 0.1, 20 * number + 0.1 + ms) for number, ms in enumerate(slow)]


def healthy_samples(seconds: int = HEALTHY_S) -> list[Sampled]:
    return [Sampled(tick / 10, 6, 0.3) for tick in range(seconds * 10)]


def late_messages(wait_ms: float, work_ms: float, sender_ms: float = 0) -> list[Handled]:
    """Return messages after the healthy ones, one each 100 ms."""
    found = []
    for number in range(LATE_S * 10):
        sent = HEALTHY_S * 1000 + 100 * number + sender_ms
        found.append(Handled(sent, sent + wait_ms, sent + wait_ms + work_ms, sent - sender_ms))
    return found


def late_samples(ran_ms: float, waited_ms: float = 0, state: str = "") -> list[Sampled]:
    return [Sampled(HEALTHY_S + tick / 10, ran_ms, waited_ms, state) for tick in range(LATE_S * 10)]


def cause_of(
    tmp_path: Path,
    late: list[Handled],
    sampled: list[Sampled],
    participants: dict[ThreadParticipant, str] | None = None,
) -> tuple[str, str]:
    """Return name and text of the cause of the only late period."""
    recording = write_stage(
        tmp_path / "log.mcap",
        healthy_messages() + late,
        healthy_samples() + sampled,
        {PLANNER: "", FEED: ""} if participants is None else participants,
    )
    (found,) = find(recording, tmp_path / "lake")
    assert (found.run, found.stage, found.endpoint) == (RUN, "planner", "quotes")
    assert abs(found.from_time - BEGIN - HEALTHY_S * SECOND) <= SECOND
    assert found.late_messages <= len(late)
    return found.cause.name, found.cause.text


def test_each_stage_in_trouble_has_its_cause(prefix: str, tmp_path: Path) -> None:
    """One stage shares its processor with a busy loop, one computes too long, one is stopped, one has a late sender."""
    times = record_troubles(tmp_path / "log.mcap")
    found = {late.stage: late for late in find(tmp_path / "log.mcap", tmp_path / "lake") if late.late_messages > 9}
    assert found.keys() >= {"crowded", "busy", "frozen", "waiting"}
    crowded, busy, frozen, waiting = (found[name].cause for name in ("crowded", "busy", "frozen", "waiting"))
    assert crowded.name == "no_cpu"
    assert "for a processor; " in crowded.text
    assert "'s converter used " in crowded.text
    ran_ns, waited_ns = times["busy"]  # a busy machine makes the stage wait: then this is the true cause
    assert busy.name in {"worked"} if ran_ns > 1.25 * waited_ns else {"worked", "no_cpu"}
    assert frozen.name == "stopped"
    assert frozen.text.startswith("frozen was stopped for ")
    assert waiting.name == "sender"
    assert f" {os.getpid()} was late: " in waiting.text
    assert min(late.late_messages for late in found.values()) >= LATE_MESSAGES // 2


def test_healthy_stage_is_not_late(tmp_path: Path) -> None:
    recording = write_stage(tmp_path / "log.mcap", healthy_messages(), healthy_samples(), {PLANNER: ""})
    assert find(recording, tmp_path / "lake") == []


def test_single_late_messages_are_no_late_period(tmp_path: Path) -> None:
    late = [*healthy_messages(), *late_messages(0.1, 50)[:3]]
    recording = write_stage(tmp_path / "log.mcap", late, healthy_samples(), {PLANNER: ""})
    assert find(recording, tmp_path / "lake") == []


def test_missing_processor_is_cause_with_thread_that_used_it(tmp_path: Path) -> None:
    rivals = [
        one._replace(ran_ms=ran, waited_ms=0, pid=30, thread=name, processor=processor)
        for one in late_samples(0)
        for ran, name, processor in ((97, "converter", 1), (100, "other", 0))
    ]
    name, text = cause_of(tmp_path, late_messages(10, 40), late_samples(12, 38) + rivals)
    assert name == "no_cpu"
    assert text == "planner waited 38 ms of 50 ms for a processor; camera's converter used 97% of the core"


def test_missing_processor_is_cause_with_program_without_endpoints(tmp_path: Path) -> None:
    program = [Sampled(HEALTHY_S + second, 930, -1, "", 30, "") for second in range(LATE_S)]
    name, text = cause_of(tmp_path, late_messages(10, 40), late_samples(12, 38) + program)
    assert name == "no_cpu"
    assert text.endswith("for a processor; camera 30 used 93% of the core")


def test_missing_processor_without_sampled_rival_says_so(tmp_path: Path) -> None:
    name, text = cause_of(tmp_path, late_messages(10, 40), late_samples(12, 38))
    assert name == "no_cpu"
    assert text == "planner waited 38 ms of 50 ms for a processor; no long-lived process used much of the core"


def test_long_work_is_cause(tmp_path: Path) -> None:
    name, text = cause_of(tmp_path, late_messages(0, 60), late_samples(60))
    assert (name, text) == ("worked", "planner worked 60 ms of 60 ms")


def test_long_work_is_cause_of_queue(tmp_path: Path) -> None:
    begin = HEALTHY_S * 1000
    queued = [Handled(begin + 20 * n, begin + 100 * n, begin + 100 * (n + 1)) for n in range(LATE_S * 10)]
    name, text = cause_of(tmp_path, queued, late_samples(100))
    assert name == "worked"
    assert text.startswith("planner worked 100 ms per message, usually 1")
    assert "messages waited 1.9" in text


def test_burst_of_messages_is_cause_of_queue(tmp_path: Path) -> None:
    begin = HEALTHY_S * 1000
    burst = [Handled(begin + n / 10, begin + n * 1.5, begin + (n + 1) * 1.5) for n in range(900)]
    name, text = cause_of(tmp_path, burst, late_samples(100))
    assert name == "queue"
    assert text.startswith("more messages came than planner handled: each waited ")


def test_sleep_in_span_is_cause(tmp_path: Path) -> None:
    name, text = cause_of(tmp_path, late_messages(0, 60), late_samples(5))
    assert name == "asleep"
    assert text == "planner slept 55 ms of 60 ms, for input or output, a lock, a timer or another thread"


def test_stopped_stage_is_cause(tmp_path: Path) -> None:
    begin, end = HEALTHY_S * 1000, (HEALTHY_S + LATE_S) * 1000
    stopped = [Handled(begin + 20 * n, end + n, end + n + 1) for n in range(LATE_S * 50)]
    name, text = cause_of(tmp_path, stopped, late_samples(0, 0, "T"))
    assert name == "stopped"
    assert text.startswith("planner was stopped for 2.5")


def test_late_sender_is_cause_with_its_name(tmp_path: Path) -> None:
    name, text = cause_of(tmp_path, late_messages(0, 5, sender_ms=60), late_samples(5))
    assert name == "sender"
    assert text == "the sender feed 20 was late: 60 ms of 65 ms passed before it sent the message"


def test_recording_without_samples_has_unknown_cause(tmp_path: Path) -> None:
    recording = write_stage(tmp_path / "log.mcap", healthy_messages() + late_messages(0, 60), [])
    (found,) = find(recording, tmp_path / "lake")
    assert found.cause.name == "unknown"
    assert found.cause.text == "unknown: the recording has no samples of the stage's thread"


def test_unreadable_thread_has_its_problem_as_unknown_cause(tmp_path: Path) -> None:
    recording = write_stage(
        tmp_path / "log.mcap", healthy_messages() + late_messages(0, 60), [], {PLANNER: "schedstat: Permission denied"}
    )
    (found,) = find(recording, tmp_path / "lake")
    assert found.cause.text == "unknown: schedstat: Permission denied"


def test_samples_of_other_host_do_not_count(tmp_path: Path) -> None:
    late, busy = healthy_messages() + late_messages(0, 60), healthy_samples(HEALTHY_S + LATE_S)
    samples = healthy_samples() + late_samples(5)
    recording = write_stage(tmp_path / "log.mcap", late, samples, {PLANNER: ""})
    other_planner = PLANNER._replace(pid=11)
    other = write_stage(
        tmp_path / "other.mcap",
        [message._replace(sent=message.sent + 3, received=message.sent + 4) for message in healthy_messages()],
        shift(busy, ran_ms=95, waited_ms=5),
        {PLANNER: "", other_planner: ""},
        "other",
    )
    found = find(recording, tmp_path / "lake", other)
    assert [each.cause.text for each in found] == [
        "planner slept 55 ms of 60 ms, for input or output, a lock, a timer or another thread"
    ]


def test_samples_of_second_recorder_do_not_count(tmp_path: Path) -> None:
    """The second recorder has its own PID namespace: the process with the stage's id is another one there."""
    samples = healthy_samples() + late_samples(5)
    recording = write_stage(
        tmp_path / "log.mcap", healthy_messages() + late_messages(0, 60), samples, {PLANNER: "", FEED: ""}
    )
    foreign = shift(late_samples(90, 10))[5:-5]
    second = write_stage(tmp_path / "second.mcap", [], foreign)
    write_merged_log([LogReader(recording), LogReader(second)], tmp_path / "merged.mcap")
    (found,) = find(tmp_path / "merged.mcap", tmp_path / "lake")
    assert found.cause.text == "planner slept 55 ms of 60 ms, for input or output, a lock, a timer or another thread"


def test_samples_of_recorders_one_after_the_other_count(tmp_path: Path) -> None:
    whole = healthy_samples() + late_samples(60)
    stages = healthy_messages() + late_messages(0, 60)
    recording = write_stage(tmp_path / "log.mcap", stages, whole[:-25], {PLANNER: ""})
    second = write_stage(tmp_path / "second.mcap", [], whole[-25:])
    write_merged_log([LogReader(recording), LogReader(second)], tmp_path / "merged.mcap")
    (found,) = find(tmp_path / "merged.mcap", tmp_path / "lake")
    assert found.cause.text == "planner worked 60 ms of 60 ms"
    assert found.cause.parts.unknown == 0


@pytest.mark.parametrize(
    "message",
    [
        b"{}",
        b"",
        b"\xff",
        b"5",
        b"[" * 100_000,
        encode_participant(1, PLANNER, "").replace(b'"pid": 10', b'"pid": "10"'),
        encode_participant(1, PLANNER, "").replace(b'"role": "publisher"', b'"role": ["x"]'),
    ],
    ids=["no fields", "empty", "no UTF-8", "number", "nested", "text as pid", "list as role"],
)
def test_unreadable_participants_are_skipped_and_counted(message: bytes) -> None:
    messages = [message, encode_participant(1, PLANNER, "gone"), message]
    assert parse_participants(messages) == ({PLANNER: "gone"}, 2)


def test_cause_names_number_of_skipped_participants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_feed(time_ns: int, participant: ThreadParticipant, problem: str) -> bytes:
        return b"{}" if participant is FEED else encode(time_ns, participant, problem)

    encode = encode_participant
    monkeypatch.setitem(globals(), "encode_participant", break_feed)
    name, text = cause_of(tmp_path, late_messages(0, 60), late_samples(60))
    skipped = "2 unreadable messages of timing:participants skipped"
    assert (name, text) == ("worked", f"planner worked 60 ms of 60 ms ({skipped})")


def test_report_has_row_for_late_period(tmp_path: Path) -> None:
    recording = write_stage(
        tmp_path / "log.mcap",
        healthy_messages() + late_messages(0, 60),
        healthy_samples() + late_samples(60),
        {PLANNER: ""},
    )
    lake = ingest_recording(recording, tmp_path / "lake")
    write_report(open_lake_tables(lake), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<h2>Late stages</h2>" in page
    assert "<td>planner worked 60 ms of 60 ms</td>" in page
    write_report(
        open_lake_tables(
            ingest_recording(
                write_stage(tmp_path / "healthy.mcap", healthy_messages(), healthy_samples(), {PLANNER: ""}),
                tmp_path / "healthy",
            )
        ),
        tmp_path / "healthy.html",
    )
    assert "No late stages." in (tmp_path / "healthy.html").read_text()
