"""Late periods of stages: times in which a stage's messages got much older than usual, and the most likely causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.common.thread_samples import (
    PARTICIPANTS_ENDPOINT,
    SAMPLES_ENDPOINT,
    SAMPLES_SCHEMA,
    ThreadParticipant,
)
from msgq.common.timing import make_timing_topic
from msgq.common.units import NS_PER_MS, NS_PER_S
from msgq.decoding.fixed_headers import read_fixed_headers
from msgq.lake.metrics.group_by import IntegerArray, get_column, get_integer_column
from msgq.lake.metrics.saturating_time import MAX_TIME
from msgq.lake.metrics.stages import STAGE_DURATION_NAMES, read_timing_records
from msgq.lake.report.gold_reader import GoldReader
from msgq.lake.report.late_causes import (
    LateCause,
    ThreadEvidence,
    find_cause,
    find_publisher,
    find_topics_of_thread,
    parse_participants,
)
from msgq.lake.report.late_periods import LATE_MESSAGES_MIN, UsualLatency, find_late_spans
from msgq.records.age_split import drop_overlaps
from msgq.records.tracing_rules import TIMING_DTYPE, RowArray

AGE_RATIO_MIN = 3  # age of a late message, divided by the usual age
AGE_EXCESS_MIN_NS = NS_PER_MS  # age of a late message, minus the usual age
LISTED_PERIODS_MAX = 100  # the periods with most late messages
# The cause of a longer period is that of its first minute, and of this number of late messages.
_EXPLAINED_NS_MAX, _EXPLAINED_MESSAGES_MAX = 60 * NS_PER_S, 200_000
_PARTICIPANTS_NS = 11 * NS_PER_S  # a recording repeats its participants in less time
_SAMPLES_NS = 2 * NS_PER_S  # a sample takes at most half of this time, and the recorder writes it later
_WINDOW_GAP_NS = 10 * NS_PER_S  # late windows with less time between them are read together
_READ_MESSAGES_MAX = 2_000_000  # maximum timing records in all late windows together
_STAGE_KEY = ["run", "stage", "endpoint"]
_MESSAGE_COLUMNS = ["host", "endpoint", "epoch", "log_time", "data"]


@dataclass(frozen=True, slots=True)
class LateStage:
    """A late period of a stage.

    Attributes:
        from_time: begin of the first late message's age, ns.
        to_time: end of the last late message's age, ns.
        late_messages: number of late messages.
        age_ns: median age of the late messages.
        usual_ns: median age of all messages of the run.
        cause: the most likely cause.
    """

    run: str
    stage: str
    endpoint: str
    from_time: int
    to_time: int
    late_messages: int
    age_ns: int
    usual_ns: int
    cause: LateCause


class _SuspectStage(NamedTuple):
    """An endpoint of a stage with a late message: usual age, and usual duration of a span in ns."""

    run: str
    stage: str
    endpoint: str
    messages: int
    usual_ns: int
    usual_work_ns: int

    @property
    def limit_ns(self) -> int:
        """Least age that is late."""
        usual = min(self.usual_ns, MAX_TIME // (2 * AGE_RATIO_MIN))
        return max(AGE_RATIO_MIN * usual, usual + AGE_EXCESS_MIN_NS)

    @property
    def topic(self) -> str:
        return make_timing_topic(self.stage, self.endpoint)


class _FoundPeriod(NamedTuple):
    """A late period without its cause. `late`: records of the late messages."""

    suspect: _SuspectStage
    from_time: int
    to_time: int
    late: RowArray


def find_late_stages(gold: GoldReader) -> list[LateStage]:
    """Return the late periods of all stages, those with most late messages first, at most `LISTED_PERIODS_MAX`.

    The age of a message is the time from its origin to the end of the stage; without an origin, from its sending; and
    without a publish time, the duration of the span. A message is late if its age is 3 times the median of the run, and
    1 ms more. The other limits of a late period are those of `find_late_periods`.
    """
    periods = [period for suspect in _read_suspects(gold) for period in _find_periods(gold, suspect)]
    periods.sort(key=lambda period: (-len(period.late), period.suspect, period.from_time))
    return [_explain_period(gold, period) for period in periods[:LISTED_PERIODS_MAX]]


def _read_suspects(gold: GoldReader) -> list[_SuspectStage]:
    columns = [f"{name}_{value}" for name in STAGE_DURATION_NAMES for value in ("count", "p50", "max")]
    suspects = []
    for row in gold.read_rows("stage_summary", [*_STAGE_KEY, "messages", *columns]).to_pylist():
        work, queue = row["processing_time_p50"] or 0, row["queue_time_p50"] or 0
        usual = row["e2e_latency_p50"] if row["e2e_latency_count"] else work + queue
        suspect = _SuspectStage(row["run"], row["stage"], row["endpoint"], row["messages"], usual or 0, work)
        highest = row["e2e_latency_max"] if row["e2e_latency_count"] else None
        if highest is None:
            highest = (row["processing_time_max"] or 0) + (row["queue_time_max"] or 0)
        if suspect.messages >= LATE_MESSAGES_MIN and highest >= suspect.limit_ns:
            suspects.append(suspect)
    return suspects


def _find_periods(gold: GoldReader, suspect: _SuspectStage) -> Iterator[_FoundPeriod]:
    records = _read_late_windows(gold, suspect)
    begins = _compute_age_begins(records)
    order = np.argsort(begins, kind="stable")
    records, begins = records[order], begins[order]
    ends = records["publish_time"].astype(np.int64)
    late = (ends - begins >= suspect.limit_ns).astype(np.int64)
    usual = UsualLatency(suspect.usual_ns, suspect.limit_ns, suspect.messages, int(late.sum()))
    for first, stop in find_late_spans(begins, np.maximum.accumulate(ends), late, np.ones_like(late), usual):
        chosen = records[first:stop][late[first:stop] > 0]
        yield _FoundPeriod(suspect, int(begins[first]), int(chosen["publish_time"].max()), chosen)


def _compute_age_begins(records: RowArray | Mapping[str, IntegerArray]) -> IntegerArray:
    """Return the begin of each message's age: its origin, sending or receipt, the first known one."""
    origin, sent, received = (records[name].astype(np.int64) for name in ("origin_time", "sent", "received"))
    return np.where(origin > 0, origin, np.where(sent > 0, sent, received))


