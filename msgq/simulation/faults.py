"""Faults of a bus: scheduled or random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError
from msgq.kinds import kind_of
from msgq.kinds.simulation import FAULT_KINDS, FaultKind
from msgq.simulation.choices import SplitMixRandom

#: drop: it never arrives, and the subscriber counts it as lost. delay: it arrives later, and what follows it on its
#: topic after it. duplicate: it arrives twice. reorder: all that can happen at its time on other topics comes before
#: it. lap: it and all that the subscriber has not read are overwritten. restart: the node that sent it ends after it,
#: without notice, and starts from the beginning; what it sent still arrives. Of a work queue's messages there are
#: delay and reorder, and restart of the node that takes it: what it has taken and not acknowledged comes back. Of a
#: write to a vector or board there are drop, delay and reorder (its writer was killed, or held up, in the middle), and
#: restart of the node that writes.
FaultName = FaultKind
FAULT_NAMES = FAULT_KINDS


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one message, for all its subscribers.

    Attributes:
        kind: "drop", "delay", "duplicate", "reorder", "lap" (conflating subscribers are never lapped), or "restart" (of
            the sending node, which must be a generator or blocking code).
        endpoint: name of a topic, or of another endpoint with the prefix "channel/", "queue/" or "records/".
        message: number of the message on the endpoint, from 1. Give `message` or `at`.
        at: seconds of virtual time. The fault meets the first message that is sent at this time or later. For "restart"
            with a queue: the first message that is taken.
        delay: seconds, for "delay" only.

    Raises:
        InvalidValueError: the kind is unknown, `message` and `at` are both given or both missing, "delay" lacks
            `delay`, or the fault is impossible: a work queue's message cannot be dropped, duplicated or lapped; a write
            of records cannot be duplicated or lapped.
    """

    kind: FaultName
    endpoint: str
    message: int | None = None
    at: float | None = None
    delay: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in FAULT_NAMES:
            raise InvalidValueError(
                f"fault kind {self.kind!r} is unknown; use one of {', '.join(FAULT_NAMES)}", self.endpoint
            )
        kind = kind_of(self.endpoint)
        if self.kind not in (possible := kind.simulation.fault_kinds):
            text = f"fault kind {self.kind!r} does not apply to {kind.plural_name}; use one of {', '.join(possible)}"
            raise InvalidValueError(text, self.endpoint)
        if (self.message is None) == (self.at is None):
            raise InvalidValueError(
                "fault needs either message= (number of a message, from 1) or at= (seconds), but not both",
                self.endpoint,
            )
        if (self.kind == "delay") != (self.delay > 0):
            raise InvalidValueError(
                f"delay={self.delay} s does not fit fault kind {self.kind!r}; "
                "give delay > 0 for the kind 'delay', and no delay for other kinds",
                self.endpoint,
            )


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities of random faults, for each message and subscriber (of a restart: for each message).

    Attributes:
        drop: probability that a message is dropped, 0 to 1. Messages of work queues are not dropped.
        delay: probability that a message is delayed, 0 to 1.
        duplicate: probability that a message is duplicated, 0 to 1. Messages of work queues and writes of records are
            not duplicated.
        reorder: probability that messages are reordered, 0 to 1.
        lap: probability that a reader is lapped, 0 to 1. Work queues and records are not lapped.
        restart: probability that a node is restarted, 0 to 1. Functions and recordings are never restarted.
        delay_max: seconds. Delays are above 0 and at most `delay_max`, uniformly distributed.

    Raises:
        InvalidValueError: a probability is outside 0 to 1, or `delay_max` is not positive.
    """

    drop: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    lap: float = 0.0
    restart: float = 0.0
    delay_max: float = 0.01

    def __post_init__(self) -> None:
        for kind in FAULT_NAMES:
            if not 0 <= getattr(self, kind) <= 1:
                raise InvalidValueError(f"{kind}={getattr(self, kind)} is not a probability; use 0 to 1")
        if not self.delay_max > 0:
            raise InvalidValueError(f"delay_max={self.delay_max} s is too small; use more than 0 s")


class FaultInjector:
    """Decides the faults of each message."""

    def __init__(self, faults: Faults, fault_schedule: Sequence[Fault], seed: int) -> None:
        # Apart from the order of events, so that a fault more or less does not shuffle everything else.
        self._random_numbers = SplitMixRandom(SplitMixRandom(seed).next_uint64() ^ 0x6661756C7473)
        self._fault_schedule = list(fault_schedule)
        self._fault_probabilities = [(kind, getattr(faults, kind)) for kind in FAULT_NAMES if getattr(faults, kind) > 0]
        self._delay_max_ns = round(faults.delay_max * NS_PER_S)

    @property
    def has_faults(self) -> bool:
        """False: no message has a fault from now on."""
        return bool(self._fault_schedule or self._fault_probabilities)

    def find_scheduled_faults(
        self, endpoint: str, number: int, now_ns: int, kinds: tuple[FaultName, ...] = FAULT_NAMES
    ) -> dict[FaultName, int]:
        """Return the scheduled faults of a message, with the delay of each in nanoseconds."""
        if not self._fault_schedule:
            return {}
        due = [
            fault
            for fault in self._fault_schedule
            if fault.endpoint == endpoint
            and fault.kind in kinds
            and (fault.message == number if fault.at is None else fault.at * NS_PER_S <= now_ns)
        ]
        self._fault_schedule = [fault for fault in self._fault_schedule if fault not in due]
        return {fault.kind: round(fault.delay * NS_PER_S) for fault in due}

    def choose_random_faults(self, *, restart: bool) -> dict[FaultName, int]:
        """Return the random faults of a message, with their delays: a restart, or any of the others."""
        delays: dict[FaultName, int] = {}
        for kind, probability in self._fault_probabilities:
            if (kind == "restart") == restart and self._random_numbers.draw_with_probability(probability):
                delays[kind] = (
                    1 + self._random_numbers.choose_number_below(self._delay_max_ns) if kind == "delay" else 0
                )
        return delays
