"""Splits the ages of a stage's messages into their causes, by the timing records and the samples of the stage's thread.

The age begins at the origin of a message, and ends with its span. The timing record divides it exactly into the time
before the message was sent, the time until the stage received it, and the time of the span. The samples divide the last
two further: between two samples, at most 0.1 s apart, only shares are known. A share of a processor's time can only
fall into the time in which the thread had a message, so waiting counts in the time from sending to the end of the span,
and running in the time of spans.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from msgq.common.thread_samples import STATE_RUNNABLE, STATE_STOPPED
from msgq.records.tracing_rules import RowArray, find_wait_begins

_FloatArray = npt.NDArray[np.float64]
_BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AgeParts:
    """Parts of the age of a message in ns, or their means over several messages.

    Attributes:
        sender: from the origin until the message was sent. 0 if either time is unknown.
        queue: before the receipt, while the thread worked on former messages.
        no_cpu: while the thread could run, but had no processor.
        worked: while the thread ran in the span of the message.
        stopped: while the thread was stopped by a signal or a debugger.
        asleep: while the thread slept: for input or output, a lock, a timer, or its wake-up. Includes work that no span
            covers.
        unknown: without a sample of the thread.
    """

    sender: int
    queue: int
    no_cpu: int
    worked: int
    stopped: int
    asleep: int
    unknown: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(getattr(self, field.name) for field in fields(self))


PART_NAMES = tuple(field.name for field in fields(AgeParts))


def split_ages(records: RowArray, thread_records: RowArray, samples: RowArray) -> dict[str, _FloatArray]:
    """Return the parts of the age of each message, as in `AgeParts`.

    Args:
        records: timing records of the messages.
        thread_records: all timing records of the same thread in this time.
        samples: samples of the thread (`SAMPLES_SCHEMA`), sorted by time. `drop_overlaps` applies to them.
    """
    samples = drop_overlaps(samples)
    origin, sent, received, ended = (
        records[name].astype(np.int64) for name in ("origin_time", "sent", "received", "publish_time")
    )
    begin = find_wait_begins(records)
    sender = np.where((origin > 0) & (sent > 0), np.maximum(begin - origin, 0), 0)
    shares = _TimeShares(thread_records, samples)
    parts = {
        "sender": sender.astype(np.float64),
        "queue": shares.integrate("ahead", begin, received),
        "no_cpu": shares.integrate("no_cpu", begin, ended),
        "worked": shares.integrate("ran", received, ended),
        "stopped": shares.integrate("stopped", begin, ended),
    }
    explained = shares.integrate("explained", begin, received) + shares.integrate("sampled", received, ended)
    whole = (ended - begin).astype(np.float64)
    unknown = np.maximum(whole - explained, 0)
    found = parts["queue"] + parts["no_cpu"] + parts["worked"] + parts["stopped"]
    return parts | {"asleep": np.maximum(whole - unknown - found, 0), "unknown": unknown}


def drop_overlaps(samples: RowArray) -> RowArray:
    """Return samples of any threads without those that begin before the end of the former sample of the same thread.

    Two recorders sample the same thread at different times, so the sums of their samples are twice too high.

    Args:
        samples: samples (`SAMPLES_SCHEMA`), sorted by time.
    """
    order = np.lexsort((samples["publish_time"], samples["thread_id"], samples["pid"]))
    columns = (samples[name][order] for name in ("pid", "thread_id", "begin_time", "publish_time"))
    pids, threads, begins, ends = columns
    is_same = (pids[1:] == pids[:-1]) & (threads[1:] == threads[:-1])
    if not np.any(is_same & (begins[1:] < ends[:-1])):
        return samples
    kept = np.ones(len(samples), np.bool_)
    kept_end = 0
    rows = zip(order.tolist(), np.append(False, is_same).tolist(), begins.tolist(), ends.tolist(), strict=True)
    for place, is_same_thread, begin, end in rows:
        kept[place] = not is_same_thread or begin >= kept_end
        if kept[place]:
            kept_end = end
    return samples[kept]


def average_parts(parts: dict[str, _FloatArray]) -> AgeParts | None:
    """Return the mean parts of the messages; None: there are no messages."""
    if not len(parts["sender"]):
        return None
    return AgeParts(**{name: round(float(parts[name].mean())) for name in PART_NAMES})


class _TimeShares:
    """Shares of time, constant between two edges of samples and spans, and their integrals."""

    def __init__(self, thread_records: RowArray, samples: RowArray) -> None:
        received, ended = (thread_records[name].astype(np.int64) for name in ("received", "publish_time"))
        busy, active = _merge_spans(received, ended), _merge_spans(find_wait_begins(thread_records), ended)
        first, last = samples["begin_time"].astype(np.int64), samples["publish_time"].astype(np.int64)
        self._edges = np.unique(np.concatenate([first, last, *busy, *active]))
        left, length = self._edges[:-1], np.diff(self._edges).astype(np.float64)
        place = np.searchsorted(first, left, "right") - 1
        is_sampled = (place >= 0) & (left < np.append(last, 0)[place])
        is_busy, is_active = _is_within(left, busy), _is_within(left, active)
        no_cpu, ran, stopped = _compute_sample_shares(
            samples, place, length, is_sampled & is_active, is_sampled & is_busy
        )
        no_cpu, ran, stopped = (np.where(is_sampled, share[place], 0.0) for share in (no_cpu, ran, stopped))
        shares = {
            "no_cpu": no_cpu,
            "stopped": stopped,
            "ran": ran,
            "ahead": is_busy * (1.0 - no_cpu - stopped),
            "sampled": is_sampled * 1.0,
            "explained": (is_sampled | is_busy) * 1.0,
        }
        self._sums = {name: np.append(0.0, np.cumsum(share * length)) for name, share in shares.items()}

    def integrate(self, name: str, begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> _FloatArray:
        """Return the integral of a share over each of these times of messages, in ns."""
        if len(self._edges) < 2:
            return np.zeros(len(begin))
        edges, base = (self._edges - self._edges[0]).astype(np.float64), self._edges[0]
        until, since = (np.interp((time - base).astype(np.float64), edges, self._sums[name]) for time in (end, begin))
        integral: _FloatArray = until - since
        return integral


def _compute_sample_shares(
    samples: RowArray, place: npt.NDArray[np.int64], length: _FloatArray, is_active: _BoolArray, is_busy: _BoolArray
) -> tuple[_FloatArray, _FloatArray, _FloatArray]:
    """Return for each sample, and once more at the end, the shares of waiting, running and being stopped."""
    count = len(samples)
    active_ns = np.bincount(place[is_active], length[is_active], count + 1)
    busy_ns = np.bincount(place[is_busy], length[is_busy], count + 1)
    ran_ns = np.append(samples["ran_ns"].astype(np.float64), 0.0)
    waited_ns = np.append(_spread_waits(samples), 0.0)
    is_stopped = np.append(np.isin(samples["state"], STATE_STOPPED), False)
    no_cpu = np.where(is_stopped, 0.0, np.minimum(1.0, waited_ns / np.maximum(active_ns, 1.0)))
    ran = np.where(is_stopped, 0.0, np.minimum(1.0 - no_cpu, ran_ns / np.maximum(busy_ns, 1.0)))
    return no_cpu, ran, is_stopped * 1.0


def _spread_waits(samples: RowArray) -> _FloatArray:
    """Return how long the thread waited for a processor in each sample.

    The kernel adds a wait when it ends, so a longer one than its sample began in the samples before.
    """
    length = (samples["publish_time"] - samples["begin_time"]).astype(np.float64)
    waited = samples["waited_ns"].astype(np.float64)
    room = np.maximum(length - samples["ran_ns"], 0.0)
    still_waits = (samples["state"] == STATE_RUNNABLE) & (samples["ran_ns"] == 0)
    for place in np.flatnonzero(waited > room)[::-1].tolist():
        excess, waited[place] = waited[place] - room[place], room[place]
        before = place - 1
        while excess > 0 and before >= 0 and samples["publish_time"][before] == samples["begin_time"][before + 1]:
            taken = min(excess, max(room[before] - waited[before], 0.0))
            waited[before] += taken
            excess -= taken
            before -= 1
    return np.where(still_waits, length, waited)


def _merge_spans(
    begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return begins and ends of the union of spans, sorted."""
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    is_new = np.append(True, begins[1:] > ends[:-1])[: len(begins)]
    starts = np.flatnonzero(is_new)
    return begins[starts], ends[np.append(starts[1:] - 1, len(ends) - 1)] if len(begins) else ends


def _is_within(times: npt.NDArray[np.int64], spans: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]) -> _BoolArray:
    """Return whether each time is in one of these spans, which are sorted and disjoint."""
    begins, ends = spans
    place = np.searchsorted(begins, times, "right") - 1
    return (place >= 0) & (times < np.append(ends, 0)[place])