def _read_late_windows(gold: GoldReader, suspect: _SuspectStage) -> RowArray:
    """Return the timing records in windows that can have a late message, and between those close to each other."""
    where = (ds.field("run") == suspect.run) & (ds.field("stage") == suspect.stage)
    where &= ds.field("endpoint") == suspect.endpoint
    names = ["messages", "window_start", "window_ns", *(f"{name}_max" for name in STAGE_DURATION_NAMES)]
    rows = gold.read_rows("stages", names, where).sort_by("window_start")
    highest = np.maximum(
        get_integer_column(rows, "e2e_latency_max"),
        get_integer_column(rows, "processing_time_max") + get_integer_column(rows, "queue_time_max"),
    )
    counts = get_integer_column(rows, "messages")
    is_late = highest >= suspect.limit_ns
    is_late &= np.cumsum(np.where(is_late, counts, 0)) <= _READ_MESSAGES_MAX
    starts, widths = get_integer_column(rows, "window_start"), get_integer_column(rows, "window_ns")
    pieces = [np.zeros(0, TIMING_DTYPE)]
    for begin, end in _merge_windows(starts[is_late], widths[is_late]):
        messages = gold.read_messages(_MESSAGE_COLUMNS, suspect.run, [suspect.topic], [(begin, end)])
        pieces.append(_parse_timings(messages))
    return np.concatenate(pieces)


def _merge_windows(starts: IntegerArray, widths: IntegerArray) -> Iterator[tuple[int, int]]:
    """Yield begin and end of windows. Windows close to each other are one."""
    begin = end = 0
    for start, width in zip(starts.tolist(), widths.tolist(), strict=True):
        if end and start - end > _WINDOW_GAP_NS:
            yield begin, end
            end = 0
        begin, end = begin if end else start, max(end, start + width)
    if end:
        yield begin, end


def _parse_timings(messages: pa.Table) -> RowArray:
    """Return the valid timing records, sorted by the end of the span."""
    if not len(messages):
        return np.zeros(0, TIMING_DTYPE)
    whole, records = read_timing_records(get_column(messages, "data"))
    return np.sort(records[whole], order="publish_time")


