"""Samples of threads from files like those of /proc, and from /proc itself."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from msgq.common import thread_sampler
from msgq.common.thread_file import ThreadFile
from msgq.common.thread_sampler import ThreadSampler
from msgq.common.thread_samples import (
    PARTICIPANTS_SCHEMA,
    SAMPLES_SCHEMA,
    ThreadParticipant,
    ThreadSample,
    encode_participant,
    encode_sample,
)
from tests.support import wait_until

START, TICK = 77, 100_000_000
PLANNER = ThreadParticipant("plans", "publisher", 10, 10, START, "planner")


class Processes:
    """Files of one process in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def set_times(self, ran: int, waited: int, thread: int = 10) -> None:
        where = self.root / "10" / "task" / str(thread)
        where.mkdir(parents=True, exist_ok=True)
        with (where / "schedstat").open("w") as file:
            file.write(f"{ran} {waited} 3\n")
        (where / "comm").write_text(f"thread{thread}\n")

    def set_state(self, state: str, processor: int = 1, thread: int = 10) -> None:
        fields = [state, *["0"] * 18, str(START), *["0"] * 16, str(processor), "0"]
        text = f"10 (a) b) {' '.join(fields)}\n"
        (self.root / "10" / "task" / str(thread) / "stat").write_text(text)
        (self.root / "10" / "stat").write_text(text)


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    made = Processes(tmp_path)
    made.set_times(1000, 50)
    made.set_state("S")
    return made


def watch(processes: Processes, *participants: ThreadParticipant, with_siblings: bool = False) -> ThreadSampler:
    sampler = ThreadSampler(with_siblings, str(processes.root))
    sampler.watch(participants or (PLANNER,), TICK)
    return sampler


def test_thread_that_ran_has_sample_with_differences_of_its_times(processes: Processes) -> None:
    sampler = watch(processes)
    processes.set_times(4000, 950)
    assert sampler.take_samples(2 * TICK) == [
        ThreadSample(2 * TICK, TICK, 3000, 900, 10, 10, 1, "", "planner", "thread10")
    ]


def test_each_sample_has_differences_since_previous_one(processes: Processes) -> None:
    sampler = watch(processes)
    differences = []
    for tick, times in enumerate([(4000, 950), (4001, 952), (4001, 953)], 2):
        processes.set_times(*times)
        (sample,) = sampler.take_samples(tick * TICK)
        differences.append((sample.begin_ns, sample.ran_ns, sample.waited_ns))
    assert differences == [(TICK, 3000, 900), (2 * TICK, 1, 2), (3 * TICK, 0, 1)]


def test_idle_thread_has_one_sample_per_second_with_its_state(processes: Processes) -> None:
    sampler = watch(processes)
    samples = [sampler.take_samples((2 + tick) * TICK) for tick in range(10)]
    assert [len(some) for some in samples] == [0] * 9 + [1]
    assert samples[9] == [ThreadSample(11 * TICK, TICK, 0, 0, 10, 10, 1, "S", "planner", "thread10")]


def test_idle_thread_that_runs_again_has_sample_of_its_idle_time_first(processes: Processes) -> None:
    sampler = watch(processes)
    assert sampler.take_samples(2 * TICK) == sampler.take_samples(3 * TICK) == []
    processes.set_times(1001, 50)
    idle, busy = sampler.take_samples(4 * TICK)
    assert (idle.begin_ns, idle.end_ns, idle.ran_ns, idle.state) == (TICK, 3 * TICK, 0, "S")
    assert (busy.begin_ns, busy.end_ns, busy.ran_ns) == (3 * TICK, 4 * TICK, 1)


def test_skipped_time_is_in_no_sample_of_busy_thread(processes: Processes) -> None:
    sampler = watch(processes)
    processes.set_times(4000, 950)
    assert sampler.skip_time(50 * TICK) == []
    processes.set_times(4010, 955)
    (sample,) = sampler.take_samples(51 * TICK)
    assert (sample.begin_ns, sample.end_ns, sample.ran_ns, sample.waited_ns) == (50 * TICK, 51 * TICK, 10, 5)


def test_skipped_time_is_in_no_sample_of_idle_thread(processes: Processes) -> None:
    sampler = watch(processes)
    assert sampler.take_samples(2 * TICK) == []
    (before,) = sampler.skip_time(5 * TICK)
    assert (before.begin_ns, before.end_ns, before.ran_ns) == (TICK, 2 * TICK, 0)
    samples = [sample for tick in range(6, 16) for sample in sampler.take_samples(tick * TICK)]
    assert [(sample.begin_ns, sample.end_ns) for sample in samples] == [(5 * TICK, 15 * TICK)]


