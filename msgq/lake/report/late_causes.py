"""The most likely cause of a late period of a stage, from the samples of threads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from msgq.common.texts import format_count_noun
from msgq.common.thread_samples import PARTICIPANTS_ENDPOINT, UNKNOWN_PROCESSOR, ThreadParticipant
from msgq.common.timing import make_timing_topic
from msgq.lake.report.page_parts import format_duration
from msgq.records.age_split import AgeParts, average_parts, split_ages
from msgq.records.tracing_rules import RowArray, find_wait_begins

_WORK_RATIO_MIN = 2  # work per message in a late period, divided by the usual work, if the work is the cause of a queue
_CORE_SHARE_MIN = 0.2  # share of a core's time, if a thread is named as the one that others wait for
_NO_SAMPLES_REASON = "the recording has no samples of the stage's thread"
#: Interpreters whose threads have no names of their own.
_UNNAMED_THREADS = ("python", "python3")


@dataclass(frozen=True, slots=True)
class LateCause:
    """The most likely cause of a late period.

    Attributes:
        name: name of the largest part in `AgeParts`, or of the part that made the others wait.
        text: sentence for users.
        parts: mean parts of the ages of the late messages, ns.
    """

    name: str
    text: str
    parts: AgeParts


@dataclass(frozen=True, slots=True)
class ThreadEvidence:
    """Records and samples of a part of a run.

    Attributes:
        spans: timing records of the stage and the endpoint, sorted by the end of the span.
        thread_records: timing records of all topics that the same thread publishes.
        samples: samples of all threads (`SAMPLES_SCHEMA`), sorted by time.
        problems: participants, the latest last, with the reasons for missing samples.
        skipped: number of messages about participants that could not be read.
    """

    spans: RowArray
    thread_records: RowArray
    samples: RowArray
    problems: dict[ThreadParticipant, str]
    skipped: int = 0

    def select_samples(self, pid: int, thread_id: int) -> RowArray:
        """Return the samples of a thread."""
        is_own: npt.NDArray[np.bool_] = (self.samples["pid"] == pid) & (self.samples["thread_id"] == thread_id)
        return self.samples[is_own]


def parse_participants(messages: Iterable[bytes]) -> tuple[dict[ThreadParticipant, str], int]:
    """Return the participants in messages of `PARTICIPANTS_SCHEMA`, the latest last, with their problems.

    The second value is the number of messages without the fields of the schema, which are skipped.
    """
    problems: dict[ThreadParticipant, str] = {}
    skipped = 0
    for message in messages:
        try:
            fields = json.loads(message)
            texts = [fields[name] for name in ("endpoint", "role", "process", "problem")]
            pid, thread_id = ids = fields["pid"], fields["thread_id"]
        except (ValueError, TypeError, LookupError, RecursionError):  # neither JSON nor an object with these fields
            skipped += 1
            continue
        if {*map(type, texts)} != {str} or {*map(type, ids)} != {int}:
            skipped += 1
            continue
        endpoint, role, process, problem = texts
        participant = ThreadParticipant(endpoint, role, pid, thread_id, 0, process)
        problems.pop(participant, None)
        problems[participant] = problem
    return problems, skipped


def find_publisher(endpoint: str, participants: Iterable[ThreadParticipant]) -> ThreadParticipant | None:
    """Return the last thread that sends to an endpoint; None: unknown. `participants`: the latest last."""
    roles = ("publisher", "sender", "writer")
    found = [each for each in participants if each.endpoint == endpoint and each.role in roles]
    return found[-1] if found else None


def find_topics_of_thread(topic: str, topics: Iterable[str], participants: Iterable[ThreadParticipant]) -> list[str]:
    """Return the timing topics that the publisher of `topic` publishes, at least this one.

    `topics`: timing topics of the run.
    """
    candidates = list(participants)
    thread = find_publisher(topic, candidates)
    publishers = {name: find_publisher(name, candidates) for name in topics} if thread else {}
    same = [name for name, each in publishers.items() if each and thread and each.thread == thread.thread]
    return [topic, *(name for name in same if name != topic)]


def find_cause(stage: str, endpoint: str, late: RowArray, evidence: ThreadEvidence, usual_work_ns: int) -> LateCause:
    """Return the most likely cause of a late period.

    Args:
        late: timing records of the late messages.
        evidence: records and samples from the begin of the first age to the end of the last one.
        usual_work_ns: usual duration of a span.
    """
    thread = find_publisher(make_timing_topic(stage, endpoint), evidence.problems)
    records = evidence.thread_records
    samples = evidence.samples[:0] if thread is None else evidence.select_samples(thread.pid, thread.thread_id)
    parts = average_parts(split_ages(late, records, samples)) or AgeParts(0, 0, 0, 0, 0, 0, 0)
    sizes = asdict(parts)
    name = max(sizes, key=lambda part: sizes[part])
    begin, end = _find_time_range(late)
    spans = evidence.spans[(evidence.spans["received"] >= begin) & (evidence.spans["publish_time"] <= end)]
    if name == "queue":
        name = _find_cause_of_queue(spans, records, samples, usual_work_ns)
    mean_work_ns = int((spans["publish_time"] - spans["received"]).mean()) if len(spans) else 0
    facts = _CauseFacts(stage, endpoint, parts, (begin, end), mean_work_ns, usual_work_ns, thread, samples, evidence)
    text = _EXPLAIN_BY_PART[name](facts) + _describe_skipped(evidence.skipped)
    return LateCause(name, text, parts)


def _describe_skipped(count: int) -> str:
    """Return the end of a sentence about messages that could not be read; "": there are none."""
    return f" ({format_count_noun(count, 'unreadable message')} of {PARTICIPANTS_ENDPOINT} skipped)" if count else ""


def _find_time_range(late: RowArray) -> tuple[int, int]:
    """Return the first sending or receipt, and the last end of messages, ns."""
    return int(find_wait_begins(late).min()), int(late["publish_time"].max())


def _find_cause_of_queue(spans: RowArray, records: RowArray, samples: RowArray, usual_work_ns: int) -> str:
    """Return "worked" or "asleep" if that made the spans longer than usual; "queue": more messages came."""
    work_ns = spans["publish_time"] - spans["received"]
    if not len(spans) or work_ns.mean() < _WORK_RATIO_MIN * max(1, usual_work_ns):
        return "queue"
    alone = spans.copy()
    alone["origin_time"] = alone["sent"] = 0
    parts = average_parts(split_ages(alone, records, samples))
    return "asleep" if parts is not None and parts.asleep > parts.worked else "worked"


@dataclass(frozen=True, slots=True)
class _CauseFacts:
    """Facts for the sentence about a cause. `span`: begin and end of the late messages, ns."""

    stage: str
    endpoint: str
    parts: AgeParts
    span: tuple[int, int]
    mean_work_ns: int
    usual_work_ns: int
    thread: ThreadParticipant | None
    samples: RowArray
    evidence: ThreadEvidence

    def format_share(self, part_ns: int) -> str:
        """Return a part of the mean age, such as "38.0 of 50.1 ms"."""
        return f"{format_duration(part_ns)} of {format_duration(self.parts.total)}"

    def format_work(self) -> str:
        """Return the time that messages waited because of longer spans; "": the spans themselves explain the age."""
        if self.parts.queue <= self.parts.worked + self.parts.asleep:
            return ""
        mean, usual = format_duration(self.mean_work_ns), format_duration(self.usual_work_ns)
        return f"{mean} per message, usually {usual}: messages waited {self.format_share(self.parts.queue)} for others"


def _explain_sender(found: _CauseFacts) -> str:
    publisher = find_publisher(found.endpoint, found.evidence.problems)
    sender = f"the sender {publisher.process} {publisher.pid}" if publisher else "the sender"
    return f"{sender} was late: {found.format_share(found.parts.sender)} passed before it sent the message"


def _explain_queue(found: _CauseFacts) -> str:
    waited = found.format_share(found.parts.queue)
    return f"more messages came than {found.stage} handled: each waited {waited} for others"


def _explain_no_cpu(found: _CauseFacts) -> str:
    text = f"{found.stage} waited {found.format_share(found.parts.no_cpu)} for a processor"
    rival = _find_rival(found)
    return f"{text}; {rival}" if rival else f"{text}; no long-lived process used much of the core"


def _explain_work(found: _CauseFacts) -> str:
    return f"{found.stage} worked {found.format_work() or found.format_share(found.parts.worked)}"


def _explain_stop(found: _CauseFacts) -> str:
    return f"{found.stage} was stopped for {found.format_share(found.parts.stopped)}"


def _explain_sleep(found: _CauseFacts) -> str:
    slept = found.format_work() or found.format_share(found.parts.asleep)
    return f"{found.stage} slept {slept}, for input or output, a lock, a timer or another thread"


def _explain_unknown(found: _CauseFacts) -> str:
    problem = "" if found.thread is None else found.evidence.problems.get(found.thread, "")
    return f"unknown: {problem or _NO_SAMPLES_REASON}"


_EXPLAIN_BY_PART = {
    "sender": _explain_sender,
    "queue": _explain_queue,
    "no_cpu": _explain_no_cpu,
    "worked": _explain_work,
    "stopped": _explain_stop,
    "asleep": _explain_sleep,
    "unknown": _explain_unknown,
}


def _find_rival(found: _CauseFacts) -> str:
    """Return the thread that used most of the stage's processor meanwhile; "": none is known."""
    samples, own = found.evidence.samples, found.samples
    begin, end = found.span
    is_other = (samples["pid"] != own["pid"][0]) | (samples["thread_id"] != own["thread_id"][0])
    others = samples[is_other & (samples["begin_time"] < end) & (samples["publish_time"] > begin)]
    processors = own["processor"][own["processor"] != UNKNOWN_PROCESSOR]
    if len(processors):
        others = others[others["processor"] == np.bincount(processors).argmax()]
    if not len(others):
        return ""
    keys, place = np.unique(others[["pid", "thread_id"]], return_inverse=True)
    length = others["publish_time"] - others["begin_time"]
    overlap = np.minimum(others["publish_time"], end) - np.maximum(others["begin_time"], begin)
    ran_ns = np.bincount(place, others["ran_ns"] * (overlap / np.maximum(length, 1)), len(keys))
    share = float(ran_ns.max()) / max(1, end - begin)
    if share < _CORE_SHARE_MIN:
        return ""
    first = others[place == int(ran_ns.argmax())][0]
    process, thread = str(first["process"]), str(first["thread"])
    is_named = thread not in ("", *_UNNAMED_THREADS, process)
    rival = f"{process}'s {thread}" if is_named else f"{process} {int(first['pid'])}"
    return f"{rival} used {min(1.0, share):.0%} of the core"