def _explain_period(gold: GoldReader, period: _FoundPeriod) -> LateStage:
    suspect = period.suspect
    late = period.late[:_EXPLAINED_MESSAGES_MAX]
    ends = late["publish_time"].astype(np.int64)
    late = late[ends <= max(int(ends[0]), period.from_time + _EXPLAINED_NS_MAX)]
    evidence = _read_evidence(gold, suspect, period.from_time, int(late["publish_time"].max()))
    is_own = np.isin(late["publish_time"], evidence.spans["publish_time"])  # other hosts can have a stage of this name
    late = late[is_own] if is_own.any() else late
    cause = find_cause(suspect.stage, suspect.endpoint, late, evidence, suspect.usual_work_ns)
    median = int(np.median(period.late["publish_time"].astype(np.int64) - _compute_age_begins(period.late)))
    key = suspect.run, suspect.stage, suspect.endpoint
    return LateStage(*key, period.from_time, period.to_time, len(period.late), median, suspect.usual_ns, cause)


def _read_evidence(gold: GoldReader, suspect: _SuspectStage, begin: int, end: int) -> ThreadEvidence:
    run, begin, end = suspect.run, max(0, begin - _SAMPLES_NS), end + _SAMPLES_NS
    timings = gold.read_messages(_MESSAGE_COLUMNS, run, [suspect.topic], [(begin, end)])
    host = _find_host(timings, suspect.limit_ns)
    stated_span = max(0, begin - _PARTICIPANTS_NS), end
    stated = gold.read_messages(_MESSAGE_COLUMNS, run, [PARTICIPANTS_ENDPOINT], [stated_span])
    problems, skipped = parse_participants(_select_host(stated, host).sort_by("log_time")["data"].to_pylist())
    stages = gold.read_rows("stage_summary", ["stage", "endpoint"], ds.field("run") == run).to_pylist()
    topics = [make_timing_topic(row["stage"], row["endpoint"]) for row in stages]
    spans = _select_host(timings, host)
    others = find_topics_of_thread(suspect.topic, topics, problems)[1:]
    if others:
        timings = pa.concat_tables([timings, gold.read_messages(_MESSAGE_COLUMNS, run, others, [(begin, end)])])
    timings = _select_host(timings, host)
    sampled = _select_host(gold.read_messages(_MESSAGE_COLUMNS, run, [SAMPLES_ENDPOINT], [(begin, end)]), host)
    samples = _parse_samples(sampled, find_publisher(suspect.topic, problems))
    return ThreadEvidence(_parse_timings(spans), _parse_timings(timings), samples, problems, skipped)


def _find_host(messages: pa.Table, limit_ns: int) -> str | None:
    """Return the host with most late messages of a timing topic; of several hosts, the one that recorded them first."""
    if not len(messages):
        return None
    messages = messages.sort_by("log_time")
    whole, times = read_timing_records(get_column(messages, "data"))
    ages = times["publish_time"] - _compute_age_begins(times)
    hosts = get_column(messages, "host").filter(pa.array(whole & (ages >= limit_ns))).to_pylist()
    return Counter(hosts).most_common(1)[0][0] if hosts else None


def _select_host(messages: pa.Table, host: str | None) -> pa.Table:
    """Return the messages that this host recorded: each host has its own process ids."""
    if not len(messages):
        return messages
    is_own = pc.is_null(messages["host"]) if host is None else pc.equal(messages["host"], host)
    return messages.filter(is_own)


def _parse_samples(messages: pa.Table, thread: ThreadParticipant | None) -> RowArray:
    """Return the samples of one recorder at each time, sorted by their ends.

    Several recorders of a host can see the same processes, or other ones with the same ids in another PID namespace. Of
    recorders at the same time, the one with most samples of this thread counts.
    """
    valid, rows = read_fixed_headers(get_column(messages, "data"), SAMPLES_SCHEMA.dtype)
    if not len(rows):
        return rows
    epochs = get_integer_column(messages, "epoch")[valid]
    is_own = np.zeros(len(rows), np.bool_)
    if thread is not None:
        is_own = (rows["pid"] == thread.pid) & (rows["thread_id"] == thread.thread_id)
    every = np.unique(epochs)
    every = every[np.argsort([-int((is_own & (epochs == epoch)).sum()) for epoch in every], kind="stable")]
    chosen: list[RowArray] = []
    for epoch in every:
        some = rows[epochs == epoch]
        begin, end = some["begin_time"].min(), some["publish_time"].max()
        if all(end <= other["begin_time"].min() or begin >= other["publish_time"].max() for other in chosen):
            chosen.append(some)
    return drop_overlaps(np.sort(np.concatenate(chosen), order="publish_time"))