def test_stop_of_process_begins_new_sample_of_each_of_its_threads(processes: Processes) -> None:
    processes.set_times(5, 5, thread=11)
    processes.set_state("S", thread=11)
    sampler = watch(processes, with_siblings=True)
    assert [sampler.take_samples(tick * TICK) for tick in (2, 3)] == [[], []]
    for thread in (10, 11):
        processes.set_state("T", thread=thread)
    samples = [sample for tick in range(4, 18) for sample in sampler.take_samples(tick * TICK)]
    for thread in (10, 11):
        states = [sample.state for sample in samples if sample.thread_id == thread]
        assert states == ["S", "T"], f"thread {thread}: {samples}"


def test_thread_that_ended_has_last_sample_and_problem(processes: Processes) -> None:
    sampler = watch(processes)
    sampler.take_samples(2 * TICK)
    (processes.root / "10" / "task" / "10" / "schedstat").write_text("")
    (last,) = sampler.take_samples(3 * TICK)
    assert (last.begin_ns, last.end_ns, last.state) == (TICK, 2 * TICK, "S")
    assert sampler.problems == {(10, 10): thread_sampler.ENDED_PROBLEM}
    assert sampler.take_samples(4 * TICK) == []


def test_unwatched_thread_has_last_sample(processes: Processes) -> None:
    sampler = watch(processes)
    sampler.take_samples(2 * TICK)
    assert [sample.end_ns for sample in sampler.watch([], 3 * TICK)] == [2 * TICK]
    assert sampler.list_processes() == set()


@pytest.mark.parametrize(
    ("break_files", "problem"),
    [
        (lambda root: shutil.rmtree(root / "10"), thread_sampler.GONE_PROBLEM),
        (lambda root: (root / "10" / "stat").write_text("10 (a) " + "S " * 19 + "78 0"), thread_sampler.GONE_PROBLEM),
        (lambda root: shutil.rmtree(root / "10" / "task" / "10"), thread_sampler.ENDED_PROBLEM),
        (lambda root: (root / "10" / "task" / "10" / "schedstat").unlink(), thread_sampler.UNCOUNTED_PROBLEM),
        (
            lambda root: (root / "10" / "task" / "10" / "schedstat").write_text("0 0 0\n"),
            thread_sampler.UNCOUNTED_PROBLEM,
        ),
    ],
    ids=["no process", "other process with this id", "no thread", "no schedstat", "kernel without counts"],
)
def test_unreadable_thread_has_problem_and_no_samples(processes: Processes, break_files: object, problem: str) -> None:
    assert callable(break_files)
    break_files(processes.root)
    sampler = watch(processes)
    assert sampler.problems == {(10, 10): problem}
    assert sampler.take_samples(2 * TICK) == []


def test_forbidden_thread_has_reason_of_system(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(directory: str) -> ThreadFile:
        raise PermissionError(13, "Permission denied", directory)

    monkeypatch.setattr(thread_sampler, "ThreadFile", refuse)
    assert watch(processes).problems == {(10, 10): "schedstat: Permission denied"}


def test_threads_beyond_half_of_descriptors_have_problem(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _what: (2, 2))
    assert watch(processes).problems == {(10, 10): "too many open files; raise ulimit -n"}


def test_encoded_participant_has_fields_of_schema() -> None:
    fields = json.loads(encode_participant(5, PLANNER, "gone"))
    assert fields == {
        **{"publish_time": 5, "endpoint": "plans", "role": "publisher"},
        **{"pid": 10, "thread_id": 10, "process": "planner", "problem": "gone"},
    }
    assert fields.keys() == json.loads(PARTICIPANTS_SCHEMA.data)["properties"].keys()


def test_encoded_sample_has_fields_of_schema() -> None:
    sample = ThreadSample(9, 4, 2, 1, 10, 11, -1, "T", "planner", "Überlänge_der_Namen")
    (row,) = np.frombuffer(encode_sample(sample), SAMPLES_SCHEMA.dtype)
    assert row.tolist() == (9, 4, 2, 1, 10, 11, -1, "T", "planner", "Überlänge_der_N")


def test_samples_of_this_thread_agree_with_its_processor_time() -> None:
    pid, thread_id = os.getpid(), threading.get_native_id()
    start_time = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    sampler = ThreadSampler()
    began_ns = time.thread_time_ns()
    assert sampler.watch([ThreadParticipant("x", "publisher", pid, thread_id, start_time, "me")], 1) == []
    assert sampler.problems == {}
    samples: list[ThreadSample] = []

    def has_run() -> bool:
        samples.extend(sampler.take_samples(2 + len(samples)))
        return sum(sample.ran_ns for sample in samples) >= 20_000_000

    wait_until(has_run)
    assert sum(sample.ran_ns for sample in samples) <= time.thread_time_ns() - began_ns
    sampler.close()
