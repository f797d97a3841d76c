"""The benchmark's table of work queues: what is there is measured, and nothing is lost or left."""

from pathlib import Path

import pytest

from tests.unit.test_bench import measure
from tools.bench.summary import summarize

pytestmark = pytest.mark.usefixtures("prefix")  # begins all names of a run, so that `token` finds leftovers


def test_queue_bench_compares_posix_and_multiprocessing_queues(tmp_path: Path) -> None:
    printed, result = measure(tmp_path, "queue_pair_10,queue_ping_asleep", "--peers", "mp-queue")
    assert "| row | work | msgq | floor | mp-queue | msgq / floor | msgq / best peer |" in printed
    rows = summarize(result)
    assert all(row.medians["msgq"] > 0 and row.medians["mp-queue"] > 0 for row in rows)
    assert rows[1].tail_ratio("floor", 0.5) is not None


@pytest.mark.nightly
def test_queue_bench_with_four_senders_and_workers_loses_no_message(tmp_path: Path) -> None:
    """The role that leads them receives what the workers left, and would wait for what is lost until it is ended."""
    _, result = measure(tmp_path, "queue_crowd_128", "--peers", "pipe,mp-queue")
    (row,) = summarize(result)
    assert {"msgq", "mp-queue"} == set(row.medians)
    assert result.failed == {}


@pytest.mark.nightly
def test_queue_bench_reports_depth_above_kernel_limit(tmp_path: Path) -> None:
    pytest.importorskip("posix_ipc")
    printed, result = measure(tmp_path, "queue_pair_10,queue_pair_65528", "--peers", "posix_ipc")
    assert "posix_ipc" not in summarize(result)[1].medians
    assert "- posix_ipc, queue_pair_65528: " in printed


@pytest.mark.nightly
def test_queue_bench_measures_sockets_of_zeromq_in_both_directions(tmp_path: Path) -> None:
    pytest.importorskip("zmq")
    _, result = measure(tmp_path, "queue_pair_10,queue_stream_10,queue_ping", "--peers", "zmq-ipc")
    assert all({"msgq", "zmq-ipc"} <= set(row.medians) for row in summarize(result))
    assert result.failed == {}


@pytest.mark.nightly
def test_posix_queue_takes_fewer_messages_if_the_kernel_allows_no_more(tmp_path: Path) -> None:
    pytest.importorskip("posix_ipc")
    _, result = measure(tmp_path, "blocking_1k", "--peers", "posix_ipc")  # 1 MiB, and 800 KiB are allowed by default
    (row,) = summarize(result)
    assert row.medians["posix_ipc"] > 0
